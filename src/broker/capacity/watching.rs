//! The looks at one topic: every 100 ms while somebody publishes to it, more rarely afterwards, and not at all in the end, which is
//! also when it has no limits any more.
//!
//! The task lives for as long as its entry does, and ends by itself after nobody has asked for a while. It holds the entry only
//! while it looks, so that a broker that ends takes its entries along.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::gauge::{Crossing, Load, Look, Reading};
use super::{Entries, Entry, Looked, State};
use crate::broker::metrics::Metrics;
use crate::limits::{
    CAPACITY_FORGET_AFTER, CAPACITY_HIGH_INTERVAL, CAPACITY_IDLE_INTERVAL, CAPACITY_INTERVAL,
    CAPACITY_PAUSE_FACTOR,
};
use crate::store::Store;
use crate::store::capacity::{BacklogBytes, GroupDepth, TopicDepth};
use crate::store::groups::GroupCapacity;

/// Between two looks at least, however urgent: about what a look takes.
const URGENT_PAUSE: Duration = Duration::from_millis(2);

pub(super) fn start(entry: &Arc<Entry>, entries: &Arc<Entries>, store: &Store, metrics: &Arc<Metrics>) {
    let watcher = Watcher {
        entry: Arc::downgrade(entry),
        entries: Arc::downgrade(entries),
        wake: entry.wake.clone(),
        store: store.clone(),
        metrics: metrics.clone(),
    };
    tokio::spawn(watcher.run());
}

struct Watcher {
    entry: Weak<Entry>,
    entries: Weak<Entries>,
    wake: Arc<Notify>,
    store: Store,
    metrics: Arc<Metrics>,
}

impl Watcher {
    /// Cancel safety: none. Spawned once and polled to completion.
    async fn run(self) {
        while let Some(entry) = self.entry.upgrade() {
            let started = Instant::now();
            let looked = look(&entry, &self.store, &self.metrics, started).await;
            let Some(pause) = self.next_pause(&entry, &looked, started.elapsed()) else { return };
            entry.looks.send_replace(looked);
            drop(entry);
            if tokio::time::timeout(pause, self.wake.notified()).await.is_ok() {
                tokio::time::sleep(URGENT_PAUSE).await;
            }
        }
    }

    /// How long until the next look; `None`: there is none.
    fn next_pause(&self, entry: &Arc<Entry>, looked: &Looked, took: Duration) -> Option<Duration> {
        let mut state = entry.state.lock();
        let pause = match looked {
            Looked::Gone => None,
            Looked::NotYet | Looked::Fine | Looked::Failed(_) => pause_after(&state, asked_for(&state)),
        };
        let Some(pause) = pause else {
            state.is_retired = true;
            drop(state);
            self.metrics.capacity.depths.forget(&entry.name);
            if let Some(entries) = self.entries.upgrade() {
                entries.remove_if(&entry.topic_id, |_, other| Arc::ptr_eq(other, entry));
            }
            entry.looks.send_replace(looked.clone()); // those who wait make another entry, or hear that it is gone
            return None;
        };
        Some(pause.max(took * CAPACITY_PAUSE_FACTOR))
    }
}

/// How long until the next look, if somebody has asked so long ago; `None`: nobody needs one.
fn pause_after(state: &State, asked: Duration) -> Option<Duration> {
    let is_high = state.gauge.is_high();
    match (state.waiting, asked) {
        (1.., _) => Some(CAPACITY_INTERVAL),
        (0, _) if state.limits.is_unlimited() => None,
        (0, asked) if asked <= CAPACITY_INTERVAL => Some(CAPACITY_INTERVAL),
        (0, asked) if asked <= CAPACITY_FORGET_AFTER && is_high => Some(CAPACITY_HIGH_INTERVAL),
        // Whoever has heard that it is nearly full hears that it has room again, however late that is.
        (0, asked) if asked <= CAPACITY_FORGET_AFTER || is_high => Some(CAPACITY_IDLE_INTERVAL),
        (0, _) => None,
    }
}

/// How long ago somebody asked.
fn asked_for(state: &State) -> Duration {
    state.asked_at.map_or(Duration::MAX, |asked_at| asked_at.elapsed())
}

