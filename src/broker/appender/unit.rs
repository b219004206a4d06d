//! A unit: the messages of one partition in one publish. Written all or none, answered once.
//!
//! What is known about a unit grows while it waits: a message may turn out to be stored already, by its producer's
//! sequence or by its transaction id. Such a message is not written again and is answered with its first offset.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::answers::Reply;
use super::{AppendError, AppendResult, Share};
use crate::broker::message::NewMessage;
use crate::ids::{DataKeyId, Offset, PartitionId, ProducerId, ScheduleId, Sequence};
use crate::limits::APPEND_PATIENCE;
use crate::store::messages::Message;

/// The messages of one partition in one publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub partition_id: PartitionId,
    /// In order; at least one.
    pub messages: Vec<NewMessage>,
    /// Present if the producer numbers what it sends.
    pub run: Option<ProducerRun>,
    /// How long the topic remembers transaction ids.
    pub dedup_window: Duration,
}

/// A producer and the number of the first message; the others follow without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerRun {
    pub producer_id: ProducerId,
    pub first_sequence: Sequence,
}

impl Unit {
    pub(super) fn bytes(&self) -> usize {
        self.messages.iter().map(NewMessage::bytes).sum()
    }

    /// Whether writing it twice stores it once: for as long as the broker itself repeats it, at least.
    fn is_idempotent(&self) -> bool {
        let named = self.messages.iter().all(|message| message.transaction_id.is_some());
        self.run.is_some() || (named && self.dedup_window > APPEND_PATIENCE * 2)
    }
}

/// What became of the messages of a unit: the new ones stand together, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Offset of the first new message; absent if all were duplicates.
    pub first_offset: Option<Offset>,
    pub published_at: Option<Timestamp>,
    /// The others, by their place in the unit.
    pub duplicates: Vec<Duplicate>,
    /// Those that wait for their time, or did so before, by their place in the unit: they have no offset.
    pub scheduled: Vec<(usize, ScheduleId)>,
}

/// A message that was stored before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duplicate {
    /// Its place in the unit.
    pub index: usize,
    /// Where it stands; unknown once its run has left the window.
    pub offset: Option<Offset>,
}

impl Receipt {
    /// The offset of each message, in the order of the unit.
    pub fn offsets(&self, messages: usize) -> Vec<Option<Offset>> {
        let mut offsets = vec![None; messages];
        let mut next = self.first_offset;
        let mut duplicates = self.duplicates.iter().peekable();
        for (index, slot) in offsets.iter_mut().enumerate() {
            if let Some(duplicate) = duplicates.next_if(|duplicate| duplicate.index == index) {
                *slot = duplicate.offset;
            } else {
                *slot = next;
                next = next.map(|offset| offset.plus(1));
            }
        }
        offsets
    }
}

/// What is known about one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: it is to be written.
    New,
    /// Stored earlier under the same sequence; where, is looked up at the end.
    BySequence,
    /// Stored earlier under the same transaction id.
    ByTransaction(Offset),
    /// Has the same transaction id as an earlier message of this unit.
    SameAs(usize),
}

/// Whether an earlier try may have been committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Doubt {
    None,
    /// It may have been: from here on only "stored" or "unknown" are honest answers.
    MayBeWritten {
        reason: String,
    },
}

/// A unit that waits for its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub unit: Unit,
    /// One per message.
    pub known: Vec<Known>,
    pub doubt: Doubt,
    pub since: Instant,
    reply: Reply,
    _share: Share,
}

impl Pending {
    pub fn new(unit: Unit, reply: Reply, share: Share) -> Self {
        let known = repeats_within(&unit);
        Self { unit, known, doubt: Doubt::None, since: Instant::now(), reply, _share: share }
    }

    /// Messages that the next flush writes.
    pub fn new_messages(&self) -> usize {
        self.known.iter().filter(|known| **known == Known::New).count()
    }

    /// Bytes that the next flush writes.
    pub fn new_bytes(&self) -> usize {
        let new = self.unit.messages.iter().zip(&self.known).filter(|(_, known)| **known == Known::New);
        new.map(|(message, _)| message.bytes()).sum()
    }

    /// What has sealed the messages that the next flush writes.
    pub fn data_keys(&self) -> impl Iterator<Item = DataKeyId> {
        let new = self.unit.messages.iter().zip(&self.known).filter(|(_, known)| **known == Known::New);
        new.filter_map(|(message, _)| message.data_key_id().map(DataKeyId))
    }

