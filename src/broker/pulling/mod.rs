//! Pulling: consumers that keep no connection pop the messages of a lane, and say at any broker what became of them.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the requests of pullers |
//! | `popping` | finding a lane, reading its messages, taking it |
//! | `line` | what of a lane is due: delays, windows, ages |
//! | `queue` | those who wait for messages of a group |
//! | `expiry` | pops whose time is over |
//! | `rules` | what may be popped, and what follows from acks, nacks and lost time; pure |
//!
//! Nothing about a pop is kept in memory: its row says who, how far and until when. All pullers of a group are one member of it
//! together, which the rows name by the nil UUID, and get a member's share of the lanes.

mod expiry;
mod line;
mod popping;
mod queue;
mod rules;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use laneway_client::pull_api::{PopAck, PopAcked, PopExtend, PopNack, PopNacked, PopVerdict};
use laneway_client::{GroupName, TopicName};
use parking_lot::Mutex;
use rand::Rng as _;
use tokio_util::sync::CancellationToken;

pub(super) use expiry::expire;
pub use popping::{Pop, Wish};
use queue::Queue;
pub use rules::Refused;
use rules::{Acked, Blame, Keep, Poison};

use super::groups::pause::{PauseFault, pause};
use super::groups::{Groups, SubscribeError, backoff};
use super::hot_tail::HotTails;
use super::lease::Lease;
use super::metrics::Metrics;
use super::reader::{ReadError, Reader};
use super::topics::{TopicError, Topics};
use crate::ids::{Epoch, GroupId, Offset};
use crate::limits::{
    ACK_DEADLINE_MAX, ACK_DEADLINE_MIN, NACK_DELAY_MAX, NACK_REASON_CHARS_MAX, POP_MESSAGES_MAX,
    PULLED_GROUPS_MAX, PULLERS_TTL,
};
use crate::store::groups::Group;
use crate::store::listen::Hints;
use crate::store::pops::PopKey;
use crate::store::topics::Topic;
use crate::store::{Error, Store};

/// Why a puller gets nothing, or is not heard.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PullError {
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error("topic {topic} has no group {group}")]
    UnknownGroup { topic: String, group: String },
    #[error("{field} must be {rule}")]
    Invalid { field: &'static str, rule: String },
    #[error(transparent)]
    Until(#[from] PauseFault),
    #[error("topic {topic} has {count} partitions, and none of the number {partition}")]
    PartitionOutOfRange { topic: String, count: usize, partition: u32 },
    #[error("group {group} keeps order by key: its messages are pushed to members, and are not popped")]
    ByKey { group: String },
    /// About the group that the pop would make.
    #[error(transparent)]
    Group(#[from] SubscribeError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Store(#[from] Error),
}

/// What pulling needs.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    pub store: Store,
    pub reader: Reader,
    pub topics: Topics,
    pub tails: HotTails,
    pub hints: Hints,
    pub groups: Groups,
    /// For the database clock.
    pub lease: Lease,
    pub metrics: Arc<Metrics>,
    /// How long a session may finish when its lane goes to the pullers.
    pub drain: Duration,
}

/// All pullers of a broker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pulling {
    surroundings: Surroundings,
    queues: Arc<Mutex<HashMap<GroupId, Arc<Queue>>>>,
    closing: CancellationToken,
}

/// A pop that a puller speaks about.
struct Named {
    topic: Arc<Topic>,
    group: Group,
    key: PopKey,
}

impl Pulling {
    pub(super) fn new(surroundings: Surroundings) -> Self {
        Self { surroundings, queues: Arc::default(), closing: CancellationToken::new() }
    }

    /// Those who wait are answered now, with nothing: the broker is going.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Acknowledges messages of a pop. The same again is answered the same.
    pub async fn ack(
        &self,
        topic: &TopicName,
        group: &GroupName,
        ack: &PopAck,
    ) -> Result<PopAcked, PullError> {
        let next = ack.next.map(|next| position("next", next)).transpose()?;
        let offsets: Vec<Offset> =
            ack.offsets.iter().map(|offset| position("offsets", *offset)).collect::<Result<_, _>>()?;
        if offsets.len() > POP_MESSAGES_MAX as usize {
            let rule = format!("at most {POP_MESSAGES_MAX} offsets");
            return Err(PullError::Invalid { field: "offsets", rule });
        }
        if next.is_none() && offsets.is_empty() {
            let rule = "given unless offsets are: name what is done".to_owned();
            return Err(PullError::Invalid { field: "next", rule });
        }
        let named = self.named(topic, group, ack.partition, ack.epoch).await?;
        let keep = keep(&named.topic);
        let store = &self.surroundings.store;
        let settled = store.pops_settle(&named.key, |lane| rules::ack(lane, next, &offsets, keep)).await?;
        let Acked { answer, fresh } = settled.unwrap_or(Err(Refused::LeaseLost))?;
        self.surroundings.metrics.acked_messages.inc_by(fresh);
        self.on_freed(&named, answer.remaining);
        Ok(answer)
    }

