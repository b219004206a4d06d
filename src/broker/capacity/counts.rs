//! What is counted about topics with limits, for `/metrics`.
//!
//! Cardinality: only topics with limits that this broker was asked to publish to lately have series, and at most
//! [`CAPACITY_TOPICS_MAX`] of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::gauge::Reading;
use crate::broker::metrics::Count;
use crate::limits::CAPACITY_TOPICS_MAX;

/// What is told of a reading.
type Value = fn(&Reading) -> u64;

/// A topic and one of its limits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    topic: String,
    limit: &'static str,
}

/// Which way a mark was passed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Direction {
    pub direction: &'static str,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Counts {
    pub refusals: Count,
    pub crossings: Family<Direction, Count>,
    pub depths: Depths,
}

impl Counts {
    pub fn on_crossing(&self, direction: &'static str) {
        self.crossings.get_or_create(&Direction { direction }).inc();
    }

    pub fn register(&self, registry: &mut Registry) {
        for direction in ["nearly_full", "room_again"] {
            self.crossings.get_or_create(&Direction { direction }).inc_by(0); // a rate needs a zero to begin with
        }
        registry.register(
            "topic_full_refusals",
            "Publishes and steps refused because a topic was full",
            self.refusals.clone(),
        );
        registry.register(
            "topic_full_crossings",
            "Times a topic was nearly full, or had room again",
            self.crossings.clone(),
        );
        registry.register_collector(Box::new(self.depths.clone()));
    }
}

/// The newest readings, by topic. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Depths {
    topics: Arc<Mutex<BTreeMap<String, Vec<Reading>>>>,
}

impl Depths {
    /// Replaces what is told of a topic.
    pub fn set(&self, topic: &str, readings: Vec<Reading>) {
        let mut topics = self.topics.lock();
        if topics.len() < CAPACITY_TOPICS_MAX || topics.contains_key(topic) {
            topics.insert(topic.to_owned(), readings);
        }
    }

    /// Nothing is told of it any more: an old number would look like a new one.
    pub fn forget(&self, topic: &str) {
        self.topics.lock().remove(topic);
    }
}

impl Collector for Depths {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let topics = self.topics.lock().clone();
        let told: [(&str, &str, Value); 2] = [
            ("topic_depth", "How much a topic holds of what is limited", |reading| reading.depth),
            ("topic_limit", "How much of it a topic may hold", |reading| reading.limit),
        ];
        for (name, help, value) in told {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (topic, reading) in topics
                .iter()
                .flat_map(|(topic, readings)| readings.iter().map(move |reading| (topic, reading)))
            {
                let labels = LimitLabels { topic: topic.clone(), limit: reading.limited.as_str() };
                let sample = ConstGauge::new(i64::try_from(value(reading)).unwrap_or(i64::MAX));
                sample.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
