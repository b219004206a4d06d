//! Lanes whose messages are not due yet, or not any more: they wait, look where their window ends, or move past what has expired.
//!
//! What has expired is settled like a message that is given up: in the transaction of the commit that moves past it, in ranges. It is
//! found in two steps, because the rows have to be read first: a look beside the loop, and then, if the lane is still as it was, the
//! settlement. Order: nothing is sent in between; a nack that comes meanwhile waits.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::Surroundings;
use super::effects::{Effects, Event, settle};
use super::held::Held;
use super::lane::Gate;
use super::task::{GroupTask, Look};
use super::windows::{self, Due};
use crate::broker::clock::until_passed;
use crate::broker::reader::{ReadError, Reader};
use crate::broker::slab::Piece;
use crate::ids::{Epoch, Offset, PartitionId};
use crate::limits::{
    CATCH_UP_BYTES, CATCH_UP_MESSAGES, COMMIT_RETRY_PAUSE, EVICTED_RANGES_MAX, EVICTION_GAPS_MAX,
};
use crate::store::lanes::{DeadLetter, Fence, Settled, Settlement};
use crate::store::messages::ReadLimit;
use crate::store::windows::{Evicted, Eviction, Expiry, ExpiryPolicy, Windows};
use crate::store::{Error, Store};

/// The first message of a window, and when that was looked at, on the database clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct First {
    pub offset: Offset,
    pub published_at: Timestamp,
    pub looked_at: Timestamp,
}

/// What has to be read before a lane goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// Where the partition ends.
    Head(First),
    /// What has expired.
    Expired { at: At, windows: Windows },
}

/// What has expired is looked for from an offset on, as of a moment of the database clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    pub from: Offset,
    pub now: Timestamp,
}

/// What stands in line for a lane.
pub(super) enum Line {
    /// These go out.
    Due(Vec<Piece>),
    /// None of it, before its moment.
    Waits,
    /// Nobody knows before this was read.
    Look(Looked),
}

impl Held {
    /// What of some messages is due.
    pub(super) fn in_line(
        &mut self,
        windows: &Windows,
        surroundings: &Surroundings,
        pieces: Vec<Piece>,
        now: Instant,
    ) -> Line {
        let Some(from) = pieces.first().map(Piece::first) else { return Line::Due(pieces) };
        if windows::is_timeless(windows, pieces.iter().flat_map(Piece::messages)) {
            return Line::Due(pieces);
        }
        let Some(time) = surroundings.lease.clock().at_least(now) else {
            return self.wait(from, now + COMMIT_RETRY_PAUSE);
        };
        let messages = pieces.iter().flat_map(Piece::messages);
        match windows::due(windows, self.window.open_until, messages, time) {
            Due::Now(count) => Line::Due(first_of(pieces, count)),
            Due::Later(wait) => self.wait(from, now + until_passed(wait)),
            Due::Closed { published_at } => {
                let newest = surroundings.tails.newest(self.fence.partition_id).unwrap_or(published_at);
                match windows::closed_for(windows, published_at, newest, time) {
                    Duration::ZERO => {
                        self.look(Looked::Head(First { offset: from, published_at, looked_at: time }))
                    }
                    wait => self.wait(from, now + until_passed(wait)),
                }
            }
            Due::Expired if self.is_full_of_gaps() => Line::Waits, // for acks
            Due::Expired => self.look(Looked::Expired { at: At { from, now: time }, windows: *windows }),
        }
    }

    fn wait(&mut self, from: Offset, moment: Instant) -> Line {
        self.window.due = Some((from, moment));
        Line::Waits
    }

    fn look(&mut self, looked: Looked) -> Line {
        self.window.looking = true;
        Line::Look(looked)
    }

    /// Whether more ranges beyond the committed offset would be too many; with nothing in flight, nobody could change that.
    fn is_full_of_gaps(&self) -> bool {
        self.lane.acked().len() >= EVICTION_GAPS_MAX && self.lane.in_flight() > 0
    }

