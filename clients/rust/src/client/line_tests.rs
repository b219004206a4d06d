//! A line against a model of a broker that stores in order, fails at random and forgets answers.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// What becomes of a frame.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Stored,
    Refused,
    Retry,
    UnknownStored,
    UnknownLost,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        5 => Just(Fate::Stored),
        1 => Just(Fate::Refused),
        2 => Just(Fate::Retry),
        1 => Just(Fate::UnknownStored),
        1 => Just(Fate::UnknownLost),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Push(usize),
    Send(usize),
    Answer(Fate),
    Disconnect { stored: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..5_usize).prop_map(Step::Push),
        4 => (1..4_usize).prop_map(Step::Send),
        4 => fate().prop_map(Step::Answer),
        1 => (0..3_usize).prop_map(|stored| Step::Disconnect { stored }),
    ]
}

/// What a broker does with numbered messages.
#[derive(Default)]
struct Broker {
    stored: Vec<String>,
}

enum Answer {
    Stored,
    Gap(i64),
}

impl Broker {
    fn store(&mut self, frame: &[NewMessage]) -> Answer {
        let first = frame[0].sequence.unwrap();
        if first > self.stored.len() as i64 {
            return Answer::Gap(self.stored.len() as i64);
        }
        for message in frame
            .iter()
            .filter(|message| message.sequence.unwrap() >= self.stored.len() as i64)
            .cloned()
            .collect::<Vec<_>>()
        {
            self.stored.push(String::from_utf8(message.payload.to_vec()).unwrap());
        }
        Answer::Stored
    }
}

struct World {
    line: Line<String>,
    broker: Broker,
    frames: VecDeque<Vec<NewMessage>>,
    pushed: Vec<String>,
    refused: Vec<String>,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self {
            line: Line::new(Uuid::nil()),
            broker: Broker::default(),
            frames: VecDeque::new(),
            pushed: vec![],
            refused: vec![],
            now: Instant::now(),
        }
    }

    fn push(&mut self) {
        let name = format!("m{}", self.pushed.len());
        let message = NewMessage { payload: name.clone().into(), ..NewMessage::default() };
        self.line.push(message, 1, self.now + Duration::from_secs(3600), name.clone());
        self.pushed.push(name);
    }

    fn send(&mut self, messages_max: usize) -> bool {
        if !self.line.is_ready(self.now) {
            return false;
        }
        let (frame, _) = self.line.take(messages_max, 1000, 0);
        self.frames.push_back(frame);
        true
    }

    fn answer(&mut self, fate: Fate) {
        let Some(frame) = self.frames.pop_front() else { return };
        let sequences: Vec<i64> = frame.iter().map(|message| message.sequence.unwrap()).collect();
        match fate {
            Fate::Stored => match self.broker.store(&frame) {
                Answer::Stored => sequences.iter().for_each(|one| self.stored(*one)),
                Answer::Gap(expected) => assert!(matches!(self.line.on_gap(expected, self.now), Gap::Resend)),
            },
            // A message is refused by its content: a copy of it was never stored.
            Fate::Refused if sequences[0] >= self.broker.stored.len() as i64 => {
                self.refused.extend(self.line.on_refused(sequences[0]).map(|(_, ticket)| ticket));
                self.line.on_failed(&sequences[1..], self.now, false);
            }
            Fate::Refused | Fate::Retry => self.line.on_failed(&sequences, self.now, false),
            Fate::UnknownStored => {
                self.broker.store(&frame);
                self.line.on_failed(&sequences, self.now, true);
            }
            Fate::UnknownLost => self.line.on_failed(&sequences, self.now, true),
        }
        self.line.on_answered();
    }

    fn stored(&mut self, sequence: i64) {
        self.line.on_stored(sequence);
    }

    fn disconnect(&mut self, stored: usize) {
        for frame in self.frames.drain(..).take(stored) {
            self.broker.store(&frame);
        }
        self.line.on_disconnected();
    }
}

proptest! {
    #[test]
    fn every_message_is_stored_once_and_in_order_whatever_fails(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Push(count) => (0..count).for_each(|_| world.push()),
                Step::Send(messages_max) => {
                    world.send(messages_max);
                },
                Step::Answer(fate) => world.answer(fate),
                Step::Disconnect { stored } => world.disconnect(stored),
            }
        }
        for _ in 0..1000 {
            world.answer(Fate::Stored);
            world.send(3);
        }
        prop_assert!(world.line.is_empty());
        let refused = world.refused;
        let due: Vec<String> = world.pushed.into_iter().filter(|name| !refused.contains(name)).collect();
        prop_assert_eq!(world.broker.stored, due);
    }
}

