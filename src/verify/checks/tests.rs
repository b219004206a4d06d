//! Each checker holds on a good history, and fails on one that is broken in the way it is there for.

use super::*;
use crate::verify::history::{Event, LaneId, Ranges, Sight, Term};
use crate::verify::settings::{FaultKind, GROUPS};
use crate::verify::truth::Stored;
use crate::verify::value::Value;

const LANE: LaneId = LaneId { group: 0, partition: 0 };

fn value(number: i64) -> Value {
    Value { producer: 0, partition: 0, number, frame: number as u64 / 2, of: 2 }
}

fn sight(offset: i64) -> Sight {
    Sight { offset, value: Some(value(offset)), trace_is_exact: true }
}

fn granted(lane: LaneId, term: Term, consumer: usize, committed: i64) -> Event {
    Event::Granted { lane, term, consumer, broker: 0, committed, acked: Vec::new() }
}

fn delivered(lane: LaneId, term: Term, offsets: impl IntoIterator<Item = i64>) -> Event {
    Event::Delivered { lane, term, consumer: 0, messages: offsets.into_iter().map(sight).collect() }
}

fn asked(lane: LaneId, term: Term, ranges: Ranges) -> Event {
    Event::Asked { lane, term, ranges }
}

fn confirmed(lane: LaneId, term: Term, ranges: Ranges, committed: i64) -> Event {
    Event::Confirmed { lane, term, during: term, ranges, committed }
}

/// A good run: four messages, every fault once, both groups, a second epoch and a second round.
struct Case {
    events: Vec<Event>,
    truth: Truth,
    probes: Probes,
}

impl Case {
    fn good() -> Self {
        let mut events: Vec<Event> =
            FaultKind::ALL.iter().map(|kind| Event::FaultBegan { kind: *kind, broker: None }).collect();
        events.extend((0..4).map(|offset| Event::Stored { value: value(offset), offset }));
        events.push(Event::Refused { value: Value { producer: 1_000, ..value(0) } });
        events.push(Event::Tailed { partition: 0, reader: 0, messages: (0..4).map(sight).collect() });
        events.push(Event::AckRefused { lane: LANE, term: (1, 1), ranges: vec![(3, 4)], fenced: true });
        for group in 0..GROUPS.len() {
            let lane = LaneId { group, partition: 0 };
            events.extend([
                granted(lane, (1, 1), 0, 0),
                delivered(lane, (1, 1), 0..3),
                asked(lane, (1, 1), vec![(0, 2)]),
                confirmed(lane, (1, 1), vec![(0, 2)], 2),
                delivered(lane, (1, 2), 2..3),
                granted(lane, (2, 1), 1, 2),
                delivered(lane, (2, 1), 2..4),
                asked(lane, (2, 1), vec![(2, 4)]),
                confirmed(lane, (2, 1), vec![(2, 4)], 4),
            ]);
        }
        let mut truth = Truth::default();
        for offset in 0..4 {
            let stored = Stored { value: Some(value(offset)), trace_is_exact: true };
            truth.messages.insert((0, offset), stored);
        }
        truth.results = vec![(0, vec![(0, 2)]), (0, vec![(2, 4)])];
        truth.committed.extend((0..GROUPS.len()).map(|group| (LaneId { group, partition: 0 }, 4)));
        let mut probes = Probes { odd_acks: 1, dead_letter_traces_exact: Some(true), ..Probes::default() };
        probes.scenes.extend((1..=PROMISES).map(|number| (number, Vec::new())));
        Self { events, truth, probes }
    }