    /// Whether none of the messages that the next flush writes is written as it is.
    pub fn is_sealed(&self) -> bool {
        self.data_keys().count() == self.new_messages()
    }

    /// The sequence of its first message that is not known by sequence, if it is numbered and there is one.
    pub fn first_open_sequence(&self) -> Option<(ProducerId, Sequence)> {
        let run = self.unit.run?;
        let skip = self.known.iter().take_while(|known| **known == Known::BySequence).count();
        (skip < self.known.len()).then(|| (run.producer_id, Sequence(run.first_sequence.0 + skip as i64)))
    }

    /// The sequence after its last message, if it is numbered.
    pub fn next_sequence(&self) -> Option<(ProducerId, Sequence)> {
        let run = self.unit.run?;
        Some((run.producer_id, Sequence(run.first_sequence.0 + self.unit.messages.len() as i64)))
    }

    /// Whether nothing of it has to be written any more: no message, and no run to remember.
    pub fn is_settled(&self) -> bool {
        match self.unit.run {
            Some(_) => self.known.iter().all(|known| *known == Known::BySequence),
            None => self.known.iter().all(|known| *known != Known::New),
        }
    }

    /// Whether the broker may send it again although it may have been written.
    pub fn is_idempotent(&self) -> bool {
        self.unit.is_idempotent()
    }

    /// Takes its new messages out, as they are stored from an offset on. What is known about it stays.
    pub fn take_stored(&mut self, first: Offset, published_at: Timestamp) -> impl Iterator<Item = Message> {
        let messages = std::mem::take(&mut self.unit.messages).into_iter().zip(&self.known);
        let new = messages.filter(|(_, known)| **known == Known::New);
        new.enumerate()
            .map(move |(place, (message, _))| message.stored_at(first.plus(place as i64), published_at))
    }

    /// Answers with where everything stands.
    pub fn stored(
        self,
        first_offset: Option<Offset>,
        published_at: Option<Timestamp>,
        by_sequence: &[Option<Offset>],
    ) {
        let receipt = self.receipt(first_offset, published_at, by_sequence);
        self.answer(Ok(receipt));
    }

    fn receipt(
        &self,
        first_offset: Option<Offset>,
        published_at: Option<Timestamp>,
        by_sequence: &[Option<Offset>],
    ) -> Receipt {
        let mut offsets: Vec<Option<Offset>> = Vec::with_capacity(self.known.len());
        let (mut duplicates, mut scheduled) = (Vec::new(), Vec::new());
        let mut next = first_offset;
        for (index, known) in self.known.iter().enumerate() {
            let offset = match *known {
                Known::New => next,
                Known::BySequence => by_sequence.get(index).copied().flatten(),
                Known::ByTransaction(offset) => Some(offset),
                Known::SameAs(other) => offsets[other],
            };
            match known {
                Known::New => next = next.map(|offset| offset.plus(1)),
                Known::BySequence | Known::ByTransaction(_) | Known::SameAs(_) => {
                    let schedule_id = offset.and_then(ScheduleId::at_place);
                    scheduled.extend(schedule_id.map(|schedule_id| (index, schedule_id)));
                    let offset = offset.filter(|_| schedule_id.is_none());
                    duplicates.push(Duplicate { index, offset });
                }
            }
            offsets.push(offset);
        }
        let first_offset = self.known.contains(&Known::New).then_some(first_offset).flatten();
        Receipt { first_offset, published_at, duplicates, scheduled }
    }

    /// Answers that it was not written, or, after a doubtful try, that nobody knows.
    pub fn fail(self, error: AppendError) {
        let error = match &self.doubt {
            Doubt::None => error,
            Doubt::MayBeWritten { reason } => AppendError::OutcomeUnknown { reason: reason.clone() },
        };
        self.answer(Err(error));
    }

    /// Answers that it is certainly not stored, whatever was in doubt before: the database has just said so.
    pub fn refuse(self, error: AppendError) {
        self.answer(Err(error));
    }

    fn answer(self, result: AppendResult) {
        self.reply.send(result);
    }
}

/// A transaction id that a unit carries twice names one message: the first.
fn repeats_within(unit: &Unit) -> Vec<Known> {
    let mut first: HashMap<&str, usize> = HashMap::new();
    let mut known = Vec::with_capacity(unit.messages.len());
    for (index, message) in unit.messages.iter().enumerate() {
        known.push(match message.transaction_id.as_deref() {
            None => Known::New,
            Some(id) => match *first.entry(id).or_insert(index) {
                earlier if earlier < index => Known::SameAs(earlier),
                _ => Known::New,
            },
        });
    }
    known
}
