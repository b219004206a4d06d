//! Tailing: reading along without a group. No lease, nothing committed, nobody waits for it.
//!
//! One small task per tail owns a cursor per partition. It follows the hot tails, reads the segments where it is behind,
//! takes the partitions in turn, and sends within its credit and the room of the outbox. What retention drops before it
//! was sent is told as `out_of_range`, and the tail goes on at what is left.
//! Invariant: a cursor skips nothing but what retention has dropped. It goes back only when the database has come to another
//! timeline that lacks what was sent; the client is told so.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;
use laneway_client::wire::record::BatchHeader;
use laneway_client::wire::{self, BrokerFrame, CreditGrant, ErrorFrame, Start, TailedLane};
use laneway_client::{ErrorCode, TopicName};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::groups::{BatchLimits, Credit, SubscribeError, batch_limits};
use super::hot_tail::{Found, HotTails, Wake};
use super::keys::unopened;
use super::marks::{Mark, Marks};
use super::outbox::Outbox;
use super::reader::{ReadError, Reader};
use super::slab::{Piece, Slab};
use super::topics::{TopicError, Topics};
use crate::ids::{Offset, PartitionId};
use crate::limits::{TAIL_FAILURE_PAUSE, TAIL_FULL_PAUSE, TAIL_READS_MAX, TAIL_REQUESTS_MAX};
use crate::store::Error;
use crate::store::messages::ReadLimit;
use crate::store::partitions::Partition;
use crate::store::timeline::Era;

/// Why a tail was not begun.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TailError {
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error("topic {topic} has {partitions} partitions, so there is no partition {partition}")]
    PartitionOutOfRange { index: usize, topic: String, partition: u32, partitions: u32 },
    #[error("partition {partition} is named twice")]
    Twice { index: usize, partition: u32 },
    #[error("a tail of no partition would never send anything: leave partitions out to read all")]
    NoPartition,
    /// Start, credit or batch, by the rules that subscriptions have.
    #[error(transparent)]
    Terms(#[from] SubscribeError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What a session asks of its tail.
type MoreCredit = (u32, u64);

/// Starts tails. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tailing {
    topics: Topics,
    reader: Reader,
    tails: HotTails,
    /// Reads of tails that are behind: a budget of their own.
    catch_up: Arc<Semaphore>,
}

/// A running tail; it ends when this is dropped.
#[derive(Debug)]
pub struct TailHandle {
    credit: mpsc::Sender<MoreCredit>,
    task: AbortOnDropHandle<()>,
}

impl TailHandle {
    /// The client accepts more.
    pub async fn credit(&self, messages: u32, bytes: u64) {
        let _tail_is_gone = self.credit.send((messages, bytes)).await;
    }

    /// Ends it; after that it pushes nothing any more.
    pub async fn end(self) {
        self.task.abort();
        let _aborted = self.task.await;
    }
}

impl Tailing {
    pub fn new(topics: Topics, reader: Reader, tails: HotTails) -> Self {
        Self { topics, reader, tails, catch_up: Arc::new(Semaphore::new(TAIL_READS_MAX)) }
    }

    /// Begins a tail. It is told to the client (`tailing`) before its first batch can be.
    pub async fn start(
        &self,
        number: u32,
        tail: wire::Tail,
        outbox: Outbox,
    ) -> Result<TailHandle, TailError> {
        let limits = batch_limits(&tail.batch.unwrap_or_default())?;
        let CreditGrant { messages, bytes } = tail.credit;
        let credit = Credit::new(messages, bytes).map_err(SubscribeError::from)?;
        let name = TopicName::new(tail.topic.clone()).map_err(TopicError::from)?;
        let topic = self.topics.find(&name).await?;
        let partitions = chosen(&topic.name, &topic.partitions, tail.partitions.as_deref())?;
        let era = self.tails.era();
        let following = Following::new(self.tails.clone(), partitions.iter().map(|(_, id)| *id));
        let cursors = self.cursors(&name, &partitions, tail.start.as_ref(), era).await?;
        let lane = |cursor: &Cursor| TailedLane { partition: cursor.number, next_offset: cursor.next.0 };
        let lanes = cursors.iter().map(lane).collect();
        let topic = topic.name.clone();
        outbox.push(BrokerFrame::Tailing(wire::Tailing { id: tail.id, subscription: number, topic, lanes }));
        let (sender, inbox) = mpsc::channel(TAIL_REQUESTS_MAX);
        let task = Task {
            number,
            ready: (0..cursors.len()).collect(),
            waiting: BTreeSet::new(),
            places: cursors.iter().enumerate().map(|(place, cursor)| (cursor.partition_id, place)).collect(),
            cursors,
            credit,
            limits,
            outbox,
            following,
            reader: self.reader.clone(),
            catch_up: self.catch_up.clone(),
            era,
        };
        Ok(TailHandle { credit: sender, task: AbortOnDropHandle::new(tokio::spawn(task.run(inbox))) })
    }

