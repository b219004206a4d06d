//! Parked keys: messages that a group has copied aside, key by key, until an operator replays or drops them.
//!
//! Their holder writes them under the fence of the lane, in the transaction of the commit that moves past them. An operator
//! releases a key under the lock of the same row, so that nobody is in between. Rows decide: a holder looks, and is hinted at.
//! Locks: the lane's row, then parked rows.

use std::time::Duration;

use jiff::Timestamp;
use postgres_types::ToSql;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Params;
use super::error::{Effect, Error};
use super::groups::GROUPS_HINT;
use super::lanes::{Fence, Settled};
use super::messages::{Message, message};
use super::query::query;
use super::vault::{Unopened, Vault, stored};
use super::windows::EVICTIONS_RECORD;
use super::{Connection, Store, retry};
use crate::encryption::Place;
use crate::ids::{GroupId, Offset, ParkedId, PartitionId, TopicId};

query!(PARKED_KEYS_OF_LANES = "parked_keys_of_lanes"[INT8, INT8_ARRAY]);
query!(PARKED_KEYS_RELEASED = "parked_keys_released"[INT8]);
query!(PARKED_KEYS_STATE = "parked_keys_state"[INT8, INT8, INT8]);
query!(PARKED_KEYS_PARK = "parked_keys_park"[INT8, INT8, INT8, BYTEA]);
query!(PARKED_KEYS_FREE = "parked_keys_free"[INT8, INT8, INT8_ARRAY]);
query!(PARKED_KEYS_LIST = "parked_keys_list"[INT8, TEXT, INT8, INT8]);
query!(PARKED_KEYS_FIND = "parked_keys_find"[INT8]);
query!(PARKED_KEYS_LOCK_LANE = "parked_keys_lock_lane"[INT8]);
query!(PARKED_KEYS_RELEASE = "parked_keys_release"[INT8]);
query!(PARKED_KEYS_SUM = "parked_keys_sum"[]);
query!(PARKED_MESSAGES_READ = "parked_messages_read"[INT8, INT8, INT8, INT8, INT8, INT8]);
query!(
    PARKED_MESSAGES_INSERT = "parked_messages_insert"[
        INT8, INT8, INT8_ARRAY, INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY, TIMESTAMPTZ_ARRAY, UUID_ARRAY, INT8_ARRAY, INT8_ARRAY,
        BYTEA_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, UUID_ARRAY
    ]
);
query!(PARKED_MESSAGES_CHARGE = "parked_messages_charge"[INT8, INT8, INT8, INT4, TEXT, INT8]);
query!(PARKED_MESSAGES_DELETE = "parked_messages_delete"[INT8, INT8, INT8_ARRAY]);
query!(PARKED_MESSAGES_DROP = "parked_messages_drop"[INT8]);
query!(PARKS_RECORD = "parks_record"[INT8, INT8, INT8_ARRAY, INT8_ARRAY, TEXT]);

/// A message of a parked key, to be copied aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkMessage {
    pub message: Message,
    /// The name of its key in its lane.
    pub parked_offset: Offset,
    pub attempts: u32,
    pub reason: String,
}

/// A key that is parked, or parked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkKey {
    pub parked_offset: Offset,
    pub key: Option<bytes::Bytes>,
}

/// One more failure of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeCopy {
    pub offset: Offset,
    pub attempts: u32,
    pub reason: String,
    pub delay: Duration,
}

/// What a settlement does to parked keys, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parking {
    pub key: Option<ParkKey>,
    pub messages: Vec<ParkMessage>,
    pub charge: Option<ChargeCopy>,
    /// Copies that are done.
    pub done: Vec<Offset>,
    /// Keys that have no copies any more, by their names.
    pub freed: Vec<Offset>,
    /// Messages that were to be copied and that retention has taken first; they rise.
    pub lost: Vec<Offset>,
}

/// A parked key of a lane, as its holder finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    pub partition_id: PartitionId,
    pub parked_offset: Offset,
    pub key: Option<bytes::Bytes>,
    pub released: bool,
}

/// A copy that is to be delivered again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    pub message: Message,
    pub attempts: u32,
    pub retry_in: Duration,
}

/// What is left of a released key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copies {
    Some(Vec<Copy>),
    /// Nothing from there on.
    None,
    /// The key is parked again, or is gone.
    NotReleased,
}

