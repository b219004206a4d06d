//! What a step acknowledges, taken out of everybody else's hands: lane by lane, for as long as the step is under way.
//!
//! Whoever holds a [`Reservation`] decides about it: done, or given back when it is dropped. So nothing stays reserved when a
//! future is dropped, a request is refused or an owner ends.

use std::collections::HashMap;
use std::sync::Arc;

use super::delivery::Shared;
use super::error::Error;
use super::inbox::{Place, Unreserved};
use crate::error_code::ErrorCode;
use crate::wire::{Ack, OffsetRange};

/// What a step acknowledges on one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LaneAck {
    /// Its place among the readers of the step.
    pub reader: usize,
    /// Rising, each offset once, at least one.
    pub places: Vec<Place>,
}

impl LaneAck {
    /// As a frame has it. Always the same ranges, so that a broker knows the step again.
    pub fn ack(&self, (subscription, partition): (u32, u32)) -> Ack {
        // Order: the last place, because an ack must have been sent, as far as it reaches, in the round that it names.
        let last = self.places[self.places.len() - 1];
        let mut ranges: Vec<OffsetRange> = Vec::new();
        for Place { offset, .. } in &self.places {
            match ranges.last_mut() {
                Some(range) if range.to == *offset => range.to += 1,
                Some(_) | None => ranges.push(OffsetRange { from: *offset, to: *offset + 1 }),
            }
        }
        let Place { epoch, round, .. } = last;
        Ack { id: None, subscription, partition, epoch, round, next: None, ranges }
    }

    fn lane(&self) -> (u32, i64) {
        (self.places[0].partition, self.places[0].epoch)
    }
}

/// Puts single acks together: lanes in the order in which they were named, each once.
pub(super) fn lanes(acks: &[(usize, Place)]) -> Vec<LaneAck> {
    let mut known: HashMap<(usize, u32, i64), usize> = HashMap::new();
    let mut lanes: Vec<LaneAck> = Vec::new();
    for (reader, place) in acks {
        let index = *known.entry((*reader, place.partition, place.epoch)).or_insert_with(|| {
            lanes.push(LaneAck { reader: *reader, places: Vec::new() });
            lanes.len() - 1
        });
        lanes[index].places.push(*place);
    }
    for lane in &mut lanes {
        lane.places.sort_unstable_by_key(|place| (place.offset, std::cmp::Reverse(place.round)));
        lane.places.dedup_by_key(|place| place.offset);
    }
    lanes
}

/// See the module.
#[derive(Debug)]
pub(super) struct Reservation {
    readers: Vec<Arc<Shared>>,
    lanes: Vec<LaneAck>,
}

impl Reservation {
    /// Reserves everything, or nothing.
    pub fn take(readers: Vec<Arc<Shared>>, lanes: Vec<LaneAck>) -> Result<Self, Error> {
        let mut taken = Self { readers, lanes: Vec::with_capacity(lanes.len()) };
        for lane in lanes {
            // What was taken before is given back with `taken`.
            taken.readers[lane.reader].with(|inbox| inbox.reserve(&lane.places)).map_err(refusal)?;
            taken.lanes.push(lane);
        }
        Ok(taken)
    }

    /// Its lanes: whose each is, and its number there.
    pub fn lanes(&self) -> impl Iterator<Item = (&Arc<Shared>, u32)> {
        self.lanes.iter().map(|lane| (&self.readers[lane.reader], lane.lane().0))
    }

    /// The acks of the step, given how a broker calls its lanes.
    pub fn acks(&self, names: &[(u32, u32)]) -> Vec<Ack> {
        self.lanes.iter().zip(names).map(|(lane, name)| lane.ack(*name)).collect()
    }

    /// Whether all its lanes are still held.
    pub fn is_held(&self) -> bool {
        self.lanes.iter().all(|lane| {
            let (partition, epoch) = lane.lane();
            self.readers[lane.reader].with(|inbox| inbox.holds(partition, epoch))
        })
    }

    /// Whether it is about one message only.
    pub fn is_single(&self) -> bool {
        matches!(&self.lanes[..], [lane] if lane.places.len() == 1)
    }

    /// All of it is done, and a broker knows.
    pub fn done(mut self) {
        for lane in self.lanes.drain(..) {
            self.readers[lane.reader].with(|inbox| inbox.on_stepped(&lane.places));
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        for lane in &self.lanes {
            self.readers[lane.reader].with(|inbox| inbox.release(&lane.places));
        }
    }
}

fn refusal(unreserved: Unreserved) -> Error {
    match unreserved {
        Unreserved::Lost => Error::LaneLost,
        Unreserved::Done => {
            let detail = "a message of the step is done already, or is in another step that is under way";
            Error::refused(ErrorCode::AlreadyDone, detail, Some("acks"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(partition: u32, epoch: i64, round: u32, offset: i64) -> Place {
        Place { partition, epoch, round, offset }
    }

    /// Reader, partition, epoch, round, ranges.
    type Said = (usize, u32, i64, u32, Vec<(i64, i64)>);

    fn said(acks: &[(usize, Place)]) -> Vec<Said> {
        let of = |lane: &LaneAck| {
            let Ack { partition, epoch, round, ranges, next, id, .. } = lane.ack((9, lane.lane().0));
            assert_eq!((next, id), (None, None));
            let ranges = ranges.iter().map(|range| (range.from, range.to)).collect();
            (lane.reader, partition, epoch, round, ranges)
        };
        lanes(acks).iter().map(of).collect()
    }

    #[test]
    fn acks_of_one_lane_are_one_with_ranges_and_lanes_keep_their_order() {
        let acks = [
            (1, place(3, 2, 1, 7)),
            (0, place(3, 5, 1, 1)),
            (1, place(3, 2, 1, 4)),
            (1, place(3, 2, 1, 5)),
            (1, place(0, 1, 1, 0)),
            (1, place(3, 2, 1, 5)),
        ];
        let expected =
            [(1, 3, 2, 1, vec![(4, 6), (7, 8)]), (0, 3, 5, 1, vec![(1, 2)]), (1, 0, 1, 1, vec![(0, 1)])];
        assert_eq!(said(&acks), expected);
    }

    #[test]
    fn the_round_of_an_ack_is_that_of_the_furthest_message() {
        let late = [(0, place(3, 2, 2, 6)), (0, place(3, 2, 1, 5))];
        assert_eq!(said(&late), [(0, 3, 2, 2, vec![(5, 7)])], "6 was sent in round 2 only");
        let not_yet_again = [(0, place(3, 2, 2, 5)), (0, place(3, 2, 1, 6))];
        assert_eq!(said(&not_yet_again), [(0, 3, 2, 1, vec![(5, 7)])], "6 has not come again in round 2");
        let copies = [(0, place(3, 2, 1, 5)), (0, place(3, 2, 2, 5))];
        assert_eq!(said(&copies), [(0, 3, 2, 2, vec![(5, 6)])]);
    }

    #[test]
    fn the_same_offsets_under_another_epoch_are_another_lane() {
        let acks = [(0, place(3, 2, 1, 5)), (0, place(3, 3, 1, 6))];
        assert_eq!(said(&acks), [(0, 3, 2, 1, vec![(5, 6)]), (0, 3, 3, 1, vec![(6, 7)])]);
    }
}
