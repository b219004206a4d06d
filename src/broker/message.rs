//! A message on its way in: checked against every rule before it may reach the database.
//!
//! Postgres would refuse some of this too, but late and for the whole flush. What passes here goes in bit-exact.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use laneway_client::traceparent::{self, TraceparentError};
use uuid::Uuid;

use crate::encryption::Sealed;
use crate::ids::{Offset, TraceId};
use crate::limits::{
    AGE_MAX, CONTENT_TYPE_CHARS_MAX, HEADERS_BYTES_MAX, KEY_BYTES_MAX, LINKS_MAX, TRANSACTION_ID_CHARS_MAX,
};
pub use crate::store::messages::Cause;
use crate::store::messages::{Message, Origin};
use crate::telemetry::spans::Seed;

/// A message that keeps every rule. Made by [`Draft::check`] only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    pub(super) trace_id: TraceId,
    pub(super) cause: Option<Cause>,
    pub(super) origin: Option<Arc<Origin>>,
    pub(super) links: Vec<TraceId>,
    pub(super) key: Option<Bytes>,
    pub(super) transaction_id: Option<String>,
    pub(super) headers: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) payload: Bytes,
    pub(super) producer: Option<Arc<str>>,
    pub(super) ttl: Option<Duration>,
    /// The payload as it is stored, in a topic that is encrypted.
    pub(super) sealed: Option<Sealed>,
}

impl NewMessage {
    /// The message as it is stored.
    pub(super) fn stored_at(self, offset: Offset, published_at: Timestamp) -> Message {
        Message {
            offset,
            published_at,
            trace_id: self.trace_id,
            cause: self.cause,
            origin: self.origin,
            key: self.key,
            transaction_id: self.transaction_id,
            headers: self.headers,
            content_type: self.content_type,
            payload: self.payload,
            producer: self.producer.map(|producer| producer.to_string()),
            ttl: self.ttl,
            data_key_id: self.sealed.as_ref().map(Sealed::data_key_id),
        }
    }

    /// The payload as it is stored.
    pub(super) fn stored_payload(&self) -> &[u8] {
        self.sealed.as_ref().map_or(&self.payload, |sealed| &sealed.envelope)
    }

    /// What has sealed it, as a column.
    pub(super) fn data_key_id(&self) -> Option<Uuid> {
        self.sealed.as_ref().map(|sealed| sealed.data_key_id().0)
    }

    /// It stands in its partition: its data key may be done.
    pub(super) fn on_stored(&self, offset: Offset) {
        if let Some(sealed) = &self.sealed {
            sealed.key.on_stored(offset.plus(1));
        }
    }
}

/// A message as a producer hands it in.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    /// Absent: one is made.
    pub trace_id: Option<TraceId>,
    pub cause: Option<Cause>,
    /// The names of its cause.
    pub origin: Option<Arc<Origin>>,
    /// Other traces that this one has to do with.
    pub links: Vec<TraceId>,
    pub key: Option<Bytes>,
    pub transaction_id: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub content_type: Option<String>,
    pub payload: Bytes,
    pub producer: Option<Arc<str>>,
    /// How long after it was appended it is worth delivering.
    pub ttl: Option<Duration>,
}

