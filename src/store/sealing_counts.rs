//! What the vault counts: payloads sealed and opened, data keys made, and what went wrong.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

type Count = Counter<u64, AtomicU64>;

/// Why something was not sealed or opened, as a stable word.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Every reason, for metrics that begin at zero.
const REASONS: [&str; 3] = ["key_missing", "not_authentic", "exhausted"];

#[derive(Debug, Default)]
pub(super) struct SealingCounts {
    pub sealed: Count,
    pub opened: Count,
    pub data_keys: Count,
    failures: Family<Reason, Count>,
}

impl SealingCounts {
    /// Other failures are the database's, and counted there.
    pub fn failed(&self, reason: &'static str) {
        if REASONS.contains(&reason) {
            self.failures.get_or_create(&Reason { reason }).inc();
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        for reason in REASONS {
            drop(self.failures.get_or_create(&Reason { reason }));
        }
        registry.register("sealed_payloads", "Payloads sealed before they were stored", self.sealed.clone());
        registry.register(
            "opened_payloads",
            "Sealed payloads that were read and opened",
            self.opened.clone(),
        );
        registry.register("data_keys_made", "Data keys made", self.data_keys.clone());
        let failures = self.failures.clone();
        registry.register(
            "encryption_failures",
            "Payloads that could not be sealed or opened, by reason",
            failures,
        );
    }
}
