//! The loop of the one connection that writes steps: accumulate, flush, settle.
//!
//! Lives from start until the last handle is dropped, and then writes what it still holds. It alone owns its connection and
//! what waits. Invariant: every step admitted is answered exactly once, and its groups are told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::Rng as _;
use tokio::sync::mpsc;

use super::StepError;
use super::pending::Pending;
use super::plan::{Plan, Wrote};
use super::tables::Tables;
use crate::broker::announce::Announcer;
use crate::broker::appender::coverage::{self, Coverage};
use crate::broker::metrics::Metrics;
use crate::broker::schedules::After;
use crate::broker::thinning::Thinning;
use crate::ids::{DataKeyId, PartitionId};
use crate::limits::{APPEND_PATIENCE, STEPS_PER_FLUSH_MAX};
use crate::store::steps::Outcome;
use crate::store::timeline::Era;
use crate::store::{Connection, Error, Role, Store};

/// Answers about tables under way; more only wait.
const EVENTS_MAX: usize = 64;
/// Pauses between tries to connect.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(20);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pause before what has lost a race goes again, at most.
const CONTENDED_PAUSE_MS: u64 = 10;
/// How long a flush waits for steps that are on their way.
const LINGER: Duration = Duration::from_millis(1);
/// From so many steps in a flush on, the next one waits for half as many: their clients have just been answered.
const STEPS_IN_STEP_MIN: usize = 8;
/// A unique violation: another broker has done one of the steps at the same moment.
const UNIQUE_VIOLATION: &str = "23505";

/// Tables were made, or not; `None`: the partition is gone.
type Covered = (PartitionId, Result<Option<Coverage>, Error>);

/// Where steps come in.
pub(super) struct Inbox {
    pub requests: mpsc::Receiver<Pending>,
    /// Steps whose groups are being asked.
    pub coming: Arc<AtomicUsize>,
}

struct Task {
    store: Store,
    connection: Option<Connection>,
    /// Not before this moment, because the last try to connect has failed.
    retry_at: Instant,
    pause: Duration,
    waiting: VecDeque<Pending>,
    /// Steps that the next flush should have: about as many as the last one.
    expected: usize,
    tables: Tables,
    events: mpsc::Sender<Covered>,
    /// Answers about tables still to come.
    awaited: usize,
    announcer: Announcer,
    thinning: Thinning,
    metrics: Arc<Metrics>,
    /// Who is told of messages that wait.
    after: After,
}

/// Runs until the last handle is gone. Cancel safety: none. Spawned once and polled to completion.
pub(super) async fn run(
    store: Store,
    mut inbox: Inbox,
    announcer: Announcer,
    (after, thinning): (After, Thinning),
) {
    let (events, mut covered) = mpsc::channel(EVENTS_MAX);
    let mut task = Task {
        store,
        connection: None,
        retry_at: Instant::now(),
        pause: RECONNECT_PAUSE_MIN,
        waiting: VecDeque::new(),
        expected: 0,
        tables: Tables::default(),
        events,
        awaited: 0,
        announcer,
        thinning,
        metrics: after.metrics.clone(),
        after,
    };
    let mut open = true;
    while open || !task.waiting.is_empty() || task.awaited > 0 {
        let retry_at = task.retry_at;
        tokio::select! {
            biased; // settle what we hold before taking more
            Some(event) = covered.recv() => task.on_covered(event),
            pending = inbox.requests.recv(), if open => match pending {
                Some(pending) => task.admit(pending),
                None => open = false, // no handles left: nobody new can be waiting
            },
            () = tokio::time::sleep_until(retry_at.into()), if task.waits_for_moment() => {}
        }
        loop {
            while let Ok(event) = covered.try_recv() {
                task.on_covered(event);
            }
            task.gather(&mut inbox).await;
            if !task.work().await {
                break;
            }
        }
    }
    tracing::debug!("steps ended");
}

impl Task {
    /// A step that waits already is answered once, to all who ask.
    fn admit(&mut self, pending: Pending) {
        let same = |other: &&mut Pending| other.step.step_id == pending.step.step_id;
        match self.waiting.iter_mut().find(same) {
            Some(other) => other.join(pending),
            None => self.waiting.push_back(pending),
        }
    }

    /// Takes everything that has come, and waits a moment for what is on its way: what comes together is written together, and a
    /// step that is alone waits for nobody. Where many were written together, their clients come again together, too.
    async fn gather(&mut self, inbox: &mut Inbox) {
        let until = tokio::time::Instant::now() + LINGER;
        loop {
            let before = self.waiting.len();
            while let Ok(pending) = inbox.requests.try_recv() {
                self.admit(pending);
            }
            let late = tokio::time::Instant::now() >= until || self.waiting.len() >= STEPS_PER_FLUSH_MAX;
            if late || before == 0 && self.waiting.is_empty() {
                break;
            }
            if self.waiting.len() != before {
                tokio::task::yield_now().await;
                continue;
            }
            if self.is_enough(inbox.coming.load(Ordering::Relaxed)) {
                break;
            }
            match tokio::time::timeout_at(until, inbox.requests.recv()).await {
                Ok(Some(pending)) => self.admit(pending),
                Ok(None) | Err(_) => break,
            }
        }
    }

