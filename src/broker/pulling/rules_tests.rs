//! The rules of pops, without a database.

use super::*;
use crate::broker::groups::settings::defaults;
use crate::ids::{Epoch, PartitionId};
use crate::store::groups::FailurePolicy;
use crate::store::windows::Expiry;

fn at(committed: i64) -> ResumeAt {
    ResumeAt {
        partition_id: PartitionId(1),
        epoch: Epoch(1),
        session_id: None,
        committed: Offset(committed),
        acked: Vec::new(),
        start_offset: Offset::ZERO,
        suspect_until: Offset::ZERO,
        parked: vec![],
        failed: Vec::new(),
    }
}

fn failed(offset: i64, attempts: u32, retry_in: Duration) -> Failed {
    Failed { offset: Offset(offset), attempts, reason: "no".into(), retry_in }
}

fn popped(at: ResumeAt, standing: Standing) -> PoppedLane {
    PoppedLane { at, standing, delivered_at: Instant::now(), commits: 0 }
}

fn blame() -> Blame {
    Blame { reason: "no".into(), delay: Duration::ZERO }
}

#[test]
fn a_lane_is_given_out_in_order_and_stops_at_a_message_that_waits() {
    let settings = defaults();
    let plan =
        |at: &ResumeAt| Plan::of(at, Offset(10), 100, &settings).map(|plan| (plan.from.0, plan.messages));
    assert_eq!(plan(&at(0)), Some((0, 10)));
    assert_eq!(plan(&at(10)), None);
    let waiting = ResumeAt { failed: vec![failed(4, 1, Duration::from_secs(1))], ..at(0) };
    assert_eq!(plan(&waiting), Some((0, 4)));
    assert_eq!(plan(&ResumeAt { committed: Offset(4), ..waiting.clone() }), None);
    let due = ResumeAt { failed: vec![failed(4, 1, Duration::ZERO)], ..at(4) };
    assert_eq!(plan(&due), Some((4, 6)));
    assert_eq!(plan(&ResumeAt { suspect_until: Offset(6), ..at(5) }), Some((5, 1)), "one by one");
    assert_eq!(plan(&ResumeAt { suspect_until: Offset(6), ..at(6) }), Some((6, 4)));
    assert_eq!(plan(&ResumeAt { start_offset: Offset(7), ..at(2) }), Some((7, 3)), "retention was faster");
    let acked = ResumeAt { acked: vec![(Offset(0), Offset(3)), (Offset(5), Offset(6))], ..at(0) };
    assert_eq!(plan(&acked), Some((3, 7)));
    let block = GroupSettings { on_failure: FailurePolicy::Block, max_attempts: 2, ..settings };
    let stuck = ResumeAt { failed: vec![failed(1, 2, Duration::ZERO)], ..at(0) };
    assert_eq!(Plan::of(&stuck, Offset(10), 100, &block).unwrap().messages, 1);
    assert_eq!(Plan::of(&ResumeAt { committed: Offset(1), ..stuck }, Offset(10), 100, &block), None);
}

#[test]
fn an_ack_counts_once_within_the_pop_and_may_come_again_after_it() {
    let lane = popped(at(5), Standing::Open { end: Offset(10) });
    let decided = ack(&lane, Some(Offset(7)), &[Offset(8)], Keep::Times).unwrap();
    assert_eq!((decided.answer.answer.committed_offset, decided.answer.answer.remaining), (7, 2));
    assert_eq!(decided.answer.fresh, 3);
    let (settlement, change) = decided.effect.unwrap();
    let commit = settlement.commit.unwrap();
    assert_eq!((commit.number, commit.committed, commit.acked.as_str()), (1, Offset(7), "{[8,9)}"));
    assert_eq!((commit.times.len(), change), (2, Change::Keep));
    let all = ack(&lane, Some(Offset(10)), &[], Keep::Nothing).unwrap();
    assert_eq!(all.effect.unwrap().1, Change::Free { suspect_until: Offset::ZERO });
    let beyond = Refused::BeyondSent { end: Offset(10) };
    assert_eq!(ack(&lane, Some(Offset(11)), &[], Keep::Nothing), Err(beyond.clone()));
    assert_eq!(ack(&lane, None, &[Offset(10)], Keep::Nothing), Err(beyond.clone()));
    assert_eq!(ack(&lane, None, &[Offset(i64::MAX)], Keep::Nothing), Err(beyond));
    let over = popped(at(10), Standing::Over);
    let again = ack(&over, Some(Offset(10)), &[], Keep::Nothing).unwrap();
    assert_eq!((again.effect, again.answer.answer.remaining), (None, 0));
    for late in [popped(at(5), Standing::Over), popped(at(5), Standing::Expired { end: Offset(10) })] {
        assert_eq!(ack(&late, Some(Offset(6)), &[], Keep::Nothing), Err(Refused::LeaseLost));
        assert_eq!(ack(&late, None, &[Offset(i64::MAX)], Keep::Nothing), Err(Refused::LeaseLost));
    }
}