/// Which rule a message breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    #[error("the payload has {bytes} bytes, and the topic takes at most {max}")]
    PayloadTooLarge { bytes: usize, max: u32 },
    #[error("the key has {bytes} bytes, and a key has at most {KEY_BYTES_MAX}")]
    KeyTooLarge { bytes: usize },
    #[error("the headers have {bytes} bytes as JSON, and a message has at most {HEADERS_BYTES_MAX}")]
    HeadersTooLarge { bytes: usize },
    #[error("the transaction id has {chars} characters, and one has at most {TRANSACTION_ID_CHARS_MAX}")]
    TransactionIdTooLong { chars: usize },
    #[error("{field} must not be empty; leave it out instead")]
    Empty { field: &'static str },
    #[error("{field} contains the character NUL, which PostgreSQL cannot store in text")]
    Nul { field: &'static str },
    #[error("the content type has {chars} characters, and one has at most {CONTENT_TYPE_CHARS_MAX}")]
    ContentTypeTooLong { chars: usize },
    #[error("the trace id is all zero, which stands for no trace")]
    ZeroTrace,
    #[error("the header traceparent: {0}")]
    Traceparent(#[from] TraceparentError),
    #[error("the header traceparent names another trace than trace_id")]
    TwoTraces,
    #[error("a message has at most {LINKS_MAX} links, this one has {links}")]
    TooManyLinks { links: usize },
    #[error("a link is all zero, which stands for no trace")]
    ZeroLink,
    #[error("ttl_ms must be between 1 and {}", AGE_MAX.as_millis())]
    Ttl,
}

impl InvalidMessage {
    /// The field at fault, as the wire names it.
    pub fn field(&self) -> &'static str {
        match self {
            Self::PayloadTooLarge { .. } => "payload",
            Self::KeyTooLarge { .. } => "key",
            Self::HeadersTooLarge { .. } => "headers",
            Self::TransactionIdTooLong { .. } => "transaction_id",
            Self::ContentTypeTooLong { .. } => "content_type",
            Self::Empty { field } | Self::Nul { field } => field,
            Self::ZeroTrace | Self::TwoTraces => "trace_id",
            Self::Traceparent(_) => "headers",
            Self::TooManyLinks { .. } | Self::ZeroLink => "links",
            Self::Ttl => "ttl_ms",
        }
    }
}

impl Draft {
    /// A message that carries a `traceparent` belongs to its trace.
    pub fn join_traceparent(&mut self) -> Result<(), InvalidMessage> {
        let Some(parent) = self.headers.get(traceparent::HEADER) else { return Ok(()) };
        let trace_id = TraceId(traceparent::parse(parent)?);
        match *self.trace_id.get_or_insert(trace_id) == trace_id {
            true => Ok(()),
            false => Err(InvalidMessage::TwoTraces),
        }
    }

    /// Checks every rule; nothing is written before all messages of a publish have passed.
    pub fn check(mut self, payload_bytes_max: u32) -> Result<NewMessage, InvalidMessage> {
        self.join_traceparent()?;
        let bytes = self.payload.len();
        if bytes > payload_bytes_max as usize {
            return Err(InvalidMessage::PayloadTooLarge { bytes, max: payload_bytes_max });
        }
        if let Some(bytes) = self.key.as_ref().map(Bytes::len).filter(|bytes| *bytes > KEY_BYTES_MAX) {
            return Err(InvalidMessage::KeyTooLarge { bytes });
        }
        if self.trace_id.is_some_and(|trace| trace.0.is_nil()) {
            return Err(InvalidMessage::ZeroTrace);
        }
        if self.links.len() > LINKS_MAX {
            return Err(InvalidMessage::TooManyLinks { links: self.links.len() });
        }
        if self.links.iter().any(|link| link.0.is_nil()) {
            return Err(InvalidMessage::ZeroLink);
        }
        if self.ttl.is_some_and(|ttl| ttl.is_zero() || ttl > AGE_MAX) {
            return Err(InvalidMessage::Ttl);
        }
        check_transaction_id(self.transaction_id.as_deref())?;
        check_content_type(self.content_type.as_deref())?;
        Ok(NewMessage {
            trace_id: self.trace_id.unwrap_or_else(TraceId::generate),
            cause: self.cause,
            origin: self.origin,
            links: self.links,
            key: self.key,
            transaction_id: self.transaction_id,
            headers: headers_text(&self.headers)?,
            content_type: self.content_type,
            payload: self.payload,
            producer: self.producer,
            ttl: self.ttl,
            sealed: None,
        })
    }
}

/// The rule of transaction ids.
pub fn check_transaction_id(id: Option<&str>) -> Result<(), InvalidMessage> {
    let Some(id) = id else { return Ok(()) };
    let chars = id.chars().count();
    match chars {
        0 => Err(InvalidMessage::Empty { field: "transaction_id" }),
        chars if chars > TRANSACTION_ID_CHARS_MAX => Err(InvalidMessage::TransactionIdTooLong { chars }),
        _ => without_nul("transaction_id", id),
    }
}

fn check_content_type(content_type: Option<&str>) -> Result<(), InvalidMessage> {
    let Some(content_type) = content_type else { return Ok(()) };
    let chars = content_type.chars().count();
    match chars {
        0 => Err(InvalidMessage::Empty { field: "content_type" }),
        chars if chars > CONTENT_TYPE_CHARS_MAX => Err(InvalidMessage::ContentTypeTooLong { chars }),
        _ => without_nul("content_type", content_type),
    }
}

fn without_nul(field: &'static str, text: &str) -> Result<(), InvalidMessage> {
    if text.contains('\0') { Err(InvalidMessage::Nul { field }) } else { Ok(()) }
}

/// Headers are stored as the text of a JSON object; its escapes carry any character, NUL too.
fn headers_text(headers: &BTreeMap<String, String>) -> Result<Option<String>, InvalidMessage> {
    if headers.is_empty() {
        return Ok(None);
    }
    let text = serde_json::to_string(headers).expect("a map of strings is always JSON");
    match text.len() {
        bytes if bytes > HEADERS_BYTES_MAX => Err(InvalidMessage::HeadersTooLarge { bytes }),
        _ => Ok(Some(text)),
    }
}

impl NewMessage {
    /// What it counts for in every sum of bytes: what the producer sent, not what the row costs.
    pub fn bytes(&self) -> usize {
        self.payload.len()
            + self.key.as_ref().map_or(0, Bytes::len)
            + self.headers.as_ref().map_or(0, String::len)
    }

    /// Whose span its publish continues.
    pub fn seed(&self) -> Seed {
        let cause = self.cause.map(|cause| (cause.partition_id, cause.offset));
        Seed::new(self.trace_id, self.headers.as_deref(), cause)
    }

    /// The id that names it, if it has one.
    pub fn transaction_id(&self) -> Option<&str> {
        self.transaction_id.as_deref()
    }

    /// Its key, if it has one.
    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Draft)) -> InvalidMessage {
        let mut draft = Draft { payload: Bytes::from_static(b"x"), ..Draft::default() };
        change(&mut draft);
        draft.check(100).unwrap_err()
    }

    #[test]
    fn each_rule_refuses_and_names_its_field() {
        assert_eq!(refused(|d| d.payload = vec![0; 101].into()).field(), "payload");
        assert_eq!(refused(|d| d.key = Some(vec![0; 1025].into())).field(), "key");
        assert_eq!(refused(|d| drop(d.headers.insert("h".into(), "x".repeat(8 << 10)))).field(), "headers");
        assert_eq!(refused(|d| d.transaction_id = Some("x".repeat(256))).field(), "transaction_id");
        assert_eq!(refused(|d| d.transaction_id = Some(String::new())).field(), "transaction_id");
        assert_eq!(
            refused(|d| d.transaction_id = Some("a\0b".into())),
            InvalidMessage::Nul { field: "transaction_id" }
        );
        assert_eq!(refused(|d| d.content_type = Some("x".repeat(256))).field(), "content_type");
        assert_eq!(refused(|d| d.trace_id = Some(TraceId(uuid::Uuid::nil()))), InvalidMessage::ZeroTrace);
        assert_eq!(refused(|d| d.links = vec![TraceId::generate(); 17]).field(), "links");
        assert_eq!(refused(|d| d.links = vec![TraceId(uuid::Uuid::nil())]), InvalidMessage::ZeroLink);
        assert_eq!(refused(|d| d.ttl = Some(Duration::ZERO)).field(), "ttl_ms");
        assert_eq!(refused(|d| d.ttl = Some(AGE_MAX + Duration::from_millis(1))).field(), "ttl_ms");
        let parent = |text: &'static str| {
            move |d: &mut Draft| drop(d.headers.insert(traceparent::HEADER.into(), text.into()))
        };
        assert_eq!(refused(parent("00-xyz")).field(), "headers");
        let two = refused(|d| {
            d.trace_id = Some(TraceId::generate());
            parent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")(d);
        });
        assert_eq!(two, InvalidMessage::TwoTraces);
    }

    #[test]
    fn a_traceparent_decides_the_trace_and_stays_a_header() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let headers = BTreeMap::from([(traceparent::HEADER.to_owned(), parent.to_owned())]);
        let message = Draft { headers, ..Draft::default() }.check(100).unwrap();
        assert_eq!(message.trace_id.0.simple().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(message.headers.unwrap().contains(parent));
    }

    #[test]
    fn what_is_just_within_the_rules_passes() {
        let draft = Draft {
            payload: vec![0; 100].into(),
            key: Some(vec![0; 1024].into()),
            transaction_id: Some("ü".repeat(255)),
            ..Draft::default()
        };
        assert!(draft.check(100).is_ok());
    }
}
