//! `/v1/topics/{topic}/pause`, `resume`, `purge` and `partitions`, and the same for groups: operating what is at work.

use axum::Json;
use axum::extract::State;
use laneway_client::group_api::GroupDetail;
use laneway_client::management::{
    LaneStatistics, PartitionList, PartitionStatistics, Purge, Purged, PurgedPartition,
};
use laneway_client::topic::TopicDetail;
use laneway_client::{ErrorCode, GroupName, Problem, TopicName};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::groups::{both, detail as group_detail, page};
use super::openapi::{Common, Malformed, NotFound, Unprocessable};
use super::problem::{Body, Failure, Path, Query, malformed};
use super::topics::{detail as topic_detail, topic_name};
use crate::broker::management::{LaneShown, PartitionShown, PurgeError};
use crate::limits::PARTITIONS_PAGE_MAX;
use crate::session::fault::{Refusal, of_topic};
use crate::store::management::Running;

impl From<PurgeError> for Failure {
    fn from(error: PurgeError) -> Self {
        let detail = error.to_string();
        let refused = |code, field: &str| Self::from(Problem::new(code, detail).with_field(field));
        match error {
            PurgeError::Topic(error) => of_topic(error).into(),
            PurgeError::At { .. } => refused(ErrorCode::Malformed, "before_at"),
            PurgeError::PartitionOutOfRange { .. } => refused(ErrorCode::PartitionOutOfRange, "partition"),
            PurgeError::BeyondEnd { .. } => refused(ErrorCode::Malformed, "before_offset"),
            PurgeError::Read(error) => Refusal::from(error).into(),
            PurgeError::Store(error) => error.into(),
        }
    }
}

/// Pauses a topic: it takes no messages and delivers none.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/pause",
    operation_id = "pause_topic",
    tag = "topics",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "idle")),
    responses((status = 200, body = TopicDetail, description = "The topic as it is now"), NotFound, Unprocessable, Common)
)]
pub(super) async fn pause_topic(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<Json<TopicDetail>, Failure> {
    run_topic(&context, name, Running::Paused).await
}

/// Lets a topic go on.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/resume",
    operation_id = "resume_topic",
    tag = "topics",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders")),
    responses((status = 200, body = TopicDetail, description = "The topic as it is now"), NotFound, Unprocessable, Common)
)]
pub(super) async fn resume_topic(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<Json<TopicDetail>, Failure> {
    run_topic(&context, name, Running::Resumed).await
}

async fn run_topic(context: &Context, name: String, running: Running) -> Result<Json<TopicDetail>, Failure> {
    let name = topic_name(name)?;
    context.broker.run_topic(&name, running).await?;
    let (topic, partitions) = context.broker.topics.describe(&name).await?;
    Ok(Json(topic_detail(context, &topic, &partitions).await?))
}

/// Pauses a group: nothing is delivered to it.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/pause",
    operation_id = "pause_group",
    tag = "groups",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "idle")),
    responses((status = 200, body = GroupDetail, description = "The group as it is now"), NotFound, Unprocessable, Common)
)]
pub(super) async fn pause_group(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
) -> Result<Json<GroupDetail>, Failure> {
    run_group(&context, names, Running::Paused).await
}

/// Lets a group go on.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/resume",
    operation_id = "resume_group",
    tag = "groups",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "billing")),
    responses((status = 200, body = GroupDetail, description = "The group as it is now"), NotFound, Unprocessable, Common)
)]
pub(super) async fn resume_group(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
) -> Result<Json<GroupDetail>, Failure> {
    run_group(&context, names, Running::Resumed).await
}

async fn run_group(
    context: &Context,
    names: (String, String),
    running: Running,
) -> Result<Json<GroupDetail>, Failure> {
    let (topic, group) = both(names)?;
    context.broker.run_group(&topic, &group, running).await?;
    Ok(Json(group_detail(context.broker.show_group(&topic, &group).await?)))
}

/// Drops messages of a topic for good: all, or those before a time or an offset.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/purge",
    operation_id = "purge_topic",
    tag = "topics",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "idle")),
    request_body = Purge,
    responses((status = 200, body = Purged, description = "Where the partitions start now"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn purge(
    State(context): State<Context>,
    Path(name): Path<String>,
    Body(purge): Body<Purge>,
) -> Result<Json<Purged>, Failure> {
    let purged = context.broker.purge_topic(&topic_name(name)?, &purge).await?;
    let partition = |purged: &crate::store::management::Purged| PurgedPartition {
        partition: purged.number,
        messages: purged.to.0 - purged.from.0,
        start_offset: purged.to.0,
    };
    let partitions: Vec<_> = purged.iter().map(partition).collect();
    Ok(Json(Purged { messages: partitions.iter().map(|one| one.messages).sum(), partitions }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// The last number of the page before.
    #[param(value_type = u32, required = false, maximum = 999)]
    after: Option<u32>,
    /// At most this many.
    #[param(value_type = u32, required = false, minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

/// Partitions in numbers: what they store, and how far each group is.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/partitions",
    operation_id = "list_partitions",
    tag = "topics",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ListQuery),
    responses((status = 200, body = PartitionList, description = "One page"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn partitions(
    State(context): State<Context>,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Json<PartitionList>, Failure> {
    let limit = page(query.limit, PARTITIONS_PAGE_MAX, PARTITIONS_PAGE_MAX)?;
    if query.after.is_some_and(|after| after >= laneway_client::topic::TOPIC_PARTITIONS_MAX) {
        return Err(malformed(
            "after",
            "after is the number of a partition, as `next` of the page before has it",
        ));
    }
    let mut found = context.broker.count_partitions(&topic_name(name)?, query.after, limit + 1).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| more).map(|last| last.count.number);
    Ok(Json(PartitionList { partitions: found.into_iter().map(statistics).collect(), next }))
}

fn statistics(shown: PartitionShown) -> PartitionStatistics {
    let PartitionShown { count, lanes } = shown;
    let lane = |LaneShown { waiting, in_flight }: LaneShown| LaneStatistics {
        group: waiting.group,
        lag_messages: waiting.lag,
        lag_seconds: waiting.lag_seconds,
        in_flight,
    };
    PartitionStatistics {
        partition: count.number,
        start_offset: count.start_offset.0,
        next_offset: count.next_offset.0,
        stored_messages: count.next_offset.0 - count.start_offset.0,
        stored_bytes: count.stored_bytes,
        scheduled_messages: count.scheduled,
        oldest_seconds: count.oldest_seconds,
        last_published_at: count.last_published_at.map(|at| at.to_string()),
        lag_messages: lanes.iter().map(|lane| lane.waiting.lag).max(),
        groups: lanes.into_iter().map(lane).collect(),
    }
}
