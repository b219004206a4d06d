//! Publishing over HTTP: many messages at once, or one.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use laneway_client::message::{
    DecodeError, Encoding, PublishMessage, PublishRequest, PublishResponse, PublishResult,
};
use laneway_client::{ErrorCode, Problem, TopicName, traceparent};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::Context;
use super::messages::trace_id;
use super::openapi::{Common, Conflict, Malformed, NotFound, Unprocessable};
use super::problem::{Body, Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::broker::message::Draft;
use crate::broker::publish::{Addressed, Placed, PublishError, Published};
use crate::ids::{ProducerId, TraceId};

/// Publishes messages; those of one partition are stored all or none.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/messages",
    operation_id = "publish_messages",
    tag = "messages",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders")),
    request_body = PublishRequest,
    responses((status = 200, body = PublishResponse, description = "What became of each message, in their order"), Malformed, NotFound, Conflict, Unprocessable, Common)
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
    let published = context.broker.publisher.publish(&topic, producer_id, drafts?).await?;
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
    let published = context.broker.publisher.publish(&topic, producer_id, drafts).await.map_err(of_one)?;
    match published.into_iter().next() {
        Some(Published { result: Err(error), .. }) => Err(error.into()),
        Some(published) => Ok(Json(result(published))),
        None => Err(Failure::from(Problem::new(ErrorCode::Internal, "the publish has no result"))),
    }
}

/// The body is the message, so that its fields are named without a place in a list.
fn of_one(error: PublishError) -> Failure {
    let mut failure = Failure::from(error);
    if let Some(field) = &mut failure.0.field
        && let Some(own) = field.strip_prefix("messages[0].")
    {
        *field = own.to_owned();
    }
    failure
}

/// `within` stands before the names of its fields.
fn draft(message: PublishMessage, within: &str) -> Result<Addressed, Failure> {
    let field = |name: &str| format!("{within}{name}");
    let key = message.key.as_deref().map(|key| {
        message.key_encoding.decode(key).map_err(|error| undecoded(field("key"), "key_encoding", error))
    });
    let payload = message.encoding.decode(&message.payload);
    let payload = payload.map_err(|error| undecoded(field("payload"), "encoding", error))?;
    let mut headers = message.headers;
    let trace_id = match message.trace_id.as_deref() {
        Some(text) => Some(given_trace(text, &field("trace_id"), &mut headers)?),
        None => None,
    };
    let links = message.links.iter().enumerate();
    let links = links.map(|(place, id)| self::trace_id(id, &field(&format!("links[{place}]"))));
    let is_json = message.encoding == Encoding::Json;
    let draft = Draft {
        trace_id,
        cause: None,
        origin: None,
        links: links.collect::<Result<_, _>>()?,
        key: key.transpose()?.map(Into::into),
        transaction_id: message.transaction_id,
        headers,
        content_type: message.content_type.or(is_json.then(|| "application/json".to_owned())),
        payload: payload.into(),
        producer: None,
    };
    Ok(Addressed { partition: message.partition, sequence: message.sequence, cause: message.cause, draft })
}

/// A trace id as a producer writes it. A `traceparent` becomes a header, so that its span is forwarded too.
fn given_trace(text: &str, field: &str, headers: &mut BTreeMap<String, String>) -> Result<TraceId, Failure> {
    let Ok(id) = traceparent::parse(text) else { return trace_id(text, field) };
    headers.entry(traceparent::HEADER.to_owned()).or_insert_with(|| text.to_owned());
    Ok(TraceId(id))
}

/// A value that does not stand for bytes in the way that its `declared_by` says.
fn undecoded(field: String, declared_by: &str, error: DecodeError) -> Failure {
    let advice = match error {
        DecodeError::NotAString => format!(": declare \"{declared_by}\": \"json\" to send a JSON value"),
        DecodeError::NotText => format!(": declare \"{declared_by}\": \"json\" to send it as it is"),
        DecodeError::NotBase64 => String::new(),
    };
    let detail = format!("{field}: {error}{advice}");
    malformed(field, detail)
}

fn result(published: Published) -> PublishResult {
    let partition = published.partition;
    match published.result {
        Ok(Placed::New(offset)) => {
            PublishResult { partition, offset: Some(offset.0), duplicate: false, error: None }
        }
        Ok(Placed::Duplicate(offset)) => {
            PublishResult { partition, offset: offset.map(|offset| offset.0), duplicate: true, error: None }
        }
        Err(error) => {
            PublishResult { partition, offset: None, duplicate: false, error: Some(*Failure::from(error).0) }
        }
    }
}
