//! What a session answers to what it may not do: one error frame each.

use laneway_client::ErrorCode;
use laneway_client::wire::{BrokerFrame, ErrorFrame};

use super::state::Action;
use crate::limits::{PUBLISHES_IN_FLIGHT_MAX, SUBSCRIPTIONS_MAX};

pub(super) fn refuse(code: ErrorCode, id: Option<u64>, field: &str, detail: &str) -> Vec<Action> {
    let error = ErrorFrame { id, field: Some(field.to_owned()), ..ErrorFrame::new(code, detail) };
    vec![Action::Send(BrokerFrame::Error(Box::new(error)))]
}

pub(super) fn too_many_publishes(id: u64) -> Vec<Action> {
    let detail = format!("{PUBLISHES_IN_FLIGHT_MAX} publishes wait for their answers already");
    refuse(ErrorCode::TooManyPublishes, Some(id), "id", &detail)
}

pub(super) fn too_many_subscriptions(id: u64) -> Vec<Action> {
    let detail = format!("a session has at most {SUBSCRIPTIONS_MAX} subscriptions, tails counted");
    refuse(ErrorCode::TooManySubscriptions, Some(id), "type", &detail)
}

/// A tail holds no lane, whatever its batches say.
pub(super) fn no_lease(id: Option<u64>, number: u32, partition: u32) -> Vec<Action> {
    let detail = format!("subscription {number} is a tail: nothing of it is acknowledged");
    let error = ErrorFrame {
        id,
        field: Some("subscription".to_owned()),
        subscription: Some(number),
        partition: Some(partition),
        ..ErrorFrame::new(ErrorCode::LeaseLost, detail)
    };
    vec![Action::Send(BrokerFrame::Error(Box::new(error)))]
}

pub(super) fn unknown_subscription(id: Option<u64>, number: u32) -> Vec<Action> {
    let detail = format!("this session has no subscription {number} of that kind");
    let error = ErrorFrame {
        id,
        field: Some("subscription".to_owned()),
        subscription: Some(number),
        ..ErrorFrame::new(ErrorCode::UnknownSubscription, detail)
    };
    vec![Action::Send(BrokerFrame::Error(Box::new(error)))]
}