    /// What of an eviction is still to be done.
    fn undone(&self, eviction: &Eviction) -> Eviction {
        let parts = eviction.ranges.iter().flat_map(|range| {
            let parts = self.lane.undone(range.first, range.end);
            parts.into_iter().map(|(first, end)| Evicted { first, end, why: range.why })
        });
        let ranges: Vec<Evicted> = parts.take(EVICTED_RANGES_MAX).collect();
        eviction.narrowed(ranges, |offset| self.lane.attempts_after_failure(offset) - 1)
    }
}

/// The first messages of some pieces.
fn first_of(pieces: Vec<Piece>, count: usize) -> Vec<Piece> {
    let mut left = count;
    let cut = |piece: Piece| {
        let part = piece.cut(piece.first(), piece.first().plus(left as i64));
        left -= part.len();
        part
    };
    pieces.into_iter().map(cut).filter(|piece| !piece.is_empty()).collect()
}

impl Effects {
    /// Reads what a lane has to know before it goes on.
    pub fn look(&self, fence: Fence, looked: Looked) {
        let Surroundings { store, reader, catch_up, .. } = self.surroundings.clone();
        let Fence { partition_id, epoch, .. } = fence;
        self.spawn(async move {
            match looked {
                Looked::Head(first) => {
                    let result = store.head_newest(partition_id).await;
                    Event::Head { partition_id, epoch, first, result }
                }
                Looked::Expired { at, windows } => {
                    let _permit = catch_up.acquire().await;
                    let result = expired(&store, &reader, partition_id, at, &windows).await;
                    Event::Expired { partition_id, epoch, result }
                }
            }
        });
    }

    /// Moves a lane past what has expired, for as long as it takes: only its fence can end it.
    fn evict(&self, fence: Fence, settlement: Settlement, eviction: Eviction) {
        let surroundings = self.surroundings.clone();
        self.spawn(async move {
            let Fence { partition_id, epoch, .. } = fence;
            let result = settle(&surroundings, &fence, settlement, &[]).await;
            Event::Evicted { partition_id, epoch, eviction, result }
        });
    }
}

/// What has expired of a partition. By the age that a group allows it is found without reading the messages, however many they are.
pub async fn expired(
    store: &Store,
    reader: &Reader,
    partition_id: PartitionId,
    At { from, now }: At,
    windows: &Windows,
) -> Result<Eviction, ReadError> {
    let policy = windows.on_expiry;
    let cutoff = now.checked_sub(windows.max_age).unwrap_or(Timestamp::MIN);
    if policy == ExpiryPolicy::Evict && !windows.max_age.is_zero() {
        // Order: the end first; what is published after it may be young.
        let end = store.head_newest(partition_id).await?.map_or(from, |(next, _)| next);
        let end = reader.offset_at(partition_id, cutoff).await?.unwrap_or(end);
        if end > from {
            let ranges = vec![Evicted { first: from, end, why: Expiry::MaxAge }];
            return Ok(Eviction { policy, ranges, dead_letters: Vec::new() });
        }
    }
    let limit = ReadLimit { messages: CATCH_UP_MESSAGES, bytes: CATCH_UP_BYTES };
    let messages = reader.read(partition_id, from, limit).await?;
    let ranges = windows::expired(windows, &messages, now);
    let kept = messages.into_iter().filter(|_| policy == ExpiryPolicy::DeadLetter);
    let dead_letter = |message| {
        let why = windows::expiry(windows, &message, now)?;
        Some(DeadLetter { message, attempts: 0, reason: why.as_str().to_owned() })
    };
    Ok(Eviction { policy, dead_letters: kept.filter_map(dead_letter).collect(), ranges })
}

