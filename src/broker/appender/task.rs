//! The loop of one appender connection: accumulate, flush, settle.
//!
//! Lives from start until the last handle is dropped, and then writes what it still holds. It alone owns its connection
//! and its queues. While it waits for a commit, units pile up in the inbox; that is the batching.
//! Invariant: every unit admitted is answered exactly once, and "nothing happened" is only said when it is certain.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng as _;
use tokio::sync::mpsc;

use super::commits::Commits;
use super::company::Company;
use super::coverage::Coverage;
use super::errands::{flush_alone, flush_contended, look_up};
use super::gathering::Gathering;
use super::memory::Memory;
use super::plan::{Plan, Settlement, Taken, Wrote};
use super::queue::Queues;
use super::unit::{Doubt, Pending};
use super::{AppendError, Request, coverage};
use crate::broker::announce::Announcer;
use crate::broker::metrics::Metrics;
use crate::broker::thinning::Thinning;
use crate::ids::{Offset, PartitionId};
use crate::limits::{
    APPEND_PATIENCE, FLUSH_SKIP_PAUSE, FLUSH_SKIP_PAUSES_MAX, FLUSH_SKIPS_MAX, FLUSHES_ALONE_MAX,
};
use crate::store::flush::{LaneReport, LockMode, Outcome, Reports};
use crate::store::timeline::Era;
use crate::store::{Connection, Error, Role, Store};

/// Answers under way to one task; more only wait.
const EVENTS_MAX: usize = 256;
/// Pauses between tries to connect.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(20);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What reaches the loop from tasks that it started.
#[derive(Debug)]
pub(super) enum Event {
    /// Tables were made, or not; `None`: the partition is gone.
    Covered { partition_id: PartitionId, answer: Result<Option<Coverage>, Error> },
    /// A partition that was flushed alone is done.
    Alone { plan: Plan, outcome: Outcome, partition_id: PartitionId, era: Era },
}

/// Where such tasks report to.
#[derive(Debug, Clone)]
pub(super) struct Events(mpsc::Sender<Event>);

impl Events {
    pub async fn send(&self, event: Event) {
        // The loop outlives the tasks that it waits for; if it is gone, so are the producers.
        let _loop_is_gone = self.0.send(event).await;
    }
}

/// Where a flush goes on after its commit.
#[derive(Debug)]
pub(super) struct After {
    pub thinning: Thinning,
    pub announcer: Announcer,
    pub metrics: Arc<Metrics>,
}

pub(super) struct Task {
    pub(super) store: Store,
    connection: Link,
    /// Partitions that one flush may have, as the server of the connection has room for locks.
    partitions_max: usize,
    pub(super) queues: Queues,
    events: Events,
    after: After,
    commits: Commits,
    company: Company,
    gathering: Gathering,
    pub(super) memory: Memory,
    /// Units that this round has put back, by partition: the ones after them must not overtake.
    held: HashMap<PartitionId, usize>,
    /// Partitions that are flushed alone at the moment.
    alone: usize,
    /// Answers still to come from tasks that hold units or promise tables.
    awaited: usize,
}

/// Whether the task did something, and so may find more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Flushed,
    /// Everything that waits, waits for an event or a moment.
    Nothing,
}

/// The task's own connection.
enum Link {
    Up(Box<Connection>),
    /// Not before this moment, because the last try failed.
    Down {
        retry_at: Instant,
        pause: Duration,
        reason: String,
    },
}

/// Runs one appender.
///
/// Cancel safety: none. Spawned once and polled to completion.
pub(super) async fn run(number: usize, store: Store, mut inbox: mpsc::Receiver<Request>, after: After) {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let down = Link::Down {
        retry_at: Instant::now(),
        pause: RECONNECT_PAUSE_MIN,
        reason: "not connected yet".into(),
    };
    let mut task = Task {
        store,
        connection: down,
        partitions_max: 1,
        queues: Queues::default(),
        events: Events(sender),
        after,
        commits: Commits::default(),
        company: Company::default(),
        gathering: Gathering::default(),
        memory: Memory::default(),
        held: HashMap::new(),
        alone: 0,
        awaited: 0,
    };
    let mut open = true;
    while open || task.has_work() || task.awaited > 0 {
        tokio::select! {
            biased; // settle what we hold before taking more
            Some(event) = events.recv() => task.on_event(event).await,
            request = inbox.recv(), if open => match request {
                Some(request) => task.admit(request),
                None => open = false, // no handles left: nobody new can be waiting
            },
            () = sleep_until(task.next_turn()), if task.next_turn().is_some() => {}
            () = sleep_until(task.gathers_until()), if task.gathers_until().is_some() => {}
            () = sleep_until(task.retry_at()), if task.retry_at().is_some() && task.has_work() => {}
        }
        loop {
            while let Ok(event) = events.try_recv() {
                task.on_event(event).await; // under steady load this loop does not end, and others wait for these
            }
            while let Ok(request) = inbox.try_recv() {
                task.admit(request);
            }
            if !open && matches!(task.connection, Link::Down { .. }) {
                task.commits.abandon();
            }
            if task.gathers_until().is_some() || task.work().await == Progress::Nothing {
                break;
            }
        }
    }
    tracing::debug!(number, "appender ended");
}

