//! `/v1/schedules`: messages that wait for their time: listed, shown, moved, cancelled.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use laneway_client::TopicName;
use laneway_client::openapi::Position;
use laneway_client::schedule::{MoveSchedule, Schedule, ScheduleList};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::groups::page;
use super::messages::listed;
use super::openapi::{Common, Malformed, NotFound, Unprocessable};
use super::problem::{Body, Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::broker::keys::unopened;
use crate::broker::schedules::ScheduleError;
use crate::broker::schedules::due::{self, DueFault};
use crate::ids::ScheduleId;
use crate::limits::SCHEDULES_PAGE_MAX;
use crate::store::dead_letters::Rest;
use crate::store::schedules;

/// Schedules of one page unless the request says otherwise.
const PAGE_DEFAULT: u32 = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Of this topic only.
    #[param(value_type = TopicName, required = false, example = "orders")]
    topic: Option<String>,
    /// The last id of the page before.
    #[serde(default)]
    #[param(value_type = Position, required = false)]
    after: i64,
    /// At most this many.
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// One page of the messages that wait for their time, in the order in which they were published.
#[utoipa::path(
    get,
    path = "/v1/schedules",
    operation_id = "list_schedules",
    tag = "schedules",
    params(ListQuery),
    responses((status = 200, body = ScheduleList, description = "One page"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<ListQuery>,
) -> Result<Json<ScheduleList>, Failure> {
    let topic = query.topic.map(topic_name).transpose()?;
    let limit = page(query.limit, PAGE_DEFAULT, SCHEDULES_PAGE_MAX)?;
    if query.after < 0 {
        return Err(malformed("after", "after must not be negative"));
    }
    let found = context.broker.list_schedules(topic.as_ref(), ScheduleId(query.after), limit).await?;
    let next = match found.rest {
        Rest::More => found.schedules.last().map(|last| last.id.0),
        Rest::End => None,
    };
    Ok(Json(ScheduleList { schedules: found.schedules.into_iter().map(shown).collect(), next }))
}

/// A message that waits for its time, whole.
#[utoipa::path(
    get,
    path = "/v1/schedules/{id}",
    operation_id = "show_schedule",
    tag = "schedules",
    params(("id" = Position, Path, description = "The number of the schedule", example = 1)),
    responses((status = 200, body = Schedule, description = "The message and its time"), Malformed, NotFound, Common)
)]
pub(super) async fn show(
    State(context): State<Context>,
    Path(id): Path<i64>,
) -> Result<Json<Schedule>, Failure> {
    Ok(Json(shown(context.broker.find_schedule(ScheduleId(id)).await?)))
}

/// Gives a message that waits another time.
#[utoipa::path(
    patch,
    path = "/v1/schedules/{id}",
    operation_id = "move_schedule",
    tag = "schedules",
    params(("id" = Position, Path, description = "The number of the schedule", example = 1)),
    request_body = MoveSchedule,
    responses(
        (status = 200, body = Schedule, description = "The message and its new time"),
        Malformed,
        NotFound,
        Unprocessable,
        Common
    )
)]
pub(super) async fn alter(
    State(context): State<Context>,
    Path(id): Path<i64>,
    Body(to): Body<MoveSchedule>,
) -> Result<Json<Schedule>, Failure> {
    let due = due::due(to.deliver_at.as_deref(), to.delay_ms).map_err(ScheduleError::Due)?;
    let due = due.ok_or(ScheduleError::Due(DueFault::Missing))?;
    Ok(Json(shown(context.broker.move_schedule(ScheduleId(id), due).await?)))
}

/// Cancels a message that waits: it is never appended.
#[utoipa::path(
    delete,
    path = "/v1/schedules/{id}",
    operation_id = "cancel_schedule",
    tag = "schedules",
    params(("id" = Position, Path, description = "The number of the schedule", example = 2)),
    responses((status = 204, description = "It is cancelled"), Malformed, NotFound, Common)
)]
pub(super) async fn cancel(
    State(context): State<Context>,
    Path(id): Path<i64>,
) -> Result<StatusCode, Failure> {
    context.broker.cancel_schedule(ScheduleId(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(schedule: schedules::Schedule) -> Schedule {
    let error = schedule.unopened.as_ref().and_then(unopened);
    let message = listed(&schedule.topic, schedule.partition, schedule.message, error);
    Schedule {
        id: schedule.id.0,
        topic: message.topic,
        partition: message.partition,
        due_at: schedule.due_at.to_string(),
        scheduled_at: schedule.scheduled_at.to_string(),
        trace_id: message.trace_id,
        cause: message.cause,
        key: message.key,
        key_encoding: message.key_encoding,
        transaction_id: message.transaction_id,
        headers: message.headers,
        content_type: message.content_type,
        payload: message.payload,
        encoding: message.encoding,
        error,
    }
}
