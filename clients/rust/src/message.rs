//! Messages as JSON carries them. Payload and key are bytes; their `encoding` says how the JSON stands for them.
//!
//! `text`: the UTF-8 bytes of a string. `base64`: any bytes (RFC 4648, padded). `json`: the text of the JSON value itself,
//! character for character. What goes in by one of them comes out bit-exact.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::problem::Problem;

/// How a JSON value stands for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// A string: its UTF-8 bytes.
    #[default]
    Text,
    /// Any JSON value: its own text.
    Json,
    /// A string in base64.
    Base64,
}

/// Why a value does not stand for bytes as declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Neither a string nor declared as JSON.
    #[error("it is not a string")]
    NotAString,
    /// A string that is no text: JSON can write half of a character.
    #[error("it contains an escape that stands for no character (a lone surrogate)")]
    NotText,
    /// Not base64.
    #[error("it is not base64 (RFC 4648, with padding)")]
    NotBase64,
}

impl Encoding {
    /// Whether it is the one that is meant when none is given.
    pub fn is_default(&self) -> bool {
        *self == Encoding::default()
    }

    /// The bytes that a value stands for.
    pub fn decode(self, value: &RawValue) -> Result<Vec<u8>, DecodeError> {
        if self == Encoding::Json {
            return Ok(value.get().as_bytes().to_vec());
        }
        let text: String = serde_json::from_str(value.get()).map_err(|_| {
            if value.get().starts_with('"') { DecodeError::NotText } else { DecodeError::NotAString }
        })?;
        match self {
            Encoding::Base64 => BASE64.decode(text).map_err(|_| DecodeError::NotBase64),
            Encoding::Text | Encoding::Json => Ok(text.into_bytes()),
        }
    }

    /// The plainest text that stands for these bytes.
    pub fn encode_text(bytes: &[u8]) -> (Self, String) {
        match std::str::from_utf8(bytes) {
            Ok(text) => (Encoding::Text, text.to_owned()),
            Err(_) => (Encoding::Base64, BASE64.encode(bytes)),
        }
    }

    /// The plainest value that stands for these bytes: JSON where the content type says so and it holds, else text.
    pub fn encode(bytes: &[u8], content_type: Option<&str>) -> (Self, Box<RawValue>) {
        let text = std::str::from_utf8(bytes);
        if let (Ok(text), Some("application/json")) = (text, content_type)
            && let Ok(value) = RawValue::from_string(text.to_owned())
            && value.get() == text
        {
            return (Encoding::Json, value);
        }
        let (encoding, text) = Self::encode_text(bytes);
        (encoding, quoted(&text))
    }
}

fn quoted(text: &str) -> Box<RawValue> {
    serde_json::value::to_raw_value(text).expect("a string is always JSON")
}

/// The message that led to another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// Its topic.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub topic: String,
    /// The number of its partition.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// Its position there.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub offset: i64,
}

/// One message to publish.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PublishMessage {
    /// The body, as `encoding` declares it.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Json))]
    pub payload: Box<RawValue>,
    /// How `payload` stands for bytes.
    #[serde(default, skip_serializing_if = "Encoding::is_default")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub encoding: Encoding,
    /// Messages of one key stay in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Json, required = false))]
    pub key: Option<Box<RawValue>>,
    /// How `key` stands for bytes.
    #[serde(default, skip_serializing_if = "Encoding::is_default")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub key_encoding: Encoding,
    /// Explicit partition; wins over the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: Option<u32>,
    /// A UUID, 32 hexadecimal digits or a W3C `traceparent`. Absent: that of the header `traceparent`, else of the cause; else
    /// the broker makes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::GivenTrace>))]
    pub trace_id: Option<String>,
    /// The message that led to this one; it belongs to the same trace.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::wire::strict_optional"
    )]
    pub cause: Option<Cause>,
    /// Other traces that this one has to do with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<crate::openapi::TraceText>, required = false, max_items = 16))]
    pub links: Vec<String>,
    /// Names the message: a second one with the same id is not stored within the topic's window.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255, pattern = r"^[^\u0000]+$"))]
    pub transaction_id: Option<String>,
    /// Free text by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub headers: BTreeMap<String, String>,
    /// What the payload is, as a media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255, pattern = r"^[^\u0000]+$"))]
    pub content_type: Option<String>,
    /// With a `producer_id`: the number of this message among those the producer sends to its partition, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Sequence>))]
    pub sequence: Option<i64>,
    /// When it is to be appended (RFC 3339), instead of now: up to ten years ahead. At most one of this and `delay_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>, required = false))]
    pub deliver_at: Option<String>,
    /// Milliseconds until it is to be appended, instead of now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::DelayMs>, required = false))]
    pub delay_ms: Option<u64>,
    /// How long after its publish it is worth delivering, in milliseconds; of one with a time, after it was appended. Absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 31536000000_u64))]
    pub ttl_ms: Option<u64>,
}

