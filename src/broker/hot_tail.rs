//! The hot tails: the newest messages of the partitions that somebody follows, in memory, shared by all lanes.
//!
//! A tail grows only contiguously. What this broker has flushed joins it; when another broker was in between, the gap is
//! read first, and a flush that starts below the end empties it. It may forget at any time: a reader that is behind it
//! reads the segments. Invariant: `[first, end)` has no gap, and what is in it was committed, in this era: on the timeline
//! that the database has now.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::slab::{Piece, Slab};
use crate::ids::{Offset, PartitionId, TraceId};
use crate::limits::{TAIL_BYTES_MAX, TAILS_BYTES_MAX};
use crate::store::messages::Message;
use crate::store::timeline::{Era, Timelines};

/// Whom to wake when partitions have grown. One per follower; it collects which.
#[derive(Debug, Default)]
pub struct Wake {
    grown: Mutex<HashSet<PartitionId>>,
    notify: Notify,
}

impl Wake {
    /// A partition is to be looked at.
    pub fn mark(&self, partition_id: PartitionId) {
        self.grown.lock().insert(partition_id);
        self.notify.notify_one();
    }

    /// Waits until something has grown. Cancel safety: safe; what has grown is taken by [`Wake::take`] only.
    pub async fn woken(&self) {
        self.notify.notified().await;
    }

    /// What has grown since the last look.
    pub fn take(&self) -> HashSet<PartitionId> {
        std::mem::take(&mut *self.grown.lock())
    }
}

/// What a tail knows about an offset.
#[derive(Debug)]
pub enum Found {
    /// Messages from there on, in order.
    Pieces(Vec<Piece>),
    /// It is where the next message will be.
    AtEnd,
    /// The tail does not reach back so far, or knows nothing.
    Behind,
}

#[derive(Debug)]
struct Tail {
    slabs: VecDeque<Arc<Slab>>,
    /// Where the next message will be; unknown until something has joined.
    end: Option<Offset>,
    bytes: usize,
    /// Flushed by this broker above `end`; they join when the gap is read.
    waiting: BTreeMap<Offset, Arc<Slab>>,
    waiting_bytes: usize,
    /// The gap that is being read ends here.
    filling_to: Option<Offset>,
    /// Where the partition starts, as far as is known: nothing below is given out.
    start: Offset,
    /// When all of this was true.
    era: Era,
    followers: Vec<Arc<Wake>>,
}

impl Default for Tail {
    fn default() -> Self {
        Self {
            slabs: VecDeque::new(),
            end: None,
            bytes: 0,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            filling_to: None,
            start: Offset::ZERO,
            era: Era::default(),
            followers: Vec::new(),
        }
    }
}

/// A gap that has to be read from the segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    pub partition_id: PartitionId,
    pub from: Offset,
    pub to: Offset,
    /// What is read in another one does not fit.
    pub era: Era,
}

/// All tails of a broker. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct HotTails {
    partitions: Arc<DashMap<PartitionId, Arc<Mutex<Tail>>>>,
    bytes: Arc<AtomicUsize>,
    timelines: Timelines,
}

impl HotTails {
    pub fn new(timelines: Timelines) -> Self {
        Self { timelines, ..Self::default() }
    }

    /// The era of now. What joins a tail must have been committed in it.
    pub fn era(&self) -> Era {
        self.timelines.era()
    }

    /// Waits until it is another era. Cancel safety: safe.
    pub async fn changed_from(&self, era: Era) {
        self.timelines.changed_from(era).await;
    }

