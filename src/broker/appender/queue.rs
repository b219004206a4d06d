//! Units waiting per partition, and which of them the next flush takes. Pure: time comes as an argument.
//!
//! Partitions take turns; within a partition units leave in the order they came. A flush takes a unit only if tables
//! exist for all of it, and stops before a unit whose sequence or transaction id depends on one taken just before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use super::coverage::{Coverage, Growth};
use super::plan::{Plan, Taken};
use super::unit::Pending;
use crate::ids::{Offset, PartitionId, ProducerId, Sequence};
use crate::limits::{FLUSH_BYTES_MAX, FLUSH_MESSAGES_MAX};

/// Who may flush a partition now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The next flush.
    Shared,
    /// The next flush after this moment: somebody else had it locked.
    After(Instant),
    /// A flush of its own, on another connection, that waits for the lock.
    Alone,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Pending>,
    coverage: Coverage,
    turn: Turn,
    /// Flushes in a row that left it out.
    skips: u32,
    /// Flushes in a row that found no table for it.
    misses: u32,
    /// Whether the ring lists it; kept here because the ring can be long.
    listed: bool,
}

/// Everything that waits in one appender task.
#[derive(Debug, Default)]
pub(super) struct Queues {
    partitions: HashMap<PartitionId, Queue>,
    /// Partitions with waiting units, each once, in the order of their turns.
    ring: VecDeque<PartitionId>,
    /// How many partitions wait for a moment. Why: hardly ever any does, and who asks for it asks with every unit.
    deferred: usize,
}

/// What to do next.
#[derive(Debug, Default)]
pub(super) struct Turnout {
    pub plan: Plan,
    /// Partitions that need tables for this many messages before they can be flushed.
    pub wants: Vec<(PartitionId, usize)>,
}

impl Queues {
    /// Adds a unit behind the others of its partition.
    pub fn push(&mut self, pending: Pending) {
        let partition_id = pending.unit.partition_id;
        let queue = self.queue(partition_id);
        queue.waiting.push_back(pending);
        self.list(partition_id);
    }

    /// Puts units back at a place among the others of their partition, in their order.
    pub fn put_back(&mut self, partition_id: PartitionId, place: usize, units: Vec<Pending>) {
        let queue = self.queue(partition_id);
        let place = place.min(queue.waiting.len());
        for (step, pending) in units.into_iter().enumerate() {
            queue.waiting.insert(place + step, pending);
        }
        self.list(partition_id);
    }

    fn queue(&mut self, partition_id: PartitionId) -> &mut Queue {
        self.partitions.entry(partition_id).or_insert_with(|| Queue {
            waiting: VecDeque::new(),
            coverage: Coverage::Unknown,
            turn: Turn::Shared,
            skips: 0,
            misses: 0,
            listed: false,
        })
    }

    fn list(&mut self, partition_id: PartitionId) {
        let queue = self.queue(partition_id);
        if !queue.waiting.is_empty() && !queue.listed {
            queue.listed = true;
            self.ring.push_back(partition_id);
        }
    }

    /// The next flush: as much as fits, each partition in its turn.
    pub fn take(&mut self, now: Instant, partitions_max: usize) -> Turnout {
        let mut turnout = Turnout::default();
        let mut room = Room::of_a_flush(partitions_max);
        for _ in 0..self.ring.len() {
            let Some(partition_id) = self.ring.pop_front() else { break };
            let queue = self.partitions.get_mut(&partition_id).expect("the ring lists known partitions");
            if queue.may_flush(now) {
                // What it waits for now, if anything, is an event and no moment.
                set_turn(queue, Turn::Shared, &mut self.deferred);
                let (units, wanted) = queue.take(&mut room);
                turnout.wants.extend(wanted.map(|messages| (partition_id, messages)));
                if !units.is_empty() {
                    room.partitions -= 1;
                    turnout.plan.batches.push(Taken { partition_id, units });
                }
            }
            queue.listed = !queue.waiting.is_empty();
            if queue.listed {
                self.ring.push_back(partition_id);
            }
            if room.is_full() {
                break;
            }
        }
        turnout
    }

