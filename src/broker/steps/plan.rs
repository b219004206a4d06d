//! Which steps go together, the flush as columns, and where everything stands after it. Pure.
//!
//! Invariant: the places that `columns` gives the messages are the ones that `settle` reads the reports by.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use jiff::Timestamp;

use super::pending::Pending;
use super::tables::Tables;
use crate::broker::appender::columns::{add_message, add_traces, window_ms};
use crate::broker::schedules::Wrote as WroteSchedules;
use crate::broker::schedules::columns::add_message as add_scheduled;
use crate::ids::{Offset, PartitionId};
use crate::limits::{FLUSH_BYTES_MAX, FLUSH_MESSAGES_MAX, STEPS_PER_FLUSH_MAX};
use crate::store::flush::{Flush, Report};
use crate::store::messages::Message;
use crate::store::schedules::{ScheduleColumns, Standing, UnitReport};
use crate::store::steps::{NamedBy, Obstacle, Place, Placed, StepColumns};

/// The steps of one flush, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub steps: Vec<Pending>,
}

/// Where the messages of a plan go.
#[derive(Debug, Default)]
struct Layout {
    /// Partitions in the order of their batches.
    partitions: Vec<PartitionId>,
    /// Messages of each batch.
    counts: Vec<i32>,
    /// For each step, for each of its messages in the order of its units: the place, and whether it is the one that is stored.
    places: Vec<Vec<(Place, bool)>>,
    /// Of each unit that waits: its step and its place there.
    schedules: Vec<(usize, usize)>,
}

/// A batch that was written.
#[derive(Debug)]
pub(super) struct Wrote {
    pub partition_id: PartitionId,
    pub next_offset: Offset,
    pub messages: Vec<Message>,
}

