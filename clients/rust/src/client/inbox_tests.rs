//! Rounds, epochs, credit: what enters, what leaves, what counts.

use proptest::prelude::*;
use uuid::Uuid;

use super::accounts::CREDIT_PARTS;
use super::*;

const CREDIT: CreditGrant = CreditGrant { messages: 8, bytes: 1000 };

fn record(offset: i64) -> Record {
    Record {
        offset,
        published_at_us: 0,
        trace_id: Uuid::nil(),
        cause: None,
        key: None,
        transaction_id: None,
        headers: None,
        content_type: None,
        payload: "x".into(),
    }
}

fn batch(epoch: i64, round: u32, offsets: impl IntoIterator<Item = i64>) -> Batch {
    let messages = offsets.into_iter().map(record).collect();
    Batch { subscription: 1, partition: 7, epoch, round, attempts: vec![], messages }
}

fn inbox() -> Inbox<&'static str> {
    let mut inbox = Inbox::new();
    inbox.open(1, CREDIT);
    inbox.on_granted(7, 4, 1);
    inbox
}

fn taken(inbox: &mut Inbox<&'static str>) -> Vec<(u32, i64)> {
    std::iter::from_fn(|| inbox.take()).map(|queued| (queued.place.round, queued.place.offset)).collect()
}

fn place(round: u32, offset: i64) -> Place {
    Place { partition: 7, epoch: 4, round, offset }
}

#[test]
fn a_batch_of_a_newer_round_drops_what_is_queued_of_the_older_one() {
    let mut inbox = inbox();
    inbox.on_batch(batch(4, 1, 0..5));
    inbox.on_batch(batch(4, 2, 2..4));
    inbox.on_batch(batch(4, 1, 5..6));
    assert_eq!(taken(&mut inbox), [(2, 2), (2, 3)]);
}

