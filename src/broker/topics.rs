//! The topics that exist, remembered for a while; making, growing and deleting them.
//!
//! What is remembered is dropped at a hint from another broker and, because hints can be lost, after a few seconds anyway.
//! A topic that is not known is always looked up, so a new one is never missed. What was read on another timeline of the
//! database is not believed at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use laneway_client::TopicName;
use laneway_client::labels::{InvalidLabel, Labels, check_label, check_labels};
use laneway_client::topic::{AlterTopic, CreateTopic, InvalidTopicName, Retention, TOPIC_PARTITIONS_MAX};
use tokio::sync::broadcast;

use crate::ids::PartitionId;
use crate::limits::{
    DEDUP_WINDOW_MAX, GROUP_EXPIRY_MAX, GROUP_EXPIRY_MIN, PAYLOAD_BYTES_MAX_MAX, RETENTION_AGE_MAX,
    RETENTION_BYTES_MAX, RETENTION_GRACE_MAX, SEGMENT_MESSAGES_MAX, SEGMENT_MESSAGES_MIN, TOPIC_LIMIT_MAX,
    TOPICS_PAGE_MAX,
};
use crate::store::listen::Hint;
use crate::store::partitions::Partition;
use crate::store::timeline::Era;
use crate::store::topics::{Altered, Created, Deleted, Topic, TopicChanges, TopicLimits, TopicSettings};
use crate::store::{Error, Store};