    /// Where it begins in each partition: at the end, unless the client says otherwise.
    async fn cursors(
        &self,
        topic: &TopicName,
        partitions: &[(u32, PartitionId)],
        start: Option<&Start>,
        era: Era,
    ) -> Result<Vec<Cursor>, TailError> {
        let (_, described) = self.topics.describe(topic).await?;
        let described: HashMap<PartitionId, Partition> =
            described.into_iter().map(|partition| (partition.partition_id, partition)).collect();
        let find = |(number, partition_id): (u32, PartitionId)| {
            let partition = described.get(&partition_id);
            async move {
                let partition = partition.ok_or(ReadError::UnknownPartition)?;
                let next = match start {
                    None | Some(Start::Latest) => partition.next_offset,
                    Some(Start::Earliest) => partition.start_offset,
                    Some(Start::Offset(offset)) => Offset(*offset),
                    Some(Start::At(text)) => {
                        let found = self.reader.offset_at(partition_id, moment(text)?).await?;
                        found.unwrap_or(partition.next_offset)
                    }
                };
                Ok::<_, TailError>(Cursor::new(number, partition_id, next, era))
            }
        };
        try_join_all(partitions.iter().copied().map(find)).await
    }
}

fn moment(text: &str) -> Result<jiff::Timestamp, SubscribeError> {
    let wrong = |error: jiff::Error| SubscribeError::Start {
        reason: format!("{text:?} is not a time like 2026-01-31T12:00:00Z: {error}"),
    };
    text.parse().map_err(wrong)
}

/// The partitions to read, by number and id.
fn chosen(
    topic: &str,
    partitions: &[PartitionId],
    wanted: Option<&[u32]>,
) -> Result<Vec<(u32, PartitionId)>, TailError> {
    let Some(wanted) = wanted else {
        return Ok(partitions.iter().enumerate().map(|(number, id)| (number as u32, *id)).collect());
    };
    let mut seen = BTreeSet::new();
    let mut chosen = Vec::new();
    for (index, partition) in wanted.iter().copied().enumerate() {
        let Some(partition_id) = partitions.get(partition as usize) else {
            let (topic, partitions) = (topic.to_owned(), partitions.len() as u32);
            return Err(TailError::PartitionOutOfRange { index, topic, partition, partitions });
        };
        if !seen.insert(partition) {
            return Err(TailError::Twice { index, partition });
        }
        chosen.push((partition, *partition_id));
    }
    if chosen.is_empty() { Err(TailError::NoPartition) } else { Ok(chosen) }
}

/// Follows hot tails for as long as it lives.
#[derive(Debug)]
struct Following {
    tails: HotTails,
    partitions: Vec<PartitionId>,
    wake: Arc<Wake>,
}

impl Following {
    fn new(tails: HotTails, partitions: impl Iterator<Item = PartitionId>) -> Self {
        let (partitions, wake): (Vec<_>, Arc<Wake>) = (partitions.collect(), Arc::default());
        partitions.iter().for_each(|partition_id| tails.follow(*partition_id, &wake));
        Self { tails, partitions, wake }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.partitions.iter().for_each(|partition_id| self.tails.unfollow(*partition_id, &self.wake));
    }
}

/// Where a tail is in one partition.
#[derive(Debug)]
struct Cursor {
    number: u32,
    partition_id: PartitionId,
    next: Offset,
    /// Since when fewer messages than a batch should have are waiting.
    short_since: Option<Instant>,
    /// Some of what was sent.
    marks: Marks,
    /// When `next` was the place to go on.
    era: Era,
    /// Where it was said that a message does not open.
    told_sealed: Option<Offset>,
}

impl Cursor {
    fn new(number: u32, partition_id: PartitionId, next: Offset, era: Era) -> Self {
        let marks = Marks::default();
        Self { number, partition_id, next, short_since: None, marks, era, told_sealed: None }
    }
}