#[test]
fn a_nack_ends_the_pop_there_and_what_lies_before_may_still_be_acknowledged() {
    let settings = defaults();
    let lane = popped(at(5), Standing::Open { end: Offset(10) });
    let decided = nack(&lane, Offset(7), &blame(), &settings, &Poison::NotRead).unwrap();
    assert_eq!((decided.answer.remaining, decided.answer.verdict), (2, PopVerdict::Retry));
    assert_eq!(decided.effect.unwrap().1, Change::EndsAt(Offset(7)));
    let first = nack(&lane, Offset(5), &blame(), &settings, &Poison::NotRead).unwrap();
    assert_eq!(first.effect.unwrap().1, Change::Free { suspect_until: Offset::ZERO });
    let refused = |offset| nack(&lane, Offset(offset), &blame(), &settings, &Poison::NotRead).unwrap_err();
    assert_eq!(refused(10), Refused::BeyondSent { end: Offset(10) });
    assert_eq!(refused(4), Refused::AlreadyDone { offset: Offset(4) });
    let worn = ResumeAt { failed: vec![failed(5, 4, Duration::ZERO)], ..at(5) };
    let worn = popped(worn, Standing::Open { end: Offset(10) });
    let ask = nack(&worn, Offset(5), &blame(), &settings, &Poison::NotRead).unwrap_err();
    assert_eq!(ask, Refused::NeedsMessage { offset: Offset(5) }, "it is kept aside, whole");
    let given_up = nack(&worn, Offset(5), &blame(), &settings, &Poison::Read(None)).unwrap();
    assert_eq!((given_up.answer.committed_offset, given_up.answer.verdict), (6, PopVerdict::DeadLetter));
}

#[test]
fn a_pop_that_is_over_charges_only_a_message_that_was_alone() {
    let settings = defaults();
    let over = |at: ResumeAt, end: i64| {
        let lane = popped(at, Standing::Expired { end: Offset(end) });
        let decided = expire(&lane, &settings, &Poison::NotRead, |_| blame()).unwrap();
        let (settlement, change) = decided.effect.unwrap();
        (settlement.charge.map(|charge| charge.offset.0), change, decided.answer)
    };
    let free = |until: i64| Change::Free { suspect_until: Offset(until) };
    assert_eq!(over(at(5), 10), (None, free(10), None), "any of five may be the culprit");
    assert_eq!(over(at(9), 10), (Some(9), free(0), Some(Verdict::Retry)));
    let but_one = ResumeAt { acked: vec![(Offset(6), Offset(10))], ..at(5) };
    assert_eq!(over(but_one, 10), (Some(5), free(0), Some(Verdict::Retry)));
    assert_eq!(over(at(10), 10), (None, free(0), None));
    let open = popped(at(5), Standing::Open { end: Offset(10) });
    assert_eq!(expire(&open, &settings, &Poison::NotRead, |_| blame()), Err(Refused::LeaseLost));
}

#[test]
fn what_has_expired_is_moved_past_once_and_only_while_nobody_has_the_lane() {
    let range = |first, end| Evicted { first: Offset(first), end: Offset(end), why: Expiry::Ttl };
    let eviction = Eviction { ranges: vec![range(3, 7), range(9, 10)], ..Eviction::default() };
    let free = popped(ResumeAt { acked: vec![(Offset(6), Offset(7))], ..at(5) }, Standing::Over);
    let decided = evict(&free, &eviction).unwrap();
    assert_eq!(decided.answer.ranges, [range(5, 6), range(9, 10)]);
    let (settlement, change) = decided.effect.unwrap();
    let commit = settlement.commit.unwrap();
    assert_eq!((commit.number, commit.committed, commit.acked.as_str()), (1, Offset(7), "{[9,10)}"));
    assert_eq!((change, settlement.eviction.unwrap().ranges.len()), (Change::Keep, 2));
    let after = popped(ResumeAt { acked: vec![(Offset(9), Offset(10))], ..at(7) }, Standing::Over);
    assert_eq!(evict(&after, &eviction).unwrap().effect, None, "it is written down already");
    let gaps = (0..EVICTION_GAPS_MAX as i64).map(|gap| (Offset(20 + 2 * gap), Offset(21 + 2 * gap)));
    let full = popped(ResumeAt { acked: gaps.collect(), ..at(5) }, Standing::Over);
    assert_eq!(evict(&full, &eviction).unwrap().answer.ranges, [range(5, 7)], "no further gap");
    for taken in [Standing::Open { end: Offset(9) }, Standing::Expired { end: Offset(9) }] {
        assert_eq!(evict(&popped(at(5), taken), &eviction), Err(Refused::LeaseLost));
    }
}
