//! Times against a plain model: a moment per message instead of ranges.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::lane::{Gate, Lane};
use super::*;
use crate::ids::{Epoch, PartitionId};
use crate::limits::LANE_IN_FLIGHT_MAX;
use crate::store::lanes::ResumeAt;

fn lane(now: Instant) -> Lane {
    let at = ResumeAt {
        parked: Vec::new(),
        partition_id: PartitionId(1),
        epoch: Epoch(3),
        session_id: None,
        committed: Offset::ZERO,
        acked: Vec::new(),
        start_offset: Offset::ZERO,
        suspect_until: Offset::ZERO,
        failed: Vec::new(),
    };
    let mut lane = Lane::new(&at, now);
    lane.times.keep(Keeping::On);
    lane
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Sends one batch of up to so many messages that are not done; returns their offsets.
fn send(lane: &mut Lane, messages: i64, now: Instant) -> Vec<i64> {
    let Some(sendable) = lane.sendable(now) else { return Vec::new() };
    let open = (sendable.from.0..).filter(|offset| !lane.acked().contains(Offset(*offset)));
    let sent: Vec<i64> = open.take(messages.min(sendable.messages as i64) as usize).collect();
    lane.on_sent(Offset(sent[sent.len() - 1] + 1), now);
    sent
}

fn ack_below(lane: &mut Lane, next: i64, now: Instant) {
    lane.on_ack(lane.round, Some(Offset(next)), &[], now).unwrap();
}

fn ack(lane: &mut Lane, first: i64, end: i64, now: Instant) {
    lane.on_ack(lane.round, None, &[(Offset(first), Offset(end))], now).unwrap();
}

/// Ranges, and how long after a moment they were delivered and acknowledged, in milliseconds.
fn told(times: &[LaneTime], since: Instant) -> Vec<(i64, i64, u128, u128)> {
    let after = |moment: Instant| (moment - since).as_millis();
    let told = |time: &LaneTime| (time.first.0, time.end.0, after(time.delivered_at), after(time.acked_at));
    times.iter().map(told).collect()
}

#[test]
fn what_is_delivered_and_acknowledged_together_is_one_range() {
    let start = Instant::now();
    let mut lane = lane(start);
    send(&mut lane, 500, start);
    send(&mut lane, 500, start + ms(50));
    ack_below(&mut lane, 100, start + ms(60));
    ack_below(&mut lane, 700, start + ms(61));
    let commit = lane.take_commit().unwrap();
    assert_eq!(told(&commit.times, start), [(0, 500, 0, 61), (500, 700, 50, 61)]);
    ack_below(&mut lane, 1_000, start + ms(62));
    assert_eq!(told(&lane.take_commit().unwrap().times, start), [(700, 1_000, 50, 62)]);
}

#[test]
fn the_last_delivery_before_the_ack_counts() {
    let start = Instant::now();
    let mut lane = lane(start);
    send(&mut lane, 10, start);
    ack(&mut lane, 3, 4, start + ms(5));
    lane.end_round(Offset(6), Gate::Open);
    assert_eq!(send(&mut lane, 5, start + ms(100)), [0, 1, 2, 4, 5]);
    assert_eq!(lane.times.delivered_at(Offset(5)), Some(start + ms(100)));
    assert_eq!(lane.times.delivered_at(Offset(6)), Some(start));
    ack_below(&mut lane, 6, start + ms(120));
    let commit = lane.next_commit();
    assert_eq!(told(&commit.times, start), [(0, 3, 100, 120), (3, 4, 0, 5), (4, 6, 100, 120)]);
    assert_eq!(lane.times.delivered_at(Offset(5)), None, "it is done");
}

#[test]
fn acks_that_lie_far_apart_stay_apart_even_if_a_commit_is_long_on_its_way() {
    let start = Instant::now();
    let mut lane = lane(start);
    send(&mut lane, 10, start);
    for offset in 0..4 {
        ack_below(&mut lane, offset + 1, start + ms(6 * offset as u64));
    }
    let commit = lane.take_commit().unwrap();
    assert_eq!(told(&commit.times, start), [(0, 2, 0, 6), (2, 4, 0, 18)]);
}

#[test]
fn many_deliveries_and_acks_are_told_in_few_ranges_that_leave_nothing_out() {
    let start = Instant::now();
    let mut lane = lane(start);
    for number in 0..3_000 {
        send(&mut lane, 1, start + ms(2 * number));
    }
    assert_eq!(lane.times.deliveries.len(), LANE_DELIVERIES_MAX);
    let longest = lane.times.deliveries.iter().map(Joins::lasts).max().unwrap();
    assert!(longest <= ms(20), "three times as many as there is room for are told {longest:?} late at most");
    for number in 0..3_000 {
        ack_below(&mut lane, number + 1, start + ms(6_000 + 20 * number as u64));
    }
    let times = lane.take_commit().unwrap().times;
    assert_eq!(times.len(), LANE_TIMES_MAX);
    assert_eq!((times[0].first, times[LANE_TIMES_MAX - 1].end), (Offset(0), Offset(3_000)));
    assert!(times.windows(2).all(|pair| pair[0].end == pair[1].first), "{times:?}");
    assert!(times.iter().all(|time| time.delivered_at <= time.acked_at), "{times:?}");
    assert!(times.iter().all(|time| time.end.0 - time.first.0 <= 250), "{times:?}");
}

#[test]
fn single_acks_that_do_not_touch_are_all_told() {
    let start = Instant::now();
    let mut lane = lane(start);
    send(&mut lane, LANE_IN_FLIGHT_MAX, start);
    let even: Vec<_> = (0..500).map(|number| (Offset(2 * number + 1), Offset(2 * number + 2))).collect();
    lane.on_ack(1, None, &even, start + ms(1)).unwrap();
    assert_eq!(lane.take_commit().unwrap().times.len(), even.len());
    ack_below(&mut lane, 1_000, start + ms(30));
    let times = lane.take_commit().unwrap().times;
    assert!(times.iter().all(|time| time.first.0 % 2 == 0 && time.end == time.first.plus(1)), "{times:?}");
    assert_eq!(times.len(), even.len());
}

#[test]
fn a_step_tells_what_it_acknowledges_and_nobody_else_does() {
    let start = Instant::now();
    let mut lane = lane(start);
    send(&mut lane, 10, start);
    let ranges = [(Offset(2), Offset(5)), (Offset(7), Offset(8))];
    let reserved = lane.times.reserve(&ranges, start + ms(10));
    assert_eq!(told(&reserved, start), [(2, 5, 0, 10), (7, 8, 0, 10)]);
    ack_below(&mut lane, 10, start + ms(12));
    let rest = lane.take_commit().unwrap().times;
    assert_eq!(told(&rest, start), [(0, 2, 0, 12), (5, 7, 0, 12), (8, 10, 0, 12)]);
}

#[test]
fn what_a_step_is_to_tell_is_not_told_by_others_even_if_it_is_delivered_again() {
    let start = Instant::now();
    let mut lane = lane(start);
    send(&mut lane, 10, start);
    let ranges = [(Offset(2), Offset(6))];
    lane.times.reserve(&ranges, start + ms(10));
    lane.end_round(Offset(0), Gate::Open);
    send(&mut lane, 10, start + ms(50));
    ack_below(&mut lane, 8, start + ms(60));
    assert_eq!(told(&lane.next_commit().times, start), [(0, 2, 50, 60), (6, 8, 50, 60)]);
    lane.times.unreserve(&ranges);
    lane.end_round(Offset(8), Gate::Open);
    send(&mut lane, 4, start + ms(70));
    ack_below(&mut lane, 12, start + ms(80));
    assert_eq!(told(&lane.next_commit().times, start), [(8, 12, 70, 80)]);
}

#[test]
fn a_step_that_was_not_done_gives_its_times_back() {
    let start = Instant::now();
    let mut lane = lane(start);
    send(&mut lane, 10, start);
    let ranges = [(Offset(2), Offset(6))];
    let reserved = lane.times.reserve(&ranges, start + ms(10));
    lane.end_round(Offset(0), Gate::Open);
    send(&mut lane, 4, start + ms(50));
    lane.times.unreserve(&ranges);
    lane.times.give_back(&reserved);
    let delivered = |offset| lane.times.delivered_at(Offset(offset)).map(|moment| moment - start);
    assert_eq!([0, 1, 2, 5, 6, 9].map(delivered), [50, 50, 0, 0, 0, 0].map(|after| Some(ms(after))));
    send(&mut lane, 6, start + ms(90));
    ack_below(&mut lane, 10, start + ms(95));
    let times = lane.next_commit().times;
    assert_eq!(told(&times, start), [(0, 2, 50, 95), (2, 4, 0, 95), (4, 10, 90, 95)]);
}

#[test]
fn times_of_a_commit_are_known_until_it_has_arrived_and_go_with_the_next_if_it_was_not_sent() {
    let start = Instant::now();
    let mut lane = lane(start);
    send(&mut lane, 10, start);
    ack_below(&mut lane, 4, start + ms(5));
    let commit = lane.take_commit().unwrap();
    let under_way = lane.times.under_way().unwrap();
    assert_eq!((under_way.number, &under_way.times), (commit.number, &commit.times));
    ack_below(&mut lane, 6, start + ms(6));
    lane.times.on_not_sent();
    lane.mark_dirty();
    let commit = lane.take_commit().unwrap();
    assert_eq!(told(&commit.times, start), [(0, 4, 0, 5), (4, 6, 0, 6)]);
    lane.times.on_stored(commit.number);
    assert_eq!(lane.times.under_way(), None);
}

#[test]
fn nothing_is_told_of_what_was_delivered_while_times_are_not_kept() {
    let start = Instant::now();
    let mut lane = lane(start);
    lane.times.keep(Keeping::Off);
    send(&mut lane, 10, start);
    ack_below(&mut lane, 5, start + ms(1));
    assert!(lane.take_commit().unwrap().times.is_empty());
    lane.times.keep(Keeping::On);
    send(&mut lane, 5, start + ms(10));
    ack_below(&mut lane, 15, start + ms(11));
    assert_eq!(told(&lane.take_commit().unwrap().times, start), [(10, 15, 10, 11)]);
}

#[derive(Debug, Clone)]
enum Step {
    Send(i64),
    Wait(u64),
    Ack(i64, i64),
    AckBelow(i64),
    /// In the round before.
    AckLate(i64),
    Nack(i64),
    Commit,
    /// The commit under way arrives, or it was never sent.
    Stored,
    NotSent,
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1i64..8).prop_map(Step::Send),
        3 => (0u64..6_000).prop_map(Step::Wait),
        2 => (0i64..40, 1i64..4).prop_map(|(first, length)| Step::Ack(first, first + length)),
        2 => (0i64..40).prop_map(Step::AckBelow),
        1 => (0i64..40).prop_map(Step::AckLate),
        1 => (0i64..40).prop_map(Step::Nack),
        2 => Just(Step::Commit),
        1 => Just(Step::Stored),
        1 => Just(Step::NotSent),
        1 => Just(Step::Settle),
    ];
    prop::collection::vec(step, 0..80)
}