/// `POST /v1/topics/{topic}/messages`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PublishRequest {
    /// A UUID of the producer's own making. With it, every message carries a `sequence`, and a retry is one copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer_id: Option<Uuid>,
    /// How long it may wait for room in a topic that is full; absent: it is refused at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 20000))]
    pub wait_ms: Option<u64>,
    /// Messages that share a partition are stored all or none, in this order.
    #[cfg_attr(feature = "openapi", schema(min_items = 1))]
    pub messages: Vec<PublishMessage>,
}

/// What became of one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PublishResult {
    /// Where it belongs.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// Where it stands; absent if it was not stored, if it waits for its time, or if its first copy has left the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>))]
    pub offset: Option<i64>,
    /// Present and true if an earlier copy was found and no second one stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub duplicate: bool,
    /// The id under which it waits for its time, or did so before it was appended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Position>, required = false))]
    pub schedule: Option<i64>,
    /// Why the messages of this partition were not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// One result per message, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PublishResponse {
    /// In the order of the request.
    pub results: Vec<PublishResult>,
}

/// A stored message.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoredMessage {
    /// The topic it was published to.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::topic::TopicName))]
    pub topic: String,
    /// The number of its partition.
    #[cfg_attr(feature = "openapi", schema(maximum = 999))]
    pub partition: u32,
    /// Its position there.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Position))]
    pub offset: i64,
    /// On the database clock (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Moment))]
    pub published_at: String,
    /// The trace it belongs to.
    #[cfg_attr(feature = "openapi", schema(value_type = uuid::Uuid))]
    pub trace_id: String,
    /// The message that led to this one, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Its key, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Json, required = false))]
    pub key: Option<Box<RawValue>>,
    /// How `key` stands for bytes.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub key_encoding: Encoding,
    /// Its transaction id, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_id: Option<String>,
    /// Free text by name.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required))]
    pub headers: BTreeMap<String, String>,
    /// What the payload is, if the producer said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The body.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::Json))]
    pub payload: Box<RawValue>,
    /// How `payload` stands for bytes.
    pub encoding: Encoding,
}

/// One page of messages of a partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MessageList {
    /// In the order asked for.
    pub messages: Vec<StoredMessage>,
    /// Present and true if a trace has more messages than one answer holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub truncated: bool,
}

/// One page of a search: `GET /v1/topics/{topic}/search`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FoundMessages {
    /// The newest first.
    pub messages: Vec<StoredMessage>,
    /// Give this as `before` to get the next page; absent on the last one. A page may be empty and still have a next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::SearchKey>))]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(bytes in prop::collection::vec(any::<u8>(), 0..200), json in any::<bool>()) {
            let content_type = json.then_some("application/json");
            let (encoding, value) = Encoding::encode(&bytes, content_type);
            prop_assert_eq!(encoding.decode(&value).unwrap(), bytes);
        }
    }

    #[test]
    fn a_json_value_keeps_its_own_spelling() {
        let spelled = r#"{"b": 1.50,  "a":"\u00e9"}"#;
        let value = RawValue::from_string(spelled.to_owned()).unwrap();
        let bytes = Encoding::Json.decode(&value).unwrap();
        assert_eq!(bytes, spelled.as_bytes());
        assert_eq!(Encoding::encode(&bytes, Some("application/json")).1.get(), spelled);
    }

    #[test]
    fn a_value_that_is_not_as_declared_is_refused() {
        let number = RawValue::from_string("7".into()).unwrap();
        assert_eq!(Encoding::Text.decode(&number), Err(DecodeError::NotAString));
        let half = RawValue::from_string(r#""\ud800""#.into()).unwrap();
        assert_eq!(Encoding::Text.decode(&half), Err(DecodeError::NotText));
        let text = RawValue::from_string("\"!\"".into()).unwrap();
        assert_eq!(Encoding::Base64.decode(&text), Err(DecodeError::NotBase64));
    }
}
