//! Hostile strings: whatever a producer sends comes back bit for bit, and nothing of it is ever taken for SQL.

use std::collections::BTreeMap;

use bytes::Bytes;
use laneway::broker::Broker;
use laneway::broker::appender::Unit;
use laneway::broker::message::Draft;
use laneway::ids::{Offset, PartitionId, ProducerId, Sequence};
use laneway::store::messages::Message;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use uuid::Uuid;

use crate::harness::TestDatabase;
use crate::harness::produce::{all, all_from, topic, topic_of_segments, unit};

/// What has broken other programs.
const FRAGMENTS: &[&str] = &[
    "'",
    "''",
    "\"",
    "\\",
    "\\\\",
    "\\x00",
    "\\'",
    "$1",
    "$$",
    "$tag$",
    "?",
    ":name",
    "%s",
    "%",
    "_",
    ";",
    "--",
    "/*",
    "*/",
    "'; DROP TABLE laneway.message; --",
    "\"; DROP SCHEMA laneway CASCADE; --",
    "E'\\''",
    "NULL",
    "null",
    "{}",
    "{NULL}",
    "{segment_id}",
    "[1]",
    "\n",
    "\r\n",
    "\t",
    "\u{8}",
    "\u{b}",
    "\u{1b}[31m",
    " ",
    "  ",
    "\u{a0}",
    "\u{feff}",
    "\u{202e}",
    "\u{200d}",
    "é",
    "e\u{301}",
    "ﬁ",
    "ß",
    "İ",
    "日本語",
    "🚀",
    "👩‍👩‍👧‍👦",
    "\u{10ffff}",
    "\u{fffd}",
    "\u{7f}",
    "\u{80}",
    "\u{ffff}",
];

fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => prop::sample::select(FRAGMENTS).prop_map(str::to_owned),
        1 => vec(any::<char>().prop_filter("NUL", |c| *c != '\0'), 0..8).prop_map(String::from_iter),
    ];
    vec(part, 1..6).prop_map(|parts| parts.concat()).prop_filter("empty", |text| !text.is_empty())
}

/// Headers travel as JSON, which has an escape for NUL.
fn header() -> impl Strategy<Value = String> {
    prop_oneof![4 => text(), 1 => Just("\0".to_owned()), 1 => text().prop_map(|text| format!("{text}\0'\0"))]
}

fn raw_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..64),
        text().prop_map(String::into_bytes),
        Just(vec![0; 8]),
        Just(b"\\x6162'\0".to_vec()),
    ]
}

/// A message as it was sent, to compare with what comes back.
#[derive(Debug, Clone)]
struct Sent {
    key: Option<Vec<u8>>,
    transaction_id: Option<String>,
    headers: BTreeMap<String, String>,
    content_type: Option<String>,
    payload: Vec<u8>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let id = proptest::option::of(text());
    let content_type = proptest::option::of(text());
    (proptest::option::of(raw_bytes()), id, btree_map(header(), header(), 0..4), content_type, raw_bytes())
        .prop_map(|(key, transaction_id, headers, content_type, payload)| Sent {
            key,
            transaction_id,
            headers,
            content_type,
            payload,
        })
}

impl Sent {
    fn draft(&self) -> Draft {
        Draft {
            key: self.key.clone().map(Bytes::from),
            transaction_id: self.transaction_id.clone(),
            headers: self.headers.clone(),
            content_type: self.content_type.clone(),
            payload: self.payload.clone().into(),
            ..Draft::default()
        }
    }

    fn assert_is(&self, stored: &Message) {
        assert_eq!(stored.key.as_deref(), self.key.as_deref());
        assert_eq!(stored.transaction_id, self.transaction_id);
        assert_eq!(stored.content_type, self.content_type);
        assert_eq!(stored.payload, self.payload);
        let headers = stored.headers.as_deref().map(serde_json::from_str::<BTreeMap<String, String>>);
        assert_eq!(headers.transpose().unwrap().unwrap_or_default(), self.headers);
    }
}

