//! `/v1/groups` and `/v1/topics/{topic}/groups/{group}`: listed, shown, altered, moved, deleted.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use laneway_client::group_api::{
    GroupDescription, GroupDetail, GroupList, MemberDescription, Seek, Sought, SoughtLane,
};
use laneway_client::openapi::GroupKey;
use laneway_client::wire::WantedSettings;
use laneway_client::{ErrorCode, GroupName, Problem, TopicName};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::lanes;
use super::openapi::{Common, Conflict, Malformed, NotFound, Unprocessable};
use super::problem::{Body, Failure, Path, Query, malformed};
use super::topics::topic_name;
use crate::broker::group_admin::{GroupError, GroupShown};
use crate::broker::groups::settings;
use crate::limits::GROUPS_PAGE_MAX;
use crate::session::fault::{Refusal, of_topic};
use crate::store::group_changes::IfUsed;
use crate::store::overview::{GroupOverview, MemberOverview};

/// Groups of one page unless the request says otherwise.
const PAGE_DEFAULT: u32 = 100;

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        let detail = error.to_string();
        let refused = |code, field: String| Self::from(Problem::new(code, detail).with_field(field));
        match error {
            GroupError::Topic(error) => of_topic(error).into(),
            GroupError::Unknown { .. } => refused(ErrorCode::UnknownGroup, "group".into()),
            GroupError::HasMembers { .. } => refused(ErrorCode::GroupHasMembers, "group".into()),
            GroupError::InUse { .. } => refused(ErrorCode::GroupHasMembers, "ordering".into()),
            GroupError::HasParked { .. } => refused(ErrorCode::GroupHasParked, "ordering".into()),
            GroupError::KeepsParked { .. } => refused(ErrorCode::GroupHasParked, "group".into()),
            GroupError::Setting(setting) => refused(ErrorCode::InvalidSetting, setting.field.into()),
            GroupError::To { .. } => refused(ErrorCode::Malformed, "to".into()),
            GroupError::PartitionOutOfRange { index, .. } => {
                refused(ErrorCode::PartitionOutOfRange, format!("partitions[{index}]"))
            }
            GroupError::PartitionTwice { index, .. } => {
                refused(ErrorCode::Malformed, format!("partitions[{index}]"))
            }
            GroupError::NoPartition => refused(ErrorCode::Malformed, "partitions".into()),
            GroupError::Read(error) => Refusal::from(error).into(),
            GroupError::Store(error) => error.into(),
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
    /// The last of the page before, as `topic/group`.
    #[param(value_type = GroupKey, required = false)]
    after: Option<String>,
    /// At most this many.
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// One page of groups by topic and name.
#[utoipa::path(
    get,
    path = "/v1/groups",
    operation_id = "list_groups",
    tag = "groups",
    params(ListQuery),
    responses((status = 200, body = GroupList, description = "One page"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<ListQuery>,
) -> Result<Json<GroupList>, Failure> {
    let topic = query.topic.map(topic_name).transpose()?;
    let limit = page(query.limit, PAGE_DEFAULT, GROUPS_PAGE_MAX)?;
    let after = query.after.as_deref().map_or(Ok(("", "")), key)?;
    let mut found = context.broker.list_groups(topic.as_ref(), after, limit + 1).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| more).map(|last| format!("{}/{}", last.topic, last.name));
    Ok(Json(GroupList { groups: found.iter().map(description).collect(), next }))
}

/// A group with its settings, members and lanes.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/groups/{group}",
    operation_id = "show_group",
    tag = "groups",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "billing")),
    responses((status = 200, body = GroupDetail, description = "The group"), NotFound, Unprocessable, Common)
)]
pub(super) async fn show(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
) -> Result<Json<GroupDetail>, Failure> {
    let (topic, group) = both(names)?;
    Ok(Json(detail(context.broker.show_group(&topic, &group).await?)))
}