impl Plan {
    /// Takes steps out of a queue while they fit. Those whose tables are missing stay, and are told of.
    pub fn take(waiting: &mut VecDeque<Pending>, tables: &mut Tables) -> Self {
        let (mut steps, mut stay) = (Vec::new(), VecDeque::new());
        let (mut messages, mut bytes) = (0, 0);
        let mut names: HashSet<(PartitionId, String)> = HashSet::new();
        let mut taken: HashMap<PartitionId, usize> = HashMap::new();
        while let Some(pending) = waiting.pop_front() {
            let (more, larger) = (messages + pending.step.messages(), bytes + pending.step.bytes());
            let fits = steps.is_empty()
                || more <= FLUSH_MESSAGES_MAX
                    && larger <= FLUSH_BYTES_MAX
                    && steps.len() < STEPS_PER_FLUSH_MAX;
            let named =
                |(partition_id, name): (PartitionId, &str)| names.contains(&(partition_id, name.to_owned()));
            if !fits || pending.names().any(named) || !tables.cover(&pending.step.units, &mut taken) {
                stay.push_back(pending);
                continue;
            }
            names.extend(pending.names().map(|(partition_id, name)| (partition_id, name.to_owned())));
            (messages, bytes) = (more, larger);
            steps.push(pending);
        }
        *waiting = stay;
        Self { steps }
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Two halves, in order.
    pub fn halve(mut self) -> (Plan, Plan) {
        let back = self.steps.split_off(self.steps.len() / 2);
        (self, Plan { steps: back })
    }

    fn layout(&self) -> Layout {
        let mut layout = Layout::default();
        let mut batches: HashMap<PartitionId, usize> = HashMap::new();
        for (step, pending) in self.steps.iter().enumerate() {
            let mut places = Vec::new();
            let mut first: HashMap<(PartitionId, &str), Place> = HashMap::new();
            for (number, unit) in pending.step.units.iter().enumerate() {
                let mut scheduled = 0;
                for (message, index) in unit.messages.iter().zip(&unit.indexes) {
                    let name = message.transaction_id().map(|name| (unit.partition_id, name));
                    let earlier = name.and_then(|name| first.get(&name).copied());
                    let stored = pending.stored.get(index).map(|offset| Place::Stored(*offset));
                    let (place, is_new) = match earlier.or(stored) {
                        Some(place) => (place, false),
                        None if unit.is_scheduled() => {
                            (layout.next_scheduled((step, number), &mut scheduled), true)
                        }
                        None => (layout.next(&mut batches, unit.partition_id), true),
                    };
                    first.extend(name.map(|name| (name, place)));
                    places.push((place, is_new));
                }
            }
            layout.places.push(places);
        }
        layout
    }

    /// The flush, column by column.
    pub fn columns(&self) -> (StepColumns<'_>, Flush<'_>, ScheduleColumns<'_>) {
        let layout = self.layout();
        (self.step_columns(&layout), self.message_columns(&layout), self.schedule_columns(&layout))
    }

    fn schedule_columns<'a>(&'a self, layout: &Layout) -> ScheduleColumns<'a> {
        let mut columns = ScheduleColumns::default();
        for (number, (step, unit)) in layout.schedules.iter().enumerate() {
            let units = &self.steps[*step].step.units;
            let before: usize = units[..*unit].iter().map(|unit| unit.messages.len()).sum();
            let unit = &units[*unit];
            columns.partition_ids.push(unit.partition_id.0);
            columns.topic_ids.push(unit.topic_id.0);
            columns.windows_ms.push(window_ms(unit.dedup_window));
            let places = &layout.places[*step][before..];
            for ((message, due), (_, is_new)) in unit.messages.iter().zip(&unit.dues).zip(places) {
                if *is_new {
                    add_scheduled(&mut columns, number as i32 + 1, *due, None, message);
                }
            }
        }
        columns
    }

    /// What waits from now on, by the reports of the units that wait.
    pub fn scheduled(&self, reports: &[UnitReport]) -> impl Iterator<Item = WroteSchedules> {
        let units = self.layout().schedules.into_iter().zip(reports);
        let wrote = |((step, unit), report): ((usize, usize), &UnitReport)| {
            WroteSchedules::of(self.steps[step].step.units[unit].partition_id, report)
        };
        units.filter_map(wrote).collect::<Vec<_>>().into_iter()
    }

    fn step_columns<'a>(&'a self, layout: &Layout) -> StepColumns<'a> {
        let (mut columns, now) = (StepColumns::default(), Instant::now());
        for (pending, places) in self.steps.iter().zip(&layout.places) {
            let step = &pending.step;
            columns.step(step.step_id, &step.digest);
            for ack in &step.acks {
                columns.ack(&ack.fence, &ack.ranges);
                columns.copies(&ack.fence, &ack.copies);
                columns.times(&ack.fence, &ack.times, now);
            }
            let mut places = places.iter();
            for unit in &step.units {
                columns.partition(unit.partition_id);
                let window_ms = window_ms(unit.dedup_window);
                for (number, (message, (place, is_new))) in
                    unit.messages.iter().zip(places.by_ref()).enumerate()
                {
                    columns.message(unit.partition, *place);
                    if let (Some(due), true) = (unit.dues.get(number), *is_new) {
                        columns.due(*due);
                    }
                    if let (Some(transaction_id), true) = (message.transaction_id(), *is_new) {
                        columns.named(unit.partition_id, NamedBy { transaction_id, window_ms });
                    }
                }
            }
        }
        columns
    }

    fn message_columns<'a>(&'a self, layout: &Layout) -> Flush<'a> {
        let mut flush = Flush::default();
        for (number, partition_id) in layout.partitions.iter().enumerate() {
            let batch = number as i32 + 1;
            let traces_before = flush.traces.all.len();
            let mut bytes = 0;
            for (pending, places) in self.steps.iter().zip(&layout.places) {
                let mut places = places.iter();
                for unit in &pending.step.units {
                    let window_ms = window_ms(unit.dedup_window);
                    for (message, (place, is_new)) in unit.messages.iter().zip(places.by_ref()) {
                        match *place {
                            Place::Batch { batch: into, position } if *is_new && into == batch => {
                                add_message(&mut flush, batch, position, message, window_ms);
                                bytes += message.bytes() as i64;
                            }
                            Place::Batch { .. } | Place::Schedule { .. } | Place::Stored(_) => {}
                        }
                    }
                }
            }
            add_traces(&mut flush, traces_before);
            flush.batches.partition_ids.push(partition_id.0);
            flush.batches.messages.push(layout.counts[number]);
            flush.batches.bytes.push(bytes);
        }
        flush
    }

    /// Answers all steps; `followed`: whether the messages of a partition are wanted.
    pub fn settle(
        self,
        reports: &[Report],
        scheduled: &[UnitReport],
        followed: impl Fn(PartitionId) -> bool,
    ) -> Vec<Wrote> {
        let layout = self.layout();
        let mut first: Vec<(Offset, Timestamp)> =
            vec![(Offset::ZERO, Timestamp::UNIX_EPOCH); layout.partitions.len()];
        for report in reports {
            if let Report::Stored { batch, first_offset, published_at } = report {
                first[*batch] = (*first_offset, *published_at);
            }
        }
        let batches = layout.partitions.iter().zip(&layout.counts).zip(&first);
        let mut wrote: Vec<Wrote> = batches
            .map(|((partition_id, count), (offset, _))| Wrote {
                partition_id: *partition_id,
                next_offset: offset.plus(i64::from(*count)),
                messages: Vec::new(),
            })
            .collect();
        for (mut pending, places) in self.steps.into_iter().zip(layout.places) {
            let mut placed = vec![Placed { partition: 0, offset: Offset::ZERO }; places.len()];
            let mut places = places.into_iter();
            for unit in std::mem::take(&mut pending.step.units) {
                let wanted = followed(unit.partition_id);
                for ((message, index), (place, is_new)) in
                    unit.messages.into_iter().zip(unit.indexes).zip(places.by_ref())
                {
                    let (offset, batch) = match place {
                        Place::Batch { batch, position } => {
                            let batch = batch as usize - 1;
                            (first[batch].0.plus(i64::from(position)), Some(batch))
                        }
                        Place::Schedule { unit, position } => (waits_at(scheduled, unit, position), None),
                        Place::Stored(offset) => (offset, None),
                    };
                    placed[index] = Placed { partition: unit.partition, offset };
                    if batch.is_some() {
                        message.on_stored(offset);
                    }
                    if let (Some(batch), true, true) = (batch, is_new, wanted) {
                        wrote[batch].messages.push(message.stored_at(offset, first[batch].1));
                    }
                }
            }
            pending.done(placed);
        }
        wrote
    }

    /// Answers the steps that cannot be done, and learns which messages are stored. Returns the others.
    pub fn without(mut self, obstacles: Vec<Obstacle>) -> Vec<Pending> {
        use super::StepError;
        let messages: Vec<(usize, usize)> = self.message_indexes();
        let mut known = HashMap::new();
        let mut refused: HashMap<usize, StepError> = HashMap::new();
        let mut faults = Vec::new();
        for obstacle in obstacles {
            match obstacle {
                Obstacle::Known { step, done } => drop(known.insert(step, done)),
                Obstacle::LeaseLost { step } => drop(refused.insert(step, StepError::LeaseLost)),
                Obstacle::PartitionGone { step } => {
                    refused.entry(step).or_insert(StepError::UnknownPartition);
                }
                Obstacle::PartitionPaused { step } => {
                    refused.entry(step).or_insert(StepError::TopicPaused);
                }
                Obstacle::PartitionUnsealed { step } => {
                    refused.entry(step).or_insert(StepError::Unsealed);
                }
                Obstacle::Time { message, fault } => {
                    faults.push((message, fault));
                }
                Obstacle::Repeated { message, offset } => {
                    if let Some((step, index)) = messages.get(message) {
                        self.steps[*step].stored.insert(*index, offset);
                    }
                }
            }
        }
        for (message, fault) in faults {
            // A copy that is known was taken when its time had not passed.
            let Some((step, index)) = messages.get(message) else { continue };
            if !self.steps[*step].stored.contains_key(index) {
                refused.entry(*step).or_insert(StepError::Time { index: *index, fault });
            }
        }
        let mut others = Vec::new();
        for (number, pending) in self.steps.into_iter().enumerate() {
            match (known.remove(&number), refused.remove(&number)) {
                (Some(done), _) => pending.known(done), // what was done before comes before every fence
                (None, Some(error)) => pending.fail(error),
                (None, None) => others.push(pending),
            }
        }
        others
    }

    /// Step and place of each message, in the order in which `step_columns` adds them.
    fn message_indexes(&self) -> Vec<(usize, usize)> {
        let steps = self.steps.iter().enumerate();
        let messages = steps.flat_map(|(number, pending)| {
            let indexes = pending.step.units.iter().flat_map(|unit| unit.indexes.iter().copied());
            indexes.map(move |index| (number, index))
        });
        messages.collect()
    }
}