/// A connection, and how many partitions one flush may have there.
async fn open(store: &Store) -> Result<(Connection, usize), Error> {
    let connection = store.dedicated(Role::Appender).await?;
    let partitions_max = connection.flush_partitions_max().await?;
    Ok((connection, partitions_max))
}

async fn sleep_until(moment: Option<Instant>) {
    if let Some(moment) = moment {
        tokio::time::sleep_until(moment.into()).await;
    }
}

impl Task {
    fn admit(&mut self, request: Request) {
        match request {
            Request::Units(units) => {
                let messages = units.iter().map(|pending| pending.unit.messages.len()).sum();
                self.gathering.on_arrived(messages, Instant::now());
                units.into_iter().for_each(|pending| self.queues.push(pending));
            }
            Request::Commit(pending) => self.commits.push(pending),
        }
    }

    fn has_work(&self) -> bool {
        !self.queues.is_empty() || !self.commits.is_empty()
    }

    fn retry_at(&self) -> Option<Instant> {
        match &self.connection {
            Link::Up(_) => None,
            Link::Down { retry_at, .. } => Some(*retry_at),
        }
    }

    /// When a partition that was left out may be tried again; without a connection only `retry_at` counts.
    fn next_turn(&self) -> Option<Instant> {
        match &self.connection {
            Link::Up(_) => [self.queues.next_turn(), self.commits.due_at()].into_iter().flatten().min(),
            Link::Down { .. } => None,
        }
    }

    /// Until when the next flush waits for company; acks that are due wait for nothing.
    fn gathers_until(&self) -> Option<Instant> {
        let now = Instant::now();
        let is_due = self.commits.due_at().is_some_and(|due_at| due_at <= now);
        self.gathering.until(now).filter(|_| !is_due)
    }

    /// One flush, if there is anything that can be flushed now.
    async fn work(&mut self) -> Progress {
        let due = self.commits.due_at().is_some_and(|due_at| due_at <= Instant::now());
        if self.queues.is_empty() && !due {
            return Progress::Nothing;
        }
        if !self.connect().await {
            self.give_up_on_the_impatient();
            return Progress::Nothing;
        }
        let mut turnout = self.queues.take(Instant::now(), self.partitions_max);
        for (partition_id, messages) in turnout.wants {
            self.ask_for_tables(partition_id, messages);
        }
        if due || !turnout.plan.is_empty() {
            turnout.plan.commits = self.commits.take();
        }
        if turnout.plan.is_empty() {
            return Progress::Nothing;
        }
        self.held.clear();
        let mut stack = vec![turnout.plan];
        while let Some(plan) = stack.pop() {
            let plan = self.hold_back(plan);
            if plan.is_empty() {
                continue;
            }
            let mut plan = plan;
            let started = Instant::now();
            let (outcome, era) = self.flush(&plan).await;
            self.count(&plan, &outcome, started.elapsed());
            self.gathering.on_flushed(plan.batches.len(), plan.messages(), started.elapsed());
            tracing::trace!(partitions = plan.batches.len(), messages = plan.messages(), elapsed = ?started.elapsed(), "flushed");
            self.commits.settle(std::mem::take(&mut plan.commits), &outcome);
            if let Some((front, back)) = self.on_outcome(plan, outcome, era).await {
                stack.push(back);
                stack.push(front);
            }
        }
        Progress::Flushed
    }

    fn count(&self, plan: &Plan, outcome: &Outcome, elapsed: Duration) {
        let metrics = &self.after.metrics;
        if let Outcome::Committed(reports) = outcome {
            let (messages, bytes) = plan.stored(&reports.batches);
            metrics.flushes.inc();
            metrics.flush_seconds.observe(elapsed.as_secs_f64());
            metrics.flush_messages.observe(messages as f64);
            metrics.published_messages.inc_by(messages);
            metrics.published_bytes.inc_by(bytes);
            let is_stored = |report: &&LaneReport| matches!(report, LaneReport::Stored { .. });
            metrics.lane_commits.inc_by(reports.lanes.iter().filter(is_stored).count() as u64);
        }
    }

