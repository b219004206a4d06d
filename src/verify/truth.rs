//! What the database holds at the end of a run, read without the brokers.

use std::collections::{BTreeMap, HashMap};

use super::VerifyError;
use super::history::{LaneId, Ranges};
use super::keys::Keyed;
use super::later::Later;
use super::settings::{GROUPS, KEYED, LATER, PULLERS, RESULTS, TOPIC};
use super::steps::parse_result;
use super::value::Value;
use crate::store::Store;
use crate::store::witness::{WitnessedLane, WitnessedLater, WitnessedMessage};

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// `None`: its payload is not what anybody has published.
    pub value: Option<Value>,
    pub trace_is_exact: bool,
}

/// What the database holds.
#[derive(Debug, Default, Clone)]
pub struct Truth {
    /// By partition and offset.
    pub messages: BTreeMap<(u32, i64), Stored>,
    /// How far each lane has come.
    pub committed: HashMap<LaneId, i64>,
    /// What steps have published: the messages of a partition that each stands for.
    pub results: Vec<(u32, Ranges)>,
    /// Messages that a group has given up.
    pub dead: Vec<(LaneId, i64)>,
    /// Messages that have waited for their time.
    pub later: Vec<Appended>,
    /// How many still wait.
    pub waiting: i64,
    /// How far the pulled lane of each partition has come.
    pub pulled: HashMap<u32, i64>,
    /// What its group has given up.
    pub pulled_dead: Vec<(u32, i64)>,
    /// The same of the group that pullers share with sessions.
    pub shared: HashMap<u32, i64>,
    pub shared_dead: Vec<(u32, i64)>,
    /// Messages with keys, by partition and offset. `None`: the payload is not what anybody has published.
    pub keyed: BTreeMap<(u32, i64), Option<Keyed>>,
    /// Those that the operator has dropped.
    pub dropped: Vec<(u32, i64)>,
    /// How far the lane of each of their partitions has come.
    pub kept: HashMap<u32, i64>,
    /// Keys that are still parked, or released and not done.
    pub parked: i64,
}

/// A message that has waited for its time, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub partition: u32,
    pub offset: i64,
    /// `None`: its payload is not what anybody has published.
    pub later: Option<Later>,
    pub published_us: i64,
}

impl Truth {
    /// Where the next message of a partition would stand.
    pub fn end(&self, partition: u32) -> i64 {
        let of_partition = self.messages.range((partition, i64::MIN)..=(partition, i64::MAX));
        of_partition.last().map_or(0, |((_, offset), _)| offset + 1)
    }

    pub(super) async fn read(store: &Store) -> Result<Self, VerifyError> {
        let mut truth = Self::default();
        for message in store.witness_messages(TOPIC).await? {
            let value = Value::parse(&message.payload);
            let trace_is_exact = value.is_some_and(|value| value.trace_id() == message.trace_id);
            let stored = Stored { value, trace_is_exact };
            truth.messages.insert((message.partition, message.offset), stored);
        }
        for message in store.witness_messages(RESULTS).await? {
            truth.results.extend(parse_result(&message.payload));
        }
        for found in store.witness_commits(TOPIC).await? {
            if let Some(lane) = lane(&found) {
                truth.committed.insert(lane, found.offset);
            }
        }
        for (found, _, _) in store.witness_dead_letters(TOPIC).await? {
            if let Some(lane) = lane(&found) {
                truth.dead.push((lane, found.offset));
            }
        }
        truth.read_later(store).await?;
        truth.read_keyed(store).await?;
        Ok(truth)
    }

    async fn read_later(&mut self, store: &Store) -> Result<(), VerifyError> {
        let appended = |found: WitnessedLater| Appended {
            partition: found.partition,
            offset: found.offset,
            later: Later::parse(&found.payload),
            published_us: found.published_us,
        };
        self.later = store.witness_later(LATER).await?.into_iter().map(appended).collect();
        self.waiting = store.witness_waiting(LATER).await?;
        for lane in store.witness_commits(LATER).await? {
            let of_group = if lane.group == PULLERS { &mut self.pulled } else { &mut self.shared };
            of_group.insert(lane.partition, lane.offset);
        }
        for (lane, _, _) in store.witness_dead_letters(LATER).await? {
            let of_group = if lane.group == PULLERS { &mut self.pulled_dead } else { &mut self.shared_dead };
            of_group.push((lane.partition, lane.offset));
        }
        Ok(())
    }

    async fn read_keyed(&mut self, store: &Store) -> Result<(), VerifyError> {
        let messages = store.witness_messages(KEYED).await?;
        let place = |found: &WitnessedMessage| (found.partition, found.offset);
        self.keyed = messages.iter().map(|found| (place(found), Keyed::parse(&found.payload))).collect();
        let drops = store.witness_drops(KEYED).await?;
        self.dropped = drops.into_iter().map(|lane| (lane.partition, lane.offset)).collect();
        let commits = store.witness_commits(KEYED).await?;
        self.kept = commits.into_iter().map(|lane| (lane.partition, lane.offset)).collect();
        self.parked = store.witness_parked(KEYED).await?;
        Ok(())
    }
}

fn lane(found: &WitnessedLane) -> Option<LaneId> {
    let group = GROUPS.iter().position(|name| *name == found.group)?;
    Some(LaneId { group, partition: found.partition })
}
