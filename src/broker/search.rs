//! Searching the messages of a topic: by key, by transaction id, by time; recent first, page by page.
//!
//! A key, a transaction id or a number names one partition, which is read backwards, so many messages at a time: a page may be empty
//! and still have a next one. Without either, the partitions are merged by time. A transaction id that the window of its topic remembers is found
//! at once; older copies of it come with the next pages.

use std::cmp::Reverse;

use futures_util::future::try_join_all;
use jiff::Timestamp;
use laneway_client::TopicName;
use laneway_client::routing;

use super::reader::{Matching, ReadError, Reader};
use super::topics::{TopicError, Topics};
use crate::ids::{Offset, PartitionId};
use crate::limits::READ_BYTES_MAX;
use crate::store::Store;
use crate::store::messages::{Message, ReadLimit};
use crate::store::topics::Topic;

/// Why nothing was searched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    #[error("topic {topic} has {partitions} partitions, so there is no partition {partition}")]
    PartitionOutOfRange { topic: String, partition: u32, partitions: u32 },
    #[error(transparent)]
    Topic(#[from] TopicError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub key: Option<Vec<u8>>,
    pub transaction_id: Option<String>,
    pub partition: Option<u32>,
    /// Published at or after this moment.
    pub from: Option<Timestamp>,
    /// Published before this moment.
    pub to: Option<Timestamp>,
    /// Where the page before ended.
    pub before: Option<Cursor>,
    pub limit: u32,
}

/// Where a page ends: everything that stands behind it is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// In microseconds since 1970.
    pub published_us: i64,
    pub partition: u32,
    pub offset: i64,
}

impl Cursor {
    fn at((partition, message): &(u32, Message)) -> Self {
        let published_us = message.published_at.as_microsecond();
        Self { published_us, partition: *partition, offset: message.offset.0 }
    }
}

/// Later than every message, in no more digits than a cursor is written with.
const LATER_THAN_ALL_US: i64 = 999_999_999_999_999_999;

/// Some messages, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// With the number of their partition.
    pub messages: Vec<(u32, Message)>,
    /// Where the next page begins; absent: there is none.
    pub next: Option<Cursor>,
}

/// Searches. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Search {
    store: Store,
    topics: Topics,
    reader: Reader,
}

impl Search {
    pub fn new(store: Store, topics: Topics, reader: Reader) -> Self {
        Self { store, topics, reader }
    }

    /// One page of what matches.
    pub async fn page(&self, topic: &TopicName, wanted: &Wanted) -> Result<Page, SearchError> {
        let topic = self.topics.find(topic).await?;
        let partitions = topic.partitions.len() as u32;
        if let Some(partition) = wanted.partition.filter(|partition| *partition >= partitions) {
            let topic = topic.name.clone();
            return Err(SearchError::PartitionOutOfRange { topic, partition, partitions });
        }
        if let Some(id) = &wanted.transaction_id {
            let remembered = self.remembered(&topic, id, wanted).await?;
            if !remembered.messages.is_empty() {
                return Ok(remembered);
            }
        }
        let (key, id) = (wanted.key.as_deref(), wanted.transaction_id.as_deref());
        let chosen: Vec<u32> = match routing::route(wanted.partition, key, id, partitions) {
            Some(home) => vec![home],
            None => (0..partitions).collect(),
        };
        let pages = chosen.iter().map(|partition| self.partition_page(&topic, *partition, wanted));
        let pages = try_join_all(pages).await?;
        Ok(merge(pages, wanted.limit as usize))
    }

