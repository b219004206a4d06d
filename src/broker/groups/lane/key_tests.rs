//! Order by key, case by case: suspects, deadlines, void acks, and the bounds of a lane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::by_key_tests::{KEYS, held, key, lane, lane_at, message, resume_at};
use super::keys::{Key, Keys, Parked, ParkedState, Stop};
use super::*;
use crate::broker::groups::held::Held;
use crate::broker::groups::keyed::Picked;
use crate::broker::slab::{Piece, Slab};
use crate::ids::PartitionId;
use crate::limits::{
    COPIES_HELD_MAX, COPIES_READ_BYTES, COPIES_READ_MAX, LANE_UNDONE_MAX, PARK_BATCH_MESSAGES, PARK_PAUSE,
};
use crate::store::messages::Message;
use crate::store::parked::{Copy, KnownKey};

#[test]
fn a_lane_with_suspects_has_one_message_in_flight_at_a_time_and_charges_only_that() {
    let mut lane = lane();
    lane.suspect_until = Offset(2);
    let now = Instant::now();
    let first = lane.sendable(now).unwrap();
    assert_eq!((first.from, first.messages), (Offset(0), 1));
    lane.on_sent_by_key([(Offset(0), key(0))].into_iter(), std::iter::empty(), Offset(1), now);
    assert_eq!(lane.sendable(now), None, "nobody beside a suspect");
    assert_eq!(lane.alone_in_flight(), Some(Offset(0)));
    lane.on_ack(1, None, &[(Offset(0), Offset(1))], now).unwrap();
    assert_eq!(lane.sendable(now).unwrap().messages, 1);
    lane.on_sent_by_key([(Offset(1), key(1))].into_iter(), std::iter::empty(), Offset(2), now);
    lane.on_ack(1, Some(Offset(2)), &[], now).unwrap();
    assert!(lane.sendable(now).unwrap().messages > 1, "beyond the suspects");
}

#[test]
fn a_key_that_was_parked_before_is_known_to_the_next_holder() {
    let mut keys = Keys::default();
    keys.on_known(key(0), Parked { offset: Offset(0), state: ParkedState::Parked });
    let mut lane = lane();
    lane.order_by_key(keys);
    assert_eq!(lane.turn(Offset(2), &key(2), Instant::now()), by_key::Turn::Held);
    assert_eq!(lane.turn(Offset(1), &key(1), Instant::now()), by_key::Turn::Goes);
}

/// Sends what is new, in the order of offsets, and returns how many.
fn send_new(held: &mut Held, stream: &Arc<Slab>, now: Instant) -> usize {
    let Some(Sendable { from, messages }) = held.lane.sendable(now) else { return 0 };
    let picked = held.pick(vec![Slab::piece(stream, from, messages, u64::MAX)], now);
    if picked.is_all_held() {
        held.on_all_held(picked, now);
        return 0;
    }
    held.turn_back(&picked.pieces);
    held.on_sent(picked, now).iter().map(Piece::len).sum()
}

fn stream(length: usize, key: impl Fn(usize) -> String) -> Arc<Slab> {
    let message = |number: usize| Message {
        key: Some(key(number).into()),
        offset: Offset(number as i64),
        ..message(0)
    };
    Arc::new(Slab::new((0..length).map(message).collect()).unwrap())
}

#[test]
fn the_deadline_of_the_oldest_message_runs_on_while_the_committed_offset_and_other_keys_move() {
    let mut lane = lane();
    let start = Instant::now();
    let later = |seconds: u64| start + Duration::from_secs(seconds);
    let parked = Parked { offset: Offset(0), state: ParkedState::Parked };
    lane.keys_mut().unwrap().on_known(key(0), parked);
    lane.acked.insert(Offset(0), Offset(1)); // it was copied aside
    lane.settle(start);
    lane.cursor = Offset(1);
    lane.keys_mut().unwrap().on_released(Offset(0));
    lane.on_copies(Offset(0), &[(Offset(0), 0, None)]);
    lane.on_sent_by_key([(Offset(0), key(0))].into_iter(), std::iter::empty(), Offset(0), later(1));
    assert_eq!(lane.oldest_since(), later(1));
    for offset in [1, 3] {
        lane.turn_back(Offset(offset));
        let sent = [(Offset(offset), key(offset))];
        lane.on_sent_by_key(sent.into_iter(), std::iter::empty(), Offset(offset + 1), later(2));
        lane.on_ack(lane.round, None, &[(Offset(offset), Offset(offset + 1))], later(3)).unwrap();
    }
    assert_eq!(lane.committed(), Offset(2), "the lane moves past a copy that is in flight");
    assert_eq!((lane.oldest_in_flight(), lane.oldest_since()), (Some(Offset(0)), later(1)));
}

