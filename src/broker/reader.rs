//! Reading: by offset both ways, by time, by trace. Finds the segment in the catalogue and names its table.
//!
//! The catalogue is remembered for a while. What is remembered can only be too old: an offset that it does not know, a
//! table that is gone, or a start that has moved make the reader look again.
//! Invariant: a reader never skips. It crosses into the next segment only after the last message of the one before,
//! because a message of the next may be visible to a later statement while the end of this one was not to an earlier one.

mod hops;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use jiff::Timestamp;

use super::keys::unopened;
use super::recent_traces::RecentTraces;
use crate::ids::{Offset, PartitionId, TraceId};
use crate::limits::{CATALOGUE_PARTITIONS_MAX, SEARCH_MESSAGES_MAX};
pub use crate::store::messages::Matching;
use crate::store::messages::{Direction, Ending, Message, Origin, ReadLimit};
use crate::store::segments::{Catalogue, Segment};
use crate::store::timeline::Era;
use crate::store::{Error, Store};

pub use hops::{FoundTrace, Hop};

/// How long a catalogue is believed.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// Why a read returned nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Retention has dropped what was asked for.
    #[error("messages below offset {start} have been dropped by retention")]
    OutOfRange { start: Offset },
    #[error("there is no such partition")]
    UnknownPartition,
    #[error(transparent)]
    Store(#[from] Error),
}

/// What is known about a message of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is stored, and belongs to this trace.
    Stored(TraceId),
    /// Retention has dropped it.
    Dropped,
    /// There is no such message yet.
    NotYet,
}

/// How sure we are of a catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Remembered,
    JustRead,
}

/// A catalogue, and when it was read.
#[derive(Debug, Clone)]
struct Remembered {
    catalogue: Arc<Catalogue>,
    read_at: Instant,
    era: Era,
}

/// Reads messages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reader {
    store: Store,
    catalogues: Arc<DashMap<PartitionId, Remembered>>,
    /// The names of partitions, which never change: ids are not used again.
    origins: Arc<DashMap<PartitionId, Arc<Origin>>>,
    recent_traces: RecentTraces,
}

