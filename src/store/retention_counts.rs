//! What this broker has let go: segments with their messages and bytes, by reason, and groups that nobody used.
//!
//! Counted after the commit that let them go, by the broker that committed it, so that a sum over brokers is right.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::retention_history::DropReason;

type Count = Counter<u64, AtomicU64>;

/// Why something was let go.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// What went at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LetGo {
    pub segments: u64,
    pub messages: u64,
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct RetentionCounts {
    segments: Family<Reason, Count>,
    messages: Family<Reason, Count>,
    bytes: Family<Reason, Count>,
    pub groups: Count,
}

impl RetentionCounts {
    pub fn on_let_go(&self, reason: DropReason, gone: LetGo) {
        let reason = Reason { reason: reason.as_str() };
        self.segments.get_or_create(&reason).inc_by(gone.segments);
        self.messages.get_or_create(&reason).inc_by(gone.messages);
        self.bytes.get_or_create(&reason).inc_by(gone.bytes);
    }

    pub fn register(&self, registry: &mut Registry) {
        for reason in DropReason::ALL {
            self.on_let_go(reason, LetGo { segments: 0, messages: 0, bytes: 0 }); // a rate needs a zero to begin with
        }
        let (segments, messages, bytes) = (self.segments.clone(), self.messages.clone(), self.bytes.clone());
        registry.register("retention_segments", "Segments that were let go, by reason", segments);
        registry.register("retention_messages", "Messages that were let go, by reason", messages);
        registry.register("retention_bytes", "Bytes of those messages", bytes);
        registry.register("groups_expired", "Groups deleted because nobody used them", self.groups.clone());
    }
}
