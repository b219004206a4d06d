//! How long each named query takes, how it fails, and how much is committed. Shared by all connections of a store.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::config::Role;
use super::error::Error;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueryLabel {
    query: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// A count that only grows.
type Count = Counter<u64, AtomicU64>;

/// Time per named query; the number of names is the number of files in `schema/queries` and `schema/templates`.
#[derive(Debug)]
pub struct QueryTimes {
    seconds: Family<QueryLabel, Histogram, fn() -> Histogram>,
    errors: Family<QueryLabel, Count>,
    classes: Family<ClassLabel, Count>,
    commits: Family<KindLabel, Count>,
}

impl QueryTimes {
    pub(super) fn new() -> Self {
        Self {
            seconds: Family::new_with_constructor(histogram),
            errors: Family::default(),
            classes: Family::default(),
            commits: Family::default(),
        }
    }

    pub(super) fn record<T>(&self, name: &'static str, elapsed: Duration, result: &Result<T, Error>) {
        let label = QueryLabel { query: name };
        self.seconds.get_or_create(&label).observe(elapsed.as_secs_f64());
        if let Err(error) = result {
            self.errors.get_or_create(&label).inc();
            self.on_error(error);
        }
    }

    /// A statement, or the way to the database, has failed.
    pub(super) fn on_error(&self, error: &Error) {
        self.classes.get_or_create(&ClassLabel { class: error.kind() }).inc();
    }

    /// A transaction with effect was committed on a connection of a role.
    pub(super) fn on_committed(&self, role: Role) {
        let kind = match role {
            Role::Appender => "flush",
            Role::Pool => "shared",
            Role::Upkeep => "upkeep",
            Role::Heartbeat => "heartbeat",
            Role::Listen => "listen",
        };
        self.commits.get_or_create(&KindLabel { kind }).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        for class in Error::KINDS {
            self.classes.get_or_create(&ClassLabel { class }).inc_by(0); // a rate needs a zero to begin with
        }
        registry.register_with_unit("query", "Time per named query", Unit::Seconds, self.seconds.clone());
        registry.register("query_errors", "Failures per named query", self.errors.clone());
        registry.register("database_errors", "Failures of the database, by class", self.classes.clone());
        registry.register(
            "commits",
            "Transactions with effect that were committed, by kind",
            self.commits.clone(),
        );
    }
}

/// From 50 µs to 1.6 s: a read from memory to a statement that waited.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 16))
}
