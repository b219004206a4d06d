//! A lane against a plain model: sets of offsets instead of cursors and ranges.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::ids::{Epoch, PartitionId};

fn lane(committed: i64, suspect_until: i64) -> Lane {
    let at = ResumeAt {
        parked: Vec::new(),
        partition_id: PartitionId(1),
        epoch: Epoch(3),
        session_id: None,
        committed: Offset(committed),
        acked: Vec::new(),
        start_offset: Offset::ZERO,
        suspect_until: Offset(suspect_until),
        failed: Vec::new(),
    };
    Lane::new(&at, Instant::now())
}

/// Sends up to `messages`; returns the offsets sent.
fn send(lane: &mut Lane, messages: i64) -> Vec<i64> {
    let now = Instant::now();
    let mut sent = Vec::new();
    while (sent.len() as i64) < messages {
        let Some(sendable) = lane.sendable(now) else { break };
        let next = sendable.from.plus(1);
        lane.on_sent(next, now);
        sent.push(sendable.from.0);
    }
    sent
}

fn ack(lane: &mut Lane, round: u32, offsets: &[i64]) -> Result<(), AckError> {
    let ranges: Vec<_> = offsets.iter().map(|offset| (Offset(*offset), Offset(offset + 1))).collect();
    lane.on_ack(round, None, &ranges, Instant::now())
}

#[test]
fn a_nack_voids_what_is_above_it_and_redelivers_what_is_not_done_in_the_next_round() {
    let mut lane = lane(0, 0);
    assert_eq!(send(&mut lane, 10), (0..10).collect::<Vec<_>>());
    ack(&mut lane, 1, &[0, 1, 7]).unwrap();
    lane.check_nack(1, Offset(4)).unwrap();
    lane.end_round(Offset(4), Gate::Open);
    assert_eq!(lane.round, 2);
    let stale = ack(&mut lane, 1, &[3, 5]);
    assert_eq!(stale, Err(AckError::StaleRound { round: 1, below: Offset(4) }));
    assert_eq!(send(&mut lane, 7), [2, 4, 5, 6, 8, 9, 10], "3 counted, 5 did not, 7 was done");
    assert_eq!(ack(&mut lane, 9, &[2]), Err(AckError::StaleRound { round: 9, below: Offset::ZERO }));
    lane.on_ack(2, Some(Offset(11)), &[], Instant::now()).unwrap();
    assert_eq!((lane.committed(), lane.in_flight()), (Offset(11), 0));
}

#[test]
fn what_was_not_sent_cannot_be_acknowledged_or_refused() {
    let mut lane = lane(5, 0);
    send(&mut lane, 3);
    let beyond = Err(AckError::BeyondSent { sent: Offset(8) });
    assert_eq!(ack(&mut lane, 1, &[8]), beyond);
    assert_eq!(lane.on_ack(1, Some(Offset(9)), &[], Instant::now()), beyond);
    assert_eq!(lane.check_nack(1, Offset(8)), beyond);
    assert_eq!(lane.check_nack(1, Offset(4)), Err(AckError::Done { offset: Offset(4) }));
    assert_eq!(lane.committed(), Offset(5));
}

#[test]
fn a_suspect_lane_has_one_message_in_flight_until_the_range_is_over() {
    let mut lane = lane(10, 12);
    assert_eq!(send(&mut lane, 5), [10]);
    assert_eq!(lane.alone_in_flight(), Some(Offset(10)));
    ack(&mut lane, 1, &[10]).unwrap();
    assert_eq!(send(&mut lane, 5), [11]);
    ack(&mut lane, 1, &[11]).unwrap();
    assert_eq!(send(&mut lane, 3), [12, 13, 14]);
    assert_eq!(lane.alone_in_flight(), None);
}

