//! Producers that remember what they were told, and the comparison with what is stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use laneway::broker::Broker;
use laneway::broker::appender::{AppendError, AppendResult};
use laneway::ids::{Offset, PartitionId, ProducerId};
use uuid::Uuid;

use crate::harness::produce::{self, all, texts, unit};

/// What a producer was told about one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Stored, from this offset on.
    Stored(Offset),
    /// It may have been stored.
    Unknown,
    /// Certainly not stored.
    Nothing,
}

impl Told {
    /// Asserts that an error is one that a lost database may lead to.
    pub fn of(result: &AppendResult) -> Self {
        match result {
            Ok(receipt) => Told::Stored(receipt.first_offset.unwrap()),
            Err(AppendError::OutcomeUnknown { .. }) => Told::Unknown,
            Err(AppendError::Unavailable { .. } | AppendError::Overloaded) => Told::Nothing,
            Err(error) => panic!("{error:?} is not an answer to a lost database"),
        }
    }
}

/// Publishes unnumbered units of three messages until told to stop. Returns what it was told about each.
pub async fn publish_plainly(
    broker: Broker,
    partition_id: PartitionId,
    name: String,
    enough: Arc<AtomicBool>,
) -> Vec<(String, Told)> {
    let mut told = Vec::new();
    while !enough.load(Ordering::Relaxed) {
        let text = format!("{name}:{}", told.len());
        let unit = unit(partition_id, (0..3).map(|place| format!("{text}:{place}")));
        let answer = Told::of(&broker.appender.append(unit).await);
        told.push((text, answer));
        tokio::task::yield_now().await; // an answer can come at once while the database is away
    }
    told
}

/// Asserts that a partition holds exactly what its producers may expect.
pub async fn assert_kept(broker: &Broker, partition_id: PartitionId, told: &[(String, Told)]) {
    let stored = all(broker, partition_id).await;
    assert!(stored.iter().enumerate().all(|(place, message)| message.offset == Offset(place as i64)));
    let texts = texts(&stored);
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, text) in texts.iter().enumerate() {
        places.entry(text.rsplit_once(':').unwrap().0).or_default().push(place);
    }
    for (text, told) in told {
        let found = places.remove(text.as_str()).unwrap_or_default();
        let whole = found.len() == 3 && found[2] == found[0] + 2;
        match told {
            Told::Stored(offset) => {
                assert!(whole && found[0] as i64 == offset.0, "{text} at {offset} is stored at {found:?}");
            }
            Told::Unknown => assert!(found.is_empty() || whole, "{text} is stored in part: {found:?}"),
            Told::Nothing => assert!(found.is_empty(), "{text} was refused and is stored"),
        }
    }
    assert!(places.is_empty(), "nobody published {places:?}");
}

/// A producer that numbers its units and repeats whatever was not confirmed, until told to stop.
pub struct Numbered {
    /// Units that were confirmed.
    pub confirmed: usize,
    /// Answers that the outcome is unknown; the broker should hardly ever have to say so.
    pub unknown: usize,
}

pub async fn publish_numbered(
    broker: Broker,
    partition_id: PartitionId,
    name: String,
    enough: Arc<AtomicBool>,
) -> Numbered {
    let producer = ProducerId(Uuid::new_v4());
    let mut counts = Numbered { confirmed: 0, unknown: 0 };
    while !enough.load(Ordering::Relaxed) {
        let first = counts.confirmed * 3;
        let texts = (first..first + 3).map(|number| format!("{name}:{number}"));
        let unit = produce::numbered(partition_id, producer, first as i64, texts);
        match broker.appender.append(unit).await {
            Ok(_) => counts.confirmed += 1,
            Err(AppendError::OutcomeUnknown { .. }) => counts.unknown += 1,
            Err(AppendError::Unavailable { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error:?} is not an answer to a lost database"),
        }
    }
    counts
}

/// Asserts that everything confirmed is there once, in order, and at most the last unit beyond it.
pub async fn assert_in_order(broker: &Broker, partition_id: PartitionId, name: &str, confirmed: usize) {
    let stored = texts(&all(broker, partition_id).await);
    let theirs: Vec<&String> = stored.iter().filter(|text| text.starts_with(&format!("{name}:"))).collect();
    let expected: Vec<String> = (0..theirs.len()).map(|number| format!("{name}:{number}")).collect();
    assert!(theirs.iter().copied().eq(&expected), "{name} is not stored once and in order");
    let units = theirs.len() / 3;
    assert_eq!(theirs.len() % 3, 0, "units are whole");
    assert!((confirmed..=confirmed + 1).contains(&units), "{confirmed} confirmed, {units} stored");
}
