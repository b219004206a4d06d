//! Commits of lanes that wait for a flush: the newest of each lane, with whoever waits for it.
//!
//! They ride along with the messages of their partition's appender and cost no commit of their own while there are any.
//! Alone they wait a few milliseconds for company, unless somebody waits for them. Idempotent under the fence, so they are
//! sent again until the database has said yes or no.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::ids::{GroupId, PartitionId};
use crate::limits::{COMMIT_RETRY_PAUSE, FLUSH_LANES_MAX};
use crate::store::flush::{LaneCommits, LaneReport, Outcome};
use crate::store::lanes::{Commit, Fence};

/// Whether somebody waits for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// A client has asked to be told.
    Now,
    /// It may wait for company.
    Later,
}

/// Why a commit was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The lane has another holder or epoch.
    #[error("the lease of the lane is lost")]
    LeaseLost,
    /// More is waiting than the broker holds.
    #[error("the broker holds as much unwritten work as it may")]
    Overloaded,
    /// The broker stops, and the database is not there.
    #[error("the broker is stopping")]
    Stopping,
}

/// How long a commit waits for company.
const LINGER: Duration = Duration::from_millis(5);

/// A commit that waits.
#[derive(Debug)]
pub(super) struct PendingCommit {
    pub fence: Fence,
    pub commit: Commit,
    due_at: Instant,
    reply: oneshot::Sender<Result<(), CommitError>>,
}

impl PendingCommit {
    pub fn new(
        fence: Fence,
        commit: Commit,
        urgency: Urgency,
        reply: oneshot::Sender<Result<(), CommitError>>,
    ) -> Self {
        let due_at = match urgency {
            Urgency::Now => Instant::now(),
            Urgency::Later => Instant::now() + LINGER,
        };
        Self { fence, commit, due_at, reply }
    }

    fn answer(self, result: Result<(), CommitError>) {
        let _nobody_waits = self.reply.send(result);
    }
}

/// All that wait in one appender task.
#[derive(Debug, Default)]
pub(super) struct Commits {
    waiting: HashMap<(GroupId, PartitionId), PendingCommit>,
}

impl Commits {
    /// Adds one. A lane has one at a time; one of an older epoch has lost its lease.
    pub fn push(&mut self, pending: PendingCommit) {
        let lane = (pending.fence.group_id, pending.fence.partition_id);
        if self.waiting.get(&lane).is_some_and(|other| other.fence.epoch > pending.fence.epoch) {
            return pending.answer(Err(CommitError::LeaseLost));
        }
        if let Some(older) = self.waiting.insert(lane, pending) {
            older.answer(Err(CommitError::LeaseLost));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When the first of them wants a flush even without company.
    pub fn due_at(&self) -> Option<Instant> {
        self.waiting.values().map(|pending| pending.due_at).min()
    }

    /// As many as fit into a flush.
    pub fn take(&mut self) -> Vec<PendingCommit> {
        if self.waiting.len() <= FLUSH_LANES_MAX {
            return self.waiting.drain().map(|(_, pending)| pending).collect();
        }
        let lanes: Vec<_> = self.waiting.keys().take(FLUSH_LANES_MAX).copied().collect();
        lanes.iter().filter_map(|lane| self.waiting.remove(lane)).collect()
    }

    /// Answers those that a flush has decided about, and keeps the others for the next one.
    pub fn settle(&mut self, taken: Vec<PendingCommit>, outcome: &Outcome) {
        let mut decided: Vec<Option<Result<(), CommitError>>> = taken.iter().map(|_| None).collect();
        if let Outcome::Committed(reports) = outcome {
            for report in &reports.lanes {
                match *report {
                    LaneReport::Stored { place } => decided[place] = Some(Ok(())),
                    LaneReport::LeaseLost { place } => decided[place] = Some(Err(CommitError::LeaseLost)),
                }
            }
        }
        for (mut pending, decided) in taken.into_iter().zip(decided) {
            match decided {
                Some(result) => pending.answer(result),
                None => {
                    pending.due_at = Instant::now() + COMMIT_RETRY_PAUSE;
                    self.push(pending);
                }
            }
        }
    }

    /// Gives all of them up: the broker stops and there is no database.
    pub fn abandon(&mut self) {
        for (_, pending) in self.waiting.drain() {
            pending.answer(Err(CommitError::Stopping));
        }
    }
}

/// The columns of a flush that is sent now.
pub(super) fn columns(taken: &[PendingCommit]) -> LaneCommits {
    let (mut columns, now) = (LaneCommits::default(), Instant::now());
    taken.iter().for_each(|pending| columns.add(&pending.fence, &pending.commit, now));
    columns
}
