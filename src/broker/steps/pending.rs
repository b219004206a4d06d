//! A step that waits for its flush, and what is known about it so far.

use std::collections::HashMap;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{Done, Step, StepAck, StepError, StepResult, UnderWay};
use crate::ids::{DataKeyId, Offset, PartitionId, StepId};
use crate::store::steps::{DoneStep, Placed};

/// A step's share of the room for what is not written yet; given back when the step is answered.
#[derive(Debug)]
pub(super) struct Share {
    pub _messages: OwnedSemaphorePermit,
    pub _bytes: OwnedSemaphorePermit,
    pub _under_way: UnderWay,
}

/// A step that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub step: Step,
    /// Messages that are stored already under their transaction id, by their place in the step.
    pub stored: HashMap<usize, Offset>,
    pub since: Instant,
    /// Why nobody knows whether an earlier try was committed, if that is so.
    pub doubt: Option<String>,
    replies: Vec<oneshot::Sender<StepResult>>,
    _share: Share,
}

impl Pending {
    pub fn new(step: Step, reply: oneshot::Sender<StepResult>, share: Share) -> Self {
        Self {
            step,
            stored: HashMap::new(),
            since: Instant::now(),
            doubt: None,
            replies: vec![reply],
            _share: share,
        }
    }

    /// The same step once more, from a client that has come back: whoever waits gets the one answer.
    pub fn join(&mut self, other: Pending) {
        other.undo_acks(); // the one that waits has reserved what it acknowledges
        match other.step.digest == self.step.digest {
            true => self.replies.extend(other.replies),
            false => other.send(&Err(StepError::Mismatch)),
        }
    }

    /// Names in partitions that the next flush stores.
    pub fn names(&self) -> impl Iterator<Item = (PartitionId, &str)> {
        self.step.units.iter().flat_map(|unit| {
            let names = unit.messages.iter().filter_map(|message| message.transaction_id());
            names.map(|name| (unit.partition_id, name))
        })
    }

    /// What has sealed the messages that the next flush stores.
    pub fn data_keys(&self) -> impl Iterator<Item = DataKeyId> {
        self.step.units.iter().flat_map(|unit| {
            let messages = unit.indexes.iter().zip(&unit.messages);
            let new = messages.filter(|(index, _)| !self.stored.contains_key(*index));
            new.filter_map(|(_, message)| message.data_key_id().map(DataKeyId))
        })
    }

    /// All of it is done.
    pub fn done(self, placed: Vec<Placed>) {
        for StepAck { group, fence, ranges, .. } in &self.step.acks {
            group.step_done(*fence, self.step.step_id, ranges.clone());
        }
        self.send(&Ok(Done { repeated: false, placed }));
    }

    /// It was done before: by an earlier try of ours, whose acks then count, or by another.
    pub fn known(self, known: DoneStep) {
        if known.digest != self.step.digest {
            return self.fail(StepError::Mismatch);
        }
        for StepAck { group, fence, ranges, .. } in &self.step.acks {
            group.step_done(*fence, self.step.step_id, ranges.clone());
        }
        let repeated = self.doubt.is_none();
        self.send(&Ok(Done { repeated, placed: known.placed }));
    }

    /// The database has just said that it is not done and cannot be.
    pub fn fail(self, error: StepError) {
        self.undo_acks();
        self.send(&Err(error));
    }

    /// It was not done this time; after a doubtful try nobody knows.
    pub fn give_up(self, error: StepError) {
        let error = match &self.doubt {
            None => error,
            Some(reason) => StepError::OutcomeUnknown { reason: reason.clone() },
        };
        self.fail(error);
    }

    /// It never reached the task.
    pub fn undo(self) {
        self.undo_acks();
    }

    fn undo_acks(&self) {
        undo(self.step.step_id, &self.step.acks);
    }

    fn send(self, result: &StepResult) {
        for reply in self.replies {
            let _nobody_waits = reply.send(result.clone()); // the client may have gone; it asks again
        }
    }
}

/// Tells groups that what they have reserved is free again.
pub(super) fn undo(step_id: StepId, acks: &[StepAck]) {
    for StepAck { group, fence, .. } in acks {
        group.step_undone(*fence, step_id);
    }
}