#[test]
fn a_cumulative_ack_of_what_a_failure_has_made_void_is_told() {
    let mut lane = lane();
    let now = Instant::now();
    let sent = (0..4).map(|offset| (Offset(offset), key(offset)));
    lane.on_sent_by_key(sent, std::iter::empty(), Offset(4), now);
    lane.on_failing(Offset(0), now);
    lane.on_key_charged(Offset(0), Failure { attempts: 1, reason: String::new(), retry_at: now }, Stop::None);
    let void = Err(AckError::Void { round: 1, offset: Offset(0) });
    assert_eq!(lane.check_step(1, Some(Offset(4)), &[]).map(|_| ()), void);
    assert_eq!(lane.on_ack(1, Some(Offset(4)), &[], now), void, "0 and 2 have the key that failed");
    assert!(lane.is_done(Offset(1)) && lane.is_done(Offset(3)), "the others count");
    let (from, again) = (lane.sendable(now).unwrap().from, [(Offset(0), key(0)), (Offset(2), key(2))]);
    assert!(lane.turn_back(from));
    lane.on_sent_by_key(again.into_iter(), std::iter::empty(), Offset(0), now);
    assert_eq!(lane.on_ack(1, Some(Offset(4)), &[], now), void, "nor once they are sent again");
    assert_eq!(lane.on_ack(2, Some(Offset(4)), &[], now), Ok(()));
    assert_eq!(lane.committed(), Offset(4));
}

#[test]
fn copies_of_a_key_that_is_released_long_after_a_crash_do_not_go_one_by_one() {
    for (released, together) in [(false, 3), (true, 1)] {
        let known = KnownKey {
            partition_id: PartitionId(1),
            parked_offset: Offset(0),
            key: Some(Bytes::copy_from_slice(&[KEYS[0]])),
            released,
        };
        let at =
            ResumeAt { committed: Offset(10), suspect_until: Offset(10), parked: vec![known], ..resume_at() };
        let mut held = held(lane_at(&at, Instant::now()));
        held.lane.keys_mut().unwrap().on_released(Offset(0));
        let copy = |offset| Copy { message: message(offset), attempts: 0, retry_in: Duration::ZERO };
        held.take_copies(Offset(0), [0, 2, 5].map(copy).to_vec(), Instant::now());
        let sendable = held.lane.sendable(Instant::now()).unwrap();
        let pieces = held.copies(sendable.from, sendable.messages, u64::MAX).unwrap();
        assert_eq!(pieces.len(), together, "released before the lane came here: {released}");
    }
}

#[test]
fn a_lane_with_as_many_waiting_messages_as_may_sends_nothing_new_until_they_move() {
    let now = Instant::now();
    let mut held = held(lane());
    let stream =
        stream(LANE_UNDONE_MAX + 2, |number| if number == 1 { "other".into() } else { "slow".into() });
    assert_eq!(send_new(&mut held, &stream, now), LANE_UNDONE_MAX);
    assert!(!held.lane.has_too_many_waiting(), "they are in flight, and that is said by nothing");
    held.lane.on_failing(Offset(0), now);
    let retry_at = now + Duration::from_secs(1);
    let failure = Failure { attempts: 1, reason: String::new(), retry_at };
    held.lane.on_key_charged(Offset(0), failure, Stop::Until(retry_at));
    assert_eq!(send_new(&mut held, &stream, now), 0);
    assert!(held.lane.has_too_many_waiting());
    held.lane.on_ack(1, None, &[(Offset(1), Offset(2))], now).unwrap();
    assert!(!held.lane.has_too_many_waiting(), "there is room for one");
    assert_eq!(send_new(&mut held, &stream, now), 0, "it is of the same key");
    assert!(held.lane.has_too_many_waiting());
    assert!(send_new(&mut held, &stream, retry_at) > 0, "the key goes on");
}