/// One look: limits, heads and commits, no message.
async fn look(entry: &Entry, store: &Store, metrics: &Metrics, at: Instant) -> Looked {
    entry.state.lock().gauge.on_look_begun();
    let depth = match store.topics_depth(entry.topic_id, BacklogBytes::Limited).await {
        Ok(Some(depth)) => depth,
        Ok(None) => return Looked::Gone,
        Err(error) => {
            tracing::debug!(%error, topic.name = entry.name, "a topic is looked at again in a moment");
            return Looked::Failed(error);
        }
    };
    let (crossing, readings) = {
        let mut state = entry.state.lock();
        state.limits = depth.limits;
        let crossing = state.gauge.on_looked(found(&depth, at), &depth.limits);
        (crossing, state.gauge.readings(&depth.limits).collect())
    };
    metrics.capacity.depths.set(&entry.name, readings);
    tell(entry, metrics, crossing);
    Looked::Fine
}

fn found(depth: &TopicDepth, at: Instant) -> Look {
    let counted = || depth.groups.iter().filter(|group| group.capacity == GroupCapacity::Counted);
    let most = |of: fn(&GroupDepth) -> i64| counted().map(of).max().map(|most| most.max(0) as u64);
    let backlog = most(|group| group.messages).zip(most(|group| group.bytes));
    let backlog = backlog.map(|(messages, bytes)| Load { messages, bytes });
    Look { backlog, stored_bytes: depth.stored_bytes.max(0) as u64, era: depth.era, at }
}

fn tell(entry: &Entry, metrics: &Metrics, crossing: Option<Crossing>) {
    let topic = entry.name.as_str();
    match crossing {
        Some(Crossing::NearlyFull(Reading { limited, depth, limit })) => {
            metrics.capacity.on_crossing("nearly_full");
            tracing::warn!(topic.name = topic, limited = limited.as_str(), depth, limit, "topic nearly full");
        }
        Some(Crossing::RoomAgain(Reading { limited, depth, limit })) => {
            metrics.capacity.on_crossing("room_again");
            tracing::info!(
                topic.name = topic,
                limited = limited.as_str(),
                depth,
                limit,
                "topic has room again"
            );
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::timeline::Era;
    use crate::store::topics::TopicLimits;

    const MOMENT: Duration = Duration::from_millis(1);

    /// A topic of which it was seen how deep it is; it may be 100 deep.
    fn seen(messages: u64) -> State {
        let limits = TopicLimits { backlog_messages: Some(100), ..TopicLimits::default() };
        let mut state = State { limits, ..State::default() };
        let backlog = Some(Load { messages, bytes: 0 });
        let look = Look { backlog, stored_bytes: 0, era: Era::default(), at: Instant::now() };
        let _mark = state.gauge.on_looked(look, &limits);
        state
    }

    #[test]
    fn a_topic_is_looked_at_more_and_more_rarely_and_not_at_all_in_the_end() {
        let topic = seen(79);
        assert_eq!(pause_after(&topic, CAPACITY_INTERVAL), Some(CAPACITY_INTERVAL));
        assert_eq!(pause_after(&topic, CAPACITY_FORGET_AFTER), Some(CAPACITY_IDLE_INTERVAL));
        assert_eq!(pause_after(&topic, CAPACITY_FORGET_AFTER + MOMENT), None);
        assert_eq!(pause_after(&State { waiting: 1, ..seen(79) }, Duration::MAX), Some(CAPACITY_INTERVAL));
    }

    #[test]
    fn a_topic_that_is_nearly_full_is_looked_at_until_it_has_room_again_though_nobody_publishes() {
        let mut topic = seen(80);
        assert_eq!(pause_after(&topic, CAPACITY_FORGET_AFTER), Some(CAPACITY_HIGH_INTERVAL));
        assert_eq!(pause_after(&topic, Duration::MAX), Some(CAPACITY_IDLE_INTERVAL));
        assert_eq!(pause_after(&seen(0), Duration::MAX), None);
        topic.limits = TopicLimits::default();
        assert_eq!(pause_after(&topic, MOMENT), None, "it has no limits any more");
    }
}
