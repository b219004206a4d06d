//! A puller: pops messages over HTTP at one broker and settles them at another: it acknowledges them, at times only after it was given
//! more time, refuses one now and then, and is gone when it should sometimes, to come back too late.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use laneway_client::admin::AdminError;
use laneway_client::pull_api::{Pop, PopAck, PopExtend, PopNack, PopRequest, PopVerdict};
use laneway_client::{Admin, Class, ErrorCode};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::history::Event;
use super::later::admin_of;
use super::scene::Scene;
use super::settings::{LATER, PULLERS};

/// How long a pop waits for messages.
const WAIT_MS: u32 = 400;
/// How long a puller may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// After a try that has brought no answer.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Messages of a pop, at most.
const MESSAGES_MAX: u32 = 20;
/// One pop in so many is acknowledged too late, one gets more time, and one is refused in part.
const LATE_EVERY: u32 = 25;
const EXTEND_EVERY: u32 = 12;
const NACK_EVERY: u32 = 6;
/// For how long a lane holds after that, in milliseconds.
const HOLD_MS: std::ops::Range<u64> = 0..600;

/// Something that was seen of a lane that is pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pulled {
    /// A puller was given messages, until a moment.
    Popped { partition: u32, epoch: i64, offsets: Vec<i64>, at_us: i64, until_us: i64 },
    /// It is about to acknowledge all below an offset, or to refuse a message.
    Asked { partition: u32, epoch: i64 },
    /// An ack was confirmed.
    Acked { partition: u32, epoch: i64, end: i64 },
    /// A nack was confirmed: the message comes again, but not before a moment, or it was given up.
    Nacked { partition: u32, epoch: i64, offset: i64, not_before_us: i64, comes_again: Again },
    /// The pop has time until then.
    Extended { partition: u32, epoch: i64, until_us: i64 },
    /// The first ack of a pop was answered: it is over.
    Fenced { partition: u32, epoch: i64, at_us: i64 },
}

/// Whether a refused message is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    Yes,
    No,
}

/// What became of a request.
enum Told<T> {
    Answer(T),
    /// Refused for good.
    Refused(ErrorCode),
    /// The run is over.
    Stopped,
}

/// See the module.
pub(super) struct Puller {
    random: StdRng,
    scene: Arc<Scene>,
}

impl Puller {
    pub fn new(seed: u64, scene: Arc<Scene>) -> Self {
        Self { random: StdRng::seed_from_u64(seed), scene }
    }

    /// Pulls until it is stopped.
    pub async fn run(mut self) {
        let stop = self.scene.stop.clone();
        while !stop.is_cancelled() {
            match stop.run_until_cancelled(self.pop()).await {
                Some(Some(pop)) => self.work(&pop).await,
                Some(None) => tokio::time::sleep(RETRY_PAUSE).await,
                None => return,
            }
        }
    }

    fn broker(&mut self) -> SocketAddr {
        let brokers = &self.scene.brokers;
        brokers[self.random.random_range(0..brokers.len())]
    }

    fn note(&self, pulled: Pulled) {
        self.scene.recorder.note(Event::Pulled(pulled));
    }

    async fn pop(&mut self) -> Option<Pop> {
        let admin = admin_of(self.broker())?;
        let wish = PopRequest {
            max_messages: Some(self.random.random_range(1..=MESSAGES_MAX)),
            wait_ms: Some(WAIT_MS),
            ack_deadline_ms: Some(DEADLINE.as_millis() as u64),
            ..PopRequest::default()
        };
        let pop = tokio::time::timeout(PATIENCE, admin.pop(LATER, PULLERS, &wish)).await.ok()?.ok()??;
        let offsets = pop.messages.iter().map(|message| message.offset).collect();
        let (at_us, until_us) = (now_us(), moment_us(pop.expires_at.as_deref())?);
        self.note(Pulled::Popped { partition: pop.partition, epoch: pop.epoch, offsets, at_us, until_us });
        Some(pop)
    }

