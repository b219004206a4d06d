//! How a message is printed: for people, as JSON, or nothing but its payload. Always one message after the other.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};

use clap::ValueEnum;
use laneway_client::Delivery;
use laneway_client::message::Encoding;
use serde::Serialize;
use serde_json::value::RawValue;

/// The form of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A line for people
    Pretty,
    /// One JSON object per line
    Json,
    /// The bytes of the payload and a newline
    Raw,
}

/// The object of `--format json`: the names of the HTTP API. `key` is null if there is none. `encoding` and `key_encoding`
/// are `text`, or `base64` for bytes that are no text.
#[derive(Debug, Serialize)]
struct Object<'a> {
    topic: &'a str,
    partition: u32,
    offset: i64,
    published_at: String,
    trace_id: String,
    key: Option<Box<RawValue>>,
    key_encoding: Encoding,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_id: Option<&'a str>,
    headers: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    payload: Box<RawValue>,
    encoding: Encoding,
}

impl Form {
    /// What was asked for; else for people on a terminal, and for programs elsewhere.
    pub fn or_default(wanted: Option<Self>) -> Self {
        wanted.unwrap_or(match std::io::stdout().is_terminal() {
            true => Self::Pretty,
            false => Self::Json,
        })
    }

    /// A line for people, without its end.
    pub fn for_people<'a>(
        place: &str,
        published_at: &str,
        key: Option<&[u8]>,
        headers: impl Iterator<Item = (&'a str, &'a str)>,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut line = format!("{place}  {published_at}  ");
        if let Some(key) = key {
            line.push_str(&format!("[{}]  ", harmless(key)));
        }
        for (name, value) in headers {
            line.push_str(&format!("{}={}  ", harmless(name.as_bytes()), harmless(value.as_bytes())));
        }
        line.push_str(&harmless(payload));
        line.trim_end().as_bytes().to_vec()
    }

    /// Appends a message.
    pub fn write(self, message: &Delivery, out: &mut Vec<u8>) {
        match self {
            Self::Raw => out.extend_from_slice(&message.payload),
            Self::Json => serde_json::to_writer(&mut *out, &object(message)).expect("it is always JSON"),
            Self::Pretty => pretty(message, out),
        }
        out.push(b'\n');
    }
}

fn object(message: &Delivery) -> Object<'_> {
    let (encoding, payload) = Encoding::encode(&message.payload, None);
    let key = message.key.as_deref().map(|key| Encoding::encode(key, None));
    Object {
        topic: &message.topic,
        partition: message.partition,
        offset: message.offset,
        published_at: message.published_at.to_string(),
        trace_id: message.trace_id.to_string(),
        key_encoding: key.as_ref().map(|(encoding, _)| *encoding).unwrap_or_default(),
        key: key.map(|(_, key)| key),
        transaction_id: message.transaction_id.as_deref(),
        headers: &message.headers,
        content_type: message.content_type.as_deref(),
        payload,
        encoding,
    }
}

fn pretty(message: &Delivery, out: &mut Vec<u8>) {
    let Delivery { partition, offset, published_at, .. } = message;
    let (place, moment) = (format!("{partition}/{offset}"), format!("{published_at:.3}"));
    let headers = message.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let line = Form::for_people(&place, &moment, message.key.as_deref(), headers, &message.payload);
    out.write_all(&line).expect("memory takes everything");
}

/// Text on one line, with nothing in it that a terminal would obey.
fn harmless(bytes: &[u8]) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => return format!("{} bytes that are no text", bytes.len()),
    };
    let mut harmless = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => harmless.extend(character.escape_default()),
            false => harmless.push(character),
        }
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_for_people_stays_on_its_line_and_commands_no_terminal() {
        assert_eq!(harmless("a ü\n\u{1b}[2J".as_bytes()), "a ü\\n\\u{1b}[2J");
        assert_eq!(harmless(b"\xff\xfe"), "2 bytes that are no text");
    }
}