#[test]
fn a_lane_with_too_many_single_acks_sends_only_what_lies_between_them() {
    let now = Instant::now();
    let mut held = held(lane());
    let stream = stream(4 * LANE_GAPS_MAX, |number| format!("{number}"));
    assert_eq!(send_new(&mut held, &stream, now), 4 * LANE_GAPS_MAX);
    for offset in (1..=2 * LANE_GAPS_MAX as i64).step_by(2) {
        held.lane.on_ack(1, None, &[(Offset(offset), Offset(offset + 1))], now).unwrap();
    }
    assert!(held.lane.has_too_many_gaps());
    assert_eq!(held.lane.sendable(now), None);
    held.lane.restart();
    let sendable = held.lane.sendable(now).unwrap();
    assert_eq!(
        (sendable.from, sendable.messages),
        (Offset(0), 1),
        "one at a time, so that they become fewer"
    );
    assert_eq!(send_new(&mut held, &stream, now), 1);
    assert_eq!(held.lane.sendable(now), None);
    held.lane.on_ack(held.lane.round, None, &[(Offset(0), Offset(1))], now).unwrap();
    assert!(!held.lane.has_too_many_gaps());
    assert!(held.lane.sendable(now).is_some_and(|sendable| sendable.messages > 1));
}

#[test]
fn released_keys_are_read_only_as_far_as_the_memory_of_the_lane_goes() {
    let now = Instant::now();
    let keys = 2 * COPIES_HELD_MAX as i64;
    let known = |number: i64| KnownKey {
        partition_id: PartitionId(1),
        parked_offset: Offset(number),
        key: Some(number.to_string().into()),
        released: true,
    };
    let at = ResumeAt { committed: Offset(keys), parked: (0..keys).map(known).collect(), ..resume_at() };
    let mut held = held(lane_at(&at, now));
    let mut read = 0;
    while let Some(((parked_offset, _), _)) = held.begin_read(now) {
        assert!(held.end_read().is_some());
        let key = Some(parked_offset.0.to_string().into());
        let message = Message { key, offset: parked_offset, ..message(0) };
        held.take_copies(parked_offset, vec![Copy { message, attempts: 0, retry_in: Duration::ZERO }], now);
        read += 1;
    }
    assert_eq!(read, COPIES_HELD_MAX);
    let sendable = held.lane.sendable(now).unwrap();
    let pieces = held.copies(sendable.from, 10, u64::MAX).unwrap();
    held.turn_back(&pieces);
    held.on_sent(Picked::all(pieces), now);
    held.lane.on_ack(held.lane.round, Some(Offset(keys)), &[], now).unwrap();
    held.drop_copies();
    assert!(held.begin_read(now).is_some(), "there is room again");
}

/// Sends one message of a key of its own, in another round if it lies behind.
fn send_one(lane: &mut Lane, offset: i64, now: Instant) {
    lane.turn_back(Offset(offset));
    let end = lane.cursor.max(Offset(offset + 1));
    let sent = [(Offset(offset), Key::Own(Offset(offset)))];
    lane.on_sent_by_key(sent.into_iter(), std::iter::empty(), end, now);
}

#[test]
fn the_oldest_message_in_flight_is_the_one_that_was_sent_first_however_often_one_below_it_comes_again() {
    let mut lane = lane();
    let start = Instant::now();
    let later = |seconds: u64| start + Duration::from_secs(seconds);
    send_one(&mut lane, 0, start);
    send_one(&mut lane, 1, start);
    assert_eq!((lane.oldest_in_flight(), lane.oldest_since()), (Some(Offset(0)), start));
    for again in 1..5 {
        lane.on_failing(Offset(0), later(2 * again));
        assert_eq!((lane.oldest_in_flight(), lane.oldest_since()), (Some(Offset(1)), later(2)));
        let failure = Failure { attempts: again as u32, reason: String::new(), retry_at: start };
        lane.on_key_charged(Offset(0), failure, Stop::None);
        send_one(&mut lane, 0, later(2 * again + 1));
        assert_eq!((lane.oldest_in_flight(), lane.oldest_since()), (Some(Offset(1)), later(2)), "it hangs");
    }
    lane.on_progress(later(20));
    assert_eq!(lane.oldest_since(), later(20), "somebody is at work on it");
    lane.on_ack(1, None, &[(Offset(1), Offset(2))], later(21)).unwrap();
    assert_eq!((lane.oldest_in_flight(), lane.oldest_since()), (Some(Offset(0)), later(21)));
}