/// How long a topic is believed without a hint: the bound on how late another broker's change is seen.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// Why a topic could not be made or changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    #[error(transparent)]
    Name(#[from] InvalidTopicName),
    #[error("{field} must be between {min} and {max}, not {value}")]
    Setting { field: &'static str, min: u64, max: u64, value: u64 },
    #[error("there is a topic {name} already")]
    Exists { name: String },
    #[error("there is no topic {name}")]
    Unknown { name: String },
    #[error("topic {name} has {partitions} partitions, and a topic never loses one")]
    Shrinks { name: String, partitions: u32 },
    #[error(transparent)]
    Label(#[from] InvalidLabel),
    #[error(transparent)]
    Store(#[from] Error),
}

/// A topic, and when it was read.
#[derive(Debug, Clone)]
struct Remembered {
    topic: Arc<Topic>,
    read_at: Instant,
    era: Era,
}

/// What may have been forgotten while a topic is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Before {
    forgotten: u64,
    era: Era,
}

/// The broker's view of the topics. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Topics {
    store: Store,
    remembered: Arc<DashMap<TopicName, Remembered>>,
    /// How often something was forgotten: what was read before that is not remembered after it.
    forgotten: Arc<AtomicU64>,
}

impl Topics {
    pub fn new(store: Store) -> Self {
        Self { store, remembered: Arc::default(), forgotten: Arc::default() }
    }

    /// Forgets at every hint, for as long as hints come.
    pub async fn follow(self, mut hints: broadcast::Receiver<Hint>) {
        loop {
            match hints.recv().await {
                Ok(Hint::Topics | Hint::Everything) | Err(broadcast::error::RecvError::Lagged(_)) => {
                    self.forgotten.fetch_add(1, Ordering::SeqCst);
                    self.remembered.clear();
                }
                Ok(Hint::Group(_) | Hint::Heads { .. }) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    /// A topic by name.
    pub async fn find(&self, name: &TopicName) -> Result<Arc<Topic>, TopicError> {
        if let Some(topic) = self.recall(name) {
            return Ok(topic);
        }
        let before =
            Before { forgotten: self.forgotten.load(Ordering::SeqCst), era: self.store.timelines().era() };
        let found = self.store.topics_find(name).await?;
        let topic = Arc::new(found.ok_or_else(|| unknown(name))?);
        self.remember(name, &topic, before);
        Ok(topic)
    }

    /// Order: looked at under the entry's lock. Whoever forgets counts first and removes then, so it is either seen here or
    /// removes what is put in here.
    fn remember(&self, name: &TopicName, topic: &Arc<Topic>, before: Before) {
        let entry = self.remembered.entry(name.clone());
        if self.forgotten.load(Ordering::SeqCst) == before.forgotten {
            entry.insert(Remembered { topic: topic.clone(), read_at: Instant::now(), era: before.era });
        }
    }

    /// Makes the next look at a topic a look into the database.
    pub fn forget(&self, name: &TopicName) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        self.remembered.remove(name);
    }

    fn recall(&self, name: &TopicName) -> Option<Arc<Topic>> {
        let entry = self.remembered.get(name)?;
        let is_fresh = entry.read_at.elapsed() < REMEMBERED_FOR && entry.era == self.store.timelines().era();
        is_fresh.then(|| entry.topic.clone())
    }

    /// Makes a topic. Nothing is made unless every setting is in its range.
    pub async fn create(&self, request: &CreateTopic) -> Result<Arc<Topic>, TopicError> {
        let name = TopicName::new(request.name.clone())?;
        let settings = settings(request)?;
        match self.store.topics_create(&name, request.partitions, &settings).await? {
            Created::Made(topic_id) => {
                tracing::info!(topic.name = %name, topic = %topic_id, partitions = request.partitions, "topic made");
                self.forget(&name);
                self.find(&name).await
            }
            Created::Exists => Err(TopicError::Exists { name: name.to_string() }),
        }
    }

    /// Adds partitions. Keys and transaction ids that are routed by hash may land elsewhere from then on.
    pub async fn grow(&self, name: &TopicName, partitions: u32) -> Result<Arc<Topic>, TopicError> {
        in_range("partitions", u64::from(partitions), 1, u64::from(TOPIC_PARTITIONS_MAX))?;
        let topic = self.find(name).await?;
        let now = self.store.topics_grow(topic.topic_id, partitions).await?;
        self.forget(name);
        match now {
            None => Err(unknown(name)),
            Some(now) if now > partitions => {
                Err(TopicError::Shrinks { name: name.to_string(), partitions: now })
            }
            Some(_) => self.find(name).await,
        }
    }

    /// Changes settings and adds partitions: all of it, or nothing.
    pub async fn alter(&self, name: &TopicName, request: &AlterTopic) -> Result<Arc<Topic>, TopicError> {
        let changes = changes(request)?;
        // Not what is remembered: that may be an older topic of the same name.
        let topic = self.store.topics_find(name).await?.ok_or_else(|| unknown(name))?;
        let altered = self.store.topics_alter(topic.topic_id, &changes).await;
        self.forget(name);
        match altered? {
            Altered::Done => {
                tracing::info!(topic.name = %name, topic = %topic.topic_id, ?changes, "topic altered");
                self.find(name).await
            }
            Altered::Shrinks { partitions } => {
                Err(TopicError::Shrinks { name: name.to_string(), partitions })
            }
            Altered::TooManyLabels => Err(InvalidLabel::TooMany.into()),
            Altered::Unknown => Err(unknown(name)),
        }
    }

    /// Deletes a topic with everything in it; its name may be used again at once. This broker knows it no more from here on,
    /// the others after a hint or a few seconds.
    pub async fn delete(&self, name: &TopicName) -> Result<(), TopicError> {
        // Not what is remembered: that may be an older topic of the same name.
        let topic = self.store.topics_find(name).await?.ok_or_else(|| unknown(name))?;
        let deleted = self.store.topics_delete(topic.topic_id).await;
        self.forget(name);
        match deleted? {
            Deleted::Marked => {
                tracing::info!(topic.name = %name, topic = %topic.topic_id, "topic deleted");
                Ok(())
            }
            Deleted::Unknown => Err(unknown(name)),
        }
    }

    /// One page of topics by name: those that have all of these labels.
    pub async fn list(&self, after: &str, labels: &Labels) -> Result<Vec<Topic>, TopicError> {
        check_labels(labels)?;
        Ok(self.store.topics_list(after, TOPICS_PAGE_MAX, labels).await?)
    }

    /// The name of the topic that a partition belongs to, and its number there.
    pub async fn name_of(&self, partition_id: PartitionId) -> Result<(String, u32), TopicError> {
        let found = self.store.partitions_name(partition_id).await?;
        found.ok_or_else(|| TopicError::Unknown { name: format!("of partition {partition_id}") })
    }

    /// A topic with where its partitions stand.
    pub async fn describe(&self, name: &TopicName) -> Result<(Arc<Topic>, Vec<Partition>), TopicError> {
        let topic = self.find(name).await?;
        let partitions = self.store.partitions_describe(topic.topic_id).await?;
        if partitions.is_empty() {
            self.forget(name); // it was deleted since it was remembered
            return Err(unknown(name));
        }
        Ok((topic, partitions))
    }
}

fn unknown(name: &TopicName) -> TopicError {
    TopicError::Unknown { name: name.to_string() }
}

fn settings(request: &CreateTopic) -> Result<TopicSettings, TopicError> {
    let defaults = TopicSettings::default();
    let settings = TopicSettings {
        payload_bytes_max: request.payload_bytes_max.unwrap_or(defaults.payload_bytes_max),
        segment_messages: request.segment_messages.unwrap_or(defaults.segment_messages),
        retention_age: request.retention_age_ms.map(Duration::from_millis),
        retention_bytes: request.retention_bytes,
        dedup_window: request.dedup_window_ms.map_or(defaults.dedup_window, Duration::from_millis),
        delivery_times: request.delivery_times.unwrap_or(defaults.delivery_times),
        limits: TopicLimits {
            backlog_messages: request.max_backlog_messages,
            backlog_bytes: request.max_backlog_bytes,
            stored_bytes: request.max_stored_bytes,
        },
        retention_completed: request.retention_completed_ms.map(Duration::from_millis),
        group_expiry: request.group_expiry_ms.map(Duration::from_millis),
        labels: request.labels.clone(),
        encryption: request.encryption.unwrap_or_default(),
    };
    check_labels(&request.labels)?;
    let (segment_min, segment_max) = (u64::from(SEGMENT_MESSAGES_MIN), u64::from(SEGMENT_MESSAGES_MAX));
    let window_max = DEDUP_WINDOW_MAX.as_millis() as u64;
    in_range("partitions", u64::from(request.partitions), 1, u64::from(TOPIC_PARTITIONS_MAX))?;
    in_range(
        "payload_bytes_max",
        u64::from(settings.payload_bytes_max),
        1,
        u64::from(PAYLOAD_BYTES_MAX_MAX),
    )?;
    in_range("segment_messages", u64::from(settings.segment_messages), segment_min, segment_max)?;
    in_range(
        "retention_age_ms",
        request.retention_age_ms.unwrap_or(1),
        1,
        RETENTION_AGE_MAX.as_millis() as u64,
    )?;
    in_range("retention_bytes", request.retention_bytes.unwrap_or(1), 1, RETENTION_BYTES_MAX)?;
    in_range("dedup_window_ms", settings.dedup_window.as_millis() as u64, 1, window_max)?;
    let limits = [request.max_backlog_messages, request.max_backlog_bytes, request.max_stored_bytes];
    bounds(limits, request.retention_completed_ms, request.group_expiry_ms)?;
    Ok(settings)
}

/// What a request changes, every value within its range.
fn changes(request: &AlterTopic) -> Result<TopicChanges, TopicError> {
    let AlterTopic {
        partitions,
        payload_bytes_max,
        retention_age_ms,
        retention_bytes,
        dedup_window_ms,
        delivery_times,
        max_backlog_messages,
        max_backlog_bytes,
        max_stored_bytes,
        retention_completed_ms,
        group_expiry_ms,
        ref labels,
        encryption,
    } = *request;
    labels.iter().try_for_each(|(name, value)| check_label(name, value.as_deref()))?;
    let given = |retention: Retention| match retention {
        Retention::Leave | Retention::None => None,
        Retention::Bound(bound) => Some(bound),
    };
    let bound = |retention: Retention| given(retention).unwrap_or(1);
    let stored = |retention: Retention| match retention {
        Retention::Leave => None,
        Retention::None => Some(0),
        Retention::Bound(bound) => Some(bound),
    };
    let (age_max, window_max) = (RETENTION_AGE_MAX.as_millis() as u64, DEDUP_WINDOW_MAX.as_millis() as u64);
    let (partitions_max, payload_max) = (u64::from(TOPIC_PARTITIONS_MAX), u64::from(PAYLOAD_BYTES_MAX_MAX));
    in_range("partitions", u64::from(partitions.unwrap_or(1)), 1, partitions_max)?;
    in_range("payload_bytes_max", u64::from(payload_bytes_max.unwrap_or(1)), 1, payload_max)?;
    in_range("retention_age_ms", bound(retention_age_ms), 1, age_max)?;
    in_range("retention_bytes", bound(retention_bytes), 1, RETENTION_BYTES_MAX)?;
    in_range("dedup_window_ms", dedup_window_ms.unwrap_or(1), 1, window_max)?;
    let limits = [max_backlog_messages, max_backlog_bytes, max_stored_bytes];
    bounds(limits.map(given), given(retention_completed_ms), given(group_expiry_ms))?;
    let [max_backlog_messages, max_backlog_bytes, max_stored_bytes] = limits.map(stored);
    let retention_completed_ms = match retention_completed_ms {
        Retention::Leave => None,
        Retention::None => Some(None),
        Retention::Bound(grace) => Some(Some(grace)),
    };
    let (retention_age_ms, retention_bytes) = (stored(retention_age_ms), stored(retention_bytes));
    Ok(TopicChanges {
        partitions,
        payload_bytes_max,
        retention_age_ms,
        retention_bytes,
        dedup_window_ms,
        delivery_times,
        max_backlog_messages,
        max_backlog_bytes,
        max_stored_bytes,
        retention_completed_ms,
        group_expiry_ms: stored(group_expiry_ms),
        labels: labels.clone(),
        encryption,
    })
}

/// Limits, grace and expiry, as far as they are given.
fn bounds(limits: [Option<u64>; 3], grace_ms: Option<u64>, expiry_ms: Option<u64>) -> Result<(), TopicError> {
    let ms = |duration: Duration| duration.as_millis() as u64;
    for (field, limit) in
        ["max_backlog_messages", "max_backlog_bytes", "max_stored_bytes"].into_iter().zip(limits)
    {
        in_range(field, limit.unwrap_or(1), 1, TOPIC_LIMIT_MAX)?;
    }
    in_range("retention_completed_ms", grace_ms.unwrap_or(0), 0, ms(RETENTION_GRACE_MAX))?;
    let (min, max) = (ms(GROUP_EXPIRY_MIN), ms(GROUP_EXPIRY_MAX));
    in_range("group_expiry_ms", expiry_ms.unwrap_or(min), min, max)
}

fn in_range(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), TopicError> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => Err(TopicError::Setting { field, min, max, value }),
    }
}