    /// Takes one partition out for a flush of its own; the others go on.
    pub fn take_alone(&mut self, partition_id: PartitionId) -> Plan {
        self.turn_to(partition_id, Turn::Alone);
        let queue = self.queue(partition_id);
        queue.skips = 0;
        let mut room = Room::of_a_flush(1);
        let (units, wanted) = queue.take(&mut room);
        if wanted.is_some() {
            queue.coverage = Coverage::Unknown; // nobody asks here: the next shared flush does
        }
        match units.is_empty() {
            true => Plan::default(),
            false => Plan { batches: vec![Taken { partition_id, units }], commits: Vec::new() },
        }
    }

    /// The flush of its own is over.
    pub fn rejoin(&mut self, partition_id: PartitionId) {
        self.turn_to(partition_id, Turn::Shared);
    }

    /// How often in a row somebody else had the partition locked.
    pub fn skips(&mut self, partition_id: PartitionId) -> u32 {
        self.queue(partition_id).skips
    }

    /// Leaves a partition alone for a while.
    pub fn pause(&mut self, partition_id: PartitionId, until: Instant) {
        self.turn_to(partition_id, Turn::After(until));
    }

    /// Somebody else had the partition locked. Returns how often in a row.
    pub fn skipped(&mut self, partition_id: PartitionId, until: Instant) -> u32 {
        self.turn_to(partition_id, Turn::After(until));
        let queue = self.queue(partition_id);
        queue.skips += 1;
        queue.skips
    }

    /// A batch was written.
    pub fn wrote(&mut self, partition_id: PartitionId, next_offset: Offset) {
        let queue = self.queue(partition_id);
        queue.skips = 0;
        queue.misses = 0;
        if let Coverage::Known { next, .. } = &mut queue.coverage {
            *next = next_offset;
        }
    }

    /// What we knew about the tables proved wrong; a question that is under way will tell. Returns how often in a row.
    pub fn disproved(&mut self, partition_id: PartitionId) -> u32 {
        let queue = self.queue(partition_id);
        queue.coverage = if queue.is_asked() { Coverage::Asked } else { Coverage::Unknown };
        queue.misses += 1;
        queue.misses
    }

    /// Tables were made.
    pub fn covered(&mut self, partition_id: PartitionId, mut coverage: Coverage) {
        let queue = self.queue(partition_id);
        if let (Coverage::Known { next: new, .. }, Coverage::Known { next: old, .. }) =
            (&mut coverage, queue.coverage)
        {
            *new = old.max(*new); // flushes went on while the tables were made
        }
        queue.coverage = coverage;
    }

    /// Tables could not be made. What still fits into those that exist goes on; otherwise returns the units that must fail.
    pub fn uncovered(&mut self, partition_id: PartitionId) -> Vec<Pending> {
        match &mut self.queue(partition_id).coverage {
            Coverage::Known { growth, .. } => {
                *growth = Growth::Idle;
                Vec::new()
            }
            coverage @ (Coverage::Unknown | Coverage::Asked) => {
                *coverage = Coverage::Unknown;
                self.drain_partition(partition_id)
            }
        }
    }

    /// Whether the next segment should be made now; asked at most once until it is answered.
    pub fn wants_growth(&mut self, partition_id: PartitionId) -> bool {
        match &mut self.queue(partition_id).coverage {
            Coverage::Known { next, ahead_from, growth, .. }
                if *growth == Growth::Idle && *next >= *ahead_from =>
            {
                *growth = Growth::UnderWay;
                true
            }
            Coverage::Unknown | Coverage::Asked | Coverage::Known { .. } => false,
        }
    }

    fn turn_to(&mut self, partition_id: PartitionId, turn: Turn) {
        let mut deferred = self.deferred;
        set_turn(self.queue(partition_id), turn, &mut deferred);
        self.deferred = deferred;
    }

    /// When the next partition that was left out may be tried again.
    pub fn next_turn(&self) -> Option<Instant> {
        if self.deferred == 0 {
            return None;
        }
        let turns = self.ring.iter().filter_map(|partition_id| match self.partitions[partition_id].turn {
            Turn::After(until) => Some(until),
            Turn::Shared | Turn::Alone => None,
        });
        turns.min()
    }

