//! Hostile values go in and come out bit for bit, whatever stands for them in JSON.

use laneway_client::message::{Encoding, StoredMessage};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::harness::{Server, TestDatabase};
use crate::web::Web;

const HOSTILE: &[&str] = &[
    "",
    " ",
    "plain",
    "'; DROP TABLE laneway.topic; --",
    "\\x00",
    "\\\\'\"`$$",
    "{\"a\":1}",
    "null",
    "NULL",
    "\u{0}",
    "a\u{0}b",
    "\u{1}\u{8}\u{b}\u{c}\u{1b}\u{7f}\u{80}\u{9f}",
    "line\nbreak\r\n\ttab",
    "\u{2028}\u{2029}\u{feff}\u{fffe}\u{ffff}",
    "naïve café ÅÅ ﬁ ẞ İ",
    "日本語 العربية עברית हिन्दी",
    "👩‍👩‍👧‍👦 🏳️‍🌈 \u{10ffff}\u{1f600}",
    "\u{202e}desrever\u{202c}",
    "{1,2,NULL}",
    "${jndi:ldap://x}",
    "%00%ff%s%n",
];

async fn server() -> (TestDatabase, Server, Web) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    web.create(json!({"name": "values"})).await;
    (database, server, web)
}

fn bytes(encoding: Encoding, value: &RawValue) -> Vec<u8> {
    encoding.decode(value).unwrap()
}

async fn publish_and_read(web: &Web, messages: Vec<Value>) -> Vec<StoredMessage> {
    let before = web.partitions("values").await[0].next_offset;
    let results = web.publish("values", messages.into()).await.results;
    assert_eq!(results[0].offset, Some(before));
    web.list("values", 0, &format!("from={before}&limit=10000")).await
}

#[tokio::test]
async fn hostile_texts_come_out_as_they_went_in() {
    let (_database, _server, web) = server().await;
    let message = |text: &&str| {
        // Transaction ids and content types are text in PostgreSQL: no NUL, and not empty.
        let id = format!("id {text}").replace('\0', "0");
        json!({"payload": text, "key": text, "headers": {"h": text, *text: "name"},
            "transaction_id": id, "content_type": id})
    };
    let read = publish_and_read(&web, HOSTILE.iter().map(message).collect()).await;
    assert_eq!(read.len(), HOSTILE.len());
    for (text, message) in HOSTILE.iter().zip(&read) {
        assert_eq!(bytes(message.encoding, &message.payload), text.as_bytes(), "{text:?}");
        assert_eq!(bytes(message.key_encoding, message.key.as_ref().unwrap()), text.as_bytes(), "{text:?}");
        assert_eq!(message.headers[*text], "name", "{text:?}");
        assert_eq!(message.headers.get("h").map(String::as_str), Some(*text), "{text:?}");
        let id = format!("id {text}").replace('\0', "0");
        assert_eq!((message.transaction_id.as_ref(), message.content_type.as_ref()), (Some(&id), Some(&id)));
    }
}

#[tokio::test]
async fn hostile_bytes_come_out_as_they_went_in() {
    let (_database, _server, web) = server().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let samples: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        vec![0xff],
        vec![0xc3, 0x28],
        vec![0xed, 0xa0, 0x80],
        b"\xef\xbb\xbftext".to_vec(),
        every_byte.clone(),
        every_byte.iter().rev().copied().cycle().take(1024).collect(),
    ];
    let message = |sample: &Vec<u8>| json!({"payload": base64(sample), "encoding": "base64", "key": base64(sample), "key_encoding": "base64"});
    let read = publish_and_read(&web, samples.iter().map(message).collect()).await;
    for (sample, message) in samples.iter().zip(&read) {
        assert_eq!(&bytes(message.encoding, &message.payload), sample);
        assert_eq!(&bytes(message.key_encoding, message.key.as_ref().unwrap()), sample);
    }
}

#[tokio::test]
async fn json_payloads_keep_their_own_spelling() {
    let (_database, _server, web) = server().await;
    let nested = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let spelled = [
        "null",
        "true",
        "-0.0",
        "1E+400",
        "123456789012345678901234567890.10",
        r#""""#,
        r#""\u0000 \ud83d\ude00 \u00e9 \/""#,
        r#""a lone \ud800 surrogate""#,
        r#"{"b": 1.50,  "a":"\u00e9", "b": 2}"#,
        "[1 , 2,\t3\n]",
        nested.as_str(),
    ];
    let messages: Vec<String> =
        spelled.iter().map(|payload| format!(r#"{{"payload": {payload}, "encoding": "json"}}"#)).collect();
    let body = format!(r#"{{"messages": [{}]}}"#, messages.join(","));
    let answer = web.post_raw("/v1/topics/values/messages", body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let read = web.list("values", 0, "from=0").await;
    assert_eq!(read.len(), spelled.len());
    for (payload, message) in spelled.iter().zip(&read) {
        assert_eq!(message.encoding, Encoding::Json);
        assert_eq!(message.payload.get(), *payload);
        assert_eq!(message.content_type.as_deref(), Some("application/json"));
    }
}

#[tokio::test]
async fn what_just_fits_is_taken() {
    let (_database, _server, web) = server().await;
    let headers = json!({"h": "x".repeat((8 << 10) - r#"{"h":""}"#.len())});
    let largest = json!({
        "payload": "p".repeat(1 << 20), "key": "k".repeat(1 << 10), "headers": headers,
        "transaction_id": "ü".repeat(255), "content_type": "c".repeat(255),
    });
    let read = publish_and_read(&web, vec![largest.clone()]).await.remove(0);
    let read = serde_json::to_value(read).unwrap();
    for name in ["payload", "key", "headers", "transaction_id", "content_type"] {
        assert_eq!(read[name], largest[name], "{name}");
    }
    // A page ends at some bytes, not only at some messages, but never before its first message.
    let big = json!({"payload": "p".repeat(1 << 20)});
    web.publish("values", vec![big; 12].into()).await;
    let page = web.list("values", 0, "from=0&limit=100").await;
    assert!((1..13).contains(&page.len()), "{}", page.len());
    assert_eq!(web.all("values", 0).await.len(), 13);
}

/// RFC 4648 by hand: what reads it must not have written it.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sextet = bits >> (18 - 6 * place) & 63;
            text.push(if place <= chunk.len() { ALPHABET[sextet as usize] as char } else { '=' });
        }
    }
    text
}
