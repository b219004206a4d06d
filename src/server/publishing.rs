//! Publishing over HTTP: many messages at once, or one.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use laneway_client::message::{PublishMessage, PublishRequest, PublishResponse, PublishResult};
use laneway_client::wire::bounds::PUBLISH_WAIT_MS_MAX;
use laneway_client::{ErrorCode, NewMessage, Problem, TopicName};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::Context;
use super::openapi::{Common, Conflict, Full, Malformed, NotFound, Unprocessable};
use super::problem::{Body, Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::broker::publish::{Addressed, Placed, PublishError, Published};
use crate::ids::ProducerId;

/// Publishes messages; those of one partition are stored all or none.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/messages",
    operation_id = "publish_messages",
    tag = "messages",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders")),
    request_body = PublishRequest,
    responses((status = 200, body = PublishResponse, description = "What became of each message, in their order"), Malformed, NotFound, Conflict, Full, Unprocessable, Common)
)]
pub(super) async fn publish(
    State(context): State<Context>,
    Path(topic): Path<String>,
    Body(request): Body<PublishRequest>,
) -> Result<Json<PublishResponse>, Failure> {
    let topic = topic_name(topic)?;
    let drafts: Result<Vec<_>, Failure> = request
        .messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| draft(message, &format!("messages[{index}].")))
        .collect();
    let producer_id = request.producer_id.map(ProducerId);
    let wait = wait(request.wait_ms)?;
    let published = context.broker.publisher.publish_patiently(&topic, producer_id, drafts?, wait).await?;
    // One partition, one fate: its error is the answer. Several: each message carries its own.
    if let [first, rest @ ..] = published.as_slice()
        && let Err(error) = &first.result
        && rest.iter().all(|other| other.result == first.result)
    {
        return Err(error.clone().into());
    }
    Ok(Json(PublishResponse { results: published.into_iter().map(result).collect() }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct OneQuery {
    /// A UUID of the producer's own making, for a message with a `sequence`.
    #[param(value_type = Uuid, required = false)]
    producer_id: Option<Uuid>,
    /// How long it may wait for room in a topic that is full; without it, it is refused at once.
    #[param(value_type = u64, required = false, maximum = 20000)]
    wait_ms: Option<u64>,
}

/// How long a publish may wait.
fn wait(wait_ms: Option<u64>) -> Result<Duration, Failure> {
    match wait_ms.unwrap_or(0) {
        wait_ms if wait_ms <= PUBLISH_WAIT_MS_MAX => Ok(Duration::from_millis(wait_ms)),
        wait_ms => {
            let detail =
                format!("a publish waits for at most {PUBLISH_WAIT_MS_MAX} milliseconds, not {wait_ms}");
            Err(malformed("wait_ms", detail))
        }
    }
}

/// Publishes one message.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/message",
    operation_id = "publish_message",
    tag = "messages",
    params(
        ("topic" = TopicName, Path, description = "The name of the topic", example = "orders"),
        OneQuery
    ),
    request_body = PublishMessage,
    responses(
        (status = 200, body = PublishResult, description = "Where it stands"),
        Malformed,
        NotFound,
        Conflict,
        Full,
        Unprocessable,
        Common
    )
)]
pub(super) async fn publish_one(
    State(context): State<Context>,
    Path(topic): Path<String>,
    Query(query): Query<OneQuery>,
    Body(message): Body<PublishMessage>,
) -> Result<Json<PublishResult>, Failure> {
    let topic = topic_name(topic)?;
    let producer_id = query.producer_id.map(ProducerId);
    let drafts = vec![draft(message, "")?];
    let (wait, publisher) = (wait(query.wait_ms)?, &context.broker.publisher);
    let published = publisher.publish_patiently(&topic, producer_id, drafts, wait).await.map_err(of_one)?;
    match published.into_iter().next() {
        Some(Published { result: Err(error), .. }) => Err(own(error.into())),
        Some(published) => Ok(Json(result(published))),
        None => Err(Failure::from(Problem::new(ErrorCode::Internal, "the publish has no result"))),
    }
}

/// The body is the message, so that its fields are named without a place in a list.
fn of_one(error: PublishError) -> Failure {
    own(error.into())
}

fn own(mut failure: Failure) -> Failure {
    if let Some(field) = &mut failure.0.field
        && let Some(own) = field.strip_prefix("messages[0].")
    {
        *field = own.to_owned();
    }
    failure
}

/// `within` stands before the names of its fields.
fn draft(message: PublishMessage, within: &str) -> Result<Addressed, Failure> {
    let message = NewMessage::from_json(message, within);
    let message = message.map_err(|error| malformed(error.field.unwrap_or_default(), error.detail))?;
    Ok(message.into())
}

fn result(published: Published) -> PublishResult {
    let partition = published.partition;
    let nothing = PublishResult { partition, offset: None, duplicate: false, schedule: None, error: None };
    match published.result {
        Ok(Placed::New(offset)) => PublishResult { offset: Some(offset.0), ..nothing },
        Ok(Placed::Duplicate(offset)) => {
            PublishResult { offset: offset.map(|offset| offset.0), duplicate: true, ..nothing }
        }
        Ok(Placed::Scheduled(id)) => PublishResult { schedule: Some(id.0), ..nothing },
        Ok(Placed::ScheduledBefore(id)) => PublishResult { schedule: Some(id.0), duplicate: true, ..nothing },
        Err(error) => PublishResult { error: Some(*Failure::from(error).0), ..nothing },
    }
}
