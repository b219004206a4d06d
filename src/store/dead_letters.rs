//! Dead letters: messages that a group has given up, kept whole. Listed, found, dropped, published again.
//!
//! They are written by the commit that moves past them. A replay is one transaction: it takes the dead letter out and appends
//! the message, or does neither.
//! Locks: the dead letter's row, then the partition's row.

use jiff::Timestamp;
use tokio_postgres::Row;

use super::error::{Effect, Error};
use super::flush::{Flush, LockMode, Report};
use super::messages::{Message, message};
use super::query::query;
use super::topics::encryption;
use super::{Store, retry};
use crate::encryption::{Place, Sealed};
use crate::ids::{DeadLetterId, Offset, PartitionId, TopicId};

query!(DEAD_LETTERS_LIST = "dead_letters_list"[INT8, TEXT, INT8, INT8, INT8]);
query!(DEAD_LETTERS_FIND = "dead_letters_find"[INT8]);
query!(DEAD_LETTERS_TAKE = "dead_letters_take"[INT8]);
query!(DEAD_LETTERS_DELETE = "dead_letters_delete"[INT8]);
query!(COMMITS_WAIT = "commits_wait"[]);

/// A message that a group has given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub id: DeadLetterId,
    pub topic: String,
    /// The number of its partition.
    pub partition: u32,
    pub partition_id: PartitionId,
    pub group: String,
    pub attempts: u32,
    /// Why the last attempt failed.
    pub reason: String,
    pub dead_at: Timestamp,
    /// As it was published.
    pub message: Message,
    /// Why its payload is left out: it does not open here.
    pub unopened: Option<Error>,
}

/// Which dead letters are listed.
#[derive(Debug, Clone, Copy)]
pub struct DeadLetterFilter<'a> {
    pub topic_id: Option<TopicId>,
    pub group: Option<&'a str>,
    pub after: DeadLetterId,
    pub limit: u32,
    /// The first comes whatever its size.
    pub bytes: u64,
}

/// Some dead letters, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterPage {
    pub dead_letters: Vec<DeadLetter>,
    pub rest: Rest,
}

/// Whether a list goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    More,
    End,
}

/// What became of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    Done(Replayed),
    /// Its topic takes nothing now; the dead letter stays.
    Paused,
}

/// Where a dead letter was published again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// The number of its partition.
    pub partition: u32,
    pub offset: Offset,
}

impl Store {
    /// One page of dead letters, oldest first. Those that do not open are among them, without their payloads.
    pub async fn dead_letters_list(&self, filter: DeadLetterFilter<'_>) -> Result<DeadLetterPage, Error> {
        let topic_id = filter.topic_id.map(|id| id.0);
        let limit = i64::from(filter.limit);
        let bytes = i64::try_from(filter.bytes).unwrap_or(i64::MAX);
        let params: super::connection::Params<'_> =
            &[&topic_id, &filter.group, &filter.after.0, &limit, &bytes];
        let connection = self.connection().await?;
        let rows = connection.query(&DEAD_LETTERS_LIST, params, Effect::None).await?;
        let found: i64 = rows.first().map_or(0, |row| row.get("found"));
        let rest = if found > rows.len() as i64 { Rest::More } else { Rest::End };
        let mut dead_letters: Vec<DeadLetter> = rows.iter().map(dead_letter).collect();
        let unopened = self.open_each(&connection, Place::Copy, opened(&mut dead_letters)).await?;
        for (dead_letter, unopened) in dead_letters.iter_mut().zip(unopened) {
            dead_letter.unopened = unopened;
        }
        Ok(DeadLetterPage { dead_letters, rest })
    }

