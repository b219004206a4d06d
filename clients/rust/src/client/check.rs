//! Whether a message may be published at all: checked before it waits with others, so that it cannot hold them up.
//!
//! The same rules as the broker's. A rule that only the broker knows is met by its answer.

use crate::client::error::Error;
use crate::error_code::ErrorCode;
use crate::wire::{ClientFrame, Limits, NewMessage, Publish, Subprotocol};

/// Longest key.
const KEY_BYTES_MAX: usize = 1 << 10;
/// Most bytes of headers, as JSON text.
const HEADERS_BYTES_MAX: usize = 8 << 10;
/// Longest transaction id.
const TRANSACTION_ID_CHARS_MAX: usize = 255;
/// Longest content type.
const CONTENT_TYPE_CHARS_MAX: usize = 255;
/// What a message takes in a frame beside its bytes, at most: names of members, numbers, a trace id.
const ENVELOPE_BYTES: usize = 512;
/// What a link takes in a frame, at most.
const LINK_BYTES: usize = 40;

/// What a topic says about messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TopicFacts {
    pub partitions: u32,
    pub payload_bytes_max: u32,
}

/// Bytes of headers as they are stored: the text of a JSON object, nothing if there are none.
pub(super) fn headers_bytes(headers: &std::collections::BTreeMap<String, String>) -> usize {
    if headers.is_empty() {
        return 0;
    }
    serde_json::to_string(headers).expect("a map of strings is always JSON").len()
}

/// The bytes that a message of a step takes while it waits: its own, and what stands around them.
pub(super) fn takes(message: &NewMessage) -> usize {
    let key = message.key.as_ref().map_or(0, bytes::Bytes::len);
    let around = ENVELOPE_BYTES + LINK_BYTES * message.links.len();
    message.payload.len() + key + headers_bytes(&message.headers) + around
}

/// Checks a message. Returns the bytes that it takes while it waits.
pub(super) fn check(
    message: &NewMessage,
    facts: TopicFacts,
    limits: &Limits,
    subprotocol: Subprotocol,
) -> Result<usize, Error> {
    let payload = message.payload.len();
    if payload > facts.payload_bytes_max as usize {
        let most = facts.payload_bytes_max;
        let detail = format!("the payload has {payload} bytes, and the topic allows {most}");
        return Err(Error::refused(ErrorCode::PayloadTooLarge, detail, Some("payload")));
    }
    let key = message.key.as_ref().map_or(0, bytes::Bytes::len);
    if key > KEY_BYTES_MAX {
        let detail = format!("the key has {key} bytes, and a message has at most {KEY_BYTES_MAX}");
        return Err(Error::refused(ErrorCode::KeyTooLarge, detail, Some("key")));
    }
    let headers = headers_bytes(&message.headers);
    if headers > HEADERS_BYTES_MAX {
        let detail =
            format!("the headers have {headers} bytes, and a message has at most {HEADERS_BYTES_MAX}");
        return Err(Error::refused(ErrorCode::HeadersTooLarge, detail, Some("headers")));
    }
    check_texts(message)?;
    check_time(message)?;
    check_partition(message, facts)?;
    let bytes = payload + key + headers + ENVELOPE_BYTES;
    // Why: JSON writes a byte as up to six characters. What is smaller than an eighth fits in any encoding.
    if bytes as u64 > limits.frame_bytes_max / 8 {
        check_frame(message, limits, subprotocol)?;
    }
    Ok(bytes)
}

fn check_frame(message: &NewMessage, limits: &Limits, subprotocol: Subprotocol) -> Result<(), Error> {
    let messages = vec![message.clone()];
    let alone = Publish { id: 0, topic: String::new(), producer_id: None, wait_ms: None, messages };
    let bytes = subprotocol.encode_client(&ClientFrame::Publish(alone)).len() + ENVELOPE_BYTES;
    match bytes as u64 > limits.frame_bytes_max {
        false => Ok(()),
        true => {
            let most = limits.frame_bytes_max;
            let detail = format!("the message takes {bytes} bytes of a frame, and the broker takes {most}");
            Err(Error::refused(ErrorCode::TooLarge, detail, Some("payload")))
        }
    }
}

