//! How full a topic is, and `/v1/topics/{topic}/retention`: what was dropped of it, when and why.

use axum::Json;
use axum::extract::State;
use laneway_client::TopicName;
use laneway_client::capacity::{self as wire, RetentionHistory};
use laneway_client::openapi::Position;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::groups::page;
use super::openapi::{Common, Malformed, NotFound, Unprocessable};
use super::problem::{Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::limits::RETENTION_EVENTS_PAGE_MAX;
use crate::store::capacity::{GroupDepth, TopicDepth};
use crate::store::groups::GroupCapacity;
use crate::store::retention_history::{DropReason, Dropped, RetentionEvent};
use crate::store::topics::Topic;

/// Events of one page unless the request says otherwise.
const PAGE_DEFAULT: u32 = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Only what is older than this event, as `next` of the page before has it.
    #[param(value_type = Position, required = false)]
    before: Option<i64>,
    /// At most this many.
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// What retention has dropped of a topic, newest first.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/retention",
    operation_id = "show_retention",
    tag = "topics",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), HistoryQuery),
    responses((status = 200, body = RetentionHistory, description = "One page"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn history(
    State(context): State<Context>,
    Path(topic): Path<String>,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<RetentionHistory>, Failure> {
    let topic = topic_name(topic)?;
    let limit = page(query.limit, PAGE_DEFAULT, RETENTION_EVENTS_PAGE_MAX)?;
    if query.before.is_some_and(|before| before < 0) {
        return Err(malformed(
            "before",
            "before is the number of an event, as `next` of the page before has it",
        ));
    }
    let topic_id = context.broker.topics.find(&topic).await?.topic_id;
    let mut found = context.broker.store.retention_events_list(topic_id, query.before, limit + 1).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| more).map(|last| last.event_id);
    Ok(Json(RetentionHistory { events: found.into_iter().map(event).collect(), next }))
}

fn event(event: RetentionEvent) -> wire::RetentionEvent {
    let RetentionEvent { event_id, dropped_at, dropped } = event;
    let mut told = wire::RetentionEvent {
        id: event_id,
        dropped_at: dropped_at.to_string(),
        reason: wire::DropReason::Inactive,
        partition: None,
        from_offset: None,
        to_offset: None,
        bytes: None,
        group: None,
    };
    match dropped {
        Dropped::Group { name } => told.group = Some(name),
        Dropped::Segment { reason, partition, from, to, bytes } => {
            told.reason = match reason {
                DropReason::Age => wire::DropReason::Age,
                DropReason::Bytes => wire::DropReason::Bytes,
                DropReason::Completed => wire::DropReason::Completed,
                DropReason::Purged => wire::DropReason::Purged,
            };
            told.partition = Some(partition);
            (told.from_offset, told.to_offset) = (Some(from.0), Some(to.0));
            told.bytes = Some(bytes.max(0));
        }
    }
    told
}

/// As operators are told it.
pub(super) fn depth(topic: &Topic, depth: &TopicDepth) -> wire::TopicDepth {
    let is_counted = |group: &GroupDepth| group.capacity == GroupCapacity::Counted;
    let most = |of: fn(&GroupDepth) -> i64| {
        depth.groups.iter().filter(|group| is_counted(group)).map(of).max().unwrap_or(0).max(0) as u64
    };
    let name = |group: &GroupDepth| group.name.clone();
    let waits = topic.settings.retention_completed.and_then(|_| depth.slowest(|_| true)).map(name);
    wire::TopicDepth {
        stored_bytes: depth.stored_bytes.max(0) as u64,
        backlog_messages: most(|group| group.messages),
        backlog_bytes: most(|group| group.bytes),
        slowest_group: depth.slowest(is_counted).map(name),
        retention_waits_for: waits,
    }
}
