//! What follows from a failure, as a settlement: another try, a dead letter, a parked key, or nothing more.
//!
//! A message that is delivered from its parked copy has its attempts there, and leaves the tables from there.

use std::time::{Duration, Instant};

use super::effects::{GiveUp, How};
use super::held::Held;
use super::lane::keys::{Key, Stop};
use super::lane::{Failure, Gate};
use super::verdict::Verdict;
use crate::ids::Offset;
use crate::limits::PARKED_KEYS_MAX;
use crate::store::groups::GroupSettings;
use crate::store::lanes::{Charge, Settlement};
use crate::store::parked::{ChargeCopy, Parking};
use crate::store::times::FailedAttempt;

/// A message has failed, and this follows.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    pub offset: Offset,
    pub attempts: u32,
    pub reason: String,
    pub delay: Duration,
    pub verdict: Verdict,
}

impl Held {
    /// What follows from a failure; a key that cannot be parked, because too many are, is blocked.
    pub(super) fn verdict(&self, offset: Offset, attempts: u32, settings: &GroupSettings) -> Verdict {
        let is_full = self.lane.keys().is_some_and(|keys| {
            let is_parked = keys.entry(offset).is_some_and(|entry| keys.parked(&entry.key).is_some());
            keys.parked_keys() >= PARKED_KEYS_MAX && !is_parked
        });
        match Verdict::of(attempts, settings) {
            Verdict::Park if is_full => Verdict::Block,
            verdict => verdict,
        }
    }

    /// Whether a verdict is another one because too many keys are parked.
    pub(super) fn is_full_of_parked(
        &self,
        verdict: Verdict,
        settings: &GroupSettings,
        attempts: u32,
    ) -> bool {
        verdict == Verdict::Block && Verdict::of(attempts, settings) == Verdict::Park
    }

    /// What is to be written down, and which message with it.
    pub(super) fn failed(&mut self, failed: Failed) -> (Settlement, Option<GiveUp>) {
        let Failed { offset, attempts, reason, delay, verdict } = failed;
        let is_copy = self.lane.keys().is_some_and(|keys| keys.copy_attempts(offset).is_some());
        let mut settlement = Settlement {
            failure: Some(self.attempt(offset, attempts, &reason, verdict)),
            ..Settlement::default()
        };
        let mut parking = Parking::default();
        let mut give_up = None;
        match verdict {
            Verdict::Retry | Verdict::Block if is_copy => {
                parking.charge = Some(ChargeCopy { offset, attempts, reason, delay });
            }
            Verdict::Retry | Verdict::Block => {
                settlement.charge = Some(Charge { offset, attempts, reason, delay });
            }
            Verdict::DeadLetter => give_up = Some(self.give_up(offset, attempts, reason, How::DeadLetter)),
            Verdict::Skip => {}
            Verdict::Park => {
                let how = How::Park { parked_offset: self.parked_offset(offset), key: self.key_of(offset) };
                give_up = Some(self.give_up(offset, attempts, reason, how));
            }
        }
        if is_copy && matches!(verdict, Verdict::DeadLetter | Verdict::Skip) {
            parking.done.push(offset);
        }
        settlement.commit = Some(match verdict {
            Verdict::Retry | Verdict::Block => self.lane.next_commit(), // so that attempts of what is done go with it
            Verdict::DeadLetter | Verdict::Skip | Verdict::Park => self.lane.commit_without(offset),
        });
        settlement.parking = (parking != Parking::default()).then(|| Box::new(parking));
        (settlement, give_up)
    }

    fn key_of(&self, offset: Offset) -> Option<bytes::Bytes> {
        match &self.lane.keys()?.entry(offset)?.key {
            Key::Named(key) => Some(key.clone()),
            Key::Own(_) => None,
        }
    }

    /// A failure is written down: the lane waits, or only the key.
    pub(super) fn on_charged(&mut self, offset: Offset, failure: Failure, blocks: bool) {
        let retry_at = failure.retry_at;
        match (self.keyed.is_some(), blocks) {
            (false, true) => self.lane.on_charged(offset, failure, Gate::Blocked),
            (false, false) => self.lane.on_charged(offset, failure, Gate::Until(retry_at)),
            (true, true) => self.lane.on_key_charged(offset, failure, Stop::Blocked),
            (true, false) => self.lane.on_key_charged(offset, failure, Stop::Until(retry_at)),
        }
    }

    /// What is written down of a failure for the trace.
    fn attempt(&self, offset: Offset, attempt: u32, reason: &str, verdict: Verdict) -> FailedAttempt {
        FailedAttempt {
            offset,
            attempt,
            outcome: verdict.outcome(),
            reason: reason.to_owned(),
            delivered_at: self.lane.times.delivered_at(offset),
            failed_at: Instant::now(),
        }
    }
}
