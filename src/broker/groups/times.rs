//! When the messages of a lane were delivered, and when those that are newly done were acknowledged. Pure: time comes as an argument.
//!
//! The lane tells what it sends and what is acknowledged for the first time in its epoch; each commit takes along what is new. Nothing
//! is remembered per message: deliveries and acks are ranges, and both lists are bounded.
//! Invariant: what is told of a lane never overlaps, and each delivery is the last one before the ack. A range that covers several
//! deliveries or acks has the latest moment of each, so that nobody is delivered to before a message was there, or acknowledges before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ids::Offset;
use crate::limits::{ACKED_TOGETHER, DELIVERED_TOGETHER, LANE_DELIVERIES_MAX, LANE_TIMES_MAX};
use crate::store::times::{LaneTime, TimesUnderWay};

/// Whether delivery times are kept: a setting of the topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Keeping {
    On,
    #[default]
    Off,
}

impl Keeping {
    /// As the setting says it.
    pub fn of(delivery_times: bool) -> Self {
        if delivery_times { Keeping::On } else { Keeping::Off }
    }
}

/// Messages that were sent together; some of them may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Delivery {
    first: Offset,
    end: Offset,
    /// The first of them was sent then, the last at `delivered_at`.
    since: Instant,
    delivered_at: Instant,
}

/// Messages of one delivery that were acknowledged together, and are in no commit yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Acked {
    time: LaneTime,
    delivered_since: Instant,
    acked_since: Instant,
}

/// What a lane knows about times: nothing, until somebody says that they are kept.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))] // the model keeps lanes as states
pub struct Times {
    keeping: Keeping,
    /// Rising and separate.
    deliveries: Vec<Delivery>,
    /// Rising and separate.
    acked: Vec<Acked>,
    under_way: Option<TimesUnderWay>,
    /// What steps under way are to tell: nobody else does, even if it is delivered again meanwhile.
    reserved: Vec<(Offset, Offset)>,
}

impl Times {
    /// Keeps times from now on, or not any more; what was not written down by then is not.
    pub fn keep(&mut self, keeping: Keeping) {
        if self.keeping != keeping {
            let reserved = std::mem::take(&mut self.reserved);
            *self = Self { keeping, reserved, ..Self::default() };
        }
    }

    /// Messages were sent; a delivery before does not count any more.
    pub fn on_sent(&mut self, first: Offset, end: Offset, now: Instant) {
        if self.keeping == Keeping::Off || first >= end {
            return;
        }
        self.cut(first, end);
        self.deliver(first, end, now);
        for place in 0..self.reserved.len() {
            let (first, end) = self.reserved[place];
            self.cut(first, end);
        }
    }

    fn deliver(&mut self, first: Offset, end: Offset, now: Instant) {
        let place = self.deliveries.partition_point(|delivery| delivery.first < first);
        let last = place.checked_sub(1).map(|last| &mut self.deliveries[last]);
        match last {
            Some(last) if last.end == first && now - last.since <= DELIVERED_TOGETHER => {
                (last.end, last.delivered_at) = (end, now);
            }
            Some(_) | None => {
                let delivery = Delivery { first, end, since: now, delivered_at: now };
                self.deliveries.insert(place, delivery);
                bound(&mut self.deliveries, place, LANE_DELIVERIES_MAX);
            }
        }
    }

    /// Messages are acknowledged that were not before. Of those whose delivery is not known, nothing is told.
    pub fn on_acked(&mut self, first: Offset, end: Offset, now: Instant) {
        let from = self.deliveries.partition_point(|delivery| delivery.end <= first);
        for place in from..self.deliveries.len() {
            let delivery = self.deliveries[place];
            if delivery.first >= end {
                break;
            }
            let time = LaneTime {
                first: delivery.first.max(first),
                end: delivery.end.min(end),
                delivered_at: delivery.delivered_at,
                acked_at: now,
            };
            self.add(Acked { time, delivered_since: delivery.since, acked_since: now });
        }
    }

    fn add(&mut self, acked: Acked) {
        let place = self.acked.partition_point(|other| other.time.first < acked.time.first);
        self.acked.insert(place, acked);
        self.join_if_together(place);
        if let Some(last) = place.checked_sub(1) {
            self.join_if_together(last);
        }
        bound(&mut self.acked, place, LANE_TIMES_MAX);
    }

    /// Makes one range of this one and the next, if they belong together.
    fn join_if_together(&mut self, place: usize) {
        if let [one, next, ..] = self.acked[place..]
            && one.touches(&next)
            && one.time.delivered_at == next.time.delivered_at
            && one.joined(&next).acks_last() <= ACKED_TOGETHER
        {
            self.acked[place] = one.joined(&next);
            self.acked.remove(place + 1);
        }
    }

    /// Everything below is done: nobody asks for its deliveries any more.
    pub fn on_committed_offset(&mut self, committed: Offset) {
        let done = self.deliveries.partition_point(|delivery| delivery.end <= committed);
        self.deliveries.drain(..done);
    }

    /// When a message was delivered last, if that is known.
    pub fn delivered_at(&self, offset: Offset) -> Option<Instant> {
        let place = self.deliveries.partition_point(|delivery| delivery.end <= offset);
        self.deliveries.get(place).filter(|delivery| delivery.first <= offset).map(|found| found.delivered_at)
    }

    /// What is new since the last commit: told by the one that takes it.
    pub fn take(&mut self) -> Arc<[LaneTime]> {
        self.acked.drain(..).map(|acked| acked.time).collect()
    }

