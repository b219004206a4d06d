//! The steps of a client that have no answer: sent until a broker says what became of them, on whatever connection.
//!
//! A step is known by its id, so that sending it again is harmless, also to another broker and after its lane has moved. It
//! ends by itself: a message that is not done in time moves with its lane, and then no try can succeed any more.
//! Owned by the owner task. Knows nothing of sockets: it is asked for frames and told answers.
//! Invariant: a step that was sent is only given up on a broker's word, or when there is nobody left to ask.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use super::error::Error;
use super::options::backoff;
use super::readers::{Numbered, Readers};
use super::step::{Committed, NewStep};
use crate::error_code::{Class, ErrorCode};
use crate::wire::{ErrorFrame, Placed, Transact, Transacted};

/// First pause before a step is sent again.
const AGAIN_MIN: Duration = Duration::from_millis(50);
/// Longest pause before a step is sent again: a lane that has to be buried first takes seconds.
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// What an error means for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nobody knows yet, or not now: the same step once more.
    Again,
    /// It has not happened and never will: its messages come again.
    Lost,
    /// It has not happened: the user's turn.
    Refused,
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// To be sent, not before the moment.
    Due(Instant),
    UnderWay,
}

#[derive(Debug)]
struct Open {
    step: NewStep,
    standing: Standing,
    /// Answers that did not decide it.
    tries: u32,
    /// A broker may have it.
    was_sent: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// In the order in which they were asked for.
    open: BTreeMap<u64, Open>,
    next_key: u64,
    /// Frames without an answer, and their steps.
    under_way: HashMap<u64, u64>,
}

impl Steps {
    pub fn admit(&mut self, step: NewStep, now: Instant) {
        self.next_key += 1;
        let open = Open { step, standing: Standing::Due(now), tries: 0, was_sent: false };
        self.open.insert(self.next_key, open);
    }

    /// Steps without an answer.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// The next frame to send, if one may be sent now: at most `most` are under way.
    pub fn next_frame(
        &mut self,
        now: Instant,
        most: usize,
        readers: &Readers,
        next_id: &mut u64,
    ) -> Option<Transact> {
        while self.under_way.len() < most {
            let ready = |(key, open): (&u64, &Open)| Some((*key, open.names(now, readers)?));
            let (key, subscriptions) = self.open.iter().find_map(ready)?;
            let open = self.open.get_mut(&key)?;
            match subscriptions {
                Ok(subscriptions) => {
                    *next_id += 1;
                    self.under_way.insert(*next_id, key);
                    return Some(open.frame(*next_id, &subscriptions));
                }
                Err(error) => self.end_one(key, error),
            }
        }
        None
    }

    /// A step is done. False: nobody has asked for it.
    pub fn on_transacted(&mut self, done: Transacted) -> bool {
        let Some(Open { step, .. }) = self.under_way.remove(&done.id).and_then(|key| self.open.remove(&key))
        else {
            return false;
        };
        let NewStep { step_id, reservation, order, reply, .. } = step;
        reservation.done();
        let placed = order.iter().map(|(publish, place)| done.placed.get(*publish)?.get(*place).copied());
        let placed: Option<Vec<Placed>> = placed.collect();
        let fitting = placed.filter(|_| done.step_id == step_id);
        let result = fitting.map(|placed| Committed { repeated: done.repeated, placed }).ok_or_else(|| {
            let detail = "the broker says that a step is done, but its answer is about another one";
            Error::refused(ErrorCode::Internal, detail, None)
        });
        reply.send(result).ok(); // nobody may be waiting any more
        true
    }

    /// A step was refused, or is to be sent again. False: the error is about something else.
    pub fn on_error(&mut self, error: &ErrorFrame, now: Instant) -> bool {
        let Some(key) = error.id.and_then(|id| self.under_way.remove(&id)) else { return false };
        match fate(error) {
            Fate::Again => {
                if let Some(open) = self.open.get_mut(&key) {
                    let pause = backoff(open.tries, AGAIN_MIN, AGAIN_MAX, rand::random());
                    let asked = Duration::from_millis(error.retry_after_ms.unwrap_or(0));
                    open.tries = open.tries.saturating_add(1);
                    open.standing = Standing::Due(now + pause.max(asked));
                }
            }
            Fate::Lost => self.end_one(key, Error::LaneLost),
            Fate::Refused => self.on_refused(key, error),
        }
        true
    }

