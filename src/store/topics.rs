//! Topics: made, grown, listed, found and deleted. Rows only: the tables of a partition come with its first publish, and go
//! with the sweep.

use std::time::Duration;

use jiff::Timestamp;
use laneway_client::TopicName;
use laneway_client::labels::{LabelChanges, Labels, TOPIC_LABELS_MAX};
use laneway_client::topic::Encryption;
use tokio_postgres::Row;

use super::error::{Effect, Error};
use super::query::query;
use super::{Store, retry};
use crate::ids::{PartitionId, TopicId};

query!(TOPICS_CREATE = "topics_create"[
    TEXT, INT4, INT4, INT4, INT8, INT8, INT8, BOOL, INT8, INT8, INT8, INT8, INT8, TEXT, TEXT
]);
query!(TOPICS_LIST = "topics_list"[TEXT, INT8, TEXT]);
query!(TOPICS_FIND = "topics_find"[TEXT]);
query!(TOPICS_LOCK = "topics_lock"[INT8]);
query!(TOPICS_GROW = "topics_grow"[INT8, INT4]);
query!(TOPICS_ALTER = "topics_alter"[
    INT8, INT4, INT8, INT8, INT8, BOOL, INT8, INT8, INT8, INT8, INT8, TEXT, INT4, TEXT
]);
query!(TOPICS_LOCK_GROUPS = "topics_lock_groups"[INT8]);
query!(TOPICS_LOCK_LANES = "topics_lock_lanes"[INT8]);
query!(TOPICS_DROP_GROUPS = "topics_drop_groups"[INT8]);
query!(TOPICS_LOCK_PARTITIONS = "topics_lock_partitions"[INT8]);
query!(TOPICS_DELETE = "topics_delete"[INT8]);

/// How `topics_alter` is told that there is no retention of what is completed any more.
const TAKEN_AWAY: i64 = -1;

/// What a topic is told when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSettings {
    /// Largest payload of one message.
    pub payload_bytes_max: u32,
    /// Most messages of one segment.
    pub segment_messages: u32,
    /// Age at which whole segments may be dropped; `None` keeps them.
    pub retention_age: Option<Duration>,
    /// Bytes above which the oldest segments are dropped; `None` keeps them.
    pub retention_bytes: Option<u64>,
    /// How long a transaction id is remembered.
    pub dedup_window: Duration,
    /// Whether it is kept when messages were delivered and done.
    pub delivery_times: bool,
    /// What it may hold before publishes are refused.
    pub limits: TopicLimits,
    /// How long after every group has committed past a segment it may be dropped; `None` keeps it.
    pub retention_completed: Option<Duration>,
    /// How long a group may be unused before it is deleted; `None` keeps it.
    pub group_expiry: Option<Duration>,
    /// Words by name, which subscriptions can match.
    pub labels: Labels,
    /// How the payloads of new messages are stored.
    pub encryption: Encryption,
}

/// What a topic may hold before publishes are refused; `None`: no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicLimits {
    /// Messages by which its slowest counted group may be behind.
    pub backlog_messages: Option<u64>,
    /// Bytes of them.
    pub backlog_bytes: Option<u64>,
    /// Bytes that it may store.
    pub stored_bytes: Option<u64>,
}

impl TopicLimits {
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for TopicSettings {
    fn default() -> Self {
        use crate::limits::{DEDUP_WINDOW_DEFAULT, PAYLOAD_BYTES_MAX_DEFAULT, SEGMENT_MESSAGES_DEFAULT};
        Self {
            payload_bytes_max: PAYLOAD_BYTES_MAX_DEFAULT,
            segment_messages: SEGMENT_MESSAGES_DEFAULT,
            retention_age: None,
            retention_bytes: None,
            dedup_window: DEDUP_WINDOW_DEFAULT,
            delivery_times: true,
            limits: TopicLimits::default(),
            retention_completed: None,
            group_expiry: None,
            labels: Labels::new(),
            encryption: Encryption::None,
        }
    }
}

/// A topic as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    pub topic_id: TopicId,
    pub name: String,
    pub settings: TopicSettings,
    /// By their numbers, from 0.
    pub partitions: Vec<PartitionId>,
    pub created_at: Timestamp,
    /// Since when it takes no messages and delivers none.
    pub paused_at: Option<Timestamp>,
}

/// Whether a topic was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    Made(TopicId),
    /// The name is taken; nothing happened.
    Exists,
}

