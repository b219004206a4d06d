//! The loop of the one connection that writes schedules down: accumulate, write, answer.
//!
//! While one transaction commits, the next accumulates in the inbox. Lives from start until the last handle is dropped, and
//! then writes what it still holds. Invariant: every unit admitted is answered exactly once, and only after its commit.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rand::Rng as _;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::alarm::Alarm;
use super::columns::add_message;
use super::tables::Tables;
use super::{ScheduleUnit, Share};
use crate::broker::appender::columns::window_ms;
use crate::broker::appender::{AppendError, AppendResult, Duplicate, Receipt};
use crate::broker::metrics::Metrics;
use crate::ids::PartitionId;
use crate::limits::{FLUSH_BYTES_MAX, SCHEDULES_PER_WRITE_MAX};
use crate::store::schedules::{Outcome, ScheduleColumns, Standing, UnitReport};
use crate::store::{Connection, Error, Role, Store};

/// Pause before what has lost a race goes again, at most.
const CONTENDED_PAUSE_MS: u64 = 10;
/// Tries of what loses races.
const CONTENDED_TRIES: usize = 8;

/// A unit that waits to be written down.
#[derive(Debug)]
pub(super) struct Pending {
    unit: ScheduleUnit,
    /// For each message: an earlier one of the unit that has the same transaction id.
    same_as: Vec<Option<usize>>,
    reply: oneshot::Sender<AppendResult>,
    _share: Share,
}

impl Pending {
    pub fn new(unit: ScheduleUnit, reply: oneshot::Sender<AppendResult>, share: Share) -> Self {
        let mut first: HashMap<&str, usize> = HashMap::new();
        let names = unit.messages.iter().enumerate();
        let same_as = names
            .map(|(index, message)| {
                let earlier = *first.entry(message.transaction_id()?).or_insert(index);
                (earlier < index).then_some(earlier)
            })
            .collect();
        Self { unit, same_as, reply, _share: share }
    }

    fn answer(self, result: AppendResult) {
        let _nobody_waits = self.reply.send(result); // the producer may have gone; what is written stays written
    }

    /// What no other unit of the same transaction may have, too.
    fn names(&self) -> impl Iterator<Item = Name> {
        let partition = self.unit.partition_id.0;
        let ids = self.unit.messages.iter().filter_map(|message| message.transaction_id());
        let ids = ids.map(move |id| Name::Transaction(partition, id.to_owned()));
        let numbers = self.unit.run.into_iter().flat_map(|run| {
            let first = run.first_sequence.0;
            (first..first + self.unit.messages.len() as i64)
                .map(move |sequence| (run.producer_id.0, sequence))
        });
        let numbers = numbers.map(move |(producer, sequence)| Name::Number(partition, producer, sequence));
        ids.chain(numbers)
    }
}

/// What tells a message of a partition from its copies.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Name {
    Transaction(i64, String),
    Number(i64, Uuid, i64),
}

/// Who is told of what is written down and fired. Cheap to clone, and no way in: who holds it keeps no task alive.
#[derive(Debug, Clone)]
pub struct After {
    pub alarm: Alarm,
    pub tables: Tables,
    pub metrics: Arc<Metrics>,
}

/// Messages that wait from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrote {
    pub partition_id: PartitionId,
    /// How many are new, and when the first of them is due.
    pub messages: u64,
    pub first_due_at: Option<Timestamp>,
}

impl Wrote {
    /// `None`: nothing is new.
    pub fn of(partition_id: PartitionId, report: &UnitReport) -> Option<Self> {
        let UnitReport::Written { standings, first_due_at } = report else { return None };
        let new = standings.iter().filter(|standing| matches!(standing, Standing::New(_)));
        Some(Self { partition_id, messages: new.count() as u64, first_due_at: *first_due_at })
    }
}

impl After {
    /// Something is written down.
    pub fn on_scheduled(&self, wrote: &Wrote) {
        self.metrics.schedules.inc_by(wrote.messages);
        if let Some(due_at) = wrote.first_due_at {
            self.alarm.ring(due_at);
            self.tables.on_scheduled(wrote.partition_id);
        }
    }
}

struct Writer {
    store: Store,
    connection: Option<Connection>,
    waiting: VecDeque<Pending>,
    after: After,
}

/// Runs until the last handle is gone. Cancel safety: none. Spawned once and polled to completion.
pub(super) async fn run(store: Store, mut inbox: mpsc::Receiver<Pending>, after: After) {
    let mut writer = Writer { store, connection: None, waiting: VecDeque::new(), after };
    while let Some(first) = inbox.recv().await {
        writer.waiting.push_back(first);
        while !writer.waiting.is_empty() {
            while let Ok(pending) = inbox.try_recv() {
                writer.waiting.push_back(pending);
            }
            let units = writer.take();
            writer.write(units).await;
        }
    }
    tracing::debug!("schedules ended");
}

impl Writer {
    /// The next units that go together, in their order.
    fn take(&mut self) -> Vec<Pending> {
        let (mut units, mut messages, mut bytes) = (Vec::new(), 0, 0);
        let mut names = HashSet::new();
        while let Some(pending) = self.waiting.front() {
            (messages, bytes) = (messages + pending.unit.messages.len(), bytes + pending.unit.bytes());
            let fits = messages <= SCHEDULES_PER_WRITE_MAX && bytes <= FLUSH_BYTES_MAX;
            let own: HashSet<Name> = pending.names().collect();
            if !units.is_empty() && (!fits || !names.is_disjoint(&own)) {
                break;
            }
            names.extend(own);
            units.extend(self.waiting.pop_front());
        }
        units
    }