impl Reader {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            catalogues: Arc::default(),
            origins: Arc::default(),
            recent_traces: RecentTraces::default(),
        }
    }

    /// Messages from an offset on, in order. Empty: nothing there yet.
    pub async fn read(
        &self,
        partition_id: PartitionId,
        from: Offset,
        limit: ReadLimit,
    ) -> Result<Vec<Message>, ReadError> {
        let mut freshness = Freshness::Remembered;
        loop {
            let era = self.store.timelines().era();
            let catalogue = self.catalogue(partition_id, &mut freshness).await?;
            let result = self.read_forward(&catalogue, from, limit).await;
            if era != self.store.timelines().era() {
                continue; // a table of that name may be another one now
            }
            match (result, freshness) {
                (Ok(Some(mut messages)), _) => {
                    self.recent_traces.remember(partition_id, &messages, era);
                    self.name_causes(&mut messages).await?;
                    return Ok(messages);
                }
                (Ok(None), Freshness::JustRead) if from < catalogue.start_offset => {
                    return Err(ReadError::OutOfRange { start: catalogue.start_offset });
                }
                (Ok(None), Freshness::JustRead) => return Ok(Vec::new()),
                // Remembered too long, the catalogue may name what was purged, and its keys with it.
                (Err(error), Freshness::Remembered) if unopened(&error).is_some() => {
                    freshness = Freshness::JustRead;
                }
                (Err(error), _) if !matches!(error, Error::TableGone { .. }) => return Err(error.into()),
                (Ok(None) | Err(_), _) => freshness = Freshness::JustRead, // look again
            }
        }
    }

    /// Messages before an offset, newest first, down to the start.
    pub async fn read_back(
        &self,
        partition_id: PartitionId,
        before: Offset,
        limit: ReadLimit,
    ) -> Result<Vec<Message>, ReadError> {
        loop {
            let mut freshness = Freshness::JustRead; // the newest segment is what it is about
            let catalogue = self.catalogue(partition_id, &mut freshness).await?;
            match self.read_backward(&catalogue, before, limit).await {
                Ok(mut messages) => {
                    self.name_causes(&mut messages).await?;
                    return Ok(messages);
                }
                Err(Error::TableGone { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What is known about some messages of a partition.
    pub async fn standings(
        &self,
        partition_id: PartitionId,
        offsets: &[Offset],
    ) -> Result<HashMap<Offset, Standing>, ReadError> {
        let known = self.recent_traces.find(partition_id, offsets, self.store.timelines().era());
        if offsets.iter().all(|offset| known.contains_key(offset)) {
            let stored = |(offset, trace_id)| (offset, Standing::Stored(trace_id));
            return Ok(known.into_iter().map(stored).collect());
        }
        let mut freshness = Freshness::Remembered;
        loop {
            let catalogue = self.catalogue(partition_id, &mut freshness).await?;
            match (self.traces_in(&catalogue, offsets).await, freshness) {
                (Ok(found), Freshness::Remembered) if found.len() < offsets.len() => {}
                (Ok(found), _) => {
                    let standing = |offset: &Offset| match found.get(offset) {
                        Some(trace_id) => Standing::Stored(*trace_id),
                        None if *offset < catalogue.start_offset => Standing::Dropped,
                        None => Standing::NotYet,
                    };
                    return Ok(offsets.iter().map(|offset| (*offset, standing(offset))).collect());
                }
                (Err(Error::TableGone { .. }), _) => {}
                (Err(error), _) => return Err(error.into()),
            }
            freshness = Freshness::JustRead; // look again
        }
    }

    async fn traces_in(
        &self,
        catalogue: &Catalogue,
        offsets: &[Offset],
    ) -> Result<HashMap<Offset, TraceId>, Error> {
        let mut found = HashMap::new();
        for segment in &catalogue.segments {
            let first = segment.first_offset.max(catalogue.start_offset);
            let within = |offset: &&Offset| (first..segment.end_offset).contains(*offset);
            let inside: Vec<i64> = offsets.iter().filter(within).map(|offset| offset.0).collect();
            if !inside.is_empty() {
                found.extend(self.store.segment_traces(segment.segment_id, &inside).await?);
            }
        }
        Ok(found)
    }

    /// Where people find a partition; `None`: its topic is gone.
    pub async fn origin(&self, partition_id: PartitionId) -> Result<Option<Arc<Origin>>, Error> {
        if let Some(origin) = self.origins.get(&partition_id) {
            return Ok(Some(origin.clone()));
        }
        let Some((topic, partition)) = self.store.partitions_name(partition_id).await? else {
            return Ok(None);
        };
        if self.origins.len() >= CATALOGUE_PARTITIONS_MAX {
            self.origins.clear();
        }
        let origin = Arc::new(Origin { topic, partition });
        self.origins.insert(partition_id, origin.clone());
        Ok(Some(origin))
    }

    /// Adds the names of causes.
    pub async fn name_causes(&self, messages: &mut [Message]) -> Result<(), Error> {
        for message in messages {
            if let Some(cause) = message.cause {
                message.origin = self.origin(cause.partition_id).await?;
            }
        }
        Ok(())
    }

    /// Messages between offsets that match, newest first, of as many as one search looks at. With where to go on, unless there is
    /// nothing left.
    pub async fn search_back(
        &self,
        partition_id: PartitionId,
        within: Range<Offset>,
        matching: Matching<'_>,
        limit: ReadLimit,
    ) -> Result<(Vec<Message>, Option<Offset>), ReadError> {
        let heads = self.store.heads_newest(&[partition_id]).await?;
        let Some(end) = heads.first().map(|head| head.next) else { return Ok((Vec::new(), None)) };
        loop {
            let mut freshness = Freshness::JustRead;
            let catalogue = self.catalogue(partition_id, &mut freshness).await?;
            let (first, before) = (within.start.max(catalogue.start_offset), within.end.min(end));
            let floor = Offset(before.0 - SEARCH_MESSAGES_MAX).max(first);
            let rest = (floor > first).then_some(floor);
            match self.search_segments(&catalogue, floor..before, matching, limit).await {
                Ok((mut messages, ending)) => {
                    self.name_causes(&mut messages).await?;
                    let on = match ending {
                        Ending::Cut => messages.last().map(|last| last.offset),
                        Ending::Exhausted => rest,
                    };
                    return Ok((messages, on));
                }
                Err(Error::TableGone { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Also whether the limit has stopped it.
    async fn search_segments(
        &self,
        catalogue: &Catalogue,
        within: Range<Offset>,
        matching: Matching<'_>,
        limit: ReadLimit,
    ) -> Result<(Vec<Message>, Ending), Error> {
        let mut messages: Vec<Message> = Vec::new();
        let overlaps =
            |segment: &&Segment| segment.first_offset < within.end && within.start < segment.end_offset;
        for segment in catalogue.segments.iter().rev().filter(overlaps) {
            let Some(left) = limit.after(&messages) else { return Ok((messages, Ending::Cut)) };
            let found = self.store.segment_search(segment.segment_id, within.clone(), matching, left).await?;
            messages.extend(found.messages);
            if found.ending == Ending::Cut {
                return Ok((messages, Ending::Cut)); // going on would skip what was left out
            }
        }
        Ok((messages, Ending::Exhausted))
    }

    /// The first offset published at or after a moment; `None`: everything is older.
    pub async fn offset_at(
        &self,
        partition_id: PartitionId,
        at: Timestamp,
    ) -> Result<Option<Offset>, ReadError> {
        let at = at.max(Timestamp::UNIX_EPOCH); // nothing is older, and PostgreSQL's calendar begins later than ours
        loop {
            let mut freshness = Freshness::JustRead;
            let catalogue = self.catalogue(partition_id, &mut freshness).await?;
            let from = self.store.heads_find_time(partition_id, at).await?.max(catalogue.start_offset);
            match self.find_time(&catalogue, from, at).await {
                Ok(offset) => return Ok(offset),
                Err(Error::TableGone { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// `None`: the catalogue has no segment for the offset.
    async fn read_forward(
        &self,
        catalogue: &Catalogue,
        from: Offset,
        limit: ReadLimit,
    ) -> Result<Option<Vec<Message>>, Error> {
        let Some(first) = catalogue.segment_of(from).filter(|_| from >= catalogue.start_offset) else {
            return Ok(None);
        };
        let mut messages = self.store.segment_read(first.segment_id, Direction::Forward, from, limit).await?;
        let mut segment = first;
        while let Some(last) = messages.last()
            && last.offset.plus(1) == segment.end_offset
            && let Some(left) = limit.after(&messages)
            && let Some(next) = catalogue.segment_of(segment.end_offset)
        {
            segment = next;
            let from = segment.first_offset;
            let read = self.store.segment_read(segment.segment_id, Direction::Forward, from, left).await;
            let more = or_nothing(read)?;
            if !left.admits(&more) {
                break;
            }
            messages.extend(more);
        }
        Ok(Some(messages))
    }

    async fn read_backward(
        &self,
        catalogue: &Catalogue,
        before: Offset,
        limit: ReadLimit,
    ) -> Result<Vec<Message>, Error> {
        let mut messages: Vec<Message> = Vec::new();
        let direction = Direction::Backward { floor: catalogue.start_offset };
        for segment in catalogue.segments.iter().rev().filter(|segment| segment.first_offset < before) {
            let Some(left) = limit.after(&messages) else { break };
            let before = before.min(segment.end_offset);
            let read = self.store.segment_read(segment.segment_id, direction, before, left).await;
            let found = if messages.is_empty() { read? } else { or_nothing(read)? };
            if !messages.is_empty() && !left.admits(&found) {
                break;
            }
            messages.extend(found);
            if messages.last().is_some_and(|last| last.offset > segment.first_offset) {
                break; // the limit stopped it inside the segment: going on would skip
            }
        }
        Ok(messages)
    }

    async fn find_time(
        &self,
        catalogue: &Catalogue,
        from: Offset,
        at: Timestamp,
    ) -> Result<Option<Offset>, Error> {
        for segment in catalogue.segments.iter().filter(|segment| segment.end_offset > from) {
            let from = from.max(segment.first_offset);
            if let Some(offset) = self.store.segment_find_time(segment.segment_id, from, at).await? {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }

    async fn catalogue(
        &self,
        partition_id: PartitionId,
        freshness: &mut Freshness,
    ) -> Result<Arc<Catalogue>, ReadError> {
        if *freshness == Freshness::Remembered
            && let Some(catalogue) = self.recall(partition_id)
        {
            return Ok(catalogue);
        }
        *freshness = Freshness::JustRead;
        let era = self.store.timelines().era();
        let found = self.store.segments_list(partition_id).await?.ok_or(ReadError::UnknownPartition)?;
        let catalogue = Arc::new(found);
        if self.catalogues.len() >= CATALOGUE_PARTITIONS_MAX {
            self.catalogues.clear();
        }
        let remembered = Remembered { catalogue: catalogue.clone(), read_at: Instant::now(), era };
        self.catalogues.insert(partition_id, remembered);
        Ok(catalogue)
    }

    /// Whatever is remembered may be too old.
    pub fn forget_all(&self) {
        self.catalogues.clear();
    }

    /// A partition starts here: a catalogue that knows an earlier start is too old.
    pub fn on_start(&self, partition_id: PartitionId, start: Offset) {
        self.catalogues.remove_if(&partition_id, |_, known| known.catalogue.start_offset < start);
    }

    fn recall(&self, partition_id: PartitionId) -> Option<Arc<Catalogue>> {
        let entry = self.catalogues.get(&partition_id)?;
        let is_fresh = entry.read_at.elapsed() < REMEMBERED_FOR && entry.era == self.store.timelines().era();
        is_fresh.then(|| entry.catalogue.clone())
    }
}

/// What a read goes on with. A message that does not open ends it: whoever goes on from there is told.
fn or_nothing(more: Result<Vec<Message>, Error>) -> Result<Vec<Message>, Error> {
    match more {
        Err(error) if unopened(&error).is_some() => Ok(Vec::new()),
        more => more,
    }
}

impl ReadLimit {
    /// What is left of the limit after some messages; `None`: nothing.
    fn after(self, messages: &[Message]) -> Option<ReadLimit> {
        let taken: u64 = messages.iter().map(Message::bytes).sum();
        let messages = self.messages.checked_sub(messages.len() as u32).filter(|left| *left > 0)?;
        let bytes = self.bytes.checked_sub(taken)?;
        Some(ReadLimit { messages, bytes })
    }

    /// Whether a read can be continued with these: the first message of a read comes whatever its size, but the first of
    /// its continuation must fit.
    fn admits(self, more: &[Message]) -> bool {
        more.first().is_some_and(|first| first.bytes() <= self.bytes)
    }
}