    /// Whether a flush need not wait for more. Among many there is always one that is on its way: as many as expected are enough.
    fn is_enough(&self, coming: usize) -> bool {
        self.waiting.len() >= self.expected && (self.expected > 0 || coming == 0)
    }

    /// Whether something waits that only a moment can help; what waits for tables is helped by an event.
    fn waits_for_moment(&self) -> bool {
        !self.waiting.is_empty() && (self.connection.is_none() || self.retry_at > Instant::now())
    }

    /// One flush, if there is anything that can be flushed now. Returns whether there may be more to do.
    async fn work(&mut self) -> bool {
        self.give_up_on_the_impatient();
        if self.waiting.is_empty() || self.retry_at > Instant::now() || !self.connect().await {
            return false;
        }
        let plan = Plan::take(&mut self.waiting, &mut self.tables);
        self.ask_for_tables();
        if plan.is_empty() {
            return false;
        }
        self.expected = if plan.steps.len() >= STEPS_IN_STEP_MIN { plan.steps.len() / 2 } else { 0 };
        let mut stack = vec![plan];
        while let Some(plan) = stack.pop() {
            let (outcome, era) = self.flush(&plan).await;
            if let Outcome::NothingHappened(Error::KeyClosed) = outcome {
                self.on_key_closed(plan).await;
                continue;
            }
            if let Some((front, back)) = self.on_outcome(plan, outcome, era) {
                stack.push(back);
                stack.push(front);
            }
        }
        true
    }

    /// Sends one flush. Returns in which era, too.
    async fn flush(&self, plan: &Plan) -> (Outcome, Era) {
        let Some(connection) = &self.connection else {
            let error = Error::Unavailable { reason: "not connected".into() };
            return (Outcome::NothingHappened(error), self.store.timelines().era());
        };
        let (steps, flush, schedules) = plan.columns();
        (connection.flush_steps(&steps, &flush, &schedules).await, connection.era())
    }

