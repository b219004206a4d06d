//! Watching traces: what happens to them is told as it happens, across topics and brokers, without a group.
//!
//! A watch looks at its traces every now and then, in the tables, and tells what stands otherwise than it told last. So it sees
//! what every broker does, misses nothing for long, and what happened between two looks is one change. It is bounded in traces,
//! in hops per frame and in watches per broker, and while its client does not read it looks at nothing: delivery never waits. Nor does
//! it wait for connections that watches have: all of them take turns to read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use laneway_client::TopicName;
use laneway_client::trace::{Hop, HopState, Trace};
use laneway_client::wire::{self, BrokerFrame, TraceChanged};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

use super::outbox::Outbox;
use super::reader::{ReadError, Reader};
use super::topics::{TopicError, Topics};
use super::traces::Traces;
use crate::ids::{Offset, PartitionId, TraceId};
use crate::limits::{
    READ_BYTES_MAX, TRACE_HOPS_MAX, WATCH_HOPS_MAX, WATCH_INTERVAL, WATCH_MESSAGES_MAX, WATCH_QUIET_LOOKS,
    WATCH_READS_AT_ONCE, WATCH_TRACES_MAX, WATCHES_MAX,
};
use crate::store::Store;
use crate::store::messages::ReadLimit;
use crate::store::partitions::Extent;

/// Why a watch was not begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    #[error("this broker has {WATCHES_MAX} watches, and takes no more")]
    TooMany,
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Starts watches. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Watcher {
    store: Store,
    topics: Topics,
    reader: Reader,
    traces: Traces,
    places: Arc<Semaphore>,
    /// Turns to read from the database, for all watches together.
    turns: Arc<Semaphore>,
}

/// A running watch; it ends when this is dropped.
#[derive(Debug)]
pub struct WatchHandle {
    task: AbortOnDropHandle<()>,
}

impl WatchHandle {
    /// Ends it; after that it pushes nothing any more.
    pub async fn end(self) {
        self.task.abort();
        let _aborted = self.task.await;
    }
}

impl Watcher {
    pub fn new(store: Store, topics: Topics, reader: Reader, traces: Traces) -> Self {
        let (places, turns) = (Semaphore::new(WATCHES_MAX), Semaphore::new(WATCH_READS_AT_ONCE));
        Self { store, topics, reader, traces, places: Arc::new(places), turns: Arc::new(turns) }
    }

    /// A turn to read, until it is dropped. First come, first served.
    async fn turn(&self) -> SemaphorePermit<'_> {
        self.turns.acquire().await.expect("the turns are never closed")
    }

    /// A trace as it stands now.
    async fn read(&self, trace_id: TraceId) -> Result<Option<Trace>, ReadError> {
        let _turn = self.turn().await;
        self.traces.read_within(trace_id, TRACE_HOPS_MAX).await // one that takes long must not keep the others waiting
    }

    /// Begins a watch. It is told to the client (`watching`) before its first change can be.
    pub async fn start(
        &self,
        number: u32,
        watch: wire::Watch,
        outbox: Outbox,
    ) -> Result<WatchHandle, WatchError> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| WatchError::TooMany)?;
        let mut traces = VecDeque::new();
        let passing = match (watch.trace_id, watch.topic) {
            (Some(trace_id), _) => {
                traces.push_back(Watched::new(TraceId(trace_id)));
                None
            }
            (None, topic) => Some(self.passing(topic.unwrap_or_default(), watch.sample).await?),
        };
        outbox.push(BrokerFrame::Watching(wire::Watching { id: watch.id, subscription: number }));
        let task =
            Task { watcher: self.clone(), number, passing, traces, left_out: 0, outbox, _place: place };
        Ok(WatchHandle { task: AbortOnDropHandle::new(tokio::spawn(task.run())) })
    }

    /// A topic from its end on.
    async fn passing(&self, topic: String, sample: Option<f64>) -> Result<Passing, WatchError> {
        let name = TopicName::new(topic).map_err(TopicError::from)?;
        self.topics.forget(&name); // one that was made again since is another
        let (_, partitions) = self.topics.describe(&name).await?;
        let ends = partitions.into_iter().map(|partition| (partition.partition_id, partition.next_offset));
        Ok(Passing { ends: ends.collect(), sample: sample.unwrap_or(1.0), topic: name })
    }
}

