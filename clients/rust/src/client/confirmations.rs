//! Acks whose answer somebody waits for: which frame asked for which, and what is tried again.
//!
//! An ack is idempotent, so that one whose answer was lost, or that may be tried again, is sent once more for as long as
//! its lane is held. Owned by the readers.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::delivery::Confirm;
use super::error::Error;
use crate::error_code::Class;
use crate::wire::{Ack, ClientFrame, ErrorFrame};

/// Pause before an ack is sent again, if the broker does not name one.
const AGAIN_PAUSE: Duration = Duration::from_millis(200);

/// An ack that wants an answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub reader: u64,
    pub ack: Ack,
    pub waiting: Vec<Confirm>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    asked: HashMap<u64, Asked>,
    /// To be sent again, not before the moment.
    again: Vec<(Instant, Asked)>,
}

impl Confirmations {
    /// Whether nobody waits for an answer.
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.again.is_empty()
    }

    pub fn ask(&mut self, mut asked: Asked, next_id: &mut u64, out: &mut VecDeque<ClientFrame>) {
        *next_id += 1;
        asked.ack.id = Some(*next_id);
        out.push_back(ClientFrame::Ack(asked.ack.clone()));
        self.asked.insert(*next_id, asked);
    }

    /// It is durable. Returns what was asked, with those who waited told.
    pub fn on_acked(&mut self, id: u64) -> Option<Asked> {
        let mut asked = self.asked.remove(&id)?;
        for confirm in asked.waiting.drain(..) {
            confirm.send(Ok(())).ok(); // nobody may be waiting any more
        }
        Some(asked)
    }

    /// It was refused, or may be tried again. `None`: the error is about something else. `Some(None)`: it is tried again.
    pub fn on_error(&mut self, error: &ErrorFrame, now: Instant) -> Option<Option<Asked>> {
        let mut asked = self.asked.remove(&error.id?)?;
        match error.class {
            Class::Retry | Class::Unknown => {
                let pause = error.retry_after_ms.map_or(AGAIN_PAUSE, Duration::from_millis);
                self.again.push((now + pause, asked));
                Some(None)
            }
            Class::Refused | Class::Fatal => {
                let lost = is_lost(error);
                for confirm in asked.waiting.drain(..) {
                    confirm.send(Err(if lost { Error::LaneLost } else { error.into() })).ok(); // as above
                }
                Some(Some(asked))
            }
        }
    }

    /// Nothing that was asked is answered any more: all of it, to be asked again or refused.
    pub fn take_all(&mut self) -> Vec<Asked> {
        let asked = self.asked.drain().map(|(_, asked)| asked);
        asked.chain(self.again.drain(..).map(|(_, asked)| asked)).collect()
    }

    /// What is due to be sent again.
    pub fn take_due(&mut self, now: Instant) -> Vec<Asked> {
        self.again.extract_if(.., |(at, _)| *at <= now).map(|(_, asked)| asked).collect()
    }

    /// When something is due to be sent again.
    pub fn wake_at(&self) -> Option<Instant> {
        self.again.iter().map(|(at, _)| *at).min()
    }
}

fn is_lost(error: &ErrorFrame) -> bool {
    use crate::error_code::ErrorCode::{BeyondSent, LeaseLost, StaleRound};
    matches!(error.code, LeaseLost | StaleRound | BeyondSent)
}