    async fn connect(&mut self) -> bool {
        if self.connection.as_ref().is_some_and(Connection::is_usable) {
            return true;
        }
        match self.store.dedicated(Role::Appender).await {
            Ok(connection) => {
                (self.connection, self.pause) = (Some(connection), RECONNECT_PAUSE_MIN);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "steps wait for a connection");
                self.connection = None;
                self.pause = (self.pause * 2).min(RECONNECT_PAUSE_MAX);
                self.retry_at = Instant::now() + self.pause.mul_f64(rand::rng().random_range(0.5..1.0));
                self.fail_undoubted(&error.to_string());
                false
            }
        }
    }

    /// Without a connection, what was never sent is answered at once: nothing happened.
    fn fail_undoubted(&mut self, reason: &str) {
        let (doubtful, sure) =
            std::mem::take(&mut self.waiting).into_iter().partition(|pending| pending.doubt.is_some());
        self.waiting = doubtful;
        let sure: VecDeque<Pending> = sure;
        for pending in sure {
            pending.fail(StepError::Unavailable { reason: reason.to_owned() });
        }
    }

    fn give_up_on_the_impatient(&mut self) {
        let late = |pending: &Pending| pending.since.elapsed() > APPEND_PATIENCE;
        let (late, patient): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(late);
        self.waiting = patient;
        for pending in late {
            pending
                .give_up(StepError::Unavailable { reason: "the database did not come back in time".into() });
        }
    }

    fn ask_for_tables(&mut self) {
        for (partition_id, messages) in self.tables.take_wanted() {
            self.awaited += 1;
            let (store, events) = (self.store.clone(), self.events.clone());
            tokio::spawn(async move {
                let answer = coverage::extend(&store, partition_id, messages).await;
                let _loop_is_gone = events.send((partition_id, answer)).await;
            });
        }
    }

    fn on_covered(&mut self, (partition_id, answer): Covered) {
        self.awaited -= 1;
        let failure = match answer {
            Ok(Some(coverage)) => return self.tables.covered(partition_id, Some(coverage)),
            Ok(None) => StepError::UnknownPartition,
            Err(error) => StepError::Unavailable { reason: error.to_string() },
        };
        self.tables.covered(partition_id, None);
        let concerned =
            |pending: &Pending| pending.step.units.iter().any(|unit| unit.partition_id == partition_id);
        let (concerned, others): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(concerned);
        self.waiting = others;
        concerned.into_iter().for_each(|pending| pending.give_up(failure.clone()));
    }

    /// Settles a flush; returns two halves if the data of some step has to be found out.
    fn on_outcome(&mut self, plan: Plan, outcome: Outcome, era: Era) -> Option<(Plan, Plan)> {
        match outcome {
            Outcome::Committed { stored, scheduled } => {
                self.metrics.steps.inc_by(plan.steps.len() as u64);
                self.metrics.step_flushes.inc();
                let announcer = self.announcer.clone();
                plan.scheduled(&scheduled).for_each(|wrote| self.after.on_scheduled(&wrote));
                for Wrote { partition_id, next_offset, messages } in
                    plan.settle(&stored, &scheduled, |partition_id| announcer.is_followed(partition_id))
                {
                    self.announcer.on_flushed(partition_id, messages, era);
                    self.thinning.on_wrote(partition_id);
                    self.tables.wrote(partition_id, next_offset);
                }
                self.ask_for_tables();
            }
            Outcome::Obstructed(obstacles) => {
                let others = plan.without(obstacles);
                self.put_back(others);
            }
            Outcome::NothingHappened(error) => return self.on_nothing_happened(plan, error),
            Outcome::Unknown(error) => self.on_unknown(plan, &error),
        }
        None
    }

    fn on_nothing_happened(&mut self, plan: Plan, error: Error) -> Option<(Plan, Plan)> {
        match error {
            Error::Contended { .. } => self.again_in_a_moment(plan.steps),
            Error::Refused { ref sqlstate, .. } if sqlstate == UNIQUE_VIOLATION => {
                self.again_in_a_moment(plan.steps);
            }
            Error::Refused { .. } if plan.steps.len() > 1 => return Some(plan.halve()),
            Error::Refused { sqlstate, message } => {
                let error = StepError::Refused { sqlstate, message };
                plan.steps.into_iter().for_each(|pending| pending.give_up(error.clone()));
            }
            Error::NoSegment { relation } => {
                tracing::debug!(relation, "a table is missing");
                self.connection = None; // a session may have missed a table that was attached meanwhile
                let units = plan.steps.iter().flat_map(|pending| &pending.step.units);
                let partitions: Vec<PartitionId> = units.map(|unit| unit.partition_id).collect();
                self.tables.disproved(partitions.into_iter());
                self.put_back(plan.steps);
            }
            Error::Unavailable { .. } | Error::ReadOnly | Error::Untrusted { .. } | Error::KeyClosed => {
                tracing::warn!(%error, "a flush of steps did not happen");
                self.connection = None;
                let reason = error.to_string();
                self.put_back(plan.steps);
                self.fail_undoubted(&reason);
            }
            Error::OutcomeUnknown { .. } => self.on_unknown(plan, &error),
            Error::KeyMissing(_)
            | Error::NotAuthentic { .. }
            | Error::TableGone { .. }
            | Error::Forbidden { .. }
            | Error::Unexpected { .. } => {
                tracing::error!(%error, "the database refuses a flush of steps");
                let error = StepError::Internal { reason: error.to_string() };
                plan.steps.into_iter().for_each(|pending| pending.give_up(error.clone()));
            }
        }
        None
    }

    /// A data key was closed, because this broker was taken for dead. What it has sealed is never written any more, and a step in
    /// doubt is to be sent again; the others go without them.
    async fn on_key_closed(&mut self, plan: Plan) {
        self.store.vault().distrust();
        let reason = Error::KeyClosed.to_string();
        let keys: Vec<DataKeyId> = plan.steps.iter().flat_map(Pending::data_keys).collect();
        let closed = match self.store.data_keys_closed(keys).await {
            Ok(closed) if !closed.is_empty() => closed,
            unknown => {
                tracing::debug!(?unknown, "which data key is closed is not known");
                self.again_in_a_moment(plan.steps);
                return self.fail_undoubted(&reason);
            }
        };
        let is_lost = |pending: &Pending| pending.data_keys().any(|id| closed.contains(&id));
        let (lost, others): (Vec<_>, Vec<_>) = plan.steps.into_iter().partition(is_lost);
        for pending in lost {
            pending.give_up(StepError::Unavailable { reason: reason.clone() });
        }
        self.put_back(others);
    }

    /// The commit may have happened: the steps tell by their ids.
    fn on_unknown(&mut self, plan: Plan, error: &Error) {
        tracing::warn!(%error, "a flush of steps ended in doubt");
        self.connection = None;
        let mut steps = plan.steps;
        steps.iter_mut().for_each(|pending| pending.doubt = Some(error.to_string()));
        self.put_back(steps);
    }

    fn again_in_a_moment(&mut self, steps: Vec<Pending>) {
        let pause = Duration::from_millis(rand::rng().random_range(1..CONTENDED_PAUSE_MS));
        self.retry_at = Instant::now() + pause;
        self.put_back(steps);
    }

    /// Puts steps back before what has come since, in their order.
    fn put_back(&mut self, steps: Vec<Pending>) {
        steps.into_iter().rev().for_each(|pending| self.waiting.push_front(pending));
    }
}
