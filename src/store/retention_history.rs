//! What retention has dropped, when and why: a row per segment that went and per group that nobody used, kept for a while.
//!
//! Written in the transaction that drops; read by operators, newest first; walked by the retention chore.

use jiff::Timestamp;

use super::Store;
use super::error::{Effect, Error};
use super::query::query;
use crate::ids::{Offset, TopicId};
use crate::limits::{EXPIRE_ROWS_MAX, RETENTION_HISTORY_KEPT};

query!(RETENTION_EVENTS_RECORD = "retention_events_record"[INT8, TEXT, INT8, INT8, INT8]);
query!(RETENTION_EVENTS_LIST = "retention_events_list"[INT8, INT8, INT8]);
query!(RETENTION_EVENTS_EXPIRE = "retention_events_expire"[INT8, INT8]);

/// Why a segment was let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// All of it is older than its topic keeps messages.
    Age,
    /// Its topic stores more than it may keep.
    Bytes,
    /// Every group has committed past it, and the grace is over.
    Completed,
    /// An operator has purged its topic.
    Purged,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Age, Self::Bytes, Self::Completed, Self::Purged];

    /// As the wire and the database write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            DropReason::Age => "age",
            DropReason::Bytes => "bytes",
            DropReason::Completed => "completed",
            DropReason::Purged => "purged",
        }
    }

    /// Reads what the database writes.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// What was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dropped {
    /// Messages of a partition.
    Segment {
        reason: DropReason,
        /// The number of the partition.
        partition: u32,
        from: Offset,
        /// The first offset that stayed.
        to: Offset,
        bytes: i64,
    },
    /// A group that nobody used.
    Group { name: String },
}

/// One row of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionEvent {
    pub event_id: i64,
    pub dropped_at: Timestamp,
    pub dropped: Dropped,
}

impl Store {
    /// What was dropped of a topic, newest first; `before`: only what is older than this event.
    pub async fn retention_events_list(
        &self,
        topic_id: TopicId,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<RetentionEvent>, Error> {
        let connection = self.connection().await?;
        let params: super::connection::Params<'_> = &[&topic_id.0, &before, &i64::from(limit)];
        let rows = connection.query(&RETENTION_EVENTS_LIST, params, Effect::None).await?;
        Ok(rows.iter().map(event).collect())
    }

    /// Drops what is older than the history is kept.
    pub async fn retention_history_expire(&self) -> Result<(), Error> {
        let age_ms = i64::try_from(RETENTION_HISTORY_KEPT.as_millis()).unwrap_or(i64::MAX);
        loop {
            let connection = self.upkeep_connection().await?;
            let gone = connection.execute(&RETENTION_EVENTS_EXPIRE, &[&EXPIRE_ROWS_MAX, &age_ms]).await?;
            if (gone as i64) < EXPIRE_ROWS_MAX {
                return Ok(());
            }
        }
    }
}

fn event(row: &tokio_postgres::Row) -> RetentionEvent {
    let dropped = match (DropReason::parse(row.get("reason")), row.get::<_, Option<String>>("group_name")) {
        (_, Some(name)) => Dropped::Group { name },
        (reason, None) => Dropped::Segment {
            reason: reason.expect("without a group there is a reason that we know"),
            partition: row.get::<_, i32>("partition") as u32,
            from: Offset(row.get("from_offset")),
            to: Offset(row.get("to_offset")),
            bytes: row.get::<_, Option<i64>>("bytes").unwrap_or_default(),
        },
    };
    RetentionEvent { event_id: row.get("event_id"), dropped_at: row.get("dropped_at"), dropped }
}
