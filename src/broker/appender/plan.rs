//! A flush as columns, and what its reports mean for the units in it. Pure.
//!
//! Invariant: the positions that `columns` gives the messages are the ones that `settle` reads the reports by.

use std::ops::Range;

use jiff::Timestamp;

use super::AppendError;
use super::columns::{add_message, add_traces, window_ms};
use super::commits::{self, PendingCommit};
use super::memory::Memory;
use super::unit::{Known, Pending};
use crate::ids::{Offset, PartitionId, ProducerId, Sequence};
use crate::store::flush::{Flush, Place, Report, Reports};
use crate::store::messages::Message;

/// The units of one partition in one flush.
#[derive(Debug)]
pub(super) struct Taken {
    pub partition_id: PartitionId,
    pub units: Vec<Pending>,
}

/// The units of one flush.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub batches: Vec<Taken>,
    /// Commits of lanes that ride along.
    pub commits: Vec<PendingCommit>,
}

/// What a committed flush leaves to do.
#[derive(Debug, Default)]
pub(super) struct Settlement {
    /// Batches that were written.
    pub wrote: Vec<Wrote>,
    /// Batches that somebody else had locked.
    pub skipped: Vec<Taken>,
    /// Batches of partitions that take nothing now.
    pub paused: Vec<Taken>,
    /// Batches of partitions that take only what is sealed, with something that is not.
    pub unsealed: Vec<Taken>,
    /// Units to try again without what is known about them now.
    pub again: Vec<Taken>,
    /// Units that are stored; only the offsets of their duplicates have to be looked up.
    pub known: Vec<Found>,
}

/// A batch that was written.
#[derive(Debug)]
pub(super) struct Wrote {
    pub partition_id: PartitionId,
    pub offsets: Range<Offset>,
    /// What its producers send next.
    pub producers: Vec<(ProducerId, Sequence)>,
    /// Its messages, if somebody follows the partition.
    pub messages: Vec<Message>,
}

/// A unit whose answer lacks only the offsets of what was stored before.
#[derive(Debug)]
pub(super) struct Found {
    pub pending: Pending,
    pub first_offset: Option<Offset>,
    pub published_at: Option<Timestamp>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.commits.is_empty()
    }

    /// All its units.
    pub fn into_units(self) -> Vec<Pending> {
        self.batches.into_iter().flat_map(|taken| taken.units).collect()
    }

    pub fn units(&self) -> usize {
        self.batches.iter().map(|taken| taken.units.len()).sum()
    }

    pub fn messages(&self) -> usize {
        self.batches.iter().flat_map(|taken| &taken.units).map(Pending::new_messages).sum()
    }

    /// Two halves, in order: units of the first come before units of the second in every partition.
    pub fn halve(self) -> (Plan, Plan) {
        let mut left = self.units() / 2;
        let (mut front, mut back) = (Plan::default(), Plan::default());
        for mut taken in self.batches {
            let rest = taken.units.split_off(left.min(taken.units.len()));
            left -= taken.units.len();
            for (plan, units) in [(&mut front, taken.units), (&mut back, rest)] {
                if !units.is_empty() {
                    plan.batches.push(Taken { partition_id: taken.partition_id, units });
                }
            }
        }
        (front, back)
    }

    /// The flush, column by column.
    pub fn columns(&self, memory: &Memory) -> Flush<'_> {
        let mut flush = Flush { lanes: commits::columns(&self.commits), ..Flush::default() };
        for (number, taken) in self.batches.iter().enumerate() {
            add_batch(&mut flush, number as i32 + 1, taken, memory);
        }
        flush
    }

    /// Messages and bytes of the batches that were written.
    pub fn stored(&self, reports: &[Report]) -> (u64, u64) {
        let stored = reports.iter().filter_map(|report| match report {
            Report::Stored { batch, .. } => self.batches.get(*batch),
            Report::Sequence { .. } | Report::Repeated { .. } => None,
        });
        stored.flat_map(|taken| &taken.units).fold((0, 0), |(messages, bytes), pending| {
            (messages + pending.new_messages() as u64, bytes + pending.new_bytes() as u64)
        })
    }

    /// Answers the units that are done and sorts the others by what they need.
    /// `followed`: whether the messages of a partition are wanted.
    pub fn settle(self, reports: &Reports, followed: impl Fn(PartitionId) -> bool) -> Settlement {
        let mut settlement = Settlement::default();
        let verdicts = self.verdicts(&reports.batches);
        for (taken, verdict) in self.batches.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Stored { first_offset, published_at } => {
                    let wanted = followed(taken.partition_id);
                    settlement.stored(taken, first_offset, published_at, wanted.then(Vec::new));
                }
                Verdict::Skipped if reports.refused.paused.contains(&taken.partition_id) => {
                    settlement.paused.push(taken);
                }
                Verdict::Skipped if reports.refused.unsealed.contains(&taken.partition_id) => {
                    settlement.unsealed.push(taken);
                }
                Verdict::Skipped => settlement.skipped.push(taken),
                Verdict::Misfits(misfits) => settlement.misfit(taken, &misfits),
            }
        }
        settlement
    }

    /// What the reports say of each batch.
    fn verdicts(&self, reports: &[Report]) -> Vec<Verdict> {
        let checks = self.checks();
        let mut verdicts: Vec<Verdict> = self.batches.iter().map(|_| Verdict::Skipped).collect();
        for report in reports {
            let (batch, misfit) = match *report {
                Report::Stored { batch, first_offset, published_at } => {
                    verdicts[batch] = Verdict::Stored { first_offset, published_at };
                    continue;
                }
                Report::Sequence { batch, check, last } => {
                    (batch, Misfit::Sequence { check: checks[check], last })
                }
                Report::Repeated { batch, position, offset } => {
                    (batch, Misfit::Repeated { position, offset })
                }
            };
            match &mut verdicts[batch] {
                Verdict::Misfits(misfits) => misfits.push(misfit),
                verdict @ (Verdict::Skipped | Verdict::Stored { .. }) => {
                    *verdict = Verdict::Misfits(vec![misfit]);
                }
            }
        }
        verdicts
    }

    /// The checks of the whole flush, in the order in which `columns` sends them.
    fn checks(&self) -> Vec<Check> {
        self.batches.iter().flat_map(|taken| chains(&taken.units)).collect()
    }
}

