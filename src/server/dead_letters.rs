//! `/v1/dead-letters`: listed, shown, published again, dropped.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use laneway_client::dead_letter::{DeadLetter, DeadLetterList, Replayed};
use laneway_client::openapi::Position;
use laneway_client::{ErrorCode, GroupName, Problem, TopicName};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::groups::{group_name, page};
use super::messages::listed;
use super::openapi::{Common, Conflict, Full, Malformed, NotFound, Unprocessable};
use super::problem::{Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::broker::dead_letters::DeadLetterError;
use crate::broker::keys::unopened;
use crate::ids::DeadLetterId;
use crate::limits::DEAD_LETTERS_PAGE_MAX;
use crate::store::dead_letters::{self, Rest};

/// Dead letters of one page unless the request says otherwise.
const PAGE_DEFAULT: u32 = 100;

impl From<DeadLetterError> for Failure {
    fn from(error: DeadLetterError) -> Self {
        let detail = error.to_string();
        match error {
            DeadLetterError::Unknown { .. } => {
                Self::from(Problem::new(ErrorCode::UnknownDeadLetter, detail).with_field("id"))
            }
            DeadLetterError::TopicPaused { .. } => Self::from(Problem::new(ErrorCode::TopicPaused, detail)),
            DeadLetterError::Publish(error) => error.into(),
            DeadLetterError::Topic(error) => error.into(),
            DeadLetterError::Store(error) => error.into(),
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

/// One page of dead letters, oldest first.
#[utoipa::path(
    get,
    path = "/v1/dead-letters",
    operation_id = "list_dead_letters",
    tag = "dead letters",
    params(ListQuery),
    responses((status = 200, body = DeadLetterList, description = "One page"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<ListQuery>,
) -> Result<Json<DeadLetterList>, Failure> {
    let topic = query.topic.map(topic_name).transpose()?;
    let group = query.group.map(group_name).transpose()?;
    let limit = page(query.limit, PAGE_DEFAULT, DEAD_LETTERS_PAGE_MAX)?;
    if query.after < 0 {
        return Err(malformed("after", "after must not be negative"));
    }
    let after = DeadLetterId(query.after);
    let found = context.broker.list_dead_letters(topic.as_ref(), group.as_ref(), after, limit).await?;
    let next = match found.rest {
        Rest::More => found.dead_letters.last().map(|last| last.id.0),
        Rest::End => None,
    };
    Ok(Json(DeadLetterList { dead_letters: found.dead_letters.into_iter().map(shown).collect(), next }))
}

/// A dead letter, whole.
#[utoipa::path(
    get,
    path = "/v1/dead-letters/{id}",
    operation_id = "show_dead_letter",
    tag = "dead letters",
    params(("id" = Position, Path, description = "The number of the dead letter", example = 1)),
    responses((status = 200, body = DeadLetter, description = "The dead letter"), Malformed, NotFound, Common)
)]
pub(super) async fn show(
    State(context): State<Context>,
    Path(id): Path<i64>,
) -> Result<Json<DeadLetter>, Failure> {
    Ok(Json(shown(context.broker.find_dead_letter(DeadLetterId(id)).await?)))
}

/// Publishes a dead letter to its partition again; it ends with that.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/{id}/replay",
    operation_id = "replay_dead_letter",
    tag = "dead letters",
    params(("id" = Position, Path, description = "The number of the dead letter", example = 2)),
    responses((status = 200, body = Replayed, description = "Where it stands now"), Malformed, NotFound, Conflict, Full, Common)
)]
pub(super) async fn replay(
    State(context): State<Context>,
    Path(id): Path<i64>,
) -> Result<Json<Replayed>, Failure> {
    let replayed = context.broker.replay_dead_letter(DeadLetterId(id)).await?;
    Ok(Json(Replayed { partition: replayed.partition, offset: replayed.offset.0 }))
}

/// Drops a dead letter for good.
#[utoipa::path(
    delete,
    path = "/v1/dead-letters/{id}",
    operation_id = "delete_dead_letter",
    tag = "dead letters",
    params(("id" = Position, Path, description = "The number of the dead letter", example = 3)),
    responses((status = 204, description = "It is gone"), Malformed, NotFound, Common)
)]
pub(super) async fn delete(
    State(context): State<Context>,
    Path(id): Path<i64>,
) -> Result<StatusCode, Failure> {
    context.broker.delete_dead_letter(DeadLetterId(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn shown(dead_letter: dead_letters::DeadLetter) -> DeadLetter {
    let error = dead_letter.unopened.as_ref().and_then(unopened);
    let message = listed(&dead_letter.topic, dead_letter.partition, dead_letter.message, error);
    DeadLetter {
        id: dead_letter.id.0,
        topic: message.topic,
        partition: message.partition,
        offset: message.offset,
        group: dead_letter.group,
        attempts: dead_letter.attempts,
        reason: dead_letter.reason,
        dead_at: dead_letter.dead_at.to_string(),
        cause: message.cause,
        published_at: message.published_at,
        trace_id: message.trace_id,
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