/// Where a message that waits stands: at its schedule id, negated.
fn waits_at(reports: &[UnitReport], unit: i32, position: i32) -> Offset {
    let standing = match &reports[unit as usize - 1] {
        UnitReport::Written { standings, .. } => standings.get(position as usize).copied(),
        UnitReport::Refused { .. } | UnitReport::Gone | UnitReport::Paused | UnitReport::Unsealed => None,
    };
    match standing {
        Some(Standing::New(id) | Standing::Scheduled(id)) => Offset(-id.0),
        Some(Standing::Stored(offset)) => offset,
        None => Offset::ZERO, // never: steps_check has found nothing against it, under the same lock
    }
}

impl Layout {
    fn next_scheduled(&mut self, of: (usize, usize), position: &mut i32) -> Place {
        if *position == 0 {
            self.schedules.push(of);
        }
        *position += 1;
        Place::Schedule { unit: self.schedules.len() as i32, position: *position - 1 }
    }

    fn next(&mut self, batches: &mut HashMap<PartitionId, usize>, partition_id: PartitionId) -> Place {
        let number = *batches.entry(partition_id).or_insert_with(|| {
            self.partitions.push(partition_id);
            self.counts.push(0);
            self.partitions.len() - 1
        });
        let position = self.counts[number];
        self.counts[number] += 1;
        Place::Batch { batch: number as i32 + 1, position }
    }
}