/// What comes by in a topic.
struct Passing {
    topic: TopicName,
    /// How far each partition was looked at.
    ends: HashMap<PartitionId, Offset>,
    sample: f64,
}

impl Passing {
    /// These are its partitions, as far as is known by now. One that was added since the watch began is looked at from its
    /// beginning.
    fn stands_in(&mut self, partitions: &[PartitionId]) {
        if !partitions.iter().any(|partition_id| self.ends.contains_key(partition_id)) {
            self.ends.clear(); // another topic of the same name
        }
        for partition_id in partitions {
            self.ends.entry(*partition_id).or_insert(Offset::ZERO);
        }
    }

    /// What is new in a partition: from where on to look, and how many are left out, because they are too many to look at each.
    fn new_in(&mut self, extent: &Extent) -> Option<(Offset, u32)> {
        let Extent { partition_id, start, next: end } = *extent;
        let end_before = self.ends.get_mut(&partition_id)?;
        // It may end earlier than it did: on another timeline of the database.
        let from = Offset(end_before.0.min(end.0)).max(start);
        *end_before = from;
        let first = from.max(Offset(end.0 - WATCH_MESSAGES_MAX));
        (from < end).then(|| (first, u32::try_from(first.0 - from.0).unwrap_or(u32::MAX)))
    }

    /// Whether a trace is among those that are followed: the same for every broker and every message of it.
    fn takes(&self, trace_id: TraceId) -> bool {
        let spread = spread(trace_id);
        (spread as f64) < self.sample * (u64::MAX as f64) || self.sample >= 1.0
    }
}

/// A trace id as a number that is spread evenly, whatever the id was made of (the finalizer of SplitMix64).
fn spread(trace_id: TraceId) -> u64 {
    let (high, low) = trace_id.0.as_u64_pair();
    let mut mixed = high.rotate_left(32) ^ low;
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 31)
}

/// A trace, as its watcher knows it.
struct Watched {
    trace_id: TraceId,
    known: HashMap<(String, u32, i64), Hop>,
    /// Looks since something has changed.
    quiet_looks: u32,
}

impl Watched {
    fn new(trace_id: TraceId) -> Self {
        Self { trace_id, known: HashMap::new(), quiet_looks: 0 }
    }

    /// What stands otherwise than it was told, as far as one frame holds, and how much it does not hold.
    fn changes(&mut self, hops: Vec<Hop>) -> (Vec<Hop>, u32) {
        let (mut changed, mut left_out) = (Vec::new(), 0);
        for hop in hops {
            let place = (hop.topic.clone(), hop.partition, hop.offset);
            let told = comparable(hop.clone());
            if self.known.get(&place) == Some(&told) {
                continue;
            }
            if changed.len() >= WATCH_HOPS_MAX {
                left_out += 1; // it is told at the next look
                continue;
            }
            self.known.insert(place, told);
            changed.push(Hop { parent: None, ..hop });
        }
        self.quiet_looks = if changed.is_empty() { self.quiet_looks.saturating_add(1) } else { 0 };
        (changed, left_out)
    }
}

/// A hop without what changes all the time: its place in the tree, and how many are ahead of it.
fn comparable(mut hop: Hop) -> Hop {
    hop.parent = None;
    for group in hop.groups.iter_mut().filter(|group| group.state == HopState::Waiting) {
        group.ahead = None;
    }
    hop
}

struct Task {
    watcher: Watcher,
    number: u32,
    passing: Option<Passing>,
    traces: VecDeque<Watched>,
    /// Traces that came by and are not followed, since it was last told.
    left_out: u32,
    outbox: Outbox,
    _place: OwnedSemaphorePermit,
}