    /// A dead letter by id, if there is one.
    pub async fn dead_letters_find(&self, id: DeadLetterId) -> Result<Option<DeadLetter>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&DEAD_LETTERS_FIND, &[&id.0], Effect::None).await?;
        let mut found = row.as_ref().map(dead_letter);
        self.open_all(&connection, Place::Copy, opened(found.as_mut_slice())).await?;
        Ok(found)
    }

    /// Drops a dead letter. Returns how many there were of that id: one or none.
    pub async fn dead_letters_delete(&self, id: DeadLetterId) -> Result<u64, Error> {
        retry::contended(retry::Policy::CONTENDED, || async {
            self.connection().await?.execute(&DEAD_LETTERS_DELETE, &[&id.0]).await
        })
        .await
    }

    /// Takes a dead letter out and appends it to its partition, or does neither; `None`: there is none, or its topic is gone.
    /// The tables must be there: [`Error::NoSegment`] if they are not.
    pub async fn dead_letters_replay(&self, id: DeadLetterId) -> Result<Option<Replay>, Error> {
        retry::contended(retry::Policy::CONTENDED, || self.replay(id)).await
    }

    /// A connection on which this fails is not used again: its transaction is open, and it may have missed a new table.
    async fn replay(&self, id: DeadLetterId) -> Result<Option<Replay>, Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.begin().await?;
        transaction.query(&COMMITS_WAIT, &[], Effect::None).await?;
        let Some(row) = transaction.query_opt(&DEAD_LETTERS_TAKE, &[&id.0], Effect::None).await? else {
            transaction.rollback().await?;
            return Ok(None);
        };
        let mut dead_letter = dead_letter(&row);
        self.open_all(&transaction, Place::Copy, opened(std::slice::from_mut(&mut dead_letter))).await?;
        // It is a new message: sealed as its topic asks for now, and never less than it was.
        let seals = dead_letter.message.data_key_id.is_some() || !encryption(&row).is_none();
        let home = (dead_letter.partition_id, Place::Message);
        let mut sealed = Vec::new();
        if seals {
            sealed = transaction.seal_anew(&self.vault, home, &[&dead_letter.message]).await?;
        }
        let reports = transaction.append(LockMode::Wait, &flush(&dead_letter, sealed.first())).await?;
        let [Report::Stored { first_offset, .. }] = reports.batches.as_slice() else {
            transaction.rollback().await?;
            // Otherwise it is not locked, because it is deleted: the topic has gone meanwhile.
            if reports.refused.unsealed.contains(&dead_letter.partition_id) {
                let message = "the topic is encrypted since a moment ago".into();
                return Err(Error::Contended { sqlstate: String::new(), message }); // again, sealed
            }
            let is_paused = reports.refused.paused.contains(&dead_letter.partition_id);
            return Ok(is_paused.then_some(Replay::Paused));
        };
        transaction.commit().await?;
        Ok(Some(Replay::Done(Replayed { partition: dead_letter.partition, offset: *first_offset })))
    }
}

/// The message alone. Its transaction id stays with it but is not looked up: it would be taken for a copy of itself.
fn flush<'a>(dead_letter: &'a DeadLetter, sealed: Option<&'a Sealed>) -> Flush<'a> {
    let message = &dead_letter.message;
    let mut flush = Flush::default();
    flush.batches.partition_ids.push(dead_letter.partition_id.0);
    flush.batches.messages.push(1);
    flush.batches.bytes.push(message.bytes() as i64);
    let columns = &mut flush.messages;
    columns.batch.push(1);
    columns.position.push(0);
    columns.trace_ids.push(message.trace_id.0);
    columns.cause_partition_ids.push(message.cause.map(|cause| cause.partition_id.0));
    columns.cause_offsets.push(message.cause.map(|cause| cause.offset.0));
    columns.keys.push(message.key.as_deref());
    columns.transaction_ids.push(message.transaction_id.as_deref());
    columns.headers.push(message.headers.as_deref());
    columns.content_types.push(message.content_type.as_deref());
    columns.payloads.push(sealed.map_or(&message.payload, |sealed| &sealed.envelope));
    columns.data_key_ids.push(sealed.map(|sealed| sealed.data_key_id().0));
    columns.producers.push(message.producer.as_deref());
    columns.ttls_ms.push(None); // whoever publishes it again wants it delivered
    flush.traces.first.push(1);
    flush.traces.last.push(1);
    flush.traces.all.push(message.trace_id.prefix());
    flush
}

/// What is to be opened of dead letters.
fn opened(dead_letters: &mut [DeadLetter]) -> Vec<(PartitionId, &mut Message)> {
    dead_letters.iter_mut().map(|dead| (dead.partition_id, &mut dead.message)).collect()
}

fn dead_letter(row: &Row) -> DeadLetter {
    DeadLetter {
        id: DeadLetterId(row.get("dead_letter_id")),
        topic: row.get("topic"),
        partition: row.get::<_, i32>("number") as u32,
        partition_id: PartitionId(row.get("partition_id")),
        group: row.get("group_name"),
        attempts: row.get::<_, i32>("attempts") as u32,
        reason: row.get("reason"),
        dead_at: row.get("dead_at"),
        message: message(row),
        unopened: None,
    }
}
