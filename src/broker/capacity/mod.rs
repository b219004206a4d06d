//! Capacity of topics: what may go in before consumers have done what is there.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the handle, what is let in, who waits for room |
//! | `gauge` | what is known about one topic, and whether a publish may go in |
//! | `watching` | the looks at one topic, for as long as somebody publishes to it |
//! | `counts` | what is counted, for `/metrics` |
//!
//! A publish is counted from here until it is answered, before it reaches the appender. A topic without limits is never asked.
//! Why the bound holds with many brokers: docs/adr/0009-capacity.md.

pub mod counts;
pub mod gauge;
mod watching;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use self::gauge::{Gauge, Limited, Load, Verdict};
use super::metrics::Metrics;
use super::topics::TopicError;
use crate::ids::TopicId;
use crate::limits::{CAPACITY_LOOK_TIMEOUT, FLUSH_BYTES_MAX, FLUSH_MESSAGES_MAX};
use crate::store::capacity::{BacklogBytes, TopicDepth};
use crate::store::topics::{Topic, TopicLimits};
use crate::store::{Error, Store};

/// A topic holds as much as it may; nothing happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("topic {topic} is full: {limited} is {limit}, and it holds {depth}", limited = .limited.as_str())]
pub struct TopicFull {
    pub topic: String,
    pub limited: Limited,
    pub depth: u64,
    pub limit: u64,
    /// When it is worth to try again.
    pub retry_after: Duration,
}

/// Why something was not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    #[error(transparent)]
    Full(#[from] TopicFull),
    /// It could not be looked at.
    #[error(transparent)]
    Topic(#[from] TopicError),
}

/// What the newest look has come to.
#[derive(Debug, Clone, Default)]
enum Looked {
    #[default]
    NotYet,
    Fine,
    Failed(Error),
    /// There is no such topic any more.
    Gone,
}

/// One topic with limits.
#[derive(Debug)]
struct Entry {
    topic_id: TopicId,
    name: String,
    state: Mutex<State>,
    looks: watch::Sender<Looked>,
    /// Somebody cannot wait for the next look.
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    gauge: Gauge,
    /// As the newest look has found them; before the first, as whoever asked first knew them.
    limits: TopicLimits,
    /// Whether a task looks at it.
    is_watched: bool,
    /// Whether it was let go: the next one who asks makes another.
    is_retired: bool,
    /// When somebody last asked.
    asked_at: Option<Instant>,
    /// Publishes that wait for room or for a look.
    waiting: usize,
}

/// What was let in; counted until it is dropped, which is when it is answered.
#[derive(Debug)]
pub struct Admission {
    entry: Arc<Entry>,
    load: Load,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.entry.state.lock().gauge.on_answered(self.load);
    }
}

/// Counts somebody as waiting.
struct Waiting<'a>(&'a Entry);

impl<'a> Waiting<'a> {
    fn new(entry: &'a Entry) -> Self {
        entry.state.lock().waiting += 1;
        Self(entry)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

type Entries = DashMap<TopicId, Arc<Entry>>;

/// The way in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Capacity {
    store: Store,
    metrics: Arc<Metrics>,
    entries: Arc<Entries>,
    /// What may go in between two looks: one flush per connection. What is larger by itself goes in alone.
    allowance: Load,
}

impl Capacity {
    pub fn new(store: &Store, metrics: &Arc<Metrics>) -> Self {
        let connections = store.settings().appenders.max(1) as u64;
        let allowance = Load {
            messages: FLUSH_MESSAGES_MAX as u64 * connections,
            bytes: FLUSH_BYTES_MAX as u64 * connections,
        };
        Self { store: store.clone(), metrics: metrics.clone(), entries: Arc::default(), allowance }
    }

    /// Lets messages into a topic, at once or by a deadline. `None`: the topic has no limits, or there is nothing to let in.
    pub async fn admit(
        &self,
        topic: &Topic,
        load: impl FnOnce() -> Load,
        until: Option<Instant>,
    ) -> Result<Option<Arc<Admission>>, NoRoom> {
        if topic.settings.limits.is_unlimited() {
            return Ok(None);
        }
        match load() {
            Load { messages: 0, .. } => Ok(None),
            load => self.admit_limited(topic, load, until).await.map(Some),
        }
    }