/// Publishes the messages as one unit, reads them back, and publishes them again.
async fn round_trip(broker: &Broker, partition_id: PartitionId, sent: &[Sent]) {
    let from = all(broker, partition_id).await.last().map_or(Offset::ZERO, |last| last.offset.plus(1));
    let mut messages: Vec<_> = sent.iter().map(|one| one.draft().check(1 << 20).unwrap()).collect();
    let run = laneway::broker::appender::ProducerRun {
        producer_id: ProducerId(Uuid::new_v4()),
        first_sequence: Sequence(0),
    };
    let whole = Unit { messages: messages.clone(), run: Some(run), ..unit(partition_id, []) };
    let receipt = broker.appender.append(whole).await.unwrap();
    let stored = all_from(broker, partition_id, from).await;
    let offsets = receipt.offsets(sent.len());
    let duplicate = |place: usize| receipt.duplicates.iter().any(|duplicate| duplicate.index == place);
    for (place, one) in sent.iter().enumerate().filter(|(place, _)| !duplicate(*place)) {
        let offset = offsets[place].unwrap();
        one.assert_is(&stored[(offset.0 - from.0) as usize]);
    }
    // An id that is known is recognised, and one that is only similar is not.
    messages.retain(|message| message.transaction_id().is_some());
    if !messages.is_empty() {
        let count = messages.len();
        let again = Unit { messages, ..unit(partition_id, []) };
        assert_eq!(broker.appender.append(again).await.unwrap().duplicates.len(), count);
    }
}

#[test]
fn whatever_is_sent_comes_back_bit_for_bit() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (_database, broker, partition_id) = runtime.block_on(async {
        let database = TestDatabase::new().await;
        let broker = database.broker();
        let topic = topic_of_segments(&broker, "orders", 1, 64).await;
        let partition_id = topic.partitions[0];
        (database, broker, partition_id)
    });
    // A failure prints the smallest case that fails.
    let config = Config { cases: 48, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let result = runner.run(&vec(sent(), 1..12), |case| {
        runtime.block_on(round_trip(&broker, partition_id, &case));
        Ok(())
    });
    result.unwrap();
    runtime.block_on(broker.stop());
}

#[tokio::test]
async fn every_fragment_survives_in_every_field_at_once() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let partition_id = topic(&broker, "orders", 1).await.partitions[0];
    let sent: Vec<Sent> = FRAGMENTS
        .iter()
        .map(|fragment| Sent {
            key: Some(fragment.as_bytes().to_vec()),
            transaction_id: Some((*fragment).to_owned()),
            headers: [((*fragment).to_owned(), format!("{fragment}\0"))].into(),
            content_type: Some((*fragment).to_owned()),
            payload: fragment.as_bytes().to_vec(),
        })
        .collect();
    round_trip(&broker, partition_id, &sent).await;
    let stored = all(&broker, partition_id).await;
    assert_eq!(stored.len(), FRAGMENTS.len(), "é and e\u{301} are two ids, as are the others");
    for (one, stored) in sent.iter().zip(&stored) {
        one.assert_is(stored);
    }
    // The tables are all still there.
    assert_eq!(
        database.number("SELECT count(*) FROM laneway.transaction_seen").await,
        FRAGMENTS.len() as i64
    );
}

#[tokio::test]
async fn an_empty_key_and_an_empty_payload_are_not_nothing() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let partition_id = topic(&broker, "orders", 1).await.partitions[0];
    let with = |key: Option<&'static [u8]>| {
        Draft { key: key.map(Bytes::from_static), ..Draft::default() }.check(1).unwrap()
    };
    let messages = vec![with(Some(b"")), with(None)];
    broker.appender.append(Unit { messages, ..unit(partition_id, []) }).await.unwrap();
    let stored = all(&broker, partition_id).await;
    assert_eq!(stored[0].key.as_deref(), Some(&[][..]));
    assert_eq!(stored[1].key, None);
    assert!(stored.iter().all(|message| message.payload.is_empty()));
}