    /// What the window of a topic knows of a transaction id. What it has forgotten is older, and still to come.
    async fn remembered(&self, topic: &Topic, id: &str, wanted: &Wanted) -> Result<Page, SearchError> {
        let mut page = Page::default();
        for (partition_id, offset) in
            self.store.transactions_find(&topic.partitions, id).await.map_err(ReadError::from)?
        {
            let number = topic.partitions.iter().position(|known| *known == partition_id);
            let Some(partition) = number.map(|number| number as u32) else { continue };
            if wanted.partition.is_some_and(|wanted| wanted != partition) {
                continue;
            }
            let limit = ReadLimit { messages: 1, bytes: READ_BYTES_MAX };
            let found = match self.reader.read(partition_id, offset, limit).await {
                Ok(found) => found,
                Err(ReadError::OutOfRange { .. }) => continue, // retention has dropped it
                Err(error) => return Err(error.into()),
            };
            let fits = |message: &Message| {
                message.offset == offset
                    && wanted.from.is_none_or(|from| message.published_at >= from)
                    && wanted.to.is_none_or(|to| message.published_at < to)
                    && wanted.key.as_deref().is_none_or(|key| message.key.as_deref() == Some(key))
            };
            let found = found.into_iter().filter(fits).map(|message| (partition, message));
            page.messages
                .extend(found.filter(|found| wanted.before.is_none_or(|before| Cursor::at(found) < before)));
        }
        page.messages.sort_by_key(|message| Reverse(Cursor::at(message)));
        page.messages.truncate(wanted.limit as usize);
        page.next = page.messages.last().map(Cursor::at);
        Ok(page)
    }

    async fn partition_page(
        &self,
        topic: &Topic,
        partition: u32,
        wanted: &Wanted,
    ) -> Result<Page, SearchError> {
        let partition_id: PartitionId = topic.partitions[partition as usize];
        let before = self.bound(partition_id, partition, wanted).await?;
        let first = match wanted.from {
            Some(from) => self.reader.offset_at(partition_id, from).await?.unwrap_or(Offset(i64::MAX)),
            None => Offset::ZERO,
        };
        let matching =
            Matching { key: wanted.key.as_deref(), transaction_id: wanted.transaction_id.as_deref() };
        let limit = ReadLimit { messages: wanted.limit, bytes: READ_BYTES_MAX };
        let (messages, rest) = self.reader.search_back(partition_id, first..before, matching, limit).await?;
        let messages: Vec<(u32, Message)> =
            messages.into_iter().map(|message| (partition, message)).collect();
        // Nothing found, and more to look at: only a filter leaves so much out, and with one the offset alone counts.
        let published_us = messages.last().map_or(LATER_THAN_ALL_US, |last| Cursor::at(last).published_us);
        let next = rest.map(|offset| Cursor { published_us, partition, offset: offset.0 });
        Ok(Page { messages, next })
    }

    /// The first offset of a partition that is too new.
    async fn bound(
        &self,
        partition_id: PartitionId,
        partition: u32,
        wanted: &Wanted,
    ) -> Result<Offset, ReadError> {
        let at = async |at: Timestamp| {
            let found = self.reader.offset_at(partition_id, at).await?;
            Ok::<_, ReadError>(found.unwrap_or(Offset(i64::MAX)))
        };
        let by_time = match wanted.to {
            Some(to) => at(to).await?,
            None => Offset(i64::MAX),
        };
        let by_page = match wanted.before {
            None => Offset(i64::MAX),
            Some(cursor) if cursor.partition == partition => Offset(cursor.offset),
            // Of the same moment, those of lower partitions are still to come.
            Some(cursor) => {
                let moment = cursor.published_us.saturating_add(i64::from(partition < cursor.partition));
                match Timestamp::from_microsecond(moment) {
                    Ok(moment) => at(moment).await?,
                    Err(_) => Offset(i64::MAX),
                }
            }
        };
        Ok(by_time.min(by_page))
    }
}

/// Joins the pages of partitions, newest first.
///
/// Invariant: a page that goes on says nothing about what is older than its end. So of the others only what is newer is told, or the
/// next page would begin behind what this one has left out.
fn merge(pages: Vec<Page>, limit: usize) -> Page {
    let end = pages.iter().filter_map(|page| page.next).max();
    let mut messages: Vec<(u32, Message)> = pages.into_iter().flat_map(|page| page.messages).collect();
    messages.retain(|message| end.is_none_or(|end| Cursor::at(message) >= end));
    messages.sort_by_key(|message| Reverse(Cursor::at(message)));
    let has_more = messages.len() > limit;
    messages.truncate(limit);
    let next = if has_more { messages.last().map(Cursor::at) } else { end };
    Page { messages, next }
}
