//! A trace as frames carry it.

use laneway_client::Cause;
use laneway_client::message::Encoding;
use laneway_client::trace::{Failure, GroupHop, Hop, HopState, Trace};

use super::{PRODUCER, TRACE, cause};

/// Two hops: one that is done, and one that has failed and waits.
pub fn trace() -> Trace {
    let hop = |topic: &str, offset: i64, cause: Option<Cause>, groups: Vec<GroupHop>| Hop {
        topic: topic.into(),
        partition: 7,
        offset,
        key: Some("customer-17".into()),
        key_encoding: Encoding::Text,
        size: 5,
        producer: None,
        transaction_id: None,
        published_at: "2026-11-16T06:41:00.123456Z".into(),
        parent: cause.as_ref().map(|_| 0),
        depth: u32::from(cause.is_some()),
        cause,
        groups,
    };
    let done = GroupHop {
        group: "billing".into(),
        state: HopState::Acked,
        ahead: None,
        delivered_at: Some("2026-11-16T06:41:00.125Z".into()),
        acked_at: Some("2026-11-16T06:41:00.165Z".into()),
        attempts: 1,
        failures: vec![],
        dead_letter: None,
        waiting_us: Some(1_544),
        handling_us: Some(40_000),
    };
    let failure = Failure {
        attempt: 1,
        reason: "the card was declined".into(),
        delivered_at: None,
        failed_at: "2026-11-16T06:41:01Z".into(),
    };
    let retrying = GroupHop {
        state: HopState::Retrying,
        ahead: Some(3),
        delivered_at: None,
        acked_at: None,
        failures: vec![failure],
        waiting_us: None,
        handling_us: None,
        ..done.clone()
    };
    Trace {
        trace_id: TRACE.to_string(),
        hops: vec![hop("orders", 1_042, None, vec![done]), hop("charges", 4, Some(cause()), vec![retrying])],
        critical_path: vec![0, 1],
        waiting_us: 1_544,
        handling_us: 40_000,
        links: vec![PRODUCER.to_string()],
        linked_by: vec![],
        truncated: false,
    }
}