    /// Takes out of a half what must wait behind units of its partition that went back to the queue before it.
    fn hold_back(&mut self, plan: Plan) -> Plan {
        let (held, free): (Vec<_>, Vec<_>) =
            plan.batches.into_iter().partition(|taken| self.held.contains_key(&taken.partition_id));
        for Taken { partition_id, units } in held {
            self.put_back(partition_id, units);
        }
        Plan { batches: free, commits: plan.commits }
    }

    /// Puts units back before what has come since, and behind what this round has put back already.
    pub(super) fn put_back(&mut self, partition_id: PartitionId, units: Vec<Pending>) {
        let behind = self.held.entry(partition_id).or_default();
        let place = *behind;
        *behind += units.len();
        self.queues.put_back(partition_id, place, units);
    }

    fn ask_for_tables(&mut self, partition_id: PartitionId, messages: usize) {
        self.awaited += 1;
        coverage::ask(self.store.clone(), self.events.clone(), partition_id, messages);
    }

    /// Makes sure that there is a connection; says what it is if there cannot be one.
    async fn connect(&mut self) -> bool {
        let pause = match &self.connection {
            Link::Up(connection) if connection.is_usable() => return true,
            Link::Up(_) => RECONNECT_PAUSE_MIN,
            Link::Down { retry_at, .. } if *retry_at > Instant::now() => {
                self.fail_undoubted();
                return false;
            }
            Link::Down { pause, .. } => *pause,
        };
        match open(&self.store).await {
            Ok((connection, partitions_max)) => {
                self.partitions_max = partitions_max;
                self.memory.forget(); // the old one may have ended in doubt, or in another era
                self.connection = Link::Up(Box::new(connection));
                true
            }
            Err(error) => {
                match pause {
                    RECONNECT_PAUSE_MIN => tracing::warn!(%error, "appender cannot connect"),
                    _ => tracing::debug!(%error, "appender still cannot connect"), // said once per outage
                }
                let pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
                let retry_at = Instant::now() + pause.mul_f64(rand::rng().random_range(0.5..1.0));
                self.connection = Link::Down { retry_at, pause, reason: error.to_string() };
                self.fail_undoubted();
                false
            }
        }
    }

    /// Without a connection, what was never sent is answered at once: nothing happened.
    fn fail_undoubted(&mut self) {
        let Link::Down { reason, .. } = &self.connection else { return };
        let error = AppendError::Unavailable { reason: reason.clone() };
        for pending in self.queues.drain(|pending| pending.doubt == Doubt::None) {
            pending.fail(error.clone());
        }
    }

    /// What may have been written is repeated for a while, and then admitted to be unknown.
    fn give_up_on_the_impatient(&mut self) {
        for pending in self.queues.drain(|pending| pending.since.elapsed() > APPEND_PATIENCE) {
            pending
                .fail(AppendError::Unavailable { reason: "the database did not come back in time".into() });
        }
    }

    /// Sends one flush, and again while it only loses races. Returns in which era, too.
    async fn flush(&mut self, plan: &Plan) -> (Outcome, Era) {
        let Link::Up(connection) = &self.connection else {
            let error = Error::Unavailable { reason: "not connected".into() };
            return (Outcome::NothingHappened(error), self.store.timelines().era());
        };
        let mode = self.company.mode(Instant::now());
        let mut outcome = flush_contended(connection, mode, plan, &self.memory).await;
        let in_vain = matches!(&outcome, Outcome::NothingHappened(Error::Contended { .. }));
        if mode == LockMode::Queue && in_vain {
            self.company.on_waited_in_vain(Instant::now());
            outcome = flush_contended(connection, LockMode::Skip, plan, &self.memory).await;
        }
        (outcome, connection.era())
    }

    /// Settles a flush; returns two halves if the data of some unit has to be found out.
    async fn on_outcome(&mut self, plan: Plan, outcome: Outcome, era: Era) -> Option<(Plan, Plan)> {
        match outcome {
            Outcome::Committed(reports) => self.on_committed(plan, &reports, era),
            Outcome::NothingHappened(Error::KeyClosed) => self.on_key_closed(plan).await,
            Outcome::NothingHappened(error) => return self.on_nothing_happened(plan, error),
            Outcome::Unknown(error) => self.on_unknown(plan, &error),
        }
        None
    }