    fn with(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    fn changed(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// A message is not in the database.
    fn without(mut self, offset: i64) -> Self {
        self.truth.messages.remove(&(0, offset));
        self
    }

    /// The database says that the lane has come so far.
    fn committed(mut self, offset: i64) -> Self {
        self.truth.committed.insert(LANE, offset);
        self
    }

    fn violated(&self) -> Vec<usize> {
        self.numbers(|verdict| matches!(verdict, Verdict::Violated(_)))
    }

    fn numbers(&self, of: impl Fn(&Verdict) -> bool) -> Vec<usize> {
        let history = History::of(self.events.clone());
        let evidence = Evidence { history: &history, truth: &self.truth, probes: &self.probes };
        judge(evidence).into_iter().filter(|judged| of(&judged.verdict)).map(|judged| judged.number).collect()
    }
}

#[track_caller]
fn breaks(promise: usize, case: &Case) {
    let violated = case.violated();
    assert!(violated.contains(&promise), "promise {promise} should be violated, but only {violated:?} are");
}

#[test]
fn a_good_history_holds_every_promise() {
    assert_eq!(Case::good().numbers(|verdict| *verdict == Verdict::Held), (1..=PROMISES).collect::<Vec<_>>());
}

#[test]
fn what_nobody_has_attacked_is_not_tried() {
    let mut case = Case::good();
    case.events.retain(|event| !matches!(event, Event::FaultBegan { .. }));
    case.probes = Probes::default();
    let not_tried = case.numbers(|verdict| *verdict == Verdict::NotTried);
    for number in [1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25] {
        assert!(not_tried.contains(&number), "{number}");
    }
}

#[test]
fn promise_1_sees_a_message_that_is_gone_or_was_never_delivered() {
    breaks(1, &Case::good().without(3));
    breaks(1, &Case::good().with(Event::Stored { value: value(9), offset: 3 }));
    let silent = |event: &Event| {
        matches!(event, Event::Delivered { lane, messages, .. }
        if lane.group == 1 && messages.iter().any(|message| message.offset == 3))
    };
    breaks(1, &Case::good().changed(|case| case.events.retain(|event| !silent(event))));
}

#[test]
fn promise_1_forgives_what_was_reset_or_dead_lettered() {
    let without = |case: &mut Case| {
        let is_last = |event: &Event| matches!(event, Event::Delivered { term: (2, 1), .. });
        case.events.retain(|event| !is_last(event));
    };
    breaks(1, &Case::good().changed(without));
    let forgiven = Case::good().changed(without).changed(|case| {
        case.events.push(Event::Reset { lane: LANE, from: 3, to: 4 });
        case.truth.dead.extend([1, 2].map(|group| (LaneId { group, partition: 0 }, 3)));
    });
    assert!(!forgiven.violated().contains(&1));
}

#[test]
fn promise_2_sees_a_refused_message_in_the_store_and_in_a_delivery() {
    breaks(2, &Case::good().with(Event::Refused { value: value(2) }));
    let mut strange = sight(4);
    strange.value = Some(Value { producer: 1_000, ..value(0) });
    breaks(2, &Case::good().with(Event::Tailed { partition: 0, reader: 0, messages: vec![strange] }));
}

#[test]
fn promise_3_sees_two_messages_under_one_offset() {
    let other = Sight { value: Some(value(9)), ..sight(2) };
    breaks(3, &Case::good().with(Event::Tailed { partition: 0, reader: 1, messages: vec![other] }));
    breaks(3, &Case::good().with(Event::Stored { value: value(8), offset: 1 }));
}

#[test]
fn promise_4_sees_a_gap_in_the_store_and_in_a_tail() {
    breaks(4, &Case::good().without(1));
    breaks(
        4,
        &Case::good().with(Event::Tailed { partition: 0, reader: 1, messages: vec![sight(0), sight(2)] }),
    );
}

#[test]
fn promises_7_and_8_see_an_inversion_and_a_copy() {
    let place = |case: &mut Case, offset, number| {
        let stored = Stored { value: Some(value(number)), trace_is_exact: true };
        case.truth.messages.insert((0, offset), stored);
    };
    breaks(
        7,
        &Case::good().changed(|case| {
            place(case, 1, 2);
            place(case, 2, 1);
        }),
    );
    breaks(8, &Case::good().changed(|case| place(case, 4, 3)));
}

#[test]
fn promise_9_sees_half_a_frame() {
    breaks(9, &Case::good().without(3));
}

#[test]
fn promise_10_sees_two_owners_of_an_epoch_and_an_effect_that_came_too_late() {
    breaks(10, &Case::good().with(granted(LANE, (2, 1), 7, 2)));
    // Confirmed in epoch 1, though epoch 2 began without it.
    breaks(10, &Case::good().with(confirmed(LANE, (1, 1), vec![(2, 3)], 3)));
    breaks(14, &Case::good().with(confirmed(LANE, (1, 1), vec![(2, 3)], 3)));
}

#[test]
fn promise_11_sees_an_ack_of_a_zombie_that_counts() {
    let late =
        Case::good().with(asked(LANE, (1, 1), vec![(2, 3)])).with(confirmed(LANE, (1, 1), vec![(2, 3)], 3));
    breaks(11, &late);
    let refused = Case::good().with(asked(LANE, (1, 1), vec![(2, 3)]));
    assert!(!refused.violated().contains(&11));
}

#[test]
fn promise_12_sees_a_committed_offset_that_falls_or_runs_ahead() {
    breaks(12, &Case::good().with(granted(LANE, (3, 1), 0, 3)));
    breaks(12, &Case::good().committed(3));
    breaks(12, &Case::good().committed(9));
    breaks(12, &Case::good().changed(|case| case.probes.odd_acks_confirmed.push("beyond the end".into())));
}

#[test]
fn promise_13_sees_disorder_a_hole_and_a_repetition() {
    breaks(13, &Case::good().with(delivered(LANE, (2, 1), [3])));
    let hole = Case::good().changed(|case| {
        case.events.retain(|event| !matches!(event, Event::Asked { .. } | Event::Confirmed { .. }));
        case.events.push(delivered(LANE, (3, 1), [3]));
    });
    breaks(13, &hole);
    breaks(13, &Case::good().with(granted(LANE, (3, 1), 0, 0)).with(delivered(LANE, (3, 1), [0])));
}

#[test]
fn promise_13_knows_that_a_resume_lets_acks_of_the_round_before_count() {
    let late =
        Event::Confirmed { lane: LANE, term: (3, 1), during: (3, 2), ranges: vec![(4, 5)], committed: 5 };
    let resumed = Case::good()
        .with(granted(LANE, (3, 1), 0, 4))
        .with(delivered(LANE, (3, 1), [4]))
        .with(delivered(LANE, (3, 2), [4]))
        .with(late);
    assert!(!resumed.violated().contains(&13));
    breaks(13, &resumed.with(delivered(LANE, (3, 3), [4])));
}

#[test]
fn promise_13_does_not_take_refused_acks_for_done() {
    let third = || {
        Case::good().with(granted(LANE, (3, 1), 0, 4)).with(delivered(LANE, (3, 1), 4..9)).with(asked(
            LANE,
            (3, 1),
            vec![(4, 9)],
        ))
    };
    let refused = |fenced| Event::AckRefused { lane: LANE, term: (3, 1), ranges: vec![(4, 9)], fenced };
    // Fenced: the next epoch begins without it. Within its own epoch it had counted.
    let fenced = || third().with(refused(true)).with(granted(LANE, (4, 1), 1, 4));
    assert!(!fenced().with(delivered(LANE, (4, 1), 4..9)).violated().contains(&13));
    assert!(!fenced().with(delivered(LANE, (3, 2), [9])).violated().contains(&13));
    breaks(13, &fenced().with(delivered(LANE, (4, 1), [9])));
    // Stale: only what lies below the nack has counted.
    let stale = || third().with(Event::Nacked { lane: LANE, term: (3, 1), offset: 6 }).with(refused(false));
    assert!(!stale().with(delivered(LANE, (3, 2), 6..9)).violated().contains(&13));
    assert!(!stale().with(delivered(LANE, (3, 2), 4..9)).violated().contains(&13));
    breaks(13, &stale().with(delivered(LANE, (3, 2), 7..9)));
    breaks(13, &stale().with(delivered(LANE, (3, 2), [9])));
}

#[test]
fn promise_16_sees_a_lane_that_is_not_drained() {
    breaks(16, &Case::good().committed(3));
    breaks(16, &Case::good().changed(|case| case.probes.producers_unsettled = 1));
}

#[test]
fn promise_18_sees_a_trace_id_that_is_not_exact() {
    let other = Sight { trace_is_exact: false, ..sight(2) };
    breaks(18, &Case::good().with(Event::Tailed { partition: 0, reader: 1, messages: vec![other] }));
    breaks(18, &Case::good().changed(|case| case.probes.dead_letter_traces_exact = Some(false)));
}

#[test]
fn promise_19_sees_a_step_without_its_result_and_a_result_without_its_step() {
    breaks(19, &Case::good().changed(|case| drop(case.truth.results.pop())));
    breaks(19, &Case::good().changed(|case| case.truth.results.push((0, vec![(1, 2)]))));
    breaks(19, &Case::good().changed(|case| case.truth.results.push((0, vec![(4, 5)]))));
}

#[test]
fn promise_24_sees_a_drain_that_sends_clients_away_for_good() {
    breaks(24, &Case::good().changed(|case| case.probes.closes_not_retryable.push(4004)));
}

#[test]
fn what_a_scene_has_seen_is_a_violation() {
    for promise in [5, 6, 15, 17, 20, 21, 22, 23, 25] {
        breaks(
            promise,
            &Case::good().changed(|case| {
                case.probes.scenes.insert(promise, vec!["seen".into()]);
            }),
        );
    }
}

#[test]
fn many_violations_are_told_in_part_and_counted() {
    let verdict = Verdict::of(true, (0..50).map(|number| number.to_string()).collect());
    let Verdict::Violated(told) = verdict else { panic!("{verdict:?}") };
    assert_eq!(told.len(), TOLD_MAX + 1);
    assert_eq!(told.last().unwrap(), "and 30 more");
}
