//! A good history of keys, and one that is broken for each rule.

use super::*;
use crate::verify::history::{Entry, History};
use crate::verify::probes::Probes;

fn keyed(offset: i64) -> Keyed {
    Keyed { key: offset as u32 % 2, number: offset / 2 }
}

fn delivered(term: Term, offsets: &[i64]) -> Event {
    let messages = offsets.iter().map(|offset| (*offset, Some(keyed(*offset)))).collect();
    Event::Keyed(KeyEvent::Delivered { partition: 0, term, messages })
}

fn asked(offsets: &[i64]) -> Event {
    Event::Keyed(KeyEvent::Asked { partition: 0, offsets: offsets.to_vec() })
}

fn confirmed(term: Term, offsets: &[i64]) -> Event {
    Event::Keyed(KeyEvent::Confirmed { partition: 0, term, offsets: offsets.to_vec() })
}

fn failed(term: Term, offset: i64) -> Event {
    Event::Keyed(KeyEvent::Failed { partition: 0, term, offset })
}

/// Two keys, even and odd; 0 fails and is replayed, 1 fails and is dropped. The holder changes in the end.
fn good() -> (Vec<Event>, Truth) {
    let stored = (0..8).map(|offset| Event::Keyed(KeyEvent::Stored(keyed(offset))));
    let mut events: Vec<Event> = stored.collect();
    events.extend([
        delivered((1, 1), &[0, 1, 2, 3]), // 8
        failed((1, 1), 0),
        failed((1, 1), 1),
        Event::Keyed(KeyEvent::Replayed { key: 0 }),
        delivered((1, 2), &[0, 2]), // 12
        asked(&[0]),
        confirmed((1, 2), &[0]),
        Event::Keyed(KeyEvent::DropAsked { key: 1 }),
        Event::Keyed(KeyEvent::Dropped { key: 1 }), // 16
        delivered((1, 3), &[3, 4]),
        asked(&[3]),
        confirmed((1, 3), &[3]),
        delivered((2, 1), &[2, 4, 5, 6, 7]), // 20
        asked(&[2, 4, 5, 6, 7]),
        confirmed((2, 1), &[2, 4, 5, 6, 7]),
    ]);
    let truth = Truth {
        keyed: (0..8).map(|offset| ((0, offset), Some(keyed(offset)))).collect(),
        dropped: vec![(0, 1)],
        kept: [(0, 8)].into(),
        ..Truth::default()
    };
    (events, truth)
}

/// Each event comes long after the one before, so that nothing is held back.
fn verdict(events: Vec<Event>, truth: &Truth) -> Verdict {
    let entry = |(index, event)| Entry { at: HELD_MAX * index as u32, event };
    let history = History { entries: events.into_iter().enumerate().map(entry).collect() };
    keys(Evidence { history: &history, truth, probes: &Probes::default() })
}

#[track_caller]
fn broken(words: &str, change: impl FnOnce(&mut Vec<Event>, &mut Truth)) {
    let (mut events, mut truth) = good();
    assert_eq!(verdict(events.clone(), &truth), Verdict::Held);
    change(&mut events, &mut truth);
    let Verdict::Violated(told) = verdict(events, &truth) else { panic!("nothing is found: {words}") };
    assert!(told.iter().any(|told| told.contains(words)), "{words}: {told:?}");
}

#[test]
fn a_message_that_is_lost_or_stored_twice_is_found() {
    broken("is not stored", |_, truth| truth.keyed.retain(|(_, offset), _| *offset != 7));
    broken("is stored at", |_, truth| truth.keyed.extend([((0, 8), Some(keyed(7)))]));
    broken("not what anybody", |_, truth| truth.keyed.extend([((0, 8), None)]));
    broken("never delivered and acknowledged", |events, _| {
        events[20] = delivered((2, 1), &[2, 4, 5, 6]);
        events[22] = confirmed((2, 1), &[2, 4, 5, 6]);
    });
    broken("never delivered and acknowledged", |events, _| {
        events[21] = asked(&[2, 4, 5, 6]);
        events[22] = confirmed((2, 1), &[2, 4, 5, 6]);
    });
    broken("not what is stored", |_, truth| truth.keyed.extend([((0, 7), Some(keyed(9)))]));
}

#[test]
fn offsets_that_do_not_rise_within_a_round_are_found() {
    broken("came after", |events, _| events[12] = delivered((1, 2), &[0, 2, 2]));
    broken("came after", |events, _| events[20] = delivered((2, 1), &[2, 5, 4, 6, 7]));
}

#[test]
fn a_message_that_passes_one_of_its_key_is_found() {
    // Behind a parked one, before that is replayed.
    broken("before 0", |events, _| events[12] = delivered((1, 2), &[2]));
    // In a new epoch, before one that is not done.
    broken("before 2", |events, _| events[20] = delivered((2, 1), &[4, 5, 6, 7]));
    // Never delivered before.
    broken("before 5", |events, _| events[20] = delivered((2, 1), &[2, 4, 6, 7]));
}

#[test]
fn a_batch_that_was_made_before_a_nack_counted_is_no_disorder() {
    let (mut events, truth) = good();
    events[12] = delivered((1, 2), &[2, 4]);
    events.insert(13, delivered((1, 3), &[0, 2]));
    let entry = |(index, event)| Entry { at: Duration::from_millis(index as u64), event };
    let history = History { entries: events.into_iter().enumerate().map(entry).collect() };
    let found = keys(Evidence { history: &history, truth: &truth, probes: &Probes::default() });
    assert_eq!(found, Verdict::Held);
}

#[test]
fn a_message_that_comes_after_its_ack_was_confirmed_is_found() {
    broken("was done in (1, 2)", |events, _| events[17] = delivered((1, 3), &[0, 3, 4]));
    broken("was done in (1, 2)", |events, _| events[20] = delivered((2, 1), &[0, 2, 4, 5, 6, 7]));
    // Confirmed only when the next epoch has begun without it.
    broken("came in epoch 2", |events, _| events.push(confirmed((1, 3), &[4])));
}

#[test]
fn what_is_not_finished_in_the_end_is_found() {
    broken("still parked", |_, truth| truth.parked = 1);
    broken("stuck at 7", |_, truth| truth.kept = [(0, 7)].into());
}

#[test]
fn a_drop_that_nobody_has_asked_for_or_that_has_not_counted_is_found() {
    broken("has lost 2 messages", |_, truth| truth.dropped.push((0, 5)));
    broken("has lost 0 messages", |_, truth| truth.dropped.clear());
}

#[test]
fn without_a_key_that_was_replayed_it_was_not_tried() {
    assert_eq!(verdict(Vec::new(), &Truth::default()), Verdict::NotTried);
}