/// One moment per message.
#[derive(Debug, Default)]
struct Naive {
    delivered: BTreeMap<i64, Instant>,
    done: BTreeMap<i64, (Instant, Instant)>,
}

impl Naive {
    /// Learns what is done from the lane itself.
    fn look(&mut self, lane: &Lane, now: Instant) {
        let (committed, acked) = lane.position();
        let delivered: Vec<i64> = self.delivered.keys().copied().collect();
        for offset in delivered.into_iter().map(Offset) {
            if offset < committed || acked.contains(offset) {
                self.done.entry(offset.0).or_insert((self.delivered[&offset.0], now));
            }
        }
    }
}

proptest! {
    #[test]
    fn every_message_that_is_done_is_told_once_with_the_moments_that_a_row_per_message_would_have(steps in steps()) {
        let mut now = Instant::now();
        let mut lane = lane(now);
        let mut naive = Naive::default();
        let mut commits: Vec<Arc<[LaneTime]>> = Vec::new();
        let mut under_way: Option<(i64, Arc<[LaneTime]>)> = None;
        for step in steps {
            match step {
                Step::Send(messages) => {
                    for offset in send(&mut lane, messages, now) {
                        naive.delivered.insert(offset, now);
                    }
                }
                Step::Wait(microseconds) => now += Duration::from_micros(microseconds),
                Step::Ack(first, end) => {
                    let _may_be_refused = lane.on_ack(lane.round, None, &[(Offset(first), Offset(end))], now);
                }
                Step::AckBelow(next) => {
                    let _may_be_refused = lane.on_ack(lane.round, Some(Offset(next)), &[], now);
                }
                Step::AckLate(next) => {
                    let _may_be_refused = lane.on_ack(lane.round - 1, Some(Offset(next)), &[], now);
                }
                Step::Nack(offset) => {
                    if lane.check_nack(lane.round, Offset(offset)).is_ok() {
                        lane.end_round(Offset(offset), Gate::Open);
                    }
                }
                Step::Commit if under_way.is_none() => {
                    under_way = lane.take_commit().map(|commit| (commit.number, commit.times));
                }
                Step::Commit => {}
                Step::Stored => if let Some((number, times)) = under_way.take() {
                    lane.times.on_stored(number);
                    commits.push(times);
                },
                Step::NotSent => if under_way.take().is_some() {
                    lane.times.on_not_sent();
                },
                Step::Settle => commits.push(lane.next_commit().times),
            }
            naive.look(&lane, now);
        }
        commits.extend(under_way.map(|(_, times)| times));
        commits.push(lane.next_commit().times);
        let mut told: BTreeMap<i64, LaneTime> = BTreeMap::new();
        for time in commits.iter().flat_map(|times| times.iter()) {
            for offset in time.first.0..time.end.0 {
                prop_assert_eq!(told.insert(offset, *time), None, "offset {} is told twice", offset);
            }
        }
        prop_assert_eq!(told.keys().collect::<Vec<_>>(), naive.done.keys().collect::<Vec<_>>());
        for (offset, time) in &told {
            let (delivered, acked) = naive.done[offset];
            prop_assert!(delivered <= time.delivered_at && time.delivered_at <= time.acked_at);
            prop_assert!(time.delivered_at - delivered <= DELIVERED_TOGETHER, "{offset}: {time:?}");
            prop_assert!(acked <= time.acked_at && time.acked_at - acked <= ACKED_TOGETHER, "{offset}: {time:?}");
        }
        for times in &commits {
            for pair in times.windows(2) {
                let same = (pair[0].delivered_at, pair[0].acked_at) == (pair[1].delivered_at, pair[1].acked_at);
                prop_assert!(!(same && pair[0].end == pair[1].first), "two rows for one: {pair:?}");
            }
        }
    }
}