/// A parked key, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedKey {
    pub id: ParkedId,
    pub topic: String,
    pub group: String,
    pub partition: u32,
    pub partition_id: PartitionId,
    pub released: bool,
    pub messages: u64,
    pub parked_at: Timestamp,
    /// The message that it failed at, with how often and why; absent: it was dropped, and the lane has not looked yet.
    pub first: Option<Parked>,
    pub key: Option<bytes::Bytes>,
}

/// A copy, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    pub message: Message,
    pub attempts: u32,
    pub reason: String,
    /// Why its payload is left out: it does not open here.
    pub unopened: Option<Error>,
}

/// How a key is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetGo {
    /// Everything is delivered again.
    Replay,
    /// Everything but the message that it failed at.
    DropFailed,
}

/// Messages that are parked in one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedSum {
    pub topic: String,
    pub group: String,
    pub keys: i64,
    pub messages: i64,
}

impl Connection {
    /// The parked keys of some lanes.
    pub(super) async fn parked_keys_of(
        &self,
        group_id: GroupId,
        partition_ids: &[i64],
    ) -> Result<Vec<KnownKey>, Error> {
        let rows = self.query(&PARKED_KEYS_OF_LANES, &[&group_id.0, &partition_ids], Effect::None).await?;
        Ok(rows.iter().map(known_key).collect())
    }

    /// What a settlement does to parked keys, and whether those are free that are to be.
    pub(super) async fn settle_parking(
        &self,
        fence: &Fence,
        parking: &Parking,
        vault: &Vault,
    ) -> Result<Settled, Error> {
        let (group, partition) = (&fence.group_id.0, &fence.partition_id.0);
        let offsets = |offsets: &[Offset]| offsets.iter().map(|offset| offset.0).collect::<Vec<i64>>();
        if let Some(ParkKey { parked_offset, key }) = &parking.key {
            let params: Params<'_> = &[group, partition, &parked_offset.0, &key.as_deref()];
            self.execute(&PARKED_KEYS_PARK, params).await?;
        }
        if !parking.messages.is_empty() {
            self.insert_parked(fence, &parking.messages, vault).await?;
        }
        if let Some(ChargeCopy { offset, attempts, reason, delay }) = &parking.charge {
            let (attempts, delay_ms) = (*attempts as i32, delay.as_millis() as i64);
            let params: Params<'_> = &[group, partition, &offset.0, &attempts, reason, &delay_ms];
            self.execute(&PARKED_MESSAGES_CHARGE, params).await?;
        }
        if !parking.done.is_empty() {
            let params: Params<'_> = &[group, partition, &offsets(&parking.done)];
            self.execute(&PARKED_MESSAGES_DELETE, params).await?;
        }
        if parking.freed.is_empty() {
            return Ok(Settled::Done);
        }
        let freed = self.execute(&PARKED_KEYS_FREE, &[group, partition, &offsets(&parking.freed)]).await?;
        Ok(if freed == parking.freed.len() as u64 { Settled::Done } else { Settled::KeyKept })
    }