/// Changes settings of a group, for all its members.
#[utoipa::path(
    patch,
    path = "/v1/topics/{topic}/groups/{group}",
    operation_id = "alter_group",
    tag = "groups",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "billing")),
    request_body = WantedSettings,
    responses((status = 200, body = GroupDetail, description = "The group as it is now"), Malformed, NotFound, Conflict, Unprocessable, Common)
)]
pub(super) async fn alter(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
    Body(wanted): Body<WantedSettings>,
) -> Result<Json<GroupDetail>, Failure> {
    let (topic, group) = both(names)?;
    context.broker.alter_group(&topic, &group, &wanted).await?;
    Ok(Json(detail(context.broker.show_group(&topic, &group).await?)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteQuery {
    /// Whether it goes although it has members or parked keys.
    #[param(value_type = bool, required = false)]
    force: Option<bool>,
}

/// Deletes a group; one that has members or parked keys only with `force`.
#[utoipa::path(
    delete,
    path = "/v1/topics/{topic}/groups/{group}",
    operation_id = "delete_group",
    tag = "groups",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "obsolete"), DeleteQuery),
    responses((status = 204, description = "It is gone"), Malformed, NotFound, Conflict, Unprocessable, Common)
)]
pub(super) async fn delete(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
    Query(query): Query<DeleteQuery>,
) -> Result<StatusCode, Failure> {
    let (topic, group) = both(names)?;
    let if_used = if query.force == Some(true) { IfUsed::Force } else { IfUsed::Refuse };
    context.broker.delete_group(&topic, &group, if_used).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Moves lanes of a group to another offset, live.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/groups/{group}/seek",
    operation_id = "seek_group",
    tag = "groups",
    params(("topic" = TopicName, Path, description = "The name of the topic", example = "orders"), ("group" = GroupName, Path, description = "The name of the group", example = "billing")),
    request_body = Seek,
    responses((status = 200, body = Sought, description = "Where the lanes go on"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn seek(
    State(context): State<Context>,
    Path(names): Path<(String, String)>,
    Body(seek): Body<Seek>,
) -> Result<Json<Sought>, Failure> {
    let (topic, group) = both(names)?;
    let sought = context.broker.seek_group(&topic, &group, &seek).await?;
    let lane = |lane: &crate::store::group_changes::Sought| SoughtLane {
        partition: lane.partition,
        epoch: lane.epoch.0,
        committed_offset: lane.committed.0,
    };
    Ok(Json(Sought { lanes: sought.iter().map(lane).collect() }))
}

pub(super) fn both((topic, group): (String, String)) -> Result<(TopicName, GroupName), Failure> {
    Ok((topic_name(topic)?, group_name(group)?))
}

/// A name that breaks the rule is refused with the rule.
pub(super) fn group_name(name: String) -> Result<GroupName, Failure> {
    GroupName::new(name).map_err(|error| {
        Failure::from(Problem::new(ErrorCode::InvalidGroupName, error.to_string()).with_field("group"))
    })
}

/// How many are on a page.
pub(super) fn page(limit: Option<u32>, default: u32, max: u32) -> Result<u32, Failure> {
    match limit.unwrap_or(default) {
        limit if (1..=max).contains(&limit) => Ok(limit),
        limit => Err(malformed("limit", format!("limit must be between 1 and {max}, not {limit}"))),
    }
}

fn key(after: &str) -> Result<(&str, &str), Failure> {
    match after.split_once('/') {
        Some((topic, group)) if are_names(topic, group) => Ok((topic, group)),
        _ => Err(malformed("after", "after is a topic and a group: orders/billing")),
    }
}

/// Whether these can be what a page before has ended with.
pub(super) fn are_names(topic: &str, group: &str) -> bool {
    TopicName::new(topic).is_ok() && GroupName::new(group).is_ok()
}

fn description(group: &GroupOverview) -> GroupDescription {
    GroupDescription {
        topic: group.topic.clone(),
        group: group.name.clone(),
        members: group.members,
        lag_messages: group.lag,
        settings: settings::described(&group.group.settings),
        created_at: group.created_at.to_string(),
        paused_at: group.paused_at.map(|at| at.to_string()),
    }
}

pub(super) fn detail(shown: GroupShown) -> GroupDetail {
    let member = |member: MemberOverview| MemberDescription {
        session: member.session_id.to_string(),
        broker: member.broker_id.to_string(),
        joined_at: member.joined_at.to_string(),
        partitions: member.partitions,
    };
    GroupDetail {
        group: description(&shown.overview),
        member_details: shown.members.into_iter().map(member).collect(),
        lanes: shown.lanes.into_iter().map(lanes::description).collect(),
    }
}
