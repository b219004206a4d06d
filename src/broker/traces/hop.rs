//! One message as one group sees it: what has become of it, when, and how long that took. Pure.

use jiff::Timestamp;
use laneway_client::trace::{Failure, GroupHop, HopState};

use super::moment;
use crate::store::traces::{FailureOutcome, TracedFailure, TracedGroup};

/// When a group had a message. In microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub delivered_us: Option<i64>,
    /// When something happened last.
    pub ended_us: i64,
    pub waiting_us: Option<i64>,
    pub handling_us: Option<i64>,
}

impl Span {
    /// Whether the group had the message in its hands at that moment.
    pub fn holds(&self, at_us: i64) -> bool {
        self.delivered_us.is_some_and(|delivered| delivered <= at_us) && at_us <= self.ended_us
    }
}

/// What the tables say about a message in a group, as people read it.
pub fn group_hop(published_at: Timestamp, group: TracedGroup) -> (GroupHop, Span) {
    let state = state(&group);
    let published_us = published_at.as_microsecond();
    let last_failure = group.failures.last();
    let us = |at: Option<Timestamp>| at.map(Timestamp::as_microsecond);
    let acked_us = us(group.acked_at).filter(|_| state == HopState::Acked);
    let delivered_us =
        us(group.delivered_at).or_else(|| last_failure.and_then(|failure| failure.delivered_us));
    let first_us = group.failures.iter().filter_map(|failure| failure.delivered_us).chain(delivered_us).min();
    let waiting_us = first_us.map(|first| (first - published_us).max(0));
    let handling_us = acked_us.zip(delivered_us).map(|(acked, delivered)| (acked - delivered).max(0));
    let failed = last_failure.map(|failure| failure.failed_us);
    let ended_us = [acked_us, failed, delivered_us].into_iter().flatten().max().unwrap_or(published_us);
    let known = group.failures.iter().map(|failure| failure.attempt).max().unwrap_or_default();
    let hop = GroupHop {
        group: group.group,
        state,
        ahead: matches!(state, HopState::Waiting | HopState::Retrying).then_some(group.ahead),
        delivered_at: delivered_us.and_then(moment),
        acked_at: acked_us.and_then(moment),
        attempts: known.max(group.attempts) + u32::from(state == HopState::Acked),
        failures: group.failures.into_iter().filter_map(failure).collect(),
        dead_letter: group.dead_letter_id.map(|id| id.0),
        waiting_us,
        handling_us,
    };
    (hop, Span { delivered_us: first_us, ended_us, waiting_us, handling_us })
}

/// A dead letter may have been published again since, and a group may have been moved back: what is not done is not over.
fn state(group: &TracedGroup) -> HopState {
    let outcome = group.failures.last().map(|failure| failure.outcome);
    match (group.is_done, outcome) {
        (true, Some(FailureOutcome::DeadLetter)) => HopState::DeadLettered,
        (true, Some(FailureOutcome::Skip)) => HopState::Skipped,
        (true, Some(FailureOutcome::Evicted)) => HopState::Evicted,
        (true, Some(FailureOutcome::Drop)) => HopState::Dropped,
        (true, _) if group.is_parked => HopState::Parked,
        (true, _) if group.dead_letter_id.is_some() => HopState::DeadLettered,
        (true, _) => HopState::Acked,
        (false, _) if group.attempts > 0 => HopState::Retrying,
        (false, _) => HopState::Waiting,
    }
}

fn failure(failure: TracedFailure) -> Option<Failure> {
    Some(Failure {
        attempt: failure.attempt,
        reason: failure.reason,
        delivered_at: failure.delivered_us.and_then(moment),
        failed_at: moment(failure.failed_us)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: i64) -> Timestamp {
        Timestamp::from_microsecond(us).unwrap()
    }

    fn group(is_done: bool) -> TracedGroup {
        TracedGroup {
            place: 0,
            group: "billing".into(),
            is_done,
            ahead: 7,
            delivered_at: None,
            acked_at: None,
            attempts: 0,
            failures: vec![],
            dead_letter_id: None,
            is_parked: false,
        }
    }

    fn failed(attempt: u32, outcome: FailureOutcome) -> TracedFailure {
        let delivered_us = Some(i64::from(attempt) * 1_000);
        TracedFailure {
            attempt,
            outcome,
            reason: "no".into(),
            delivered_us,
            failed_us: i64::from(attempt) * 1_000 + 10,
        }
    }

    #[test]
    fn what_waits_says_how_many_are_ahead() {
        let (hop, span) = group_hop(at(100), group(false));
        assert_eq!((hop.state, hop.ahead, hop.attempts), (HopState::Waiting, Some(7), 0));
        assert_eq!((hop.waiting_us, hop.handling_us, span.ended_us), (None, None, 100));
    }

    #[test]
    fn what_failed_and_then_succeeded_has_waited_until_its_first_delivery() {
        let failures = vec![failed(1, FailureOutcome::Retry), failed(2, FailureOutcome::Retry)];
        let times = (Some(at(5_000)), Some(at(5_300)));
        let done = TracedGroup { failures, delivered_at: times.0, acked_at: times.1, ..group(true) };
        let (hop, span) = group_hop(at(100), done);
        assert_eq!((hop.state, hop.ahead, hop.attempts), (HopState::Acked, None, 3));
        assert_eq!((hop.waiting_us, hop.handling_us), (Some(900), Some(300)));
        assert!(span.holds(1_000) && span.holds(5_300) && !span.holds(999) && !span.holds(5_301));
        assert_eq!(hop.failures.len(), 2);
    }

    #[test]
    fn what_was_given_up_says_how() {
        let dead = TracedGroup { failures: vec![failed(1, FailureOutcome::DeadLetter)], ..group(true) };
        assert_eq!(group_hop(at(0), dead).0.state, HopState::DeadLettered);
        let left_out = TracedGroup { failures: vec![failed(1, FailureOutcome::Skip)], ..group(true) };
        assert_eq!(group_hop(at(0), left_out).0.state, HopState::Skipped);
        let evicted = TracedGroup { failures: vec![failed(0, FailureOutcome::Evicted)], ..group(true) };
        let (hop, _) = group_hop(at(0), evicted);
        assert_eq!((hop.state, hop.attempts), (HopState::Evicted, 0));
        let retried =
            TracedGroup { attempts: 1, failures: vec![failed(1, FailureOutcome::Retry)], ..group(false) };
        let (hop, _) = group_hop(at(0), retried);
        assert_eq!((hop.state, hop.attempts), (HopState::Retrying, 1));
        let parked =
            TracedGroup { is_parked: true, failures: vec![failed(1, FailureOutcome::Park)], ..group(true) };
        assert_eq!(group_hop(at(0), parked).0.state, HopState::Parked);
        let released = TracedGroup { failures: vec![failed(1, FailureOutcome::Park)], ..group(true) };
        assert_eq!(group_hop(at(0), released).0.state, HopState::Acked, "its copy was delivered and is done");
        let dropped = TracedGroup { failures: vec![failed(1, FailureOutcome::Drop)], ..group(true) };
        assert_eq!(group_hop(at(0), dropped).0.state, HopState::Dropped);
        // The failures are forgotten, the dead letter is not.
        let dead = TracedGroup { dead_letter_id: Some(crate::ids::DeadLetterId(3)), ..group(true) };
        assert_eq!(group_hop(at(0), dead).0.dead_letter, Some(3));
    }
}