#[test]
fn a_failed_message_waits_for_its_moment_and_those_behind_it_wait_too() {
    let mut lane = lane(0, 0);
    send(&mut lane, 3);
    lane.end_round(Offset(1), Gate::Settling);
    assert!(send(&mut lane, 1).is_empty());
    let retry_at = Instant::now() + Duration::from_secs(60);
    let failure = Failure { attempts: 1, reason: "no".into(), retry_at };
    lane.on_charged(Offset(1), failure, Gate::Until(retry_at));
    assert!(send(&mut lane, 9).is_empty());
    assert_eq!(lane.sendable(retry_at), Some(Sendable { from: Offset(0), messages: 10_000 }));
    assert_eq!(lane.attempts_between(Offset(0), Offset(5)), [(1, 1)]);
    assert_eq!(lane.attempts_after_failure(Offset(1)), 2);
    lane.on_given_up(Offset(1), Instant::now());
    assert_eq!(send(&mut lane, 2), [0, 2]);
}

#[test]
fn what_is_given_up_is_part_of_the_commit_that_says_so_and_not_of_the_state_before() {
    let mut lane = lane(0, 0);
    send(&mut lane, 3);
    let commit = lane.commit_without(Offset(0));
    assert_eq!((commit.number, commit.committed), (1, Offset(1)));
    assert_eq!(lane.committed(), Offset(0));
    assert_eq!(lane.next_commit().number, 2);
}

#[derive(Debug, Clone)]
enum Step {
    Send(i64),
    Ack(Vec<i64>),
    AckBelow(i64),
    Nack(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1i64..6).prop_map(Step::Send),
        prop::collection::vec(0i64..30, 1..4).prop_map(Step::Ack),
        (0i64..30).prop_map(Step::AckBelow),
        (0i64..30).prop_map(Step::Nack),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    #[test]
    fn a_lane_sends_in_order_what_is_not_done_and_never_goes_back(steps in steps()) {
        let mut lane = lane(0, 0);
        let mut done: BTreeSet<i64> = BTreeSet::new();
        let mut expected_next = 0;
        let mut committed = Offset(0);
        for step in steps {
            let furthest = lane.cursor().0;
            match step {
                Step::Send(n) => {
                    for offset in send(&mut lane, n) {
                        let next = (expected_next..).find(|offset| !done.contains(offset)).unwrap();
                        prop_assert_eq!(offset, next);
                        expected_next = offset + 1;
                    }
                }
                Step::Ack(offsets) => {
                    let may = offsets.iter().all(|offset| *offset < furthest);
                    let round = lane.round;
                    prop_assert_eq!(ack(&mut lane, round, &offsets).is_ok(), may);
                    if may {
                        done.extend(offsets);
                    }
                }
                Step::AckBelow(next) => {
                    let result = lane.on_ack(lane.round, Some(Offset(next)), &[], Instant::now());
                    prop_assert_eq!(result.is_ok(), next <= furthest);
                    if result.is_ok() {
                        done.extend(0..next);
                    }
                }
                Step::Nack(offset) => {
                    let may = offset < furthest && !done.contains(&offset);
                    prop_assert_eq!(lane.check_nack(lane.round, Offset(offset)).is_ok(), may);
                    if may {
                        lane.end_round(Offset(offset), Gate::Open);
                        expected_next = 0;
                    }
                }
            }
            let first_open = (0..).find(|offset| !done.contains(offset)).unwrap();
            prop_assert_eq!(lane.committed(), Offset(first_open));
            prop_assert!(lane.committed() >= committed);
            committed = lane.committed();
        }
    }
}

#[test]
fn what_has_expired_is_done_and_the_commit_that_moves_past_it_says_so_before() {
    let mut lane = lane(0, 0);
    assert_eq!(send(&mut lane, 2), [0, 1]);
    let expired = [(Offset(2), Offset(5)), (Offset(7), Offset(8))];
    let commit = lane.commit_without_ranges(expired);
    assert_eq!((commit.committed, commit.acked.as_str()), (Offset(0), "{[2,5),[7,8)}"));
    lane.gate = Gate::Settling;
    assert_eq!(lane.sendable(Instant::now()), None);
    lane.on_evicted(expired, Instant::now());
    assert_eq!((lane.in_flight(), lane.next_offset()), (2, Offset(5)));
    assert_eq!(lane.undone(Offset(1), Offset(9)).len(), 3);
    assert_eq!(send(&mut lane, 4), [5, 6, 8, 9]);
    ack(&mut lane, 1, &[0, 1]).unwrap();
    assert_eq!(lane.committed(), Offset(5));
}
