//! How long each named query takes and how often it fails. Shared by all connections of a store.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueryLabel {
    query: &'static str,
}

/// Time per named query; the number of names is the number of files in `schema/queries` and `schema/templates`.
#[derive(Debug)]
pub struct QueryTimes {
    seconds: Family<QueryLabel, Histogram, fn() -> Histogram>,
    errors: Family<QueryLabel, Counter<u64, AtomicU64>>,
}

impl QueryTimes {
    pub(super) fn new() -> Self {
        Self { seconds: Family::new_with_constructor(histogram), errors: Family::default() }
    }

    pub(super) fn record(&self, name: &'static str, elapsed: Duration, succeeded: bool) {
        let label = QueryLabel { query: name };
        self.seconds.get_or_create(&label).observe(elapsed.as_secs_f64());
        if !succeeded {
            self.errors.get_or_create(&label).inc();
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit("query", "Time per named query", Unit::Seconds, self.seconds.clone());
        registry.register("query_errors", "Failures per named query", self.errors.clone());
    }
}

/// From 50 µs to 1.6 s: a read from memory to a statement that waited.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 16))
}