/// The first sequence that a producer sends to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Check {
    producer_id: ProducerId,
    first_sequence: Sequence,
}

/// What became of a batch.
enum Verdict {
    Stored {
        first_offset: Offset,
        published_at: Timestamp,
    },
    /// Somebody else had its partition locked.
    Skipped,
    Misfits(Vec<Misfit>),
}

/// Why a batch was not written.
enum Misfit {
    Sequence { check: Check, last: Option<Sequence> },
    Repeated { position: usize, offset: Offset },
}

/// One check per producer: its units follow each other without a gap, or the queue would not have let them in together.
fn chains(units: &[Pending]) -> Vec<Check> {
    let mut chains: Vec<Check> = Vec::new();
    for (producer_id, first_sequence) in units.iter().filter_map(Pending::first_open_sequence) {
        if !chains.iter().any(|check| check.producer_id == producer_id) {
            chains.push(Check { producer_id, first_sequence });
        }
    }
    chains
}

fn add_batch<'a>(flush: &mut Flush<'a>, batch: i32, taken: &'a Taken, memory: &Memory) {
    for check in chains(&taken.units) {
        let known = memory.known(taken.partition_id, check.producer_id, check.first_sequence);
        flush.checks.known_offsets.push(known.map(|offset| offset.0));
        flush.checks.batch.push(batch);
        flush.checks.producer_ids.push(check.producer_id.0);
        flush.checks.first_sequences.push(check.first_sequence.0);
    }
    let mut position = 0;
    let traces_before = flush.traces.all.len();
    for pending in &taken.units {
        add_runs(flush, batch, pending, i64::from(position));
        add_messages(flush, batch, pending, &mut position);
    }
    add_traces(flush, traces_before);
    flush.batches.partition_ids.push(taken.partition_id.0);
    flush.batches.messages.push(position);
    flush.batches.bytes.push(taken.units.iter().map(Pending::new_bytes).sum::<usize>() as i64);
}

fn add_messages<'a>(flush: &mut Flush<'a>, batch: i32, pending: &'a Pending, position: &mut i32) {
    let window_ms = window_ms(pending.unit.dedup_window);
    for (message, known) in pending.unit.messages.iter().zip(&pending.known) {
        if *known != Known::New {
            continue;
        }
        add_message(flush, batch, *position, message, window_ms);
        *position += 1;
    }
}