#[test]
fn a_nack_makes_void_what_is_behind_it_and_lets_count_what_is_before_it() {
    let mut inbox = inbox();
    inbox.on_batch(batch(4, 1, 0..6));
    let first: Vec<Queued> = (0..4).map(|_| inbox.take().unwrap()).collect();
    assert_eq!(inbox.ack(first[3].place, None), Ok(()));
    assert!(inbox.nack(first[1].place, None, None, None));
    assert_eq!(taken(&mut inbox), [], "4 and 5 are void");
    inbox.on_batch(batch(4, 1, 6..8));
    assert_eq!(taken(&mut inbox), [], "and so is what was on its way");
    assert_eq!(inbox.ack(first[2].place, Some("two")), Err(Some("two")));
    assert_eq!(inbox.ack(first[0].place, None), Ok(()));
    assert_eq!(inbox.ignored(), 1);
    let out: Vec<_> = inbox.collect().into_iter().collect();
    match &out[..] {
        [
            Outgoing::Ack { tally: before, .. },
            Outgoing::Nack { place: failed, .. },
            Outgoing::Ack { tally: after, .. },
        ] => {
            assert_eq!(
                (before.next, before.ranges[0].from),
                (None, 3),
                "told before the nack, or it would be void"
            );
            assert_eq!(failed.offset, 1);
            assert_eq!(after.next, Some(1));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_revoked_lane_leaves_nothing_and_its_acks_are_ignored_and_counted() {
    let mut inbox = inbox();
    inbox.on_batch(batch(4, 1, 0..3));
    let held = inbox.take().unwrap();
    assert_eq!(inbox.ack(held.place, Some("first")), Ok(()));
    assert_eq!(inbox.on_revoked(7, 4), ["first"]);
    assert_eq!(inbox.len(), 0);
    assert_eq!(inbox.ack(place(1, 1), None), Err(None));
    assert_eq!(inbox.ignored(), 1);
    assert!(inbox.collect().is_empty());
    inbox.on_batch(batch(4, 1, 3..5));
    assert_eq!(inbox.len(), 0, "a batch that crossed the news");
}

#[test]
fn late_acks_of_the_round_before_a_resume_still_count() {
    let mut inbox = inbox();
    inbox.on_batch(batch(4, 1, 0..3));
    let held = inbox.take().unwrap();
    inbox.reopen();
    inbox.on_resumed(7, 4, 2);
    assert_eq!(inbox.len(), 0);
    assert_eq!(inbox.ack(held.place, None), Ok(()));
    assert!(matches!(&inbox.collect()[0], Outgoing::Ack { round: 1, tally, .. } if tally.next == Some(1)));
    inbox.give_back(held.charge);
    assert_eq!(inbox.collect_credit(), [], "the resume has given it back already");
}

#[test]
fn a_draining_lane_makes_every_ack_urgent() {
    let mut inbox = inbox();
    inbox.on_batch(batch(4, 1, 0..3));
    let held = inbox.take().unwrap();
    assert_eq!(inbox.urgency(), Urgency::Nothing);
    inbox.on_draining(7, 4);
    inbox.collect();
    inbox.ack(held.place, None).unwrap();
    assert_eq!(inbox.urgency(), Urgency::Now);
}

#[test]
fn a_tail_that_begins_again_gives_nothing_twice() {
    let mut inbox: Inbox<()> = Inbox::new();
    inbox.open(2, CREDIT);
    inbox.on_tailing(7, 3);
    inbox.on_batch(batch(0, 0, 3..6));
    inbox.on_batch(batch(0, 0, 4..8));
    let offsets: Vec<i64> = std::iter::from_fn(|| inbox.take()).map(|queued| queued.place.offset).collect();
    assert_eq!(offsets, [3, 4, 5, 6, 7]);
    assert_eq!(inbox.positions()[&7], 8);
}

#[derive(Debug, Clone)]
enum Step {
    Send(u8),
    Take,
    Settle(prop::sample::Index),
    Nack(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..5_u8).prop_map(Step::Send),
        4 => Just(Step::Take),
        4 => any::<prop::sample::Index>().prop_map(Step::Settle),
        1 => any::<prop::sample::Index>().prop_map(Step::Nack),
    ]
}

proptest! {
    /// A broker that sends what it has credit for, and begins a new round after each nack.
    #[test]
    fn what_is_held_never_passes_the_credit_and_no_credit_is_lost(steps in prop::collection::vec(step(), 1..120)) {
        let mut inbox = inbox();
        let (mut credit, mut next, mut round) = (CREDIT.messages, 0_i64, 1);
        let mut held: Vec<Queued> = vec![];
        for step in steps {
            match step {
                Step::Send(many) => {
                    let many = credit.min(many.into());
                    if many > 0 {
                        inbox.on_batch(batch(4, round, next..next + i64::from(many)));
                        (next, credit) = (next + i64::from(many), credit - many);
                    }
                }
                Step::Take => held.extend(inbox.take()),
                Step::Settle(pick) if !held.is_empty() => {
                    let queued = held.remove(pick.index(held.len()));
                    inbox.ack(queued.place, None).ok();
                    inbox.give_back(queued.charge);
                }
                Step::Nack(pick) if !held.is_empty() => {
                    let queued = held.remove(pick.index(held.len()));
                    if inbox.nack(queued.place, None, None, None) {
                        (round, next) = (round + 1, queued.place.offset);
                    }
                    inbox.give_back(queued.charge);
                }
                Step::Settle(_) | Step::Nack(_) => {}
            }
            inbox.collect();
            credit += inbox.collect_credit().iter().map(|(_, grant)| grant.messages).sum::<u32>();
            prop_assert!(inbox.len() + held.len() <= CREDIT.messages as usize);
        }
        for queued in held.drain(..).chain(std::iter::from_fn(|| inbox.take())).collect::<Vec<_>>() {
            inbox.give_back(queued.charge);
        }
        credit += inbox.collect_credit().iter().map(|(_, grant)| grant.messages).sum::<u32>();
        prop_assert!(credit > CREDIT.messages - CREDIT.messages / CREDIT_PARTS, "{} is left", credit);
    }
}

#[test]
fn a_message_that_was_acknowledged_and_comes_again_is_settled_without_its_reader() {
    let mut inbox = inbox();
    inbox.on_batch(batch(4, 1, 0..3));
    let held: Vec<Queued> = std::iter::from_fn(|| inbox.take()).collect();
    assert_eq!(inbox.ack(held[0].place, None), Ok(()));
    assert_eq!(inbox.ack(held[2].place, None), Ok(()));
    inbox.collect(); // told, and lost with the connection
    assert_eq!(inbox.lanes_unconfirmed(), 1);
    inbox.reopen();
    inbox.on_resumed(7, 4, 2);
    let told = Tally { next: Some(1), ranges: vec![crate::wire::OffsetRange { from: 2, to: 3 }] };
    assert_eq!(inbox.unconfirmed(), [(7, 4, 1, told.clone())]);
    inbox.on_batch(batch(4, 2, 0..3));
    assert_eq!(taken(&mut inbox), [(2, 1)], "the others are done");
    assert!(
        matches!(&inbox.collect()[0], Outgoing::Ack { round: 2, tally, .. } if *tally == told),
        "and are told in the new round"
    );
    inbox.on_confirmed(7, 3, &told);
    assert_eq!(inbox.lanes_unconfirmed(), 1, "of another epoch");
    inbox.on_confirmed(7, 4, &told);
    assert_eq!(inbox.lanes_unconfirmed(), 0);
    inbox.on_batch(batch(4, 3, 0..1));
    assert_eq!(taken(&mut inbox), [(3, 0)], "a broker that sends what it has confirmed means it");
}

#[test]
fn progress_is_told_for_lanes_with_something_in_work() {
    let mut inbox = inbox();
    inbox.progress_all();
    assert!(inbox.collect().is_empty(), "nothing was delivered");
    inbox.on_batch(batch(4, 1, 0..1));
    inbox.progress_all();
    inbox.progress_all();
    assert!(matches!(
        inbox.collect().make_contiguous(),
        [Outgoing::Progress { partition: 7, epoch: 4, round: 1 }]
    ));
    let held = inbox.take().unwrap();
    assert_eq!(inbox.ack(held.place, None), Ok(()));
    inbox.collect();
    inbox.progress_all();
    assert!(inbox.collect().is_empty(), "all is done");
}

#[test]
fn a_tail_that_goes_back_takes_offsets_again_that_name_other_messages_now() {
    let mut inbox: Inbox<&'static str> = Inbox::new();
    inbox.open(1, CREDIT);
    inbox.on_tailing(7, 3);
    inbox.on_batch(batch(0, 0, 3..8));
    inbox.on_batch(batch(0, 0, 5..8));
    assert_eq!(taken(&mut inbox).len(), 5, "what came already is not told twice");
    inbox.on_moved(7, 5);
    inbox.on_batch(batch(0, 0, 5..9));
    assert_eq!(taken(&mut inbox), [(0, 5), (0, 6), (0, 7), (0, 8)]);
}

fn keyed_batch(round: u32, messages: &[(i64, &'static str)]) -> Batch {
    let mut keyed = batch(4, round, messages.iter().map(|(offset, _)| *offset));
    for (record, (_, key)) in keyed.messages.iter_mut().zip(messages) {
        record.key = Some(bytes::Bytes::from_static(key.as_bytes()));
    }
    keyed
}

#[test]
fn by_key_a_failure_is_void_alone_and_acks_of_older_rounds_are_told_one_by_one() {
    let mut inbox: Inbox<&'static str> = Inbox::new();
    inbox.order_by(GroupOrdering::Key);
    inbox.open(1, CREDIT);
    inbox.on_granted(7, 4, 1);
    inbox.on_batch(keyed_batch(1, &[(0, "a"), (1, "b"), (2, "a"), (3, "b")]));
    let [first, other] = [inbox.take().unwrap(), inbox.take().unwrap()];
    assert!(inbox.nack(first.place, first.record.key.clone(), None, None));
    assert_eq!(inbox.len(), 1, "2 stands behind 0 and comes again");
    // 0 comes again, in a newer round; what is in work of b stays.
    inbox.on_batch(keyed_batch(2, &[(0, "a"), (2, "a"), (4, "b")]));
    assert!(inbox.counts(other.place));
    assert_eq!(inbox.ack(other.place, None), Ok(()));
    let offsets: Vec<i64> = std::iter::from_fn(|| inbox.take()).map(|queued| queued.place.offset).collect();
    assert_eq!(offsets, [3, 0, 2, 4]);
    assert!(!inbox.counts(first.place), "its copy is to be worked on");
    let told: Vec<_> = inbox
        .collect()
        .into_iter()
        .filter_map(|out| match out {
            Outgoing::Ack { round, tally, .. } => Some((round, tally.next, tally.ranges.len())),
            Outgoing::Nack { .. } | Outgoing::Progress { .. } => None,
        })
        .collect();
    assert_eq!(told, [(1, None, 1)]);
}