    /// Refuses a message of a pop: it is charged, and comes again or is given up.
    pub async fn nack(
        &self,
        topic: &TopicName,
        group: &GroupName,
        nack: &PopNack,
    ) -> Result<PopNacked, PullError> {
        let offset = position("offset", nack.offset)?;
        let delay = self.delay(nack)?;
        let reason = nack.reason.as_deref().unwrap_or("nack");
        let reason: String = reason.chars().filter(|c| *c != '\0').take(NACK_REASON_CHARS_MAX).collect();
        let named = self.named(topic, group, nack.partition, nack.epoch).await?;
        let settings = &named.group.settings;
        let Surroundings { store, reader, metrics, .. } = &self.surroundings;
        let mut poison = Poison::NotRead;
        let answer = loop {
            let settled = store
                .pops_settle(&named.key, |lane| {
                    let attempts = rules::attempts_after_failure(&lane.at, offset);
                    let delay =
                        delay.unwrap_or_else(|| backoff::delay(settings, attempts, rand::rng().random()));
                    rules::nack(lane, offset, &Blame { reason: reason.clone(), delay }, settings, &poison)
                })
                .await?;
            match settled.unwrap_or(Err(Refused::LeaseLost)) {
                Err(Refused::NeedsMessage { offset }) => {
                    poison = expiry::read_poison(reader, named.key.partition_id, offset).await?;
                }
                settled => break settled?,
            }
        };
        metrics.nacks.inc();
        match answer.verdict {
            PopVerdict::Retry => _ = metrics.retries.inc(),
            PopVerdict::Block => {}
            PopVerdict::DeadLetter => metrics.on_given_up("dead_letter"),
            PopVerdict::Skip => metrics.on_given_up("skip"),
        }
        self.on_freed(&named, answer.remaining);
        Ok(answer)
    }

    /// How long the lane holds; `None`: for the backoff of the group.
    fn delay(&self, nack: &PopNack) -> Result<Option<Duration>, PullError> {
        if nack.delay_ms.is_some_and(|ms| Duration::from_millis(ms) > NACK_DELAY_MAX) {
            let rule = format!("at most {} milliseconds", NACK_DELAY_MAX.as_millis());
            return Err(PullError::Invalid { field: "delay_ms", rule });
        }
        if nack.delay_ms.is_some() && nack.until.is_some() {
            return Err(PullError::Invalid { field: "until", rule: "left out beside delay_ms".to_owned() });
        }
        let clock = self.surroundings.lease.clock();
        let now = clock.at_least(Instant::now()).unwrap_or_else(Timestamp::now);
        Ok(pause(nack.delay_ms, nack.until.as_deref(), now)?)
    }

    /// Gives a pop more time, from now on. Returns until when.
    pub async fn extend(
        &self,
        topic: &TopicName,
        group: &GroupName,
        extend: &PopExtend,
    ) -> Result<Timestamp, PullError> {
        let deadline = deadline(extend.ack_deadline_ms)?;
        let named = self.named(topic, group, extend.partition, extend.epoch).await?;
        let deadline = deadline.unwrap_or(named.group.settings.ack_deadline);
        let until = self.surroundings.store.pops_extend(&named.key, deadline).await?;
        Ok(until.ok_or(Refused::LeaseLost)?)
    }

    /// Others here may want a lane that is free now.
    fn on_freed(&self, named: &Named, remaining: u32) {
        if remaining == 0
            && let Some(queue) = self.queues.lock().get(&named.key.group_id)
        {
            queue.tell();
        }
    }

    /// What a puller speaks about; it must exist.
    async fn named(
        &self,
        topic: &TopicName,
        group: &GroupName,
        partition: u32,
        epoch: i64,
    ) -> Result<Named, PullError> {
        let epoch = Epoch(position("epoch", epoch)?.0);
        let found = self.surroundings.topics.find(topic).await?;
        let Some(partition_id) = found.partitions.get(partition as usize).copied() else {
            let (topic, count) = (found.name.clone(), found.partitions.len());
            return Err(PullError::PartitionOutOfRange { topic, count, partition });
        };
        let store = &self.surroundings.store;
        let group_row = store.groups_find(found.topic_id, group.as_str()).await?;
        let group = group_row
            .ok_or_else(|| PullError::UnknownGroup { topic: topic.to_string(), group: group.to_string() })?;
        let key = PopKey { group_id: group.group_id, partition_id, epoch };
        Ok(Named { topic: found, group, key })
    }

    /// Those who pull from a group here. Groups that nobody has pulled from for a while are forgotten.
    fn queue(&self, group_id: GroupId) -> Arc<Queue> {
        let mut queues = self.queues.lock();
        if queues.len() >= PULLED_GROUPS_MAX && !queues.contains_key(&group_id) {
            queues.retain(|_, queue| Arc::strong_count(queue) > 1 || queue.used_at().elapsed() < PULLERS_TTL);
        }
        queues.entry(group_id).or_insert_with(|| Arc::new(Queue::new(group_id))).clone()
    }
}

fn keep(topic: &Topic) -> Keep {
    if topic.settings.delivery_times { Keep::Times } else { Keep::Nothing }
}

fn position(field: &'static str, value: i64) -> Result<Offset, PullError> {
    match value {
        0.. => Ok(Offset(value)),
        _ => Err(PullError::Invalid { field, rule: format!("zero or more, not {value}") }),
    }
}

/// A deadline that somebody asks for.
fn deadline(ms: Option<u64>) -> Result<Option<Duration>, PullError> {
    let deadline = ms.map(Duration::from_millis);
    if deadline.is_none_or(|deadline| (ACK_DEADLINE_MIN..=ACK_DEADLINE_MAX).contains(&deadline)) {
        return Ok(deadline);
    }
    let (min, max) = (ACK_DEADLINE_MIN.as_millis(), ACK_DEADLINE_MAX.as_millis());
    let rule = format!("between {min} and {max} milliseconds");
    Err(PullError::Invalid { field: "ack_deadline_ms", rule })
}