    async fn write(&mut self, units: Vec<Pending>) {
        for _ in 0..CONTENDED_TRIES {
            let outcome = match self.connect().await {
                Ok(connection) => connection.schedules_insert(&columns(&units)).await,
                Err(error) => Outcome::NothingHappened(error),
            };
            match outcome {
                Outcome::Committed(reports) => return self.committed(units, reports),
                Outcome::NothingHappened(Error::Contended { .. }) => {
                    let pause = rand::rng().random_range(1..CONTENDED_PAUSE_MS);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                Outcome::NothingHappened(Error::Refused { .. }) if units.len() > 1 => {
                    for unit in units {
                        Box::pin(self.write(vec![unit])).await; // so that only the one at fault is refused
                    }
                    return;
                }
                Outcome::NothingHappened(error) => {
                    if error == Error::KeyClosed {
                        self.store.vault().distrust();
                    }
                    return self.failed(units, nothing_happened(error));
                }
                Outcome::Unknown(error) => {
                    self.connection = None;
                    return self.failed(units, AppendError::OutcomeUnknown { reason: error.to_string() });
                }
            }
        }
        self.failed(units, AppendError::Unavailable { reason: "its partition is locked".into() });
    }

    async fn connect(&mut self) -> Result<&Connection, Error> {
        if !self.connection.as_ref().is_some_and(Connection::is_usable) {
            self.connection = None;
        }
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => Ok(none.insert(self.store.dedicated(Role::Appender).await?)),
        }
    }

    fn committed(&self, units: Vec<Pending>, reports: Vec<UnitReport>) {
        for (pending, report) in units.into_iter().zip(reports) {
            let wrote = Wrote::of(pending.unit.partition_id, &report);
            wrote.iter().for_each(|wrote| self.after.on_scheduled(wrote));
            let result = match report {
                UnitReport::Written { standings, .. } => Ok(receipt(&pending.same_as, &standings)),
                UnitReport::Refused { place, fault } => {
                    // Copies within the unit were left out of what was sent.
                    let sent = pending.same_as.iter().enumerate().filter(|(_, same)| same.is_none());
                    let index = sent.map(|(index, _)| index).nth(place).unwrap_or(0);
                    Err(AppendError::Time { index, fault })
                }
                UnitReport::Gone => Err(AppendError::UnknownPartition),
                UnitReport::Paused => Err(AppendError::TopicPaused),
                UnitReport::Unsealed => Err(AppendError::Unsealed),
            };
            pending.answer(result);
        }
    }

    fn failed(&mut self, units: Vec<Pending>, error: AppendError) {
        tracing::warn!(%error, units = units.len(), "schedules were not written down");
        units.into_iter().for_each(|pending| pending.answer(Err(error.clone())));
    }
}

/// Nothing was written, and why.
fn nothing_happened(error: Error) -> AppendError {
    match error {
        Error::Refused { sqlstate, message } => AppendError::Refused { sqlstate, message },
        Error::OutcomeUnknown { .. } => AppendError::OutcomeUnknown { reason: error.to_string() },
        Error::Unavailable { .. }
        | Error::Contended { .. }
        | Error::ReadOnly
        | Error::Untrusted { .. }
        | Error::KeyClosed
        | Error::Forbidden { .. } => AppendError::Unavailable { reason: error.to_string() },
        Error::NoSegment { .. }
        | Error::TableGone { .. }
        | Error::KeyMissing(_)
        | Error::NotAuthentic { .. }
        | Error::Unexpected { .. } => AppendError::Internal { reason: error.to_string() },
    }
}

/// The transaction, column by column. What a unit has twice is sent once.
fn columns(units: &[Pending]) -> ScheduleColumns<'_> {
    let mut columns = ScheduleColumns::default();
    for (number, Pending { unit, same_as, .. }) in units.iter().enumerate() {
        columns.partition_ids.push(unit.partition_id.0);
        columns.topic_ids.push(unit.topic_id.0);
        columns.windows_ms.push(window_ms(unit.dedup_window));
        for (index, message) in unit.messages.iter().enumerate() {
            if same_as[index].is_none() {
                let run = unit.run.map(|run| (run.producer_id.0, run.first_sequence.0 + index as i64));
                add_message(&mut columns, number as i32 + 1, unit.dues[index], run, message);
            }
        }
    }
    columns
}

/// Where everything stands; `standings` are those of the messages that were sent.
fn receipt(same_as: &[Option<usize>], standings: &[Standing]) -> Receipt {
    let mut receipt = Receipt::default();
    let mut all: Vec<Standing> = Vec::with_capacity(same_as.len());
    let mut sent = standings.iter();
    for (index, same_as) in same_as.iter().enumerate() {
        let standing = match *same_as {
            Some(other) => match all[other] {
                Standing::New(id) => Standing::Scheduled(id),
                known @ (Standing::Scheduled(_) | Standing::Stored(_)) => known,
            },
            None => *sent.next().expect("a standing for each message that was sent"),
        };
        match standing {
            Standing::New(id) => receipt.scheduled.push((index, id)),
            Standing::Scheduled(id) => {
                receipt.scheduled.push((index, id));
                receipt.duplicates.push(Duplicate { index, offset: None });
            }
            Standing::Stored(offset) => receipt.duplicates.push(Duplicate { index, offset: Some(offset) }),
        }
        all.push(standing);
    }
    receipt
}