impl Task {
    async fn run(mut self) {
        let mut ticks = tokio::time::interval(WATCH_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.outbox.has_room() {
                continue; // what happens meanwhile is one change later on
            }
            if let Err(error) = self.look().await {
                tracing::debug!(%error, "a watch looks again in a moment");
            }
        }
    }

    async fn look(&mut self) -> Result<(), ReadError> {
        let read = self.look_at_topic().await;
        for place in 0..self.traces.len() {
            let trace_id = self.traces[place].trace_id;
            let Some(trace) = self.watcher.read(trace_id).await? else { continue };
            let (hops, later) = self.traces[place].changes(trace.hops);
            if hops.is_empty() {
                continue;
            }
            if !self.outbox.has_room() {
                self.traces[place].known.clear(); // all of it is told when there is room again
                return Ok(());
            }
            let left_out = later + std::mem::take(&mut self.left_out);
            self.outbox.push(BrokerFrame::TraceChanged(TraceChanged {
                subscription: self.number,
                trace_id: trace_id.0,
                hops,
                left_out,
            }));
        }
        if self.passing.is_some() {
            self.traces.retain(|watched| watched.quiet_looks < WATCH_QUIET_LOOKS);
        }
        read
    }

    /// Takes up the traces of what has been published since the last look.
    async fn look_at_topic(&mut self) -> Result<(), ReadError> {
        let Some(mut passing) = self.passing.take() else { return Ok(()) };
        let mut trace_ids = Vec::new();
        let read = self.newest(&mut passing, &mut trace_ids).await;
        // Also if it came to a partition that cannot be read now: these are not looked at again.
        for trace_id in trace_ids.into_iter().filter(|trace_id| passing.takes(*trace_id)) {
            let is_known = self.traces.iter().any(|watched| watched.trace_id == trace_id);
            match is_known {
                true => {}
                false if self.traces.len() < WATCH_TRACES_MAX => {
                    self.traces.push_back(Watched::new(trace_id));
                }
                false => self.left_out = self.left_out.saturating_add(1),
            }
        }
        self.passing = Some(passing);
        read
    }