fn check_texts(message: &NewMessage) -> Result<(), Error> {
    let chars = |text: &Option<String>| text.as_ref().map_or(0, |text| text.chars().count());
    let id = chars(&message.transaction_id);
    if id > TRANSACTION_ID_CHARS_MAX {
        let detail =
            format!("the transaction id has {id} characters, at most {TRANSACTION_ID_CHARS_MAX} are allowed");
        return Err(Error::refused(ErrorCode::TransactionIdTooLong, detail, Some("transaction_id")));
    }
    let kind = chars(&message.content_type);
    if kind > CONTENT_TYPE_CHARS_MAX {
        let detail =
            format!("the content type has {kind} characters, at most {CONTENT_TYPE_CHARS_MAX} are allowed");
        return Err(Error::refused(ErrorCode::InvalidMessage, detail, Some("content_type")));
    }
    Ok(())
}

/// Whether it is due can only be said by the broker.
fn check_time(message: &NewMessage) -> Result<(), Error> {
    let Some(at) = &message.deliver_at else { return Ok(()) };
    let detail = match (message.delay_ms, at.parse::<jiff::Timestamp>()) {
        (Some(_), _) => "a message has deliver_at or delay_ms, not both".to_owned(),
        (None, Err(_)) => format!("{at:?} is not a time like 2026-11-16T12:00:00Z (RFC 3339)"),
        (None, Ok(_)) => return Ok(()),
    };
    Err(Error::refused(ErrorCode::InvalidTime, detail, Some("deliver_at")))
}

fn check_partition(message: &NewMessage, facts: TopicFacts) -> Result<(), Error> {
    match message.partition {
        Some(partition) if partition >= facts.partitions => {
            let detail = format!("the topic has {} partitions, and no number {partition}", facts.partitions);
            Err(Error::refused(ErrorCode::PartitionOutOfRange, detail, Some("partition")))
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: TopicFacts = TopicFacts { partitions: 4, payload_bytes_max: 5000 };
    const LIMITS: Limits = Limits {
        frame_bytes_max: 4000,
        publish_messages_max: 100,
        publishes_in_flight_max: 8,
        subscriptions_max: 8,
        credit_messages_max: 100,
        credit_bytes_max: 1 << 20,
    };

    fn refused(change: impl FnOnce(&mut NewMessage)) -> Option<ErrorCode> {
        let mut message = NewMessage { payload: "hello".into(), ..NewMessage::default() };
        change(&mut message);
        check(&message, FACTS, &LIMITS, Subprotocol::Json).err().and_then(|error| error.code())
    }

    #[test]
    fn a_message_that_breaks_a_rule_is_refused_with_the_code_that_a_broker_would_give() {
        assert_eq!(refused(|_| {}), None);
        assert_eq!(refused(|m| m.payload = vec![0; 5001].into()), Some(ErrorCode::PayloadTooLarge));
        assert_eq!(refused(|m| m.payload = vec![1; 700].into()), Some(ErrorCode::TooLarge), "escapes count");
        assert_eq!(refused(|m| m.payload = vec![b'x'; 3000].into()), None);
        assert_eq!(refused(|m| m.key = Some(vec![0; 1025].into())), Some(ErrorCode::KeyTooLarge));
        let long = "x".repeat(9000);
        assert_eq!(refused(|m| drop(m.headers.insert("h".into(), long))), Some(ErrorCode::HeadersTooLarge));
        let long = "x".repeat(256);
        assert_eq!(refused(|m| m.transaction_id = Some(long)), Some(ErrorCode::TransactionIdTooLong));
        let long = "x".repeat(256);
        assert_eq!(refused(|m| m.content_type = Some(long)), Some(ErrorCode::InvalidMessage));
        assert_eq!(refused(|m| m.partition = Some(4)), Some(ErrorCode::PartitionOutOfRange));
    }
}
