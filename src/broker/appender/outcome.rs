//! What becomes of the units of a flush that was not committed, or may have been.
//!
//! Invariant: "nothing happened" is only said when it is certain. What is idempotent is sent again, the rest is admitted to
//! be unknown.

use std::time::{Duration, Instant};

use super::AppendError;
use super::memory::Forgotten;
use super::plan::{Plan, Taken};
use super::task::Task;
use super::unit::{Doubt, Pending};
use crate::ids::PartitionId;
use crate::limits::{APPEND_PATIENCE, FLUSH_MISSES_MAX};
use crate::store::{Error, segments};

/// Pause before what is in doubt is sent again after the database could not take it.
const DOUBT_PAUSE: Duration = Duration::from_millis(100);

impl Task {
    pub(super) fn on_nothing_happened(&mut self, plan: Plan, error: Error) -> Option<(Plan, Plan)> {
        match error {
            Error::Refused { .. } if self.memory.forget() == Forgotten::Something => {
                return Some((plan, Plan::default())); // what was remembered may be at fault: again, all looked up
            }
            Error::Refused { .. } if plan.units() > 1 => return Some(plan.halve()),
            Error::Refused { sqlstate, message } => {
                fail(plan, &AppendError::Refused { sqlstate, message });
            }
            Error::NoSegment { relation } => self.on_no_segment(plan, &relation),
            Error::ReadOnly => {
                self.drop_connection(); // another server may answer the next time
                self.on_unavailable(plan, error.to_string());
            }
            Error::Unavailable { .. }
            | Error::Contended { .. }
            | Error::Untrusted { .. }
            | Error::KeyClosed => {
                self.on_unavailable(plan, error.to_string());
            }
            Error::OutcomeUnknown { .. } => self.on_unknown(plan, &error),
            Error::KeyMissing(_)
            | Error::NotAuthentic { .. }
            | Error::TableGone { .. }
            | Error::Forbidden { .. }
            | Error::Unexpected { .. } => {
                tracing::error!(%error, "the database refuses a flush");
                fail(plan, &AppendError::Internal { reason: error.to_string() });
            }
        }
        None
    }

    /// The topic is encrypted since these were handed in: what is not sealed is refused, and comes again sealed.
    pub(super) fn on_unsealed(&mut self, Taken { partition_id, units }: Taken) {
        let (sealed, plain): (Vec<_>, Vec<_>) = units.into_iter().partition(Pending::is_sealed);
        for pending in plain {
            pending.fail(AppendError::Unsealed);
        }
        if !sealed.is_empty() {
            self.put_back(partition_id, sealed);
        }
    }

    /// A data key was closed, because this broker was taken for dead. What it has sealed is never written any more, and a unit in
    /// doubt stays in doubt; the others go again without them.
    pub(super) async fn on_key_closed(&mut self, plan: Plan) {
        self.store.vault().distrust();
        let reason = Error::KeyClosed.to_string();
        let units = plan.batches.iter().flat_map(|taken| &taken.units);
        let closed = match self.store.data_keys_closed(units.flat_map(Pending::data_keys)).await {
            Ok(closed) if closed.is_empty() => return self.on_unavailable(plan, reason),
            Ok(closed) => closed,
            Err(error) => return self.on_unavailable(plan, error.to_string()),
        };
        self.drop_unusable();
        for Taken { partition_id, units } in plan.batches {
            let is_lost = |pending: &Pending| pending.data_keys().any(|id| closed.contains(&id));
            let (lost, others): (Vec<_>, Vec<_>) = units.into_iter().partition(is_lost);
            for pending in lost {
                pending.fail(AppendError::Unavailable { reason: reason.clone() });
            }
            if !others.is_empty() {
                self.put_back(partition_id, others);
            }
        }
    }

    /// A table was missing, and the database has said which: that one is asked for, the other batches just go again.
    ///
    /// Why a new connection: a session that lists the partitions of a table at the moment when one is attached can miss it
    /// until the next schema change (PostgreSQL 15 does). The table is there, so asking for it changes nothing.
    fn on_no_segment(&mut self, plan: Plan, relation: &str) {
        tracing::debug!(relation, "a table is missing");
        self.drop_connection();
        for Taken { partition_id, units } in plan.batches {
            let misses = match segments::may_lack_table(partition_id, relation) {
                true => self.queues.disproved(partition_id),
                false => 0,
            };
            if misses <= FLUSH_MISSES_MAX {
                self.put_back(partition_id, units);
                continue;
            }
            let reason = format!("a table below {relation} is missing and cannot be made");
            units.into_iter().for_each(|pending| {
                pending.fail(AppendError::Unavailable { reason: reason.clone() });
            });
        }
    }

    /// Nothing happened this time; a unit in doubt from an earlier time goes on waiting.
    pub(super) fn on_unavailable(&mut self, plan: Plan, reason: String) {
        tracing::warn!(reason, "a flush did not happen");
        self.drop_unusable();
        let error = AppendError::Unavailable { reason };
        for Taken { partition_id, units } in plan.batches {
            let (sure, doubtful): (Vec<_>, Vec<_>) =
                units.into_iter().partition(|pending| pending.doubt == Doubt::None);
            sure.into_iter().for_each(|pending| pending.fail(error.clone()));
            if !doubtful.is_empty() {
                self.put_back_patient(partition_id, doubtful);
                self.queues.pause(partition_id, Instant::now() + DOUBT_PAUSE);
            }
        }
    }

    /// The commit may have happened: what is idempotent is sent again, the rest is admitted to be unknown.
    pub(super) fn on_unknown(&mut self, plan: Plan, error: &Error) {
        tracing::warn!(%error, "a flush ended in doubt");
        // Not asked whether it is usable: it may not know yet that it is dead, and what it is given next would be in doubt.
        self.drop_connection();
        let reason = error.to_string();
        for Taken { partition_id, mut units } in plan.batches {
            for pending in &mut units {
                pending.doubt = Doubt::MayBeWritten { reason: reason.clone() };
            }
            let (again, unknown): (Vec<_>, Vec<_>) = units.into_iter().partition(Pending::is_idempotent);
            for pending in unknown {
                pending.fail(AppendError::OutcomeUnknown { reason: reason.clone() });
            }
            self.put_back_patient(partition_id, again);
        }
    }

    fn put_back_patient(&mut self, partition_id: PartitionId, units: Vec<Pending>) {
        let (patient, late): (Vec<_>, Vec<_>) =
            units.into_iter().partition(|pending| pending.since.elapsed() < APPEND_PATIENCE);
        late.into_iter().for_each(|pending| {
            pending
                .fail(AppendError::Unavailable { reason: "the database did not come back in time".into() });
        });
        if !patient.is_empty() {
            self.put_back(partition_id, patient);
        }
    }
}

fn fail(plan: Plan, error: &AppendError) {
    plan.into_units().into_iter().for_each(|pending| pending.fail(error.clone()));
}
