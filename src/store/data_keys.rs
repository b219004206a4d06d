//! The rows of data keys: made, held open while something is written, closed, and dropped when nothing refers to them.
//!
//! A data key that a broker seals messages with is open for as long as that broker lives and wants it. Whoever writes what it has
//! sealed holds its row until commit, so that closing it waits for nobody and misses nothing: what is closed has no writers left,
//! and a broker that was taken for dead writes nothing under it any more.
//! Locks: rows of data keys, after those of partitions. Chores skip what is locked.

use std::collections::HashSet;

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Connection;
use super::error::{Effect, Error};
use super::query::query;
use super::vault::Vault;
use super::{Store, retry};
use crate::encryption::{DataKey, Fingerprint, Home, Place, RingKey, Salt};
use crate::ids::{BrokerId, DataKeyId, Offset, PartitionId, TopicId};
use crate::limits::DATA_KEYS_FORGET_MAX;

query!(DATA_KEYS_INSERT = "data_keys_insert"[UUID, INT8, TEXT, UUID, TEXT, BYTEA, BYTEA]);
query!(DATA_KEYS_HOLD = "data_keys_hold"[UUID_ARRAY]);
query!(DATA_KEYS_FIND = "data_keys_find"[UUID_ARRAY]);
query!(DATA_KEYS_CLOSED = "data_keys_closed"[UUID_ARRAY]);
query!(DATA_KEYS_CLOSE = "data_keys_close"[UUID_ARRAY]);
query!(DATA_KEYS_BOUND = "data_keys_bound"[]);
query!(DATA_KEYS_FORGET = "data_keys_forget"[INT8]);
query!(DATA_KEYS_ANY = "data_keys_any"[]);
query!(DATA_KEYS_LIST = "data_keys_list"[]);
query!(TOPICS_ENCRYPTED = "topics_encrypted"[]);

/// What is stored of a data key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DataKeyRow {
    pub id: DataKeyId,
    pub home: Home,
    /// What the ring key was called.
    pub ring_key: String,
    pub fingerprint: Fingerprint,
    pub salt: Salt,
}

/// A key of a ring that has sealed what is still stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingKeyUse {
    pub name: String,
    pub fingerprint: Fingerprint,
    /// Derived from it, and still needed.
    pub data_keys: u64,
    /// Those that a broker seals with now.
    pub open_keys: u64,
    pub topics: u64,
    pub first_made_at: Timestamp,
    pub last_made_at: Timestamp,
}

impl RingKeyUse {
    /// Together with what was derived from the same key when it had another name.
    pub fn and(self, other: Option<RingKeyUse>) -> Self {
        let Some(other) = other else { return self };
        Self {
            data_keys: self.data_keys + other.data_keys,
            open_keys: self.open_keys + other.open_keys,
            topics: self.topics.max(other.topics),
            first_made_at: self.first_made_at.min(other.first_made_at),
            last_made_at: self.last_made_at.max(other.last_made_at),
            ..self
        }
    }
}

/// Each of them once, by id.
pub(super) fn distinct<'a>(ids: impl IntoIterator<Item = &'a Option<Uuid>>) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = ids.into_iter().flatten().copied().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

impl Connection {
    /// Makes a data key, for a broker or for this transaction alone. With where the segment ends that is written now; `None`: the
    /// partition is gone.
    pub(super) async fn data_keys_insert(
        &self,
        ring_key: &RingKey,
        (partition_id, place): (PartitionId, Place),
        broker_id: Option<BrokerId>,
    ) -> Result<Option<(DataKey, Offset)>, Error> {
        let (id, salt) = (DataKeyId(Uuid::now_v7()), crate::encryption::data_key::new_salt());
        let broker = broker_id.map(|broker_id| broker_id.0);
        let fingerprint = ring_key.fingerprint().0;
        let params: super::connection::Params<'_> = &[
            &id.0,
            &partition_id.0,
            &place.as_str(),
            &broker,
            &ring_key.name(),
            &&fingerprint[..],
            &&salt[..],
        ];
        let row = self.query_opt(&DATA_KEYS_INSERT, params, Effect::Possible).await?;
        Ok(row.map(|row| {
            let home = Home { topic_id: TopicId(row.get("topic_id")), partition_id, place };
            (DataKey::derive(ring_key, id, home, &salt), Offset(row.get("segment_end")))
        }))
    }

    pub(super) async fn data_keys_find(&self, ids: &[Uuid]) -> Result<Vec<DataKeyRow>, Error> {
        let rows = self.query(&DATA_KEYS_FIND, &[&ids], Effect::None).await?;
        Ok(rows.iter().filter_map(data_key_row).collect())
    }
}

