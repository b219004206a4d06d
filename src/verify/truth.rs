//! What the database holds at the end of a run, read without the brokers.

use std::collections::{BTreeMap, HashMap};

use super::VerifyError;
use super::history::{LaneId, Ranges};
use super::settings::{GROUPS, RESULTS, TOPIC};
use super::steps::parse_result;
use super::value::Value;
use crate::store::Store;
use crate::store::witness::WitnessedLane;

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
        Ok(truth)
    }
}

fn lane(found: &WitnessedLane) -> Option<LaneId> {
    let group = GROUPS.iter().position(|name| *name == found.group)?;
    Some(LaneId { group, partition: found.partition })
}