/// New settings of a topic; what is absent stays as it is, and a retention, limit or expiry of 0 is taken away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicChanges {
    /// It may only grow.
    pub partitions: Option<u32>,
    pub payload_bytes_max: Option<u32>,
    pub retention_age_ms: Option<u64>,
    pub retention_bytes: Option<u64>,
    pub dedup_window_ms: Option<u64>,
    pub delivery_times: Option<bool>,
    pub max_backlog_messages: Option<u64>,
    pub max_backlog_bytes: Option<u64>,
    pub max_stored_bytes: Option<u64>,
    /// `Some(None)`: it is taken away; a grace of 0 is one.
    pub retention_completed_ms: Option<Option<u64>>,
    pub group_expiry_ms: Option<u64>,
    /// Merged with those it has.
    pub labels: LabelChanges,
    pub encryption: Option<Encryption>,
}

/// Whether a topic was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Altered {
    Done,
    /// It has this many partitions already, and never loses one; nothing happened.
    Shrinks {
        partitions: u32,
    },
    /// It would have too many labels; nothing happened.
    TooManyLabels,
    /// There is no such topic (any more); nothing happened.
    Unknown,
}

/// Whether a topic was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// Its name is free, its partitions take nothing any more, and the sweep drops what they hold.
    Marked,
    /// There is no such topic (any more); nothing happened.
    Unknown,
}

impl Store {
    /// Makes a topic with its partition rows, in one statement.
    pub async fn topics_create(
        &self,
        name: &TopicName,
        partitions: u32,
        settings: &TopicSettings,
    ) -> Result<Created, Error> {
        let partitions = partitions as i32;
        let payload_bytes_max = settings.payload_bytes_max as i32;
        let segment_messages = settings.segment_messages as i32;
        let retention_age_ms = settings.retention_age.map(millis);
        let retention_bytes = settings.retention_bytes.map(|bytes| bytes as i64);
        let dedup_window_ms = millis(settings.dedup_window);
        let bigint = |value: Option<u64>| value.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        let TopicLimits { backlog_messages, backlog_bytes, stored_bytes } = settings.limits;
        let limits = [backlog_messages, backlog_bytes, stored_bytes].map(bigint);
        let (completed_ms, expiry_ms) =
            (settings.retention_completed.map(millis), settings.group_expiry.map(millis));
        let labels = json(&settings.labels);
        let row = retry::contended(retry::Policy::CONTENDED, || async {
            let connection = self.connection().await?;
            connection
                .query_opt(
                    &TOPICS_CREATE,
                    &[
                        &name.as_str(),
                        &partitions,
                        &payload_bytes_max,
                        &segment_messages,
                        &retention_age_ms,
                        &retention_bytes,
                        &dedup_window_ms,
                        &settings.delivery_times,
                        &limits[0],
                        &limits[1],
                        &limits[2],
                        &completed_ms,
                        &expiry_ms,
                        &labels,
                        &settings.encryption.as_str(),
                    ],
                    Effect::Possible,
                )
                .await
        })
        .await?;
        Ok(row.map_or(Created::Exists, |row| Created::Made(TopicId(row.get("topic_id")))))
    }

