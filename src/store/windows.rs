//! When a group delivers, and what becomes of messages that have expired: settings as they are stored, and evictions as they are
//! written down.
//!
//! An eviction is part of a settlement: under the lane's fence, with the commit that moves past it. Ranges, not messages.

use std::time::Duration;

use postgres_types::ToSql;
use tokio_postgres::Row;
use uuid::Uuid;

use super::Connection;
use super::connection::Params;
use super::error::Error;
use super::lanes::{DeadLetter, Fence};
use super::messages::Message;
use super::query::query;
use super::vault::{Vault, stored};
use crate::ids::Offset;

query!(EVICTIONS_RECORD = "evictions_record"[INT8, INT8, TEXT, INT8_ARRAY, INT8_ARRAY, TEXT_ARRAY]);
query!(
    DEAD_LETTERS_COLLECT = "dead_letters_collect"[
        INT8, INT8, INT8_ARRAY, INT4_ARRAY, TEXT_ARRAY, TIMESTAMPTZ_ARRAY, UUID_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY,
        TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, UUID_ARRAY
    ]
);

/// What becomes of a message that has expired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExpiryPolicy {
    /// The lane goes on without it.
    #[default]
    Evict,
    /// It is kept aside, whole, and the lane goes on.
    DeadLetter,
}

impl ExpiryPolicy {
    /// As the wire and the database write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            ExpiryPolicy::Evict => "evict",
            ExpiryPolicy::DeadLetter => "dead_letter",
        }
    }

    /// Reads what the wire and the database write.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Evict, Self::DeadLetter].into_iter().find(|policy| policy.as_str() == text)
    }

    /// What is written down of a message that it was applied to.
    const fn outcome(self) -> &'static str {
        match self {
            ExpiryPolicy::Evict => "evicted",
            ExpiryPolicy::DeadLetter => "dead_letter",
        }
    }
}

/// When a group delivers. The default is: everything, at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Windows {
    /// Messages are delivered when they are at least so old.
    pub delay: Duration,
    /// A partition is delivered when it has been quiet for so long; zero: at once.
    pub window: Duration,
    /// No message waits longer for that; zero: ten times the window.
    pub window_max: Duration,
    /// Older messages are not delivered; zero: whatever their age.
    pub max_age: Duration,
    pub on_expiry: ExpiryPolicy,
}

impl Windows {
    /// From the columns of a group.
    pub(super) fn of(row: &Row) -> Self {
        let ms = |name| Duration::from_millis(row.get::<_, i64>(name) as u64);
        Self {
            delay: ms("delay_ms"),
            window: ms("window_ms"),
            window_max: ms("window_max_ms"),
            max_age: ms("max_age_ms"),
            on_expiry: ExpiryPolicy::parse(row.get("on_expiry"))
                .expect("the database knows the same policies"),
        }
    }
}

/// New values; what is absent stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowChanges {
    pub delay_ms: Option<u64>,
    pub window_ms: Option<u64>,
    pub window_max_ms: Option<u64>,
    pub max_age_ms: Option<u64>,
    pub on_expiry: Option<ExpiryPolicy>,
}

/// Why a message has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// It is older than its group delivers.
    MaxAge,
    /// It is older than its producer wanted it to be delivered.
    Ttl,
}

impl Expiry {
    /// As traces and dead letters give it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Expiry::MaxAge => "max_age",
            Expiry::Ttl => "ttl",
        }
    }
}

/// Messages that stand together and have expired for the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    pub first: Offset,
    /// Not included.
    pub end: Offset,
    pub why: Expiry,
}

impl Evicted {
    /// How many messages it is.
    pub const fn messages(&self) -> u64 {
        (self.end.0 - self.first.0).unsigned_abs()
    }
}

/// What a settlement moves past because it has expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eviction {
    pub policy: ExpiryPolicy,
    /// Rising and separate.
    pub ranges: Vec<Evicted>,
    /// The messages themselves, if they are kept; those that retention has dropped meanwhile are left out.
    pub dead_letters: Vec<DeadLetter>,
}

impl Eviction {
    /// Of it, only what these ranges cover. `attempts`: how often a message has failed before.
    pub fn narrowed(&self, ranges: Vec<Evicted>, attempts: impl Fn(Offset) -> u32) -> Self {
        let is_covered =
            |offset: Offset| ranges.iter().any(|range| range.first <= offset && offset < range.end);
        let kept = self.dead_letters.iter().filter(|dead| is_covered(dead.message.offset));
        let dead_letters =
            kept.map(|dead| DeadLetter { attempts: attempts(dead.message.offset), ..dead.clone() }).collect();
        Self { policy: self.policy, ranges, dead_letters }
    }
}

impl Connection {
    /// Writes down which ranges of a lane are not delivered.
    pub(super) async fn record_eviction(&self, fence: &Fence, eviction: &Eviction) -> Result<(), Error> {
        let firsts: Vec<i64> = eviction.ranges.iter().map(|range| range.first.0).collect();
        let ends: Vec<i64> = eviction.ranges.iter().map(|range| range.end.0).collect();
        let reasons: Vec<&str> = eviction.ranges.iter().map(|range| range.why.as_str()).collect();
        let outcome = eviction.policy.outcome();
        let params: Params<'_> =
            &[&fence.group_id.0, &fence.partition_id.0, &outcome, &firsts, &ends, &reasons];
        self.execute(&EVICTIONS_RECORD, params).await.map(|_| ())
    }

    /// Keeps expired messages aside.
    pub(super) async fn collect_dead_letters(
        &self,
        fence: &Fence,
        dead: &[DeadLetter],
        vault: &Vault,
    ) -> Result<(), Error> {
        if dead.is_empty() {
            return Ok(());
        }
        let messages: Vec<&Message> = dead.iter().map(|dead| &dead.message).collect();
        let copies = self.seal_copies(vault, fence.partition_id, &messages).await?;
        let payloads: Vec<&[u8]> =
            messages.iter().zip(&copies).map(|(message, copy)| stored(message, copy)).collect();
        let data_keys: Vec<Option<Uuid>> =
            copies.iter().map(|copy| copy.as_ref().map(|copy| copy.data_key_id().0)).collect();
        fn column<'a, T>(dead: &'a [DeadLetter], of: impl Fn(&'a DeadLetter) -> T) -> Vec<T> {
            dead.iter().map(of).collect()
        }
        let columns: [&(dyn ToSql + Sync); 14] = [
            &column(dead, |dead| dead.message.offset.0),
            &column(dead, |dead| dead.attempts as i32),
            &column(dead, |dead| dead.reason.as_str()),
            &column(dead, |dead| dead.message.published_at),
            &column(dead, |dead| dead.message.trace_id.0),
            &column(dead, |dead| dead.message.cause.map(|cause| cause.partition_id.0)),
            &column(dead, |dead| dead.message.cause.map(|cause| cause.offset.0)),
            &column(dead, |dead| dead.message.key.as_deref()),
            &column(dead, |dead| dead.message.transaction_id.as_deref()),
            &column(dead, |dead| dead.message.headers.as_deref()),
            &column(dead, |dead| dead.message.content_type.as_deref()),
            &payloads,
            &column(dead, |dead| dead.message.producer.as_deref()),
            &data_keys,
        ];
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&fence.group_id.0, &fence.partition_id.0];
        params.extend(columns);
        self.execute(&DEAD_LETTERS_COLLECT, &params).await.map(|_| ())
    }
}