    fn on_refused(&mut self, key: u64, error: &ErrorFrame) {
        let Some(Open { step, .. }) = self.open.remove(&key) else { return };
        let NewStep { reservation, reply, .. } = step;
        // Why: what is done is not waited for. Of several messages nobody says which one is.
        match error.code == ErrorCode::AlreadyDone && reservation.is_single() {
            true => reservation.done(),
            false => drop(reservation),
        }
        reply.send(Err(error.into())).ok(); // nobody may be waiting any more
    }

    /// The connection is lost: what is under way is sent again on the next one.
    pub fn on_disconnected(&mut self, now: Instant) {
        for key in std::mem::take(&mut self.under_way).into_values() {
            if let Some(open) = self.open.get_mut(&key) {
                open.standing = Standing::Due(now);
            }
        }
    }

    /// When a step that pauses is to be sent.
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let later = self.open.values().filter_map(|open| match open.standing {
            Standing::Due(at) => Some(at).filter(|at| *at > now),
            Standing::UnderWay => None,
        });
        later.min()
    }

    /// Nothing will be tried any more.
    pub fn end(&mut self, error: &Error) {
        self.under_way.clear();
        for key in self.open.keys().copied().collect::<Vec<_>>() {
            let was_sent = self.open.get(&key).is_some_and(|open| open.was_sent);
            let error = if was_sent { Error::TimedOut { doubtful: true } } else { error.clone() };
            self.end_one(key, error);
        }
    }

    /// Gives a step up; what it has reserved is free again.
    fn end_one(&mut self, key: u64, error: Error) {
        let Some(Open { step, .. }) = self.open.remove(&key) else { return };
        let NewStep { reservation, reply, .. } = step;
        drop(reservation); // first, so that whoever is told finds it free
        reply.send(Err(error)).ok(); // nobody may be waiting any more
    }
}

impl Open {
    /// How its lanes are called if it may be sent now, or why it never will be. `None`: not now.
    fn names(&self, now: Instant, readers: &Readers) -> Option<Result<Vec<(u32, u32)>, Error>> {
        match self.standing {
            Standing::Due(at) if at <= now => {}
            Standing::Due(_) | Standing::UnderWay => return None,
        }
        if !self.was_sent && !self.step.reservation.is_held() {
            return Some(Err(Error::LaneLost)); // no broker has seen it
        }
        let mut names = Vec::new();
        for (reader, lane) in self.step.reservation.lanes() {
            match readers.numbered(reader, lane) {
                Numbered::As(name) => names.push(name),
                Numbered::NotYet => return None,
                Numbered::Never if self.was_sent => return Some(Err(Error::TimedOut { doubtful: true })),
                Numbered::Never => return Some(Err(Error::LaneLost)),
            }
        }
        Some(Ok(names))
    }

    fn frame(&mut self, id: u64, names: &[(u32, u32)]) -> Transact {
        (self.standing, self.was_sent) = (Standing::UnderWay, true);
        let NewStep { step_id, reservation, publishes, .. } = &self.step;
        let acks = reservation.acks(names);
        Transact { id, step_id: *step_id, acks, publishes: publishes.clone() }
    }
}

fn fate(error: &ErrorFrame) -> Fate {
    use ErrorCode::{BeyondSent, LeaseLost, StaleRound, UnknownSubscription};
    match (error.code, error.class) {
        // The broker has ended a subscription that it is asked for again, or is about to say so.
        (UnknownSubscription, _) | (_, Class::Retry | Class::Unknown | Class::Fatal) => Fate::Again,
        (LeaseLost | StaleRound | BeyondSent, Class::Refused) => Fate::Lost,
        (_, Class::Refused) => Fate::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_happened_is_sent_again_and_what_cannot_happen_is_not() {
        let fates = |wanted: Fate| -> Vec<&'static str> {
            let is_wanted = |code: &&ErrorCode| fate(&ErrorFrame::new(**code, "")) == wanted;
            ErrorCode::ALL.iter().filter(is_wanted).map(|code| code.as_str()).collect()
        };
        assert_eq!(fates(Fate::Lost), ["lease_lost", "stale_round", "beyond_sent"]);
        let again = fates(Fate::Again);
        for code in ["outcome_unknown", "internal", "unavailable", "overloaded", "too_many_publishes"] {
            assert!(again.contains(&code), "{code}");
        }
        assert!(again.contains(&"unknown_subscription") && again.contains(&"going_away"));
        let refused = fates(Fate::Refused);
        for code in ["already_done", "step_mismatch", "unknown_topic", "invalid_cause", "payload_too_large"] {
            assert!(refused.contains(&code), "{code}");
        }
        let all_refused = ErrorCode::ALL.iter().filter(|code| code.class() == Class::Refused).count();
        assert_eq!(refused.len() + 4, all_refused, "whatever else is refused is the user's turn");
    }
}