    /// A tail as it is in this era: what it held in another one is gone.
    fn current<'a>(&self, tail: &'a Mutex<Tail>) -> MutexGuard<'a, Tail> {
        let mut tail = tail.lock();
        let era = self.timelines.era();
        if tail.era != era {
            self.empty(&mut tail);
            (tail.era, tail.filling_to, tail.start) = (era, None, Offset::ZERO);
        }
        tail
    }

    /// Where tails end, of those that know.
    pub fn ends(&self, partitions: &[PartitionId]) -> HashMap<PartitionId, Offset> {
        let end = |partition_id: &PartitionId| {
            let tail = self.tail(*partition_id)?;
            let end = self.current(&tail).end?;
            Some((*partition_id, end))
        };
        partitions.iter().filter_map(end).collect()
    }

    fn tail(&self, partition_id: PartitionId) -> Option<Arc<Mutex<Tail>>> {
        self.partitions.get(&partition_id).map(|tail| tail.clone())
    }

    /// Follows a partition from now on. Follow before you read where it ends.
    pub fn follow(&self, partition_id: PartitionId, wake: &Arc<Wake>) {
        let tail = self.partitions.entry(partition_id).or_default().clone();
        tail.lock().followers.push(wake.clone());
    }

    /// Follows it no more. A tail that nobody follows is dropped.
    pub fn unfollow(&self, partition_id: PartitionId, wake: &Arc<Wake>) {
        self.partitions.remove_if(&partition_id, |_, tail| {
            let mut tail = tail.lock();
            if let Some(place) = tail.followers.iter().position(|follower| Arc::ptr_eq(follower, wake)) {
                tail.followers.swap_remove(place);
            }
            let unfollowed = tail.followers.is_empty();
            if unfollowed {
                self.bytes.fetch_sub(std::mem::take(&mut tail.bytes), Ordering::Relaxed);
            }
            unfollowed
        });
    }

    /// The partitions that somebody follows.
    pub fn followed(&self) -> Vec<PartitionId> {
        self.partitions.iter().map(|entry| *entry.key()).collect()
    }

    pub fn is_followed(&self, partition_id: PartitionId) -> bool {
        self.partitions.contains_key(&partition_id)
    }

    /// Messages from an offset on, within bounds; at least one if there is any.
    pub fn find(&self, partition_id: PartitionId, from: Offset, messages: usize, bytes: u64) -> Found {
        let Some(tail) = self.tail(partition_id) else { return Found::Behind };
        let tail = self.current(&tail);
        let first = tail.slabs.front().map(|slab| slab.first());
        match (first, tail.end) {
            (_, _) if from < tail.start => Found::Behind,
            (_, Some(end)) if from == end => Found::AtEnd,
            (Some(first), Some(end)) if first <= from && from < end => {
                Found::Pieces(pieces(&tail.slabs, from, messages, bytes))
            }
            (Some(_) | None, Some(_) | None) => Found::Behind,
        }
    }

    /// The partition starts here: what lies below was dropped or purged. Those who follow are woken, and find out.
    pub fn on_start(&self, partition_id: PartitionId, start: Offset) {
        let Some(tail) = self.tail(partition_id) else { return };
        let mut tail = self.current(&tail);
        if start <= tail.start {
            return;
        }
        tail.start = start;
        while let Some(oldest) = tail.slabs.pop_front_if(|slab| slab.end() <= start) {
            tail.bytes -= oldest.bytes();
            self.bytes.fetch_sub(oldest.bytes(), Ordering::Relaxed);
        }
        tail.wake(partition_id);
    }

    /// Whether a partition is known to start after an offset.
    pub fn is_below_start(&self, partition_id: PartitionId, offset: Offset) -> bool {
        self.tail(partition_id).is_some_and(|tail| offset < self.current(&tail).start)
    }

    /// When the newest message that is here was published.
    pub fn newest(&self, partition_id: PartitionId) -> Option<Timestamp> {
        let tail = self.tail(partition_id)?;
        let tail = self.current(&tail);
        tail.slabs.back().map(|slab| slab.last_published_at())
    }

    /// The trace of a message, if it is here.
    pub fn trace_of(&self, partition_id: PartitionId, offset: Offset) -> Option<TraceId> {
        match self.find(partition_id, offset, 1, u64::MAX) {
            Found::Pieces(pieces) => Some(pieces.first()?.messages().first()?.trace_id),
            Found::AtEnd | Found::Behind => None,
        }
    }

    /// A flush of this broker was committed, in an era. Returns the gap to read first, if another broker was in between.
    pub fn on_flushed(&self, partition_id: PartitionId, messages: Vec<Message>, era: Era) -> Option<Gap> {
        let tail = self.tail(partition_id)?;
        let slab = Arc::new(Slab::new(messages)?);
        let mut tail = self.current(&tail);
        if tail.era != era {
            self.empty(&mut tail); // nobody knows whether it is still there: those who follow read for themselves
            tail.wake(partition_id);
            return None;
        }
        let gap = match tail.end {
            None => {
                tail.end = Some(slab.first());
                self.join(&mut tail, slab);
                None
            }
            Some(end) if slab.first() == end => {
                self.join(&mut tail, slab);
                None
            }
            Some(end) if slab.first() < end => {
                self.empty(&mut tail);
                tail.end = Some(slab.first());
                self.join(&mut tail, slab);
                None
            }
            Some(end) => {
                let to = slab.first();
                tail.waiting_bytes += slab.bytes();
                tail.waiting.insert(to, slab);
                if tail.waiting_bytes > TAIL_BYTES_MAX {
                    self.empty(&mut tail); // the gap takes too long to read: those who follow read for themselves
                }
                tail.filling_to.is_none().then_some(Gap { partition_id, from: end, to, era })
            }
        };
        if let Some(Gap { to, .. }) = gap {
            tail.filling_to = Some(to);
        }
        tail.wake(partition_id);
        gap
    }

    /// The partition has grown to this end, as another broker says. Returns the gap to read.
    pub fn on_grown(&self, partition_id: PartitionId, next: Offset) -> Option<Gap> {
        let tail = self.tail(partition_id)?;
        let mut tail = self.current(&tail);
        match tail.end {
            Some(end) if end >= next => None,
            Some(end) if tail.filling_to.is_none() => {
                tail.filling_to = Some(next);
                Some(Gap { partition_id, from: end, to: next, era: tail.era })
            }
            Some(_) => {
                tail.filling_to = tail.filling_to.max(Some(next)); // being read: who reads goes on up to here
                None
            }
            None => {
                tail.wake(partition_id); // whoever follows it reads the segments
                None
            }
        }
    }

    /// A gap was read, as far as the bounds of one read allow. Returns the rest, if there is any.
    pub fn on_filled(&self, gap: Gap, mut messages: Vec<Message>) -> Option<Gap> {
        let tail = self.tail(gap.partition_id)?;
        let mut tail = self.current(&tail);
        if tail.era != gap.era {
            return None;
        }
        let to = tail.filling_to.take().max(Some(gap.to)).unwrap_or(gap.to);
        let unread = messages.is_empty();
        if let Some(end) = tail.end {
            messages.retain(|message| message.offset >= end); // a flush of our own may have been faster
        }
        match (Slab::new(messages), tail.end) {
            (None, Some(_)) if !unread => {}
            (Some(slab), Some(end)) if slab.first() == end => self.join(&mut tail, Arc::new(slab)),
            (Some(slab), _) => {
                self.empty(&mut tail);
                tail.end = Some(slab.first());
                self.join(&mut tail, Arc::new(slab));
            }
            (None, _) => self.empty(&mut tail), // it could not be read: those who follow read for themselves
        }
        tail.wake(gap.partition_id);
        let rest = tail.end.filter(|end| *end < to)?;
        tail.filling_to = Some(to);
        Some(Gap { from: rest, to, ..gap })
    }

    fn join(&self, tail: &mut Tail, slab: Arc<Slab>) {
        let mut next = Some(slab);
        while let Some(slab) = next {
            tail.bytes += slab.bytes();
            self.bytes.fetch_add(slab.bytes(), Ordering::Relaxed);
            tail.end = Some(slab.end());
            tail.slabs.push_back(slab);
            let end = tail.end;
            next = end.and_then(|end| tail.waiting.remove(&end));
        }
        if let Some(end) = tail.end {
            tail.waiting = tail.waiting.split_off(&end);
        }
        tail.waiting_bytes = tail.waiting.values().map(|slab| slab.bytes()).sum();
        let crowded = self.bytes.load(Ordering::Relaxed) > TAILS_BYTES_MAX;
        let bound = if crowded { TAIL_BYTES_MAX / 8 } else { TAIL_BYTES_MAX };
        while tail.bytes > bound && tail.slabs.len() > 1 {
            let Some(oldest) = tail.slabs.pop_front() else { break };
            tail.bytes -= oldest.bytes();
            self.bytes.fetch_sub(oldest.bytes(), Ordering::Relaxed);
        }
    }

    fn empty(&self, tail: &mut Tail) {
        self.bytes.fetch_sub(std::mem::take(&mut tail.bytes), Ordering::Relaxed);
        tail.slabs.clear();
        tail.waiting.clear();
        tail.waiting_bytes = 0;
        tail.end = None;
    }
}

impl Tail {
    fn wake(&self, partition_id: PartitionId) {
        self.followers.iter().for_each(|follower| follower.mark(partition_id));
    }
}

fn pieces(slabs: &VecDeque<Arc<Slab>>, from: Offset, messages: usize, bytes: u64) -> Vec<Piece> {
    let place = slabs.partition_point(|slab| slab.end() <= from);
    let mut pieces = Vec::new();
    let (mut messages, mut bytes) = (messages, bytes);
    for slab in slabs.iter().skip(place) {
        if messages == 0 || bytes == 0 {
            break;
        }
        let piece = Slab::piece(slab, from, messages, bytes);
        messages -= piece.len().min(messages);
        bytes = bytes.saturating_sub(piece.bytes());
        let whole = piece.end() == slab.end();
        pieces.push(piece);
        if !whole {
            break;
        }
    }
    pieces
}

#[cfg(test)]
#[path = "hot_tail_tests.rs"]
mod tests;