#[test]
fn a_key_goes_on_when_the_message_that_it_is_stopped_at_has_expired_and_not_before() {
    let now = Instant::now();
    let retry_at = now + Duration::from_secs(60);
    for stop in [Stop::Blocked, Stop::Until(retry_at)] {
        let mut held = held(lane());
        let stream = stream(4, |number| if number == 1 { "other".into() } else { "stopped".into() });
        assert_eq!(send_new(&mut held, &stream, now), 4);
        held.lane.on_failing(Offset(0), now);
        let failure = Failure { attempts: 1, reason: String::new(), retry_at };
        held.lane.on_key_charged(Offset(0), failure, stop);
        held.lane.on_evicted([(Offset(2), Offset(3))], now);
        assert_eq!(held.lane.keys().unwrap().first_ready(), None, "{stop:?}: 0 is not done");
        held.lane.on_evicted([(Offset(0), Offset(1))], now);
        assert_eq!(held.lane.keys().unwrap().first_ready(), Some(Offset(3)), "{stop:?}");
        assert_eq!(held.lane.next_moment(), None);
    }
}

/// A lane past two messages, which have parked the keys `a` and `b`.
fn held_with_parked(now: Instant) -> Held {
    let known = |(number, name): (i64, &'static str)| KnownKey {
        partition_id: PartitionId(1),
        parked_offset: Offset(number),
        key: Some(name.into()),
        released: false,
    };
    let parked = [(0, "a"), (1, "b")].map(known).to_vec();
    held(lane_at(&ResumeAt { committed: Offset(2), parked, ..resume_at() }, now))
}

#[test]
fn what_stood_behind_a_key_that_has_gone_on_does_not_count_as_waiting_to_be_copied() {
    let now = Instant::now();
    let mut held = held_with_parked(now);
    let last = PARK_BATCH_MESSAGES + 2;
    let stream = stream(last + 1, |number| if number == last { "b".into() } else { "a".into() });
    assert_eq!(send_new(&mut held, &stream, now), 0);
    assert_eq!(held.park_at(), Some(now), "a whole batch of them waits");
    let keys = held.lane.keys_mut().unwrap();
    keys.on_released(Offset(0));
    keys.on_freed(Offset(0));
    held.drop_copies();
    assert_eq!(held.park_at(), Some(now + PARK_PAUSE), "one of b waits for others");
}

#[test]
fn what_came_for_a_key_that_was_wrongly_taken_for_released_waits_to_be_copied() {
    let now = Instant::now();
    let mut held = held_with_parked(now);
    held.lane.keys_mut().unwrap().on_released(Offset(0));
    let stream = stream(3, |_| "a".into());
    assert_eq!(send_new(&mut held, &stream, now), 0);
    assert_eq!(held.park_at(), None);
    held.on_not_released(Offset(0), now);
    assert_eq!(held.park_at(), Some(now + PARK_PAUSE));
}

#[test]
fn a_key_that_was_not_freed_is_read_from_its_first_copy_on() {
    let now = Instant::now();
    let mut held = held_with_parked(now);
    held.lane.keys_mut().unwrap().on_released(Offset(0));
    let first = Some(((Offset(0), Offset(0)), (COPIES_READ_MAX, COPIES_READ_BYTES)));
    assert_eq!(held.begin_read(now), first);
    held.end_read();
    let copy = Copy { message: message(0), attempts: 0, retry_in: Duration::ZERO };
    held.take_copies(Offset(0), vec![copy], now);
    held.lane.keys_mut().unwrap().remove(Offset(0));
    assert_eq!(held.begin_read(now).map(|(read, _)| read), Some((Offset(0), Offset(1))));
    held.end_read();
    held.lane.keys_mut().unwrap().on_kept(Offset(0));
    assert_eq!(held.begin_read(now), first);
}