impl GroupTask {
    /// Where a partition ends whose window may open.
    pub(super) fn on_head(
        &mut self,
        partition_id: PartitionId,
        epoch: Epoch,
        first: First,
        result: Result<Option<(Offset, Timestamp)>, Error>,
    ) {
        let windows = self.group.settings.windows;
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| held.fence.epoch == epoch) else {
            return;
        };
        held.window.looking = false;
        let now = Instant::now();
        match result {
            Ok(Some((next, newest))) => {
                match windows::closed_for(&windows, first.published_at, newest, first.looked_at) {
                    Duration::ZERO => held.window.open_until = next,
                    wait => held.window.due = Some((first.offset, now + until_passed(wait))),
                }
            }
            Ok(None) => held.window.due = Some((first.offset, now + COMMIT_RETRY_PAUSE)),
            Err(error) => {
                tracing::debug!(%error, "a window is looked at later");
                held.window.due = Some((first.offset, now + COMMIT_RETRY_PAUSE));
            }
        }
        self.pump_lane(partition_id);
    }

    /// What of a lane has expired.
    pub(super) fn on_expired(
        &mut self,
        partition_id: PartitionId,
        epoch: Epoch,
        result: Result<Eviction, ReadError>,
    ) {
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| held.fence.epoch == epoch) else {
            return;
        };
        held.window.looking = false;
        match result {
            Ok(eviction) => self.evict(partition_id, eviction),
            Err(ReadError::OutOfRange { .. }) => self.release(partition_id, "retention"),
            Err(ReadError::UnknownPartition) => self.want(Look::List),
            Err(ReadError::Store(error)) => {
                tracing::debug!(%error, "what has expired is looked for later");
                held.retry_at = Some(Instant::now() + COMMIT_RETRY_PAUSE);
                held.window.due = held.retry_at.map(|moment| (held.lane.next_offset(), moment));
                self.set_timer(partition_id);
            }
        }
    }

    /// Moves past what has expired, unless something has happened to the lane since it was looked for.
    fn evict(&mut self, partition_id: PartitionId, eviction: Eviction) {
        let Some(held) = self.lanes.get_mut(&partition_id) else { return };
        if held.releasing || held.drain_until.is_some() || held.lane.gate != Gate::Open {
            return; // whoever opens it again, tries again
        }
        let eviction = held.undone(&eviction);
        let pairs: Vec<(Offset, Offset)> =
            eviction.ranges.iter().map(|range| (range.first, range.end)).collect();
        // What a step is about to acknowledge is not expired for it.
        if pairs.is_empty() || pairs.iter().any(|(from, to)| held.reserves(*from, *to)) {
            held.window.due = Some((held.lane.next_offset(), Instant::now() + COMMIT_RETRY_PAUSE));
            return self.set_timer(partition_id);
        }
        let commit = Some(held.lane.commit_without_ranges(pairs));
        held.lane.gate = Gate::Settling;
        held.window.evicting = true;
        let settlement = Settlement { commit, eviction: Some(eviction.clone()), ..Settlement::default() };
        self.effects.evict(held.fence, settlement, Eviction { dead_letters: Vec::new(), ..eviction });
    }

    /// What has expired is written down.
    pub(super) fn on_evicted(
        &mut self,
        partition_id: PartitionId,
        epoch: Epoch,
        eviction: &Eviction,
        result: Settled,
    ) {
        let Some(held) = self.lanes.get_mut(&partition_id).filter(|held| held.fence.epoch == epoch) else {
            return self.want(Look::List);
        };
        let nack = held.window.nack.take();
        held.window.evicting = false;
        if result == Settled::LeaseLost {
            held.confirms.extend(nack.and_then(|(_, nack)| nack.id).map(|id| (0, id)));
            return self.lost(partition_id, "lease_lost");
        }
        held.lane.on_evicted(eviction.ranges.iter().map(|range| (range.first, range.end)), Instant::now());
        self.surroundings.metrics.on_evicted(eviction);
        for range in &eviction.ranges {
            tracing::debug!(
                group.name = self.name, partition = held.number, first = %range.first, end = %range.end,
                reason = range.why.as_str(), policy = eviction.policy.as_str(), "messages have expired"
            );
        }
        if let Some((session_id, nack)) = nack {
            self.on_nack(session_id, nack);
        }
        let waits = self.lanes.get(&partition_id).is_some_and(|held| held.release_later.is_some());
        if !waits {
            self.take_kept_nacks(partition_id);
        }
        let open = self.lanes.get_mut(&partition_id).filter(|held| held.lane.gate != Gate::Settling);
        if let Some((why, release)) = open.and_then(|held| held.release_later.take()) {
            let settlement = Settlement { release: Some(release), ..Settlement::default() };
            return self.release_with(partition_id, why, settlement, None);
        }
        self.commit_if_dirty(partition_id);
        self.release_if_drained(partition_id);
        self.pump_lane(partition_id);
    }
}
