//! What was seen, in the order in which it was seen, by everybody who took part.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::keys::KeyEvent;
use super::later::Later;
use super::mixed::Shared;
use super::puller::Pulled;
use super::reschedule::Second;
use super::settings::FaultKind;
use super::value::Value;

/// A partition as delivered to a group, by their indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId {
    pub group: usize,
    pub partition: u32,
}

/// Under what a lane is held: `(epoch, round)` in their order.
pub type Term = (i64, u32);

/// Half-open ranges of offsets.
pub type Ranges = Vec<(i64, i64)>;

/// A delivered message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    pub offset: i64,
    /// `None`: the payload is not what anybody has published.
    pub value: Option<Value>,
    /// Whether the trace id is the one that it was published with.
    pub trace_is_exact: bool,
}

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A publish was answered: it is stored there.
    Stored { value: Value, offset: i64 },
    /// A publish was refused for good.
    Refused { value: Value },
    /// A lane was granted to a consumer, at a broker.
    Granted { lane: LaneId, term: Term, consumer: usize, broker: usize, committed: i64, acked: Ranges },
    /// A lane has a holder under this epoch, as the tables say.
    Held { lane: LaneId, epoch: i64 },
    /// A group has no member at a broker that lives, as the tables say: nobody could take its lanes.
    Unmanned { group: usize },
    /// A consumer was told what retention has dropped.
    Reset { lane: LaneId, from: i64, to: i64 },
    /// A batch came.
    Delivered { lane: LaneId, term: Term, consumer: usize, messages: Vec<Sight> },
    /// An ack was sent.
    Asked { lane: LaneId, term: Term, ranges: Ranges },
    /// A message was refused by its consumer: if that counts, the round ends, and what was sent from there on is void.
    Nacked { lane: LaneId, term: Term, offset: i64 },
    /// An ack was confirmed: it is durable. `during` is the term that the lane had by then: a resume begins a new round, in which
    /// acks of the one before still count.
    Confirmed { lane: LaneId, term: Term, during: Term, ranges: Ranges, committed: i64 },
    /// A step was done: what it acknowledges is durable.
    Stepped { lane: LaneId, term: Term, during: Term, ranges: Ranges },
    /// An ack or a step was refused: the lane is held by somebody else (`fenced`), or the round has ended.
    AckRefused { lane: LaneId, term: Term, ranges: Ranges, fenced: bool },
    /// A reader without a group has seen messages of a partition.
    Tailed { partition: u32, reader: usize, messages: Vec<Sight> },
    /// A message that waits for its time was acknowledged, at a moment.
    Scheduled { later: Later, at_us: i64 },
    /// Something about such a message that is cancelled or moved.
    Second(Second),
    /// Something about lanes that are pulled.
    Pulled(Pulled),
    /// Something about lanes that pullers share with sessions.
    Shared(Shared),
    /// A publish to the topic with a limit was refused, because it is full.
    Full,
    /// That topic is deeper than it was seen before; and how deep it may be.
    Depth { messages: i64, bound: i64 },
    /// Something about messages that keep the order of their keys.
    Keyed(KeyEvent),
    /// A fault began. The number of the broker that it struck, if it was one.
    FaultBegan { kind: FaultKind, broker: Option<usize> },
    /// It is over.
    FaultEnded { kind: FaultKind },
    /// A broker answers again.
    BrokerUp { broker: usize },
}

/// An event and when it was seen, from the beginning of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub at: Duration,
    pub event: Event,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub struct History {
    pub entries: Vec<Entry>,
}

impl History {
    /// Of events a millisecond apart, for tests of checkers.
    #[cfg(test)]
    pub fn of(events: Vec<Event>) -> Self {
        let entry = |(index, event)| Entry { at: Duration::from_millis(index as u64), event };
        Self { entries: events.into_iter().enumerate().map(entry).collect() }
    }

    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.entries.iter().map(|entry| &entry.event)
    }

    /// How often each fault fell.
    pub fn faults(&self) -> HashMap<FaultKind, usize> {
        let mut counts = HashMap::new();
        for event in self.events() {
            if let Event::FaultBegan { kind, .. } = event {
                *counts.entry(*kind).or_default() += 1;
            }
        }
        counts
    }

    /// Whether one of these faults fell.
    pub fn had(&self, kinds: &[FaultKind]) -> bool {
        self.events().any(|event| matches!(event, Event::FaultBegan { kind, .. } if kinds.contains(kind)))
    }
}

/// Where everybody writes down what they see.
#[derive(Debug)]
pub struct Recorder {
    started_at: Instant,
    history: Mutex<History>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { started_at: Instant::now(), history: Mutex::default() }
    }
}

impl Recorder {
    pub fn note(&self, event: Event) {
        let mut history = self.history.lock();
        let at = self.started_at.elapsed(); // under the lock, so that times rise with the order
        history.entries.push(Entry { at, event });
    }

    /// Looks at the history so far.
    pub fn look<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.history.lock())
    }

    /// Takes the history; what is noted later goes into a new one.
    pub fn take(&self) -> History {
        std::mem::take(&mut *self.history.lock())
    }
}