impl Store {
    /// Makes a data key for a broker.
    pub(super) async fn data_keys_make(
        &self,
        ring_key: &RingKey,
        partition_id: PartitionId,
        broker_id: BrokerId,
    ) -> Result<Option<(DataKey, Offset)>, Error> {
        retry::contended(retry::Policy::CONTENDED, || async {
            let connection = self.connection().await?;
            connection.data_keys_insert(ring_key, (partition_id, Place::Message), Some(broker_id)).await
        })
        .await
    }

    /// Closes data keys that nobody seals with any more, and drops those that nothing refers to. Returns how many went.
    pub async fn data_keys_tidy(&self) -> Result<u64, Error> {
        let connection = self.connection().await?;
        let any = connection.query_opt(&DATA_KEYS_ANY, &[], Effect::None).await?;
        if !any.is_some_and(|row| row.get("found")) {
            return Ok(0);
        }
        let done = self.vault.take_done();
        let ids: Vec<Uuid> = done.iter().map(|key| key.data_key.id.0).collect();
        if let Err(error) = connection.execute(&DATA_KEYS_CLOSE, &[&ids]).await {
            self.vault.put_back(done);
            return Err(error);
        }
        connection.execute(&DATA_KEYS_BOUND, &[]).await?;
        connection.execute(&DATA_KEYS_FORGET, &[&DATA_KEYS_FORGET_MAX]).await
    }

    /// Those of some data keys under which nothing is written any more.
    pub async fn data_keys_closed(
        &self,
        ids: impl IntoIterator<Item = DataKeyId>,
    ) -> Result<HashSet<DataKeyId>, Error> {
        let ids: Vec<Option<Uuid>> = ids.into_iter().map(|id| Some(id.0)).collect();
        let connection = self.connection().await?;
        let rows = connection.query(&DATA_KEYS_CLOSED, &[&distinct(&ids)], Effect::None).await?;
        Ok(rows.iter().map(|row| DataKeyId(row.get("data_key_id"))).collect())
    }

    /// Which keys of rings are still needed, by name.
    pub async fn data_keys_list(&self) -> Result<Vec<RingKeyUse>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&DATA_KEYS_LIST, &[], Effect::None).await?;
        Ok(rows.iter().map(ring_key_use).collect())
    }

    /// How many topics are encrypted.
    pub async fn topics_encrypted(&self) -> Result<u64, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&TOPICS_ENCRYPTED, &[], Effect::None).await?;
        Ok(row.map_or(0, |row| row.get::<_, i64>("topics").unsigned_abs()))
    }

    /// Keys, payloads sealed and opened, and what did not open.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }
}

/// `None`: nobody here can have written it.
fn data_key_row(row: &Row) -> Option<DataKeyRow> {
    let place = match row.get("place") {
        "message" => Place::Message,
        "copy" => Place::Copy,
        _ => return None,
    };
    let (topic_id, partition_id) = (TopicId(row.get("topic_id")), PartitionId(row.get("partition_id")));
    Some(DataKeyRow {
        id: DataKeyId(row.get("data_key_id")),
        home: Home { topic_id, partition_id, place },
        ring_key: row.get("ring_key"),
        fingerprint: fingerprint(row)?,
        salt: row.get::<_, &[u8]>("salt").try_into().ok()?,
    })
}

fn fingerprint(row: &Row) -> Option<Fingerprint> {
    row.get::<_, &[u8]>("ring_fingerprint").try_into().ok().map(Fingerprint)
}

fn ring_key_use(row: &Row) -> RingKeyUse {
    let count = |name| row.get::<_, i64>(name).unsigned_abs();
    RingKeyUse {
        name: row.get("ring_key"),
        fingerprint: fingerprint(row).unwrap_or(Fingerprint([0; 8])),
        data_keys: count("data_keys"),
        open_keys: count("open_keys"),
        topics: count("topics"),
        first_made_at: row.get("first_made_at"),
        last_made_at: row.get("last_made_at"),
    }
}