    /// As [`Times::take`], for a commit that goes with a flush: until it is known to have arrived, a release may overtake it.
    pub fn take_under_way(&mut self, number: i64) -> Arc<[LaneTime]> {
        let times = self.take();
        self.under_way = (!times.is_empty()).then(|| TimesUnderWay { number, times: times.clone() });
        times
    }

    /// What is under way, for a release that may overtake it.
    pub fn under_way(&self) -> Option<TimesUnderWay> {
        self.under_way.clone()
    }

    /// The commit of this number has arrived.
    pub fn on_stored(&mut self, number: i64) {
        self.under_way.take_if(|under_way| under_way.number <= number);
    }

    /// The commit that was under way was not sent: the next one takes its times.
    pub fn on_not_sent(&mut self) {
        let under_way = self.under_way.take();
        for time in under_way.iter().flat_map(|under_way| under_way.times.iter()) {
            let delivered_since = before(time.delivered_at, DELIVERED_TOGETHER);
            let acked_since = before(time.acked_at, ACKED_TOGETHER);
            self.add(Acked { time: *time, delivered_since, acked_since });
        }
    }

    /// A step that came now is to acknowledge these: it tells their times, and nobody else does.
    pub fn reserve(&mut self, ranges: &[(Offset, Offset)], now: Instant) -> Arc<[LaneTime]> {
        let mut times = Vec::new();
        for (first, end) in ranges {
            let parts = self.deliveries.iter().map(|delivery| LaneTime {
                first: delivery.first.max(*first),
                end: delivery.end.min(*end),
                delivered_at: delivery.delivered_at,
                acked_at: now,
            });
            times.extend(parts.filter(|time| time.first < time.end));
            self.cut(*first, *end);
        }
        self.reserved.extend(ranges);
        times.into()
    }

    /// A step that has reserved these is done, or not.
    pub fn unreserve(&mut self, ranges: &[(Offset, Offset)]) {
        self.reserved.retain(|reserved| !ranges.contains(reserved));
    }

    /// A step was not done, and reserves nothing any more: its messages were delivered as it knew them.
    pub fn give_back(&mut self, times: &[LaneTime]) {
        if self.keeping == Keeping::Off {
            return;
        }
        for LaneTime { first, end, delivered_at, .. } in times.iter().copied() {
            self.cut(first, end);
            let since = before(delivered_at, DELIVERED_TOGETHER);
            let place = self.deliveries.partition_point(|delivery| delivery.first < first);
            self.deliveries.insert(place, Delivery { first, end, since, delivered_at });
        }
    }

    /// Forgets when these were delivered.
    fn cut(&mut self, first: Offset, end: Offset) {
        let from = self.deliveries.partition_point(|delivery| delivery.end <= first);
        let to = self.deliveries.partition_point(|delivery| delivery.first < end);
        if from >= to {
            return;
        }
        let (one, last) = (self.deliveries[from], self.deliveries[to - 1]);
        let head = (one.first < first).then_some(Delivery { end: first, ..one });
        let rest = (last.end > end).then_some(Delivery { first: end, ..last });
        self.deliveries.splice(from..to, head.into_iter().chain(rest));
    }
}

/// A range that may become one with the next.
trait Joins: Copy {
    fn touches(&self, next: &Self) -> bool;
    fn joined(&self, next: &Self) -> Self;
    /// How far apart in time its messages may be.
    fn lasts(&self) -> Duration;
}

impl Joins for Delivery {
    fn touches(&self, next: &Self) -> bool {
        self.end == next.first
    }

    fn joined(&self, next: &Self) -> Self {
        Self {
            first: self.first,
            end: next.end,
            since: self.since.min(next.since),
            delivered_at: self.delivered_at.max(next.delivered_at),
        }
    }

    fn lasts(&self) -> Duration {
        self.delivered_at - self.since
    }
}

impl Joins for Acked {
    fn touches(&self, next: &Self) -> bool {
        self.time.end == next.time.first
    }

    fn joined(&self, next: &Self) -> Self {
        let time = LaneTime {
            first: self.time.first,
            end: next.time.end,
            delivered_at: self.time.delivered_at.max(next.time.delivered_at),
            acked_at: self.time.acked_at.max(next.time.acked_at),
        };
        let delivered_since = self.delivered_since.min(next.delivered_since);
        Self { time, delivered_since, acked_since: self.acked_since.min(next.acked_since) }
    }

    fn lasts(&self) -> Duration {
        self.acks_last().max(self.time.delivered_at - self.delivered_since)
    }
}

impl Acked {
    fn acks_last(&self) -> Duration {
        self.time.acked_at - self.acked_since
    }
}

/// As early as something that was told together may have been.
fn before(moment: Instant, together: Duration) -> Instant {
    moment.checked_sub(together).unwrap_or(moment)
}

/// If there are too many: two neighbours become one, those that are closest in time then. `place`: what has just come.
///
/// Why not always all of them: if there were too many before, no two of those touch each other.
fn bound<T: Joins>(ranges: &mut Vec<T>, place: usize, max: usize) {
    let near = match ranges.len() {
        few if few <= max => return,
        all if all == max + 1 => 0..all,
        many => place.saturating_sub(2)..many.min(place + 2),
    };
    let from = near.start;
    let pairs = ranges[near].windows(2).enumerate().filter(|(_, pair)| pair[0].touches(&pair[1]));
    let closest = pairs.min_by_key(|(_, pair)| pair[0].joined(&pair[1]).lasts());
    let closest = closest.map(|(place, _)| from + place);
    if let Some(place) = closest {
        ranges[place] = ranges[place].joined(&ranges[place + 1]);
        ranges.remove(place + 1);
    }
}

#[cfg(test)]
#[path = "times_tests.rs"]
mod tests;
