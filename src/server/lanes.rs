//! `/v1/lanes` and `/v1/brokers`: who holds what, and how far behind it is.

use axum::Json;
use axum::extract::State;
use laneway_client::group_api::{BrokerDescription, BrokerList, LaneDescription, LaneList, LaneState};
use laneway_client::openapi::LaneKey as LaneKeyText;
use laneway_client::topic::TOPIC_PARTITIONS_MAX;
use laneway_client::{GroupName, TopicName};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Context;
use super::groups::{are_names, group_name, page};
use super::openapi::{Common, Malformed, NotFound, Unprocessable};
use super::problem::{Failure, Query, malformed};
use super::topics::topic_name;
use crate::limits::LANES_PAGE_MAX;
use crate::store::overview::{self, BrokerOverview, LaneKey, LaneOverview};

/// Lanes of one page unless the request says otherwise.
const PAGE_DEFAULT: u32 = 100;

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
    /// The last of the page before, as `topic/group/partition`.
    #[param(value_type = LaneKeyText, required = false)]
    after: Option<String>,
    /// At most this many.
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// One page of lanes by topic, group and partition, with lag.
#[utoipa::path(
    get,
    path = "/v1/lanes",
    operation_id = "list_lanes",
    tag = "lanes",
    params(ListQuery),
    responses((status = 200, body = LaneList, description = "One page"), Malformed, NotFound, Unprocessable, Common)
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<ListQuery>,
) -> Result<Json<LaneList>, Failure> {
    let topic = query.topic.map(topic_name).transpose()?;
    let group = query.group.map(group_name).transpose()?;
    let limit = page(query.limit, PAGE_DEFAULT, LANES_PAGE_MAX)?;
    let after = query.after.as_deref().map_or(Ok(LaneKey::FIRST), key)?;
    let mut found = context.broker.list_lanes(topic.as_ref(), group.as_ref(), after, limit + 1).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let name = |lane: &LaneOverview| format!("{}/{}/{}", lane.topic, lane.group, lane.partition);
    let next = found.last().filter(|_| more).map(name);
    Ok(Json(LaneList { lanes: found.into_iter().map(description).collect(), next }))
}

/// Brokers that live, and those that ended within the hour.
#[utoipa::path(
    get,
    path = "/v1/brokers",
    operation_id = "list_brokers",
    tag = "brokers",
    responses((status = 200, body = BrokerList, description = "The youngest first"), Common)
)]
pub(super) async fn brokers(State(context): State<Context>) -> Result<Json<BrokerList>, Failure> {
    let broker = |broker: BrokerOverview| BrokerDescription {
        broker: broker.broker_id.to_string(),
        started_at: broker.started_at.to_string(),
        expires_at: broker.expires_at.to_string(),
        dead_at: broker.dead_at.map(|at| at.to_string()),
        sessions: broker.sessions,
        lanes: broker.lanes,
    };
    let brokers = context.broker.list_brokers().await?;
    Ok(Json(BrokerList { brokers: brokers.into_iter().map(broker).collect() }))
}

fn key(after: &str) -> Result<LaneKey<'_>, Failure> {
    let wrong = || malformed("after", "after is a topic, a group and a partition: orders/billing/7");
    let (names, partition) = after.rsplit_once('/').ok_or_else(wrong)?;
    let (topic, group) =
        names.split_once('/').filter(|(topic, group)| are_names(topic, group)).ok_or_else(wrong)?;
    let is_number = |number: &i32| (0..TOPIC_PARTITIONS_MAX as i32).contains(number);
    let partition = partition.parse().ok().filter(is_number).ok_or_else(wrong)?;
    Ok(LaneKey { topic, group, partition })
}

pub(super) fn description(lane: LaneOverview) -> LaneDescription {
    LaneDescription {
        topic: lane.topic,
        group: lane.group,
        partition: lane.partition,
        epoch: lane.epoch.0,
        state: match lane.state {
            overview::LaneState::Free => LaneState::Free,
            overview::LaneState::Waiting => LaneState::Waiting,
            overview::LaneState::Draining => LaneState::Draining,
            overview::LaneState::Blocked => LaneState::Blocked,
            overview::LaneState::Suspect => LaneState::Suspect,
            overview::LaneState::Held => LaneState::Held,
            overview::LaneState::Popped => LaneState::Popped,
        },
        holder: lane.holder.map(|session_id| session_id.to_string()),
        broker: lane.broker_id.map(|broker_id| broker_id.to_string()),
        wanted: lane.wanted.map(|session_id| session_id.to_string()),
        committed_offset: lane.committed.0,
        next_offset: lane.next_offset.0,
        lag_messages: lane.lag,
        lag_seconds: lane.lag_seconds,
    }
}