    fn on_committed(&mut self, plan: Plan, reports: &Reports, era: Era) {
        let announcer = &self.after.announcer;
        let Settlement { wrote, skipped, paused, unsealed, again, known } =
            plan.settle(reports, |partition_id| announcer.is_followed(partition_id));
        for Wrote { partition_id, offsets, producers, messages } in wrote {
            self.after.announcer.on_flushed(partition_id, messages, era);
            self.on_wrote(partition_id, offsets.end);
            self.memory.on_stored(partition_id, offsets, producers);
        }
        for Taken { partition_id, units } in again {
            self.put_back(partition_id, units);
        }
        for pending in paused.into_iter().flat_map(|taken| taken.units) {
            pending.fail(AppendError::TopicPaused);
        }
        unsealed.into_iter().for_each(|taken| self.on_unsealed(taken));
        for found in known {
            tokio::spawn(look_up(self.store.clone(), found));
        }
        let jitter = rand::rng().random_range(0.5..1.5); // one for all: what was left out together comes back together
        for Taken { partition_id, units } in skipped {
            self.on_skipped(partition_id, units, jitter);
        }
    }

    fn on_wrote(&mut self, partition_id: PartitionId, next_offset: Offset) {
        self.queues.wrote(partition_id, next_offset);
        if self.queues.wants_growth(partition_id) {
            self.ask_for_tables(partition_id, 1);
        }
        self.after.thinning.on_wrote(partition_id);
    }

    /// Another broker holds the partition: try again in a moment, and in the end alone.
    fn on_skipped(&mut self, partition_id: PartitionId, units: Vec<Pending>, jitter: f64) {
        self.put_back(partition_id, units);
        let now = Instant::now();
        self.company.on_skipped(now);
        let skips = self.queues.skips(partition_id).min(FLUSH_SKIP_PAUSES_MAX);
        let pause = match self.company.mode(now) {
            LockMode::Queue => Duration::ZERO, // the next flush waits for it
            LockMode::Skip | LockMode::Wait => FLUSH_SKIP_PAUSE.mul_f64(jitter) * (skips + 1),
        };
        let skips = self.queues.skipped(partition_id, now + pause);
        if skips >= FLUSH_SKIPS_MAX && self.alone < FLUSHES_ALONE_MAX {
            let plan = self.queues.take_alone(partition_id);
            if plan.is_empty() {
                return self.queues.rejoin(partition_id); // it waits for tables, not for its lock
            }
            self.awaited += 1;
            self.alone += 1;
            tokio::spawn(flush_alone(self.store.clone(), self.events.clone(), partition_id, plan));
        }
    }

    pub(super) fn drop_unusable(&mut self) {
        if matches!(&self.connection, Link::Up(connection) if !connection.is_usable()) {
            self.drop_connection();
        }
    }

    pub(super) fn drop_connection(&mut self) {
        self.memory.forget();
        let reason = "the connection was lost".into();
        let retry_at = Instant::now();
        self.connection = Link::Down { retry_at, pause: RECONNECT_PAUSE_MIN, reason };
    }

    async fn on_event(&mut self, event: Event) {
        self.awaited -= 1;
        match event {
            Event::Covered { partition_id, answer: Ok(Some(coverage)) } => {
                self.queues.covered(partition_id, coverage);
            }
            Event::Covered { partition_id, answer: Ok(None) } => {
                self.queues.covered(partition_id, Coverage::Unknown);
                let gone = self.queues.drain_partition(partition_id);
                gone.into_iter().for_each(|pending| pending.refuse(AppendError::UnknownPartition));
            }
            Event::Covered { partition_id, answer: Err(error) } => {
                tracing::warn!(%error, partition = %partition_id, "tables could not be made");
                let units = self.queues.uncovered(partition_id);
                if !units.is_empty() {
                    self.on_unavailable(
                        Plan { batches: vec![Taken { partition_id, units }], commits: Vec::new() },
                        error.to_string(),
                    );
                }
            }
            Event::Alone { plan, outcome, partition_id, era } => {
                self.alone -= 1;
                self.held.clear();
                self.queues.rejoin(partition_id);
                if let Some((front, back)) = self.on_alone(plan, outcome, era).await {
                    for Taken { partition_id, units } in front.batches.into_iter().chain(back.batches) {
                        self.put_back(partition_id, units); // the shared flush will find the culprit
                    }
                }
            }
        }
    }

    /// A flush that waited for its lock and still did not get it means that the partition is gone.
    async fn on_alone(&mut self, plan: Plan, outcome: Outcome, era: Era) -> Option<(Plan, Plan)> {
        match outcome {
            Outcome::Committed(reports) if reports.batches.is_empty() && reports.refused.is_empty() => {
                plan.into_units()
                    .into_iter()
                    .for_each(|pending| pending.refuse(AppendError::UnknownPartition));
                None
            }
            outcome => self.on_outcome(plan, outcome, era).await,
        }
    }
}