    async fn admit_limited(
        &self,
        topic: &Topic,
        load: Load,
        until: Option<Instant>,
    ) -> Result<Arc<Admission>, NoRoom> {
        let asked_at = Instant::now();
        let patience = asked_at + CAPACITY_LOOK_TIMEOUT;
        let mut failed: Option<Error> = None;
        loop {
            let Some(entry) = self.entry(topic) else { continue }; // it was let go just now
            let mut looks = entry.looks.subscribe();
            let verdict = self.judge(&entry, load, topic.settings.limits, asked_at);
            let deadline = match verdict {
                Verdict::Admitted => return Ok(Arc::new(Admission { entry, load })),
                Verdict::Full { reading, retry_after } => {
                    let (limited, depth, limit) = (reading.limited, reading.depth, reading.limit);
                    let topic = topic.name.clone();
                    let full = TopicFull { topic, limited, depth, limit, retry_after };
                    match until.filter(|until| *until > Instant::now()) {
                        Some(until) => until,
                        None => return Err(full.into()),
                    }
                }
                Verdict::LookFirst => match failed.take() {
                    Some(error) => return Err(TopicError::Store(error).into()),
                    None => patience,
                },
            };
            let waiting = Waiting::new(&entry);
            if verdict == Verdict::LookFirst {
                entry.wake.notify_one();
            }
            let looked = tokio::time::timeout_at(deadline.into(), looks.changed()).await;
            drop(waiting);
            match (looked, verdict) {
                (Ok(_), _) => match looks.borrow_and_update().clone() {
                    Looked::NotYet | Looked::Fine => {}
                    Looked::Failed(error) => failed = Some(error),
                    Looked::Gone => return Err(TopicError::Unknown { name: topic.name.clone() }.into()),
                },
                (Err(_), Verdict::LookFirst) => {
                    let reason = format!("it took too long to look how full topic {} is", topic.name);
                    return Err(TopicError::Store(Error::Unavailable { reason }).into());
                }
                (Err(_), Verdict::Admitted | Verdict::Full { .. }) => {} // judged once more, for the last time
            }
        }
    }

    /// Whether something may go in. Who knows other limits than the newest look has found may know newer ones, or older ones: that is
    /// for a look to say which has begun since.
    fn judge(&self, entry: &Entry, load: Load, known: TopicLimits, asked_at: Instant) -> Verdict {
        let mut state = entry.state.lock();
        if state.limits != known && !state.gauge.has_looked_since(asked_at) {
            return Verdict::LookFirst;
        }
        let (now, era) = (Instant::now(), self.store.timelines().era());
        let limits = state.limits;
        state.gauge.judge(load, &limits, self.allowance, (now, era))
    }

    /// The entry of a topic, with a task that looks at it. `None`: it was let go just now.
    fn entry(&self, topic: &Topic) -> Option<Arc<Entry>> {
        let made = || {
            Arc::new(Entry {
                topic_id: topic.topic_id,
                name: topic.name.clone(),
                state: Mutex::new(State { limits: topic.settings.limits, ..State::default() }),
                looks: watch::Sender::new(Looked::NotYet),
                wake: Arc::default(),
            })
        };
        let entry = self.entries.entry(topic.topic_id).or_insert_with(made).clone();
        let mut state = entry.state.lock();
        if state.is_retired {
            drop(state);
            self.entries.remove_if(&topic.topic_id, |_, other| Arc::ptr_eq(other, &entry));
            return None;
        }
        state.asked_at = Some(Instant::now());
        if !state.is_watched {
            state.is_watched = true;
            watching::start(&entry, &self.entries, &self.store, &self.metrics);
        }
        drop(state);
        Some(entry)
    }
}

impl super::Broker {
    /// How deep a topic is; `None`: it has no limits and keeps what is completed, or it is gone.
    pub async fn depth(&self, topic: &Topic) -> Result<Option<TopicDepth>, Error> {
        if topic.settings.limits.is_unlimited() && topic.settings.retention_completed.is_none() {
            return Ok(None);
        }
        self.store.topics_depth(topic.topic_id, BacklogBytes::All).await
    }
}
