//! `/v1/parked`: keys that groups have parked: listed, shown, replayed, dropped.

use axum::Json;
use axum::extract::State;
use laneway_client::message::Encoding;
use laneway_client::openapi::Position;
use laneway_client::parked::{ParkedKey, ParkedList, ParkedMessage, ParkedState};
use laneway_client::{ErrorCode, GroupName, Problem, TopicName};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::groups::{group_name, page};
use super::messages::listed;
use super::openapi::{Common, Conflict, Malformed, NotFound, Unprocessable};
use super::problem::{Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::broker::keys::unopened;
use crate::broker::parked::ParkedError;
use crate::ids::ParkedId;
use crate::limits::PARKED_PAGE_MAX;
use crate::store::parked::{self, LetGo};

/// Parked keys of one page unless the request says otherwise.
const PAGE_DEFAULT: u32 = 100;

impl From<ParkedError> for Failure {
    fn from(error: ParkedError) -> Self {
        let detail = error.to_string();
        match error {
            ParkedError::Unknown { .. } => {
                Self::from(Problem::new(ErrorCode::UnknownParked, detail).with_field("id"))
            }
            ParkedError::Released { .. } => {
                Self::from(Problem::new(ErrorCode::AlreadyReleased, detail).with_field("id"))
            }
            ParkedError::Topic(error) => error.into(),
            ParkedError::Read(error) => error.into(),
            ParkedError::Store(error) => error.into(),
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Of this topic only.
    #[param(value_type = TopicName, required = false, example = "orders")]
    topic: Option<String>,
    /// Of groups of this name only.
    #[param(value_type = GroupName, required = false, example = "billing")]
    group: Option<String>,
    /// The last id of the page before.
    #[serde(default)]
    #[param(value_type = Position, required = false)]
    after: i64,
    /// At most this many.
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// One page of parked keys, oldest first, each with the message that it failed at.
#[utoipa::path(
    get,
    path = "/v1/parked",
    operation_id = "list_parked",
    tag = "parked keys",
    params(ListQuery),
    responses((status = 200, body = ParkedList, description = "One page"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<ListQuery>,
) -> Result<Json<ParkedList>, Failure> {
    let topic = query.topic.map(topic_name).transpose()?;
    let group = query.group.map(group_name).transpose()?;
    let limit = page(query.limit, PAGE_DEFAULT, PARKED_PAGE_MAX)?;
    if query.after < 0 {
        return Err(malformed("after", "after must not be negative"));
    }
    let found =
        context.broker.list_parked(topic.as_ref(), group.as_ref(), ParkedId(query.after), limit).await?;
    let next = (found.len() == limit as usize).then(|| found.last().map(|last| last.id.0)).flatten();
    Ok(Json(ParkedList { parked: found.into_iter().map(shown).collect(), next }))
}

/// A parked key with the message that it failed at, whole.
#[utoipa::path(
    get,
    path = "/v1/parked/{id}",
    operation_id = "show_parked",
    tag = "parked keys",
    params(("id" = Position, Path, description = "The number of the parked key", example = 1)),
    responses((status = 200, body = ParkedKey, description = "The parked key"), Malformed, NotFound, Common)
)]
pub(super) async fn show(
    State(context): State<Context>,
    Path(id): Path<i64>,
) -> Result<Json<ParkedKey>, Failure> {
    Ok(Json(shown(context.broker.find_parked(ParkedId(id)).await?)))
}

/// Releases a parked key: its messages are delivered again, in order, and those behind them after them.
#[utoipa::path(
    post,
    path = "/v1/parked/{id}/replay",
    operation_id = "replay_parked",
    tag = "parked keys",
    params(("id" = Position, Path, description = "The number of the parked key", example = 2)),
    responses((status = 200, body = ParkedKey, description = "The key as it was"), Malformed, NotFound, Conflict, Common)
)]
pub(super) async fn replay(
    State(context): State<Context>,
    Path(id): Path<i64>,
) -> Result<Json<ParkedKey>, Failure> {
    Ok(Json(shown(context.broker.release_parked(ParkedId(id), LetGo::Replay).await?)))
}

/// Drops the message that a parked key failed at for good, and releases the key: the others are delivered, in order.
#[utoipa::path(
    post,
    path = "/v1/parked/{id}/drop",
    operation_id = "drop_parked",
    tag = "parked keys",
    params(("id" = Position, Path, description = "The number of the parked key", example = 3)),
    responses((status = 200, body = ParkedKey, description = "The key as it was"), Malformed, NotFound, Conflict, Common)
)]
pub(super) async fn drop_failed(
    State(context): State<Context>,
    Path(id): Path<i64>,
) -> Result<Json<ParkedKey>, Failure> {
    Ok(Json(shown(context.broker.release_parked(ParkedId(id), LetGo::DropFailed).await?)))
}

fn shown(key: parked::ParkedKey) -> ParkedKey {
    let name = key.key.as_ref().map(|name| Encoding::encode(name, None));
    ParkedKey {
        id: key.id.0,
        first: key.first.map(|first| {
            let error = first.unopened.as_ref().and_then(unopened);
            ParkedMessage {
                attempts: first.attempts,
                reason: first.reason,
                message: listed(&key.topic, key.partition, first.message, error),
                error,
            }
        }),
        topic: key.topic,
        group: key.group,
        partition: key.partition,
        key_encoding: name.as_ref().map(|(encoding, _)| *encoding).unwrap_or_default(),
        key: name.map(|(_, name)| name),
        state: if key.released { ParkedState::Released } else { ParkedState::Parked },
        messages: key.messages,
        parked_at: key.parked_at.to_string(),
    }
}