    /// Adds partitions up to a count; a smaller count changes nothing. Returns the count now, or `None`: no such topic.
    pub async fn topics_grow(&self, topic_id: TopicId, partitions: u32) -> Result<Option<u32>, Error> {
        let partitions = partitions as i32;
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            if transaction.query_opt(&TOPICS_LOCK, &[&topic_id.0], Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(None);
            }
            let row =
                transaction.query_opt(&TOPICS_GROW, &[&topic_id.0, &partitions], Effect::Possible).await?;
            transaction.commit().await?;
            Ok(row.map(|row| row.get::<_, i32>("partitions") as u32))
        })
        .await
    }

    /// Changes settings and adds partitions: all of it, or nothing. Once it is answered that a topic is encrypted, nothing is stored
    /// in it as it is.
    pub async fn topics_alter(&self, topic_id: TopicId, changes: &TopicChanges) -> Result<Altered, Error> {
        let bigint = |value: Option<u64>| value.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        let (age, bytes) = (bigint(changes.retention_age_ms), bigint(changes.retention_bytes));
        let (window, payload) =
            (bigint(changes.dedup_window_ms), changes.payload_bytes_max.map(|bytes| bytes as i32));
        let limits = [changes.max_backlog_messages, changes.max_backlog_bytes, changes.max_stored_bytes];
        let [backlog_messages, backlog_bytes, stored_bytes] = limits.map(bigint);
        let completed = changes.retention_completed_ms.map(|grace| bigint(grace).unwrap_or(TAKEN_AWAY));
        let expiry = bigint(changes.group_expiry_ms);
        let encryption = changes.encryption.map(Encryption::as_str);
        let wanted = changes.partitions.unwrap_or(0);
        let labels = (!changes.labels.is_empty()).then(|| json(&changes.labels));
        let labels_max = TOPIC_LABELS_MAX as i32;
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            if transaction.query_opt(&TOPICS_LOCK, &[&topic_id.0], Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(Altered::Unknown);
            }
            if encryption.is_some() {
                transaction.query(&TOPICS_LOCK_PARTITIONS, &[&topic_id.0], Effect::None).await?;
            }
            let params: super::connection::Params<'_> = &[&topic_id.0, &(wanted as i32)];
            let row = transaction.query_opt(&TOPICS_GROW, params, Effect::Possible).await?;
            let partitions = row.map_or(0, |row| row.get::<_, i32>("partitions") as u32);
            if changes.partitions.is_some() && partitions > wanted {
                transaction.rollback().await?;
                return Ok(Altered::Shrinks { partitions });
            }
            let params: super::connection::Params<'_> = &[
                &topic_id.0,
                &payload,
                &age,
                &bytes,
                &window,
                &changes.delivery_times,
                &backlog_messages,
                &backlog_bytes,
                &stored_bytes,
                &completed,
                &expiry,
                &labels,
                &labels_max,
                &encryption,
            ];
            if transaction.execute(&TOPICS_ALTER, params).await? == 0 {
                transaction.rollback().await?;
                return Ok(Altered::TooManyLabels); // the topic is there: it is locked
            }
            transaction.commit().await?;
            Ok(Altered::Done)
        })
        .await
    }

    /// Deletes a topic with its groups. Flushes under way are waited for; later ones find its partitions closed.
    ///
    /// Order: topic, groups, lanes, partitions, each by id, as everybody else locks them.
    pub async fn topics_delete(&self, topic_id: TopicId) -> Result<Deleted, Error> {
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            if transaction.query_opt(&TOPICS_LOCK, &[&topic_id.0], Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(Deleted::Unknown);
            }
            for query in [
                &TOPICS_LOCK_GROUPS,
                &TOPICS_LOCK_LANES,
                &TOPICS_DROP_GROUPS,
                &TOPICS_LOCK_PARTITIONS,
                &TOPICS_DELETE,
            ] {
                transaction.query(query, &[&topic_id.0], Effect::None).await?;
            }
            transaction.commit().await?;
            Ok(Deleted::Marked)
        })
        .await
    }

    /// Topics by name after a given one, those that have all of these labels.
    pub async fn topics_list(&self, after: &str, limit: i64, labels: &Labels) -> Result<Vec<Topic>, Error> {
        let labels = json(labels);
        let connection = self.connection().await?;
        let rows = connection.query(&TOPICS_LIST, &[&after, &limit, &labels], Effect::None).await?;
        Ok(rows.iter().map(topic).collect())
    }

    /// A topic by name, if there is one.
    pub async fn topics_find(&self, name: &TopicName) -> Result<Option<Topic>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&TOPICS_FIND, &[&name.as_str()], Effect::None).await?;
        Ok(row.as_ref().map(topic))
    }
}

/// Labels as JSON; only words are in it.
fn json(labels: &impl serde::Serialize) -> String {
    serde_json::to_string(labels).expect("words are always JSON")
}

/// Labels as the database has them.
pub(super) fn labels(row: &Row) -> Labels {
    serde_json::from_str(row.get("labels")).expect("the database keeps words by name")
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Whatever is not `none` is encrypted: a word of a later release must not let payloads out.
pub(super) fn encryption(row: &Row) -> Encryption {
    match row.get("encryption") {
        "none" => Encryption::None,
        _ => Encryption::Aes256Gcm,
    }
}

/// What a topic may hold.
pub(super) fn limits(row: &Row) -> TopicLimits {
    TopicLimits {
        backlog_messages: count(row, "max_backlog_messages"),
        backlog_bytes: count(row, "max_backlog_bytes"),
        stored_bytes: count(row, "max_stored_bytes"),
    }
}

fn count(row: &Row, name: &str) -> Option<u64> {
    row.get::<_, Option<i64>>(name).map(|count| count as u64)
}

fn topic(row: &Row) -> Topic {
    let ms = |name| row.get::<_, Option<i64>>(name).map(|ms| Duration::from_millis(ms as u64));
    let partitions: Option<Vec<i64>> = row.get("partition_ids");
    Topic {
        topic_id: TopicId(row.get("topic_id")),
        name: row.get("name"),
        settings: TopicSettings {
            payload_bytes_max: row.get::<_, i32>("payload_bytes_max") as u32,
            segment_messages: row.get::<_, i32>("segment_messages") as u32,
            retention_age: ms("retention_age_ms"),
            retention_bytes: count(row, "retention_bytes"),
            dedup_window: Duration::from_millis(row.get::<_, i64>("dedup_window_ms") as u64),
            delivery_times: row.get("delivery_times"),
            limits: limits(row),
            retention_completed: ms("retention_completed_ms"),
            group_expiry: ms("group_expiry_ms"),
            labels: labels(row),
            encryption: encryption(row),
        },
        partitions: partitions.unwrap_or_default().into_iter().map(PartitionId).collect(),
        created_at: row.get("created_at"),
        paused_at: row.get("paused_at"),
    }
}