#[test]
fn a_broker_that_has_forgotten_an_idle_producer_is_met_with_a_new_one() {
    let mut world = World::new();
    world.push();
    world.send(10);
    world.answer(Fate::Stored);
    let old = world.line.producer_id();
    world.push();
    world.send(10);
    let frame = world.frames.pop_front().unwrap();
    assert_eq!(frame[0].sequence, Some(1));
    assert!(matches!(world.line.on_gap(0, world.now), Gap::Restarted));
    world.line.on_answered();
    assert_ne!(world.line.producer_id(), old);
    let (frame, _) = world.line.take(10, 1000, 0);
    assert_eq!((frame.len(), frame[0].sequence), (1, Some(0)));
}

#[test]
fn what_may_be_stored_is_never_sent_under_another_producer() {
    let mut world = World::new();
    (0..2).for_each(|_| world.push());
    world.send(1);
    world.answer(Fate::Stored);
    world.send(1);
    world.disconnect(0);
    world.send(1);
    world.frames.clear();
    match world.line.on_gap(0, world.now) {
        Gap::Lost(lost) => assert_eq!(lost, ["m1"]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_late_message_leaves_if_nobody_has_seen_it_and_stays_if_somebody_may_have() {
    let mut line: Line<&str> = Line::new(Uuid::nil());
    let now = Instant::now();
    let (soon, late) = (now + Duration::from_secs(1), now + Duration::from_secs(100));
    let message = || NewMessage::default();
    line.push(message(), 1, soon, "sent");
    line.take(1, 10, 0);
    line.push(message(), 1, soon, "unsent");
    line.push(message(), 1, late, "patient");
    let mut told = vec![];
    line.on_time(now + Duration::from_secs(2), |ticket, doubtful| told.push((*ticket, doubtful)));
    assert_eq!(told, [("sent", true), ("unsent", false)]);
    let (frame, _) = line.take(10, 10, 0);
    assert_eq!(frame.len(), 1);
    assert_eq!(frame[0].sequence, Some(1), "it has taken the place of the one that left");
    line.push(message(), 1, late, "next");
    assert_eq!(line.take(10, 10, 0).0[0].sequence, Some(2));
}

/// Numbers of what a line would send next.
fn sends(line: &mut Line<usize>) -> Vec<i64> {
    line.take(100, 1_000_000, 0).0.iter().filter_map(|message| message.sequence).collect()
}

/// A line whose first `count` messages were sent, and whose connection was lost before an answer.
fn in_doubt(count: usize) -> (Line<usize>, Instant) {
    let (mut line, now) = (Line::new(Uuid::nil()), Instant::now());
    for ticket in 0..count {
        line.push(NewMessage::default(), 1, now + Duration::from_secs(60), ticket);
    }
    assert_eq!(sends(&mut line), (0..count as i64).collect::<Vec<_>>());
    line.on_disconnected();
    (line, now)
}

#[test]
fn a_refusal_gives_no_number_to_another_message_that_may_be_stored_under_it() {
    // All four are stored. On the second try the limits are others, and the third is refused.
    let (mut line, now) = in_doubt(4);
    assert_eq!(sends(&mut line), [0, 1, 2, 3]);
    line.on_refused(2);
    line.on_failed(&[0, 1, 3], now, false);
    line.on_answered();
    line.push(NewMessage::default(), 1, now + Duration::from_secs(60), 4);
    assert_eq!(sends(&mut line), [0, 1], "a frame ends at the hole");
    assert_eq!(sends(&mut line), [3, 4], "the one that is new has a number of its own");
    for sequence in [0, 1, 3, 4] {
        assert!(line.on_stored(sequence).is_some());
    }
    line.on_answered();
    line.on_answered();
    assert!(line.is_empty());
    line.push(NewMessage::default(), 1, now + Duration::from_secs(60), 5);
    assert_eq!(sends(&mut line), [5]);
}

#[test]
fn a_broker_that_expects_the_number_of_what_was_refused_ends_the_doubt() {
    // Only the first two are stored.
    let (mut line, now) = in_doubt(4);
    assert_eq!(sends(&mut line), [0, 1, 2, 3]);
    line.on_refused(2);
    line.on_failed(&[0, 1, 3], now, false);
    line.on_answered();
    assert_eq!(sends(&mut line), [0, 1]);
    assert_eq!(sends(&mut line), [3]);
    assert!(line.on_stored(0).is_some() && line.on_stored(1).is_some());
    line.on_answered();
    assert!(matches!(line.on_gap(2, now), Gap::Resend));
    line.on_answered();
    assert_eq!(sends(&mut line), [2], "what is left moves up");
}
