//! `/v1/topics`: made, listed, shown, changed and deleted.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use laneway_client::TopicName;
use laneway_client::labels::Labels;
use laneway_client::openapi::LabelQuery;
use laneway_client::topic::{
    AlterTopic, CreateTopic, PartitionDescription, TopicDescription, TopicDetail, TopicList,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::openapi::{Common, Conflict, Malformed, NotFound, Unprocessable};
use super::problem::{Body, Failure, Path, Query, malformed};
use super::{Context, capacity};
use crate::broker::topics::TopicError;
use crate::limits::TOPICS_PAGE_MAX;
use crate::store::partitions::Partition;
use crate::store::topics::Topic;

/// Makes a topic.
#[utoipa::path(
    post,
    path = "/v1/topics",
    operation_id = "create_topic",
    tag = "topics",
    request_body = CreateTopic,
    responses((status = 201, body = TopicDetail, description = "It is made"), Malformed, Conflict, Unprocessable, Common)
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<CreateTopic>,
) -> Result<(StatusCode, Json<TopicDetail>), Failure> {
    let topic = context.broker.topics.create(&request).await?;
    let partitions = context.broker.store.partitions_describe(topic.topic_id).await?;
    Ok((StatusCode::CREATED, Json(detail(&context, &topic, &partitions).await?)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// The last name of the page before.
    #[param(value_type = TopicName, required = false)]
    after: Option<String>,
    /// Only topics that have all of these labels: `name=value`, with commas between.
    #[param(value_type = LabelQuery, required = false)]
    labels: Option<String>,
}

/// One page of topics by name.
#[utoipa::path(
    get,
    path = "/v1/topics",
    operation_id = "list_topics",
    tag = "topics",
    params(ListQuery),
    responses((status = 200, body = TopicList, description = "One page"), Malformed, Unprocessable, Common)
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<ListQuery>,
) -> Result<Json<TopicList>, Failure> {
    let after = query.after.map(TopicName::new).transpose().map_err(|_| {
        malformed("after", "after is the name of a topic, as `next` of the page before has it")
    })?;
    let labels = labels(query.labels.as_deref())?;
    let found = context.broker.topics.list(after.as_ref().map_or("", TopicName::as_str), &labels).await?;
    let is_full_page = found.len() as i64 == TOPICS_PAGE_MAX;
    let next = found.last().filter(|_| is_full_page).map(|topic| topic.name.clone());
    Ok(Json(TopicList { topics: found.iter().map(description).collect(), next }))
}

/// A topic with where its partitions stand.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}",
    operation_id = "show_topic",
    tag = "topics",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders")),
    responses((status = 200, body = TopicDetail, description = "The topic"), NotFound, Unprocessable, Common)
)]
pub(super) async fn show(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<Json<TopicDetail>, Failure> {
    let name = topic_name(name)?;
    let (topic, partitions) = context.broker.topics.describe(&name).await?;
    Ok(Json(detail(&context, &topic, &partitions).await?))
}

/// Changes settings of a topic and adds partitions: all of it, or nothing.
#[utoipa::path(
    patch,
    path = "/v1/topics/{topic}",
    operation_id = "alter_topic",
    tag = "topics",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders")),
    request_body = AlterTopic,
    responses((status = 200, body = TopicDetail, description = "The topic as it is now"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn alter(
    State(context): State<Context>,
    Path(name): Path<String>,
    Body(request): Body<AlterTopic>,
) -> Result<Json<TopicDetail>, Failure> {
    let topic = context.broker.topics.alter(&topic_name(name)?, &request).await?;
    let partitions = context.broker.store.partitions_describe(topic.topic_id).await?;
    Ok(Json(detail(&context, &topic, &partitions).await?))
}

/// Deletes a topic with everything in it.
#[utoipa::path(
    delete,
    path = "/v1/topics/{topic}",
    operation_id = "delete_topic",
    tag = "topics",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "obsolete")),
    responses((status = 204, description = "It is gone"), NotFound, Unprocessable, Common)
)]
pub(super) async fn delete(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    context.broker.topics.delete(&topic_name(name)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Labels from a query: `namespace=shop,task=ship`.
fn labels(text: Option<&str>) -> Result<Labels, Failure> {
    let pair = |pair: &str| {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| malformed("labels", "labels are written as name=value, with commas between"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    text.into_iter().flat_map(|text| text.split(',')).map(pair).collect()
}

/// A name from a path; a name that breaks the rule is refused with the rule.
pub(super) fn topic_name(name: String) -> Result<TopicName, Failure> {
    TopicName::new(name).map_err(|error| TopicError::Name(error).into())
}

fn description(topic: &Topic) -> TopicDescription {
    TopicDescription {
        name: topic.name.clone(),
        partitions: topic.partitions.len() as u32,
        payload_bytes_max: topic.settings.payload_bytes_max,
        segment_messages: topic.settings.segment_messages,
        retention_age_ms: topic.settings.retention_age.map(|age| age.as_millis() as u64),
        retention_bytes: topic.settings.retention_bytes,
        dedup_window_ms: topic.settings.dedup_window.as_millis() as u64,
        delivery_times: topic.settings.delivery_times,
        max_backlog_messages: topic.settings.limits.backlog_messages,
        max_backlog_bytes: topic.settings.limits.backlog_bytes,
        max_stored_bytes: topic.settings.limits.stored_bytes,
        retention_completed_ms: topic.settings.retention_completed.map(|grace| grace.as_millis() as u64),
        group_expiry_ms: topic.settings.group_expiry.map(|expiry| expiry.as_millis() as u64),
        labels: topic.settings.labels.clone(),
        encryption: topic.settings.encryption,
        created_at: topic.created_at.to_string(),
        paused_at: topic.paused_at.map(|at| at.to_string()),
    }
}

pub(super) async fn detail(
    context: &Context,
    topic: &Topic,
    partitions: &[Partition],
) -> Result<TopicDetail, Failure> {
    let depth = context.broker.depth(topic).await?;
    let partition = |partition: &Partition| PartitionDescription {
        partition: partition.number,
        start_offset: partition.start_offset.0,
        next_offset: partition.next_offset.0,
        stored_bytes: partition.stored_bytes,
        last_published_at: partition.last_published_at.map(|at| at.to_string()),
    };
    let partition_details = partitions.iter().map(partition).collect();
    Ok(TopicDetail {
        topic: description(topic),
        partition_details,
        depth: depth.map(|depth| capacity::depth(topic, &depth)),
    })
}
