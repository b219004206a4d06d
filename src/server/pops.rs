//! `/v1/topics/{topic}/groups/{group}/pop`, `/ack`, `/nack` and `/extend`: messages for consumers without a connection.

use axum::Json;
use axum::extract::State;
use laneway_client::pull_api::{
    Pop, PopAck, PopAcked, PopAttempts, PopExtend, PopExtended, PopNack, PopNacked, PopRequest, PopReset,
    PopResponse,
};
use laneway_client::{ErrorCode, GroupName, Problem, TopicName};

use super::Context;
use super::groups::both;
use super::messages::stored;
use super::openapi::{Common, Conflict, Malformed, NotFound, Unprocessable};
use super::problem::{Body, Failure, Path};
use crate::broker::pulling::{self, PullError, Refused, Wish};
use crate::session::fault::{Refusal, of_topic};

impl From<PullError> for Failure {
    fn from(error: PullError) -> Self {
        let detail = error.to_string();
        let refused = |code, field: &str| Self::from(Problem::new(code, detail.clone()).with_field(field));
        match error {
            PullError::Topic(error) => of_topic(error).into(),
            PullError::UnknownGroup { .. } => refused(ErrorCode::UnknownGroup, "group"),
            PullError::ByKey { .. } => refused(ErrorCode::OrderedByKey, "group"),
            PullError::Invalid { field, .. } => refused(ErrorCode::Malformed, field),
            PullError::Until(fault) => refused(ErrorCode::InvalidTime, fault.field()),
            PullError::PartitionOutOfRange { .. } => refused(ErrorCode::PartitionOutOfRange, "partition"),
            PullError::Group(error) => Refusal::from(error).into(),
            PullError::Refused(Refused::LeaseLost) => refused(ErrorCode::LeaseLost, "epoch"),
            PullError::Refused(Refused::BeyondSent { .. }) => refused(ErrorCode::BeyondSent, "offset"),
            PullError::Refused(Refused::AlreadyDone { .. }) => refused(ErrorCode::AlreadyDone, "offset"),
            PullError::Refused(Refused::TooManyGaps) => refused(ErrorCode::TooManyGaps, "offsets"),
            PullError::Refused(Refused::NeedsMessage { .. }) => refused(ErrorCode::Internal, "offset"),
            PullError::Read(error) => error.into(),
            PullError::Store(error) => error.into(),
        }
    }
}

/// Pops messages of one lane that has some, the longest wait first, and waits for them if asked to. Nobody else gets them until
/// they are acknowledged or the time is over. Makes the group if there is none, with the settings that are given; later ones must agree.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/pop",
    operation_id = "pop",
    tag = "pops",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "billing")),
    request_body = PopRequest,
    responses((status = 200, body = PopResponse, description = "Messages, or nothing in time"), Malformed, NotFound, Conflict, Unprocessable, Common)
)]
pub(super) async fn pop(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
    Body(request): Body<PopRequest>,
) -> Result<Json<PopResponse>, Failure> {
    let (topic, group) = both(names)?;
    let wish = Wish::checked(&request)?;
    let pop = context.broker.pulling.pop(&topic, &group, &wish).await?;
    Ok(Json(PopResponse { pop: pop.map(shown) }))
}

/// Acknowledges messages of a pop, at any broker. The same ack may be sent again.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/ack",
    operation_id = "ack_pop",
    tag = "pops",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "acked")),
    request_body = PopAck,
    responses((status = 200, body = PopAcked, description = "They are done"), Malformed, NotFound, Conflict, Unprocessable, Common)
)]
pub(super) async fn ack(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
    Body(ack): Body<PopAck>,
) -> Result<Json<PopAcked>, Failure> {
    let (topic, group) = both(names)?;
    Ok(Json(context.broker.pulling.ack(&topic, &group, &ack).await?))
}

/// Refuses a message of a pop: an attempt is counted, and it comes again or is given up, as the group says.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/nack",
    operation_id = "nack_pop",
    tag = "pops",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "nacked")),
    request_body = PopNack,
    responses((status = 200, body = PopNacked, description = "What becomes of it"), Malformed, NotFound, Conflict, Unprocessable, Common)
)]
pub(super) async fn nack(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
    Body(nack): Body<PopNack>,
) -> Result<Json<PopNacked>, Failure> {
    let (topic, group) = both(names)?;
    Ok(Json(context.broker.pulling.nack(&topic, &group, &nack).await?))
}

/// Gives a pop more time, counted from now.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/extend",
    operation_id = "extend_pop",
    tag = "pops",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "extended")),
    request_body = PopExtend,
    responses((status = 200, body = PopExtended, description = "Until when"), Malformed, NotFound, Conflict, Unprocessable, Common)
)]
pub(super) async fn extend(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
    Body(extend): Body<PopExtend>,
) -> Result<Json<PopExtended>, Failure> {
    let (topic, group) = both(names)?;
    let until_at = context.broker.pulling.extend(&topic, &group, &extend).await?;
    Ok(Json(PopExtended { expires_at: until_at.to_string() }))
}

fn shown(pop: pulling::Pop) -> Pop {
    let pulling::Pop { topic, partition, .. } = pop;
    let attempts =
        pop.attempts.iter().map(|(offset, attempts)| PopAttempts { offset: offset.0, attempts: *attempts });
    Pop {
        partition,
        epoch: pop.epoch.0,
        committed_offset: pop.committed.0,
        end_offset: pop.end.0,
        expires_at: pop.until_at.map(|until_at| until_at.to_string()),
        reset: pop.reset.map(|(from, to)| PopReset { from: from.0, to: to.0 }),
        attempts: attempts.collect(),
        messages: pop.messages.into_iter().map(|message| stored(&topic, partition, message)).collect(),
    }
}