    async fn insert_parked(&self, fence: &Fence, parked: &[ParkMessage], vault: &Vault) -> Result<(), Error> {
        fn column<'a, T>(parked: &'a [ParkMessage], of: impl Fn(&'a ParkMessage) -> T) -> Vec<T> {
            parked.iter().map(of).collect()
        }
        let messages: Vec<&Message> = parked.iter().map(|parked| &parked.message).collect();
        let copies = self.seal_copies(vault, fence.partition_id, &messages).await?;
        let payloads: Vec<&[u8]> =
            messages.iter().zip(&copies).map(|(message, copy)| stored(message, copy)).collect();
        let data_keys: Vec<Option<Uuid>> =
            copies.iter().map(|copy| copy.as_ref().map(|copy| copy.data_key_id().0)).collect();
        let columns: [&(dyn ToSql + Sync); 15] = [
            &column(parked, |parked| parked.message.offset.0),
            &column(parked, |parked| parked.parked_offset.0),
            &column(parked, |parked| parked.attempts as i32),
            &column(parked, |parked| parked.reason.as_str()),
            &column(parked, |parked| parked.message.published_at),
            &column(parked, |parked| parked.message.trace_id.0),
            &column(parked, |parked| parked.message.cause.map(|cause| cause.partition_id.0)),
            &column(parked, |parked| parked.message.cause.map(|cause| cause.offset.0)),
            &column(parked, |parked| parked.message.key.as_deref()),
            &column(parked, |parked| parked.message.transaction_id.as_deref()),
            &column(parked, |parked| parked.message.headers.as_deref()),
            &column(parked, |parked| parked.message.content_type.as_deref()),
            &payloads,
            &column(parked, |parked| parked.message.producer.as_deref()),
            &data_keys,
        ];
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&fence.group_id.0, &fence.partition_id.0];
        params.extend(columns);
        self.execute(&PARKED_MESSAGES_INSERT, &params).await.map(|_| ())
    }

    /// Writes down, for traces, what was parked behind others, and what could not be.
    pub(super) async fn record_parks(&self, fence: &Fence, parking: &Parking) -> Result<(), Error> {
        let (group, partition) = (&fence.group_id.0, &fence.partition_id.0);
        let behind = parking.messages.iter().filter(|parked| parked.attempts == 0);
        let (firsts, ends) = ranges(behind.map(|parked| parked.message.offset));
        if !firsts.is_empty() {
            let params: Params<'_> = &[group, partition, &firsts, &ends, &"its key is parked"];
            self.execute(&PARKS_RECORD, params).await?;
        }
        let (firsts, ends) = ranges(parking.lost.iter().copied());
        if !firsts.is_empty() {
            let reasons = vec!["retention"; firsts.len()];
            let params: Params<'_> = &[group, partition, &"skip", &firsts, &ends, &reasons];
            self.execute(&EVICTIONS_RECORD, params).await?;
        }
        Ok(())
    }
}

impl Store {
    /// The keys of a group that are released and not gone yet, by partition and name.
    pub async fn parked_keys_released(&self, group_id: GroupId) -> Result<Vec<(PartitionId, Offset)>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&PARKED_KEYS_RELEASED, &[&group_id.0], Effect::None).await?;
        let name = |row: &Row| (PartitionId(row.get("partition_id")), Offset(row.get("parked_offset")));
        Ok(rows.iter().map(name).collect())
    }

    /// Copies of a released key from an offset on, in order.
    pub async fn parked_messages_read(
        &self,
        fence: &Fence,
        parked_offset: Offset,
        from: Offset,
        (messages, bytes): (i64, i64),
    ) -> Result<Copies, Error> {
        let connection = self.connection().await?;
        let (group, partition) = (&fence.group_id.0, &fence.partition_id.0);
        let params: Params<'_> = &[group, partition, &parked_offset.0, &from.0, &messages, &bytes];
        let rows = connection.query(&PARKED_MESSAGES_READ, params, Effect::None).await?;
        if !rows.is_empty() {
            let mut copies: Vec<Copy> = rows.iter().map(copy).collect();
            let found = copies.iter_mut().map(|copy| (fence.partition_id, &mut copy.message)).collect();
            match self.open_all(&connection, Place::Copy, found).await {
                Ok(()) => {}
                Err(Unopened { place: 0, error }) => return Err(error),
                // What stands before it is delivered; the next read finds it again, first.
                Err(Unopened { place, .. }) => copies.truncate(place),
            }
            return Ok(Copies::Some(copies));
        }
        let params: Params<'_> = &[group, partition, &parked_offset.0];
        let row = connection.query_opt(&PARKED_KEYS_STATE, params, Effect::None).await?;
        Ok(match row.is_some_and(|row| row.get::<_, &str>("state") == "released") {
            true => Copies::None,
            false => Copies::NotReleased,
        })
    }

    /// Parked keys after an id, oldest first, of one topic or group or of all. A first message that does not open is left without its
    /// payload.
    pub async fn parked_keys_list(
        &self,
        topic_id: Option<TopicId>,
        group: Option<&str>,
        after: ParkedId,
        limit: u32,
    ) -> Result<Vec<ParkedKey>, Error> {
        let connection = self.connection().await?;
        let topic_id = topic_id.map(|id| id.0);
        let params: Params<'_> = &[&topic_id, &group, &after.0, &i64::from(limit)];
        let rows = connection.query(&PARKED_KEYS_LIST, params, Effect::None).await?;
        let mut keys: Vec<ParkedKey> = rows.iter().map(parked_key).collect();
        self.open_first(&connection, &mut keys).await?;
        Ok(keys)
    }

    /// A parked key by id, if there is one, as it is listed.
    pub async fn parked_keys_find(&self, id: ParkedId) -> Result<Option<ParkedKey>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&PARKED_KEYS_FIND, &[&id.0], Effect::None).await?;
        let mut found = row.as_ref().map(parked_key);
        self.open_first(&connection, found.as_mut_slice()).await?;
        Ok(found)
    }

    /// Opens the first messages of parked keys, each for itself.
    async fn open_first(&self, connection: &Connection, keys: &mut [ParkedKey]) -> Result<(), Error> {
        let unopened = self.open_each(connection, Place::Copy, opened(keys)).await?;
        let firsts = keys.iter_mut().filter_map(|key| key.first.as_mut());
        firsts.zip(unopened).for_each(|(first, unopened)| first.unopened = unopened);
        Ok(())
    }

    /// Lets a parked key go, and tells those who serve its group. `false`: there is none, or it is released already.
    pub async fn parked_keys_release(&self, id: ParkedId, how: LetGo) -> Result<bool, Error> {
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            transaction.query(&PARKED_KEYS_LOCK_LANE, &[&id.0], Effect::None).await?;
            if how == LetGo::DropFailed {
                // Order: before the release, which forgets what has failed.
                transaction.execute(&PARKED_MESSAGES_DROP, &[&id.0]).await?;
            }
            let released = transaction.query_opt(&PARKED_KEYS_RELEASE, &[&id.0], Effect::Possible).await?;
            let Some(row) = released else {
                transaction.rollback().await?;
                return Ok(false);
            };
            let group_id: i64 = row.get("group_id");
            transaction.query(&GROUPS_HINT, &[&vec![group_id]], Effect::Possible).await?;
            transaction.commit().await?;
            Ok(true)
        })
        .await
    }

    /// How much is parked, group by group. Costs what keys are parked, however many messages they have.
    pub async fn parked_keys_sum(&self) -> Result<Vec<ParkedSum>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&PARKED_KEYS_SUM, &[], Effect::None).await?;
        let sum = |row: &Row| ParkedSum {
            topic: row.get("topic"),
            group: row.get("group_name"),
            keys: row.get("keys"),
            messages: row.get("messages"),
        };
        Ok(rows.iter().map(sum).collect())
    }
}

