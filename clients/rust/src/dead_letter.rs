//! Dead letters as HTTP carries them: messages that a group has given up, whole, with the reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::message::Encoding;

/// A message that a group has given up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeadLetter {
    /// By which it is shown, published again or dropped.
    pub id: i64,
    /// The topic it was published to.
    pub topic: String,
    /// The number of its partition.
    pub partition: u32,
    /// Where it stood there.
    pub offset: i64,
    /// The group that has given it up.
    pub group: String,
    /// How often the group has tried.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub reason: String,
    /// When it was given up, on the database clock (RFC 3339).
    pub dead_at: String,
    /// When it was published, on the database clock (RFC 3339).
    pub published_at: String,
    /// The trace it belongs to.
    pub trace_id: String,
    /// Its key, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<RawValue>>,
    /// How `key` stands for bytes.
    #[serde(default)]
    pub key_encoding: Encoding,
    /// Its transaction id, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_id: Option<String>,
    /// Free text by name.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// What the payload is, if the producer said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The body.
    pub payload: Box<RawValue>,
    /// How `payload` stands for bytes.
    pub encoding: Encoding,
}

/// One page of dead letters, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeadLetterList {
    /// In the order of their ids.
    pub dead_letters: Vec<DeadLetter>,
    /// Give this as `after` to get the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// Which dead letters to list; the default lists all, from the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterQuery {
    /// Of this topic only.
    pub topic: Option<String>,
    /// Of this group only.
    pub group: Option<String>,
    /// After this id.
    pub after: Option<i64>,
    /// At most this many.
    pub limit: Option<u32>,
}

/// Where a dead letter was published again: `POST /v1/dead-letters/{id}/replay`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The same partition as before.
    pub partition: u32,
    /// Its new position there.
    pub offset: i64,
}
