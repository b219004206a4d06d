//! A crowd of publishers that keep account of every answer, and the check of what is stored against it.
//!
//! Every value is unique. A unit is three messages to one partition in one request. An answer of class `retry` or
//! `refused` promises that nothing happened; a broken connection or a class `unknown` promises nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use laneway_client::Class;
use laneway_client::message::PublishResponse;
use serde_json::{Value, json};

use crate::web::{Answer, Web, text};

pub const TOPIC: &str = "crowd";
pub const PARTITIONS: u32 = 4;
const UNIT: usize = 3;

/// Whether the messages of a publisher have names by which a second copy is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sends a unit again until it is answered.
    Named,
    /// Sends every unit once.
    Plain,
}

/// What is known about a unit from its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Every answer promised that nothing happened.
    Nothing,
    /// Some answer left it open.
    Unknown,
    /// Acknowledged, with the offset of each message.
    Stored([i64; UNIT]),
}

/// One publisher and everything it has sent.
pub struct Publisher {
    number: usize,
    kind: Kind,
    fates: Vec<Fate>,
}

/// What the publishers of a round share with the test.
#[derive(Clone, Default)]
pub struct Round {
    acknowledged: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Round {
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Tells the publishers to send no further unit.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// What came of one try.
enum Try {
    Answered(Fate),
    /// There is no broker any more.
    BrokerGone,
}

impl Publisher {
    pub fn crowd(size: usize) -> Vec<Self> {
        let kind = |number: usize| if number.is_multiple_of(2) { Kind::Named } else { Kind::Plain };
        (0..size).map(|number| Self { number, kind: kind(number), fates: Vec::new() }).collect()
    }

    fn partition(&self) -> u32 {
        self.number as u32 % PARTITIONS
    }

    fn value(&self, unit: usize, place: usize) -> String {
        format!("{}-{unit}-{place}", self.number)
    }

    fn request(&self, unit: usize) -> Value {
        let message = |place: usize| {
            let value = self.value(unit, place);
            let mut message = json!({"payload": value, "partition": self.partition()});
            if self.kind == Kind::Named {
                message["transaction_id"] = value.into();
            }
            message
        };
        json!({"messages": (0..UNIT).map(message).collect::<Vec<_>>()})
    }

    /// Publishes until the round is over or the broker is gone. A unit that was left open is sent again first.
    pub async fn run(mut self, web: Web, round: Round) -> Self {
        let mut unit = match (self.kind, self.fates.last()) {
            (Kind::Named, Some(Fate::Unknown | Fate::Nothing)) => self.fates.len() - 1,
            _ => self.fates.len(),
        };
        while !round.over.load(Ordering::Relaxed) {
            if self.fates.len() == unit {
                self.fates.push(Fate::Nothing);
            }
            match self.send(&web, unit).await {
                Try::BrokerGone => {
                    self.fates[unit] = Fate::Unknown;
                    return self;
                }
                Try::Answered(fate) => {
                    self.fates[unit] = match (self.fates[unit], fate) {
                        (Fate::Unknown, Fate::Nothing) => Fate::Unknown, // an earlier try is still open
                        (_, fate) => fate,
                    };
                }
            }
            match (self.fates[unit], self.kind) {
                (Fate::Stored(_), _) => {
                    round.acknowledged.fetch_add(1, Ordering::Relaxed);
                    unit += 1;
                }
                (Fate::Nothing | Fate::Unknown, Kind::Plain) => unit += 1,
                (Fate::Nothing | Fate::Unknown, Kind::Named) => {}
            }
        }
        self
    }

    async fn send(&self, web: &Web, unit: usize) -> Try {
        let path = web.url(&format!("/v1/topics/{TOPIC}/messages"));
        let Ok(response) = web.http.post(path).json(&self.request(unit)).send().await else {
            return Try::BrokerGone;
        };
        let status = response.status();
        let Ok(body) = response.bytes().await else { return Try::BrokerGone };
        let answer = Answer {
            status: status.as_u16(),
            content_type: "application/problem+json".into(),
            body: String::from_utf8(body.to_vec()).unwrap(),
        };
        if !status.is_success() {
            return match answer.problem().class {
                Class::Retry => Try::Answered(Fate::Nothing),
                Class::Unknown => Try::Answered(Fate::Unknown),
                Class::Refused | Class::Fatal => panic!("nothing here is to be refused: {answer:?}"),
            };
        }
        let results = answer.json::<PublishResponse>().results;
        let offset = |place: usize| results[place].offset.unwrap_or_else(|| panic!("{answer:?}"));
        Try::Answered(Fate::Stored(std::array::from_fn(offset)))
    }

    pub fn acknowledged(&self) -> usize {
        self.fates.iter().filter(|fate| matches!(fate, Fate::Stored(_))).count()
    }

    /// Whether the broker went while a unit of this publisher was under way.
    pub fn was_cut_short(&self) -> bool {
        self.fates.last() == Some(&Fate::Unknown)
    }

    pub fn in_doubt(&self) -> usize {
        self.fates.iter().filter(|fate| **fate == Fate::Unknown).count()
    }
}

/// Checks everything that is stored against everything that was answered.
pub async fn check(web: &Web, crowd: &[Publisher]) {
    let mut places: HashMap<(u32, String), Vec<i64>> = HashMap::new();
    let mut stored = BTreeMap::new();
    for partition in 0..PARTITIONS {
        let messages = web.all(TOPIC, partition).await;
        let offsets = messages.iter().map(|message| message.offset);
        assert!(offsets.eq(0..messages.len() as i64), "the offsets of partition {partition} have holes");
        for message in &messages {
            places.entry((partition, text(message))).or_default().push(message.offset);
        }
        stored.insert(partition, messages.len());
    }
    let mut accounted = 0;
    for publisher in crowd {
        accounted += check_publisher(publisher, &places);
    }
    assert_eq!(accounted, stored.values().sum::<usize>(), "something is stored that nobody sent");
}

/// Returns how many messages of a publisher are stored.
fn check_publisher(publisher: &Publisher, places: &HashMap<(u32, String), Vec<i64>>) -> usize {
    let mut last = -1;
    let mut stored = 0;
    for (unit, fate) in publisher.fates.iter().enumerate() {
        let found: Vec<i64> = (0..UNIT)
            .filter_map(|place| places.get(&(publisher.partition(), publisher.value(unit, place))))
            .flatten()
            .copied()
            .collect();
        let name = format!("unit {unit} of publisher {} ({:?})", publisher.number, publisher.kind);
        match fate {
            Fate::Stored(offsets) => assert_eq!(found, offsets, "{name} is not where its answer says"),
            Fate::Nothing => {
                assert!(found.is_empty(), "{name} was answered with `nothing happened`: {found:?}")
            }
            Fate::Unknown => {
                assert!(found.is_empty() || found.len() == UNIT, "{name} is stored in part: {found:?}");
            }
        }
        for offset in found {
            assert!(offset > last, "{name} stands before an earlier unit");
            assert!(stored % UNIT == 0 || offset == last + 1, "{name} does not stand together");
            last = offset;
            stored += 1;
        }
    }
    stored
}