    async fn work(&mut self, pop: &Pop) {
        if self.random.random_ratio(1, LATE_EVERY) {
            tokio::time::sleep(DEADLINE + DEADLINE / 4).await; // somebody else has it by now
        } else if self.random.random_ratio(1, EXTEND_EVERY) {
            self.extend(pop).await;
        }
        match self.random.random_ratio(1, NACK_EVERY) {
            true => self.nack(pop).await,
            false => self.ack(pop, pop.end_offset).await,
        }
    }

    /// Asks until somebody knows, at any broker.
    async fn ask<T, F>(&mut self, request: impl Fn(Admin) -> F) -> (Told<T>, u32)
    where
        F: Future<Output = Result<T, AdminError>>,
    {
        for tries in 1.. {
            let answer = match admin_of(self.broker()) {
                Some(admin) => tokio::time::timeout(PATIENCE, request(admin)).await.ok(),
                None => None,
            };
            match answer {
                Some(Ok(answer)) => return (Told::Answer(answer), tries),
                Some(Err(AdminError::Refused(problem))) if problem.class == Class::Refused => {
                    return (Told::Refused(problem.code), tries);
                }
                Some(Err(_)) | None if self.scene.stop.is_cancelled() => return (Told::Stopped, tries),
                Some(Err(_)) | None => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
        (Told::Stopped, 0)
    }

    /// Works for longer than it has at first, and asks for the time.
    async fn extend(&mut self, pop: &Pop) {
        let (partition, epoch) = (pop.partition, pop.epoch);
        tokio::time::sleep(DEADLINE.mul_f64(0.6)).await;
        let ack_deadline_ms = Some(DEADLINE.as_millis() as u64);
        let wish = PopExtend { partition, epoch, ack_deadline_ms };
        let asked = self.ask(async |admin: Admin| admin.extend(LATER, PULLERS, &wish).await).await;
        if let (Told::Answer(extended), _) = asked
            && let Some(until_us) = moment_us(Some(&extended.expires_at))
        {
            self.note(Pulled::Extended { partition, epoch, until_us });
            tokio::time::sleep(DEADLINE.mul_f64(0.6)).await; // longer than it had at first
        }
    }

    async fn ack(&mut self, pop: &Pop, end: i64) {
        let (partition, epoch) = (pop.partition, pop.epoch);
        self.note(Pulled::Asked { partition, epoch });
        let ack = PopAck { next: Some(end), ..PopAck::all(pop) };
        let asked = self.ask(async |admin: Admin| admin.ack(LATER, PULLERS, &ack).await).await;
        match asked {
            (Told::Answer(_), _) => self.note(Pulled::Acked { partition, epoch, end }),
            (Told::Refused(ErrorCode::LeaseLost), 1) => {
                self.note(Pulled::Fenced { partition, epoch, at_us: now_us() });
            }
            (Told::Refused(_) | Told::Stopped, _) => {}
        }
    }

    /// Refuses one message, and acknowledges those before it.
    async fn nack(&mut self, pop: &Pop) {
        let (partition, epoch) = (pop.partition, pop.epoch);
        let Some(message) = pop.messages.get(self.random.random_range(0..pop.messages.len().max(1))) else {
            return;
        };
        let (offset, hold_ms) = (message.offset, self.random.random_range(HOLD_MS));
        self.note(Pulled::Asked { partition, epoch });
        let not_before_us = now_us() + 1_000 * hold_ms as i64;
        let delay_ms = Some(hold_ms);
        let nack = PopNack { partition, epoch, offset, delay_ms, ..PopNack::default() };
        let asked = self.ask(async |admin: Admin| admin.nack(LATER, PULLERS, &nack).await).await;
        let (Told::Answer(nacked), _) = asked else { return };
        let comes_again = match nacked.verdict {
            PopVerdict::Retry | PopVerdict::Block => Again::Yes,
            PopVerdict::DeadLetter | PopVerdict::Skip => Again::No,
        };
        self.note(Pulled::Nacked { partition, epoch, offset, not_before_us, comes_again });
        if nacked.remaining > 0 {
            self.ack(pop, offset).await;
        }
    }
}

fn now_us() -> i64 {
    Timestamp::now().as_microsecond()
}

fn moment_us(text: Option<&str>) -> Option<i64> {
    Some(text?.parse::<Timestamp>().ok()?.as_microsecond())
}