    /// Adds the trace of each new message to `trace_ids`. A partition that cannot be read is tried again at the next look, after all
    /// others.
    async fn newest(&mut self, passing: &mut Passing, trace_ids: &mut Vec<TraceId>) -> Result<(), ReadError> {
        let _turn = self.watcher.turn().await;
        match self.watcher.topics.find(&passing.topic).await {
            Ok(topic) => passing.stands_in(&topic.partitions),
            Err(TopicError::Store(error)) => return Err(error.into()),
            Err(error) => {
                tracing::debug!(%error, "a topic that is watched is gone; made again, it is followed again");
                return Ok(());
            }
        }
        let partitions: Vec<PartitionId> = passing.ends.keys().copied().collect();
        let mut read = Ok(());
        for extent in self.watcher.store.heads_newest(&partitions).await? {
            let Some((first, left_out)) = passing.new_in(&extent) else { continue };
            let limit = ReadLimit { messages: WATCH_MESSAGES_MAX as u32, bytes: READ_BYTES_MAX };
            match self.watcher.reader.read(extent.partition_id, first, limit).await {
                Ok(found) => {
                    self.left_out = self.left_out.saturating_add(left_out);
                    // What the bytes of a read leave out comes with the next look.
                    let reached = found.last().map_or(first, |last| last.offset.plus(1));
                    passing.ends.insert(extent.partition_id, reached);
                    trace_ids.extend(found.iter().map(|message| message.trace_id));
                }
                Err(ReadError::OutOfRange { .. }) => {} // retention was faster: the next look begins at what is left
                Err(error) => read = Err(error),
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(offset: i64, groups: Vec<laneway_client::trace::GroupHop>) -> Hop {
        let text = format!(
            r#"{{"topic":"orders","partition":0,"offset":{offset},"size":1,"published_at":"2026-01-01T00:00:00Z","parent":0,"depth":1,"groups":[]}}"#
        );
        Hop { groups, ..serde_json::from_str(&text).unwrap() }
    }

    fn waiting(ahead: i64) -> Vec<laneway_client::trace::GroupHop> {
        let text = format!(
            r#"[{{"group":"billing","state":"waiting","ahead":{ahead},"attempts":0,"failures":[]}}]"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn only_what_stands_otherwise_is_told() {
        let mut watched = Watched::new(TraceId::generate());
        let (first, left_out) = watched.changes(vec![hop(1, waiting(5)), hop(2, vec![])]);
        assert_eq!((first.len(), left_out), (2, 0));
        assert!(first.iter().all(|hop| hop.parent.is_none()));
        assert_eq!(watched.changes(vec![hop(1, waiting(3)), hop(2, vec![])]), (vec![], 0));
        let mut acked = waiting(0);
        acked[0].state = HopState::Acked;
        let (second, _) = watched.changes(vec![hop(1, acked), hop(2, vec![]), hop(3, vec![])]);
        assert_eq!(second.iter().map(|hop| hop.offset).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_flood_is_told_piece_by_piece_and_all_of_it() {
        let mut watched = Watched::new(TraceId::generate());
        let flood = || (0..WATCH_HOPS_MAX as i64 + 7).map(|offset| hop(offset, vec![])).collect::<Vec<_>>();
        let (first, left_out) = watched.changes(flood());
        assert_eq!((first.len(), left_out), (WATCH_HOPS_MAX, 7));
        let (second, left_out) = watched.changes(flood());
        assert_eq!((second.len(), left_out), (7, 0));
        assert_eq!(watched.changes(flood()).0.len(), 0);
    }

    fn sampled(sample: f64) -> Passing {
        Passing { topic: TopicName::new("orders").unwrap(), ends: HashMap::new(), sample }
    }

    #[test]
    fn what_a_partition_has_to_look_at_begins_where_it_can_be_read_and_is_never_too_much() {
        let mut passing = sampled(1.0);
        passing.ends.insert(PartitionId(1), Offset(10));
        let mut new = |start: i64, next: i64| {
            passing.new_in(&Extent { partition_id: PartitionId(1), start: Offset(start), next: Offset(next) })
        };
        assert_eq!(new(0, 10), None);
        assert_eq!(new(0, 12), Some((Offset(10), 0)));
        assert_eq!(
            new(11, 12),
            Some((Offset(11), 0)),
            "what retention has dropped is not left out by a watch"
        );
        assert_eq!(new(11, WATCH_MESSAGES_MAX + 18), Some((Offset(18), 7)));
        assert_eq!(new(0, 5), None, "on another timeline it may end earlier");
        assert_eq!(new(0, 6), Some((Offset(5), 0)));
    }

    #[test]
    fn partitions_that_are_added_are_looked_at_from_their_beginning() {
        let mut passing = sampled(1.0);
        passing.ends.insert(PartitionId(1), Offset(10));
        passing.stands_in(&[PartitionId(1), PartitionId(2)]);
        let ends = |passing: &Passing| {
            let mut ends: Vec<_> = passing.ends.iter().map(|(id, end)| (id.0, end.0)).collect();
            ends.sort_unstable();
            ends
        };
        assert_eq!(ends(&passing), [(1, 10), (2, 0)]);
        passing.stands_in(&[PartitionId(7)]);
        assert_eq!(ends(&passing), [(7, 0)], "the topic was deleted and made again");
    }

    #[test]
    fn a_sample_takes_about_its_share_and_always_the_same() {
        let passing = sampled(0.25);
        let ids: Vec<TraceId> = (0..4_000).map(|_| TraceId::generate()).collect();
        let taken = ids.iter().filter(|id| passing.takes(**id)).count();
        assert!((800..1_200).contains(&taken), "{taken} of 4000");
        assert!(ids.iter().all(|id| passing.takes(*id) == passing.takes(*id)));
        let all = sampled(1.0);
        assert!(all.takes(TraceId(uuid::Uuid::max())));
    }
}