    /// Takes out every unit that a predicate picks, in order.
    pub fn drain(&mut self, mut pick: impl FnMut(&Pending) -> bool) -> Vec<Pending> {
        let mut picked = Vec::new();
        for queue in self.partitions.values_mut() {
            for pending in std::mem::take(&mut queue.waiting) {
                if pick(&pending) { picked.push(pending) } else { queue.waiting.push_back(pending) }
            }
        }
        let partitions = &mut self.partitions;
        self.ring.retain(|partition_id| {
            let queue = partitions.get_mut(partition_id).expect("the ring lists known partitions");
            queue.listed = !queue.waiting.is_empty();
            queue.listed
        });
        picked
    }

    /// Takes out all units of one partition.
    pub fn drain_partition(&mut self, partition_id: PartitionId) -> Vec<Pending> {
        self.drain(|pending| pending.unit.partition_id == partition_id)
    }

    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}

/// Invariant: `deferred` counts the partitions that wait for a moment.
fn set_turn(queue: &mut Queue, turn: Turn, deferred: &mut usize) {
    *deferred -= usize::from(matches!(queue.turn, Turn::After(_)));
    *deferred += usize::from(matches!(turn, Turn::After(_)));
    queue.turn = turn;
}

/// What one flush may still take.
struct Room {
    messages: usize,
    bytes: usize,
    partitions: usize,
}

impl Room {
    fn of_a_flush(partitions: usize) -> Self {
        Self { messages: FLUSH_MESSAGES_MAX, bytes: FLUSH_BYTES_MAX, partitions }
    }

    fn is_full(&self) -> bool {
        self.messages == 0 || self.bytes == 0 || self.partitions == 0
    }
}

impl Queue {
    fn may_flush(&self, now: Instant) -> bool {
        match self.turn {
            Turn::Shared => true,
            Turn::After(until) => until <= now,
            Turn::Alone => false,
        }
    }

    /// Takes units while they fit; returns how many messages need tables first, if that is what stopped it.
    fn take(&mut self, room: &mut Room) -> (Vec<Pending>, Option<usize>) {
        let first = self.waiting.front().map_or(0, Pending::new_messages);
        let Some(mut covered) = self.covered_messages().filter(|covered| first <= *covered) else {
            let ask = !self.is_asked();
            self.coverage = Coverage::Asked;
            return (Vec::new(), ask.then_some(first));
        };
        let mut units = Vec::new();
        let mut links = Links::default();
        while let Some(pending) = self.waiting.front() {
            let (messages, bytes) = (pending.new_messages(), pending.new_bytes());
            let fits =
                messages <= room.messages && bytes <= room.bytes || units.is_empty() && !room.is_full();
            if !fits || messages > covered || !links.admit(pending) {
                break;
            }
            room.messages = room.messages.saturating_sub(messages);
            room.bytes = room.bytes.saturating_sub(bytes);
            covered -= messages;
            units.extend(self.waiting.pop_front());
        }
        (units, None)
    }

    /// Whether a question about tables is under way: a second one would only queue behind it.
    fn is_asked(&self) -> bool {
        match self.coverage {
            Coverage::Asked | Coverage::Known { growth: Growth::UnderWay, .. } => true,
            Coverage::Unknown | Coverage::Known { growth: Growth::Idle, .. } => false,
        }
    }

    fn covered_messages(&self) -> Option<usize> {
        match self.coverage {
            Coverage::Known { next, end, .. } => Some((end.0 - next.0).max(0) as usize),
            Coverage::Unknown | Coverage::Asked => None,
        }
    }
}

/// What ties the units of one batch together.
#[derive(Default)]
struct Links {
    next_sequences: HashMap<ProducerId, Sequence>,
    transaction_ids: HashSet<String>,
}

impl Links {
    /// Whether a unit can go into the same flush as those admitted before it.
    ///
    /// Why: within one statement a unit cannot see what another one of it stores. Contiguous sequences form one chain that is
    /// checked at its start; a repeated transaction id has to wait until the first is stored.
    fn admit(&mut self, pending: &Pending) -> bool {
        if let (Some((producer, first)), Some((_, next))) =
            (pending.first_open_sequence(), pending.next_sequence())
        {
            match self.next_sequences.insert(producer, next) {
                Some(expected) if expected != first => return false,
                Some(_) | None => {}
            }
        }
        let ids = pending.unit.messages.iter().filter_map(|message| message.transaction_id());
        let ids: HashSet<String> = ids.map(str::to_owned).collect();
        if !self.transaction_ids.is_disjoint(&ids) {
            return false;
        }
        self.transaction_ids.extend(ids);
        true
    }
}