/// What to remember of a numbered unit: pieces whose sequences and offsets both run on.
fn add_runs(flush: &mut Flush<'_>, batch: i32, pending: &Pending, first_position: i64) {
    let Some(run) = pending.unit.run else { return };
    let mut places: Vec<Option<Place>> = Vec::with_capacity(pending.known.len());
    let mut position = first_position;
    for known in &pending.known {
        places.push(match *known {
            Known::New => Some(Place::Position(position)),
            Known::BySequence => None,
            Known::ByTransaction(offset) => Some(Place::Stored(offset)),
            Known::SameAs(other) => places[other],
        });
        position += i64::from(*known == Known::New);
    }
    for (index, place) in places.into_iter().enumerate() {
        let Some(place) = place else { continue };
        let sequence = run.first_sequence.0 + index as i64;
        flush.runs.add(batch, run.producer_id.0, sequence, place);
    }
}

impl Settlement {
    fn stored(
        &mut self,
        taken: Taken,
        first_offset: Offset,
        published_at: Timestamp,
        mut followed: Option<Vec<Message>>,
    ) {
        let mut next = first_offset;
        let producers = taken.units.iter().filter_map(Pending::next_sequence).collect();
        for mut pending in taken.units {
            let messages = pending.new_messages() as i64;
            if let Some(message) = pending.unit.messages.last().filter(|_| messages > 0) {
                message.on_stored(next.plus(messages - 1));
            }
            if let Some(messages) = &mut followed {
                messages.extend(pending.take_stored(next, published_at));
            }
            match pending.known.contains(&Known::BySequence) {
                true => self.known.push(Found {
                    pending,
                    first_offset: Some(next),
                    published_at: Some(published_at),
                }),
                false => pending.stored(Some(next), Some(published_at), &[]),
            }
            next = next.plus(messages);
        }
        let messages = followed.unwrap_or_default();
        let offsets = first_offset..next;
        self.wrote.push(Wrote { partition_id: taken.partition_id, offsets, producers, messages });
    }

    fn misfit(&mut self, mut taken: Taken, misfits: &[Misfit]) {
        // Order: reports count the messages as they were sent, so positions are read before anything is learned, and
        // units leave last.
        learn_repeated(&mut taken, misfits);
        let mut gaps = Vec::new();
        for misfit in misfits {
            let Misfit::Sequence { check, last } = misfit else { continue };
            let expected = last.map_or(Sequence(0), |last| Sequence(last.0 + 1));
            match check.first_sequence > expected {
                true => gaps.push((check.producer_id, expected)),
                false => learn_sequences(&mut taken, check.producer_id, expected),
            }
        }
        for (producer_id, expected) in gaps {
            refuse_gap(&mut taken, producer_id, expected);
        }
        let (done, again): (Vec<_>, Vec<_>) = taken.units.into_iter().partition(Pending::is_settled);
        self.known.extend(done.into_iter().map(|pending| Found {
            pending,
            first_offset: None,
            published_at: None,
        }));
        if !again.is_empty() {
            self.again.push(Taken { partition_id: taken.partition_id, units: again });
        }
    }
}

/// Nothing of this producer's chain can be stored before what is missing.
fn refuse_gap(taken: &mut Taken, producer_id: ProducerId, expected: Sequence) {
    let is_theirs = |pending: &Pending| pending.unit.run.is_some_and(|run| run.producer_id == producer_id);
    let (theirs, others): (Vec<_>, Vec<_>) =
        std::mem::take(&mut taken.units).into_iter().partition(is_theirs);
    taken.units = others;
    for pending in theirs {
        pending.refuse(AppendError::SequenceGap { expected });
    }
}

/// Everything below `expected` is stored already.
fn learn_sequences(taken: &mut Taken, producer_id: ProducerId, expected: Sequence) {
    for pending in &mut taken.units {
        let Some(run) = pending.unit.run.filter(|run| run.producer_id == producer_id) else { continue };
        let stored = (expected.0 - run.first_sequence.0).clamp(0, pending.known.len() as i64);
        let stored = stored as usize;
        pending.known[..stored].fill(Known::BySequence);
        for known in &mut pending.known[stored..] {
            if matches!(*known, Known::SameAs(other) if other < stored) {
                *known = Known::New; // the transaction id will tell where its first copy stands
            }
        }
    }
}

/// Messages whose transaction id has an older copy.
fn learn_repeated(taken: &mut Taken, misfits: &[Misfit]) {
    let sent: Vec<(usize, usize)> = taken
        .units
        .iter()
        .enumerate()
        .flat_map(|(unit, pending)| {
            let new = pending.known.iter().enumerate().filter(|(_, known)| **known == Known::New);
            new.map(move |(index, _)| (unit, index))
        })
        .collect();
    for misfit in misfits {
        let Misfit::Repeated { position, offset } = misfit else { continue };
        if let Some((unit, index)) = sent.get(*position) {
            taken.units[*unit].known[*index] = Known::ByTransaction(*offset);
        }
    }
}