struct Task {
    number: u32,
    cursors: Vec<Cursor>,
    /// Which cursor a partition has.
    places: HashMap<PartitionId, usize>,
    /// Cursors that may have something to send, in the order of their turns.
    ready: VecDeque<usize>,
    /// Cursors that wait for more messages, until a moment.
    waiting: BTreeSet<(Instant, usize)>,
    credit: Credit,
    limits: BatchLimits,
    outbox: Outbox,
    following: Following,
    reader: Reader,
    catch_up: Arc<Semaphore>,
    /// The era that all cursors have been told of.
    era: Era,
}

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Go on with the next.
    Next,
    /// The client has to accept more first.
    NoCredit,
    /// The outbox is full.
    NoRoom,
    /// The database could not be read.
    Failed,
}

impl Task {
    /// Runs until the session drops its handle. Cancel safety: aborted at any await; nothing it holds outlives it.
    async fn run(mut self, mut inbox: mpsc::Receiver<MoreCredit>) {
        loop {
            let turn = self.take_turns(&mut inbox).await;
            let again = match turn {
                Turn::NoRoom => Some(Instant::now() + TAIL_FULL_PAUSE),
                Turn::Failed => Some(Instant::now() + TAIL_FAILURE_PAUSE),
                Turn::Next => self.waiting.first().map(|(moment, _)| *moment),
                Turn::NoCredit => None,
            };
            let pause = async {
                match again {
                    Some(moment) => tokio::time::sleep_until(moment.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                more = inbox.recv() => match more {
                    Some(more) => self.on_credit(more),
                    None => return,
                },
                () = self.following.wake.woken() => {}
                () = self.following.tails.changed_from(self.era) => self.on_era(),
                () = pause => {}
            }
            self.on_woken();
        }
    }

    /// Gives every ready cursor its turn, until none is left or something is lacking.
    async fn take_turns(&mut self, inbox: &mut mpsc::Receiver<MoreCredit>) -> Turn {
        while let Some(place) = self.ready.pop_front() {
            while let Ok(more) = inbox.try_recv() {
                self.on_credit(more);
            }
            match self.turn(place).await {
                Turn::Next => {}
                lacking @ (Turn::NoCredit | Turn::NoRoom | Turn::Failed) => {
                    self.ready.push_front(place);
                    return lacking;
                }
            }
        }
        Turn::Next
    }

    fn on_woken(&mut self) {
        for partition_id in self.following.wake.take() {
            if let Some(place) = self.places.get(&partition_id).copied() {
                self.make_ready(place);
            }
        }
        let now = Instant::now();
        while let Some((moment, place)) = self.waiting.first().copied()
            && moment <= now
        {
            self.waiting.pop_first();
            self.make_ready(place);
        }
    }

    /// The database has another timeline: every cursor has to find its place there.
    fn on_era(&mut self) {
        self.era = self.following.tails.era();
        (0..self.cursors.len()).for_each(|place| self.make_ready(place));
    }

    fn make_ready(&mut self, place: usize) {
        self.waiting.retain(|(_, waiting)| *waiting != place);
        if !self.ready.contains(&place) {
            self.ready.push_back(place);
        }
    }

    fn on_credit(&mut self, (messages, bytes): MoreCredit) {
        if let Err(error) = self.credit.add(messages, bytes) {
            let error = ErrorFrame::new(ErrorCode::InvalidCredit, error.to_string());
            let error = ErrorFrame { field: Some("messages".to_owned()), ..error };
            self.tell(error);
        }
    }

    fn tell(&self, error: ErrorFrame) {
        let error = ErrorFrame { subscription: Some(self.number), ..error };
        self.outbox.push(BrokerFrame::Error(Box::new(error)));
    }

    /// One batch of one partition, if it can be sent.
    async fn turn(&mut self, place: usize) -> Turn {
        let Some(room) = self.credit.room() else { return Turn::NoCredit };
        if !self.outbox.has_room() {
            return Turn::NoRoom;
        }
        let messages = room.messages.min(self.limits.max_messages);
        let bytes = room.bytes.min(self.limits.max_bytes);
        let era = self.following.tails.era();
        if self.cursors[place].era != era && self.find_place(place, era).await.is_err() {
            return Turn::Failed;
        }
        let Cursor { partition_id, next, .. } = self.cursors[place];
        let pieces = match self.following.tails.find(partition_id, next, messages, bytes) {
            Found::Pieces(pieces) => pieces,
            Found::AtEnd => return Turn::Next,
            Found::Behind => match self.read(partition_id, next, messages, bytes).await {
                Ok(pieces) => pieces,
                Err(ReadError::OutOfRange { start }) => {
                    self.on_overtaken(place, start);
                    return Turn::Next;
                }
                Err(error) => {
                    tracing::debug!(%error, partition = %partition_id, "a tail could not read");
                    if let ReadError::Store(error) = &error {
                        self.on_unread(place, next, error);
                    }
                    return Turn::Failed;
                }
            },
        };
        match self.following.tails.era() == era {
            true => self.send(place, pieces, messages),
            false => self.ready.push_back(place), // they may be another timeline's: its place comes first
        }
        Turn::Next
    }

    /// Another timeline may lack what was sent: goes back to what is certainly there.
    async fn find_place(&mut self, place: usize, era: Era) -> Result<(), ReadError> {
        let cursor = &mut self.cursors[place];
        let before = cursor.next;
        cursor.next = cursor.marks.find_place(&self.reader, cursor.partition_id, before).await?;
        cursor.era = era;
        if cursor.next < before {
            self.on_went_back(place);
        }
        Ok(())
    }

    fn on_went_back(&mut self, place: usize) {
        let Cursor { number, next, .. } = self.cursors[place];
        tracing::info!(partition = number, next = %next, "a tail goes back: the database has lost what it had sent");
        let detail = format!(
            "the database has come to another timeline, and what was sent from offset {next} on may be lost there: the tail goes on at that offset, with what it names now"
        );
        self.tell(ErrorFrame {
            partition: Some(number),
            start: Some(next.0),
            ..ErrorFrame::new(ErrorCode::OutOfRange, detail)
        });
    }

    /// Empty: nothing there yet.
    async fn read(
        &self,
        partition_id: PartitionId,
        from: Offset,
        messages: usize,
        bytes: u64,
    ) -> Result<Vec<Piece>, ReadError> {
        let _permit = self.catch_up.acquire().await.expect("the budget is never closed");
        let limit = ReadLimit { messages: messages as u32, bytes };
        let found = Slab::new(self.reader.read(partition_id, from, limit).await?);
        Ok(found.map(|slab| Slab::piece(&Arc::new(slab), from, messages, bytes)).into_iter().collect())
    }

    /// Tells, once, that it stops at a message that does not open.
    fn on_unread(&mut self, place: usize, at: Offset, error: &Error) {
        let cursor = &mut self.cursors[place];
        if let (Some(code), true) = (unopened(error), cursor.told_sealed != Some(at)) {
            cursor.told_sealed = Some(at);
            let partition = Some(cursor.number);
            self.tell(ErrorFrame { partition, ..ErrorFrame::new(code, error.to_string()) });
        }
    }

    fn on_overtaken(&mut self, place: usize, start: Offset) {
        let cursor = &mut self.cursors[place];
        let detail =
            format!("messages below offset {start} have been dropped by retention: the tail goes on there");
        let error = ErrorFrame {
            partition: Some(cursor.number),
            start: Some(start.0),
            ..ErrorFrame::new(ErrorCode::OutOfRange, detail)
        };
        cursor.next = cursor.next.max(start);
        self.ready.push_back(place);
        self.tell(error);
    }

    fn send(&mut self, place: usize, pieces: Vec<Piece>, messages: usize) {
        let Some(end) = pieces.last().map(Piece::end) else { return };
        let found: usize = pieces.iter().map(Piece::len).sum();
        let cursor = &mut self.cursors[place];
        if found < self.limits.min_messages.min(messages) {
            let due = *cursor.short_since.get_or_insert_with(Instant::now) + self.limits.max_wait;
            if Instant::now() < due {
                self.waiting.insert((due, place));
                return;
            }
        }
        cursor.short_since = None;
        cursor.next = end;
        if let Some(last) = pieces.iter().flat_map(Piece::messages).last() {
            cursor.marks.add(Mark::of(last));
        }
        let header = BatchHeader {
            subscription: self.number,
            partition: cursor.number,
            epoch: 0,
            round: 0,
            attempts: Vec::new(),
        };
        let bytes = self.outbox.push_batch(header, pieces, None);
        self.credit.spend(found, bytes);
        self.ready.push_back(place); // there may be more; its neighbours come first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_chosen_by_number_and_wrong_ones_are_named() {
        let ids = [PartitionId(7), PartitionId(8), PartitionId(9)];
        assert_eq!(chosen("t", &ids, None).unwrap().len(), 3);
        assert_eq!(chosen("t", &ids, Some(&[2, 0])).unwrap(), [(2, PartitionId(9)), (0, PartitionId(7))]);
        assert_eq!(chosen("t", &ids, Some(&[])), Err(TailError::NoPartition));
        assert_eq!(chosen("t", &ids, Some(&[1, 1])), Err(TailError::Twice { index: 1, partition: 1 }));
        let missing = chosen("t", &ids, Some(&[0, 3])).unwrap_err();
        assert!(matches!(
            missing,
            TailError::PartitionOutOfRange { index: 1, partition: 3, partitions: 3, .. }
        ));
    }
}
