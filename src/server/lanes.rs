//! `/v1/lanes` and `/v1/brokers`: who holds what, and how far behind it is.

use axum::Json;
use axum::extract::State;
use laneway_client::group_api::{BrokerDescription, BrokerList, LaneDescription, LaneList, LaneState};
use serde::Deserialize;

use super::Context;
use super::groups::{group_name, page, without_nul};
use super::problem::{Failure, Query, malformed};
use super::topics::topic_name;
use crate::limits::LANES_PAGE_MAX;
use crate::store::overview::{self, BrokerOverview, LaneKey, LaneOverview};

/// Lanes of one page unless the request says otherwise.
const PAGE_DEFAULT: u32 = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    topic: Option<String>,
    group: Option<String>,
    /// The last of the page before, as `topic/group/partition`.
    after: Option<String>,
    limit: Option<u32>,
}

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
    let (topic, group) = names.split_once('/').ok_or_else(wrong)?;
    without_nul(&[topic, group])?;
    let partition = partition.parse().map_err(|_| wrong())?;
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