/// Rising offsets as half-open ranges: where each begins, and where it ends.
fn ranges(offsets: impl Iterator<Item = Offset>) -> (Vec<i64>, Vec<i64>) {
    let (mut firsts, mut ends): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    for Offset(offset) in offsets {
        match ends.last_mut().filter(|end| **end == offset) {
            Some(end) => *end += 1,
            None => {
                firsts.push(offset);
                ends.push(offset + 1);
            }
        }
    }
    (firsts, ends)
}

/// What is to be opened of parked keys.
fn opened(keys: &mut [ParkedKey]) -> Vec<(PartitionId, &mut Message)> {
    keys.iter_mut()
        .filter_map(|key| key.first.as_mut().map(|first| (key.partition_id, &mut first.message)))
        .collect()
}

fn known_key(row: &Row) -> KnownKey {
    KnownKey {
        partition_id: PartitionId(row.get("partition_id")),
        parked_offset: Offset(row.get("parked_offset")),
        key: row.get::<_, Option<Vec<u8>>>("key").map(Into::into),
        released: row.get::<_, &str>("state") == "released",
    }
}

fn copy(row: &Row) -> Copy {
    Copy {
        message: message(row),
        attempts: row.get::<_, i32>("attempts") as u32,
        retry_in: Duration::from_millis(row.get::<_, i64>("retry_in_ms") as u64),
    }
}

fn parked_key(row: &Row) -> ParkedKey {
    let has_first = row.get::<_, Option<i64>>("offset").is_some();
    ParkedKey {
        id: ParkedId(row.get("parked_id")),
        topic: row.get("topic"),
        group: row.get("group_name"),
        partition: row.get::<_, i32>("number") as u32,
        partition_id: PartitionId(row.get("partition_id")),
        released: row.get::<_, &str>("state") == "released",
        messages: row.get::<_, i64>("messages") as u64,
        parked_at: row.get("parked_at"),
        first: has_first.then(|| Parked {
            message: message(row),
            attempts: row.get::<_, i32>("attempts") as u32,
            reason: row.get("reason"),
            unopened: None,
        }),
        key: row.get::<_, Option<Vec<u8>>>("key_name").map(Into::into),
    }
}
