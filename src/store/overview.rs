//! What operators look at: groups with their members, lanes with their lag, brokers. Reads only, page by page.
//!
//! Lag is answered from heads and commits, never by counting messages.

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::Store;
use super::error::{Effect, Error};
use super::groups::{Group, group};
use super::query::query;
use crate::ids::{BrokerId, Epoch, GroupId, Offset, SessionId, TopicId};

query!(GROUPS_LIST = "groups_list"[INT8, TEXT, TEXT, TEXT, INT8]);
query!(LANES_DESCRIBE = "lanes_describe"[INT8, TEXT, TEXT, TEXT, INT4, INT8]);
query!(MEMBERS_DESCRIBE = "members_describe"[INT8]);
query!(BROKERS_LIST = "brokers_list"[INT8]);

/// A group as operators see it.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupOverview {
    pub topic: String,
    pub name: String,
    pub group: Group,
    /// Sessions of living brokers that take part.
    pub members: u32,
    /// Messages that are not done, of all its lanes.
    pub lag: i64,
    pub created_at: Timestamp,
    /// Since when nothing is delivered to it.
    pub paused_at: Option<Timestamp>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberOverview {
    pub session_id: SessionId,
    pub broker_id: BrokerId,
    pub joined_at: Timestamp,
    /// The numbers of the partitions whose lanes it holds.
    pub partitions: Vec<u32>,
}

/// What a lane is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    /// Nobody holds it, and nobody is to have it.
    Free,
    /// Nobody holds it yet; a session is to have it.
    Waiting,
    /// Its holder finishes; another session is to have it.
    Draining,
    /// Its holder stands at a message that has failed too often.
    Blocked,
    /// Held, with one message in flight at a time.
    Suspect,
    /// Held by the session that is to have it.
    Held,
    /// A puller has it for a while.
    Popped,
}

impl LaneState {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "free" => Some(LaneState::Free),
            "waiting" => Some(LaneState::Waiting),
            "draining" => Some(LaneState::Draining),
            "blocked" => Some(LaneState::Blocked),
            "suspect" => Some(LaneState::Suspect),
            "held" => Some(LaneState::Held),
            "popped" => Some(LaneState::Popped),
            _ => None,
        }
    }
}

/// A lane with how far it is behind.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneOverview {
    pub topic: String,
    pub group: String,
    /// The number of its partition.
    pub partition: u32,
    pub epoch: Epoch,
    pub state: LaneState,
    pub holder: Option<SessionId>,
    pub broker_id: Option<BrokerId>,
    pub wanted: Option<SessionId>,
    pub committed: Offset,
    /// Of the partition.
    pub next_offset: Offset,
    /// Messages that are not done.
    pub lag: i64,
    /// How long the first of them has been waiting.
    pub lag_seconds: f64,
}

/// Which lanes are listed.
#[derive(Debug, Clone, Copy)]
pub struct LaneFilter<'a> {
    pub topic_id: Option<TopicId>,
    pub group: Option<&'a str>,
    pub after: LaneKey<'a>,
    pub limit: u32,
}

/// Where a page of lanes begins: after this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneKey<'a> {
    pub topic: &'a str,
    pub group: &'a str,
    pub partition: i32,
}

impl LaneKey<'_> {
    /// Before every lane.
    pub const FIRST: LaneKey<'static> = LaneKey { topic: "", group: "", partition: -1 };
}

/// A broker, living or buried lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerOverview {
    pub broker_id: BrokerId,
    pub started_at: Timestamp,
    pub expires_at: Timestamp,
    pub dead_at: Option<Timestamp>,
    /// Sessions that are members of some group.
    pub sessions: u64,
    pub lanes: u64,
}

impl Store {
    /// Groups by topic and name, after a given one.
    pub async fn groups_list(
        &self,
        topic_id: Option<TopicId>,
        after: (&str, &str),
        limit: u32,
    ) -> Result<Vec<GroupOverview>, Error> {
        let (topic_id, limit) = (topic_id.map(|id| id.0), i64::from(limit));
        let connection = self.connection().await?;
        let params: super::connection::Params<'_> = &[&topic_id, &None::<&str>, &after.0, &after.1, &limit];
        let rows = connection.query(&GROUPS_LIST, params, Effect::None).await?;
        Ok(rows.iter().map(group_overview).collect())
    }

    /// One group by name.
    pub async fn groups_describe(
        &self,
        topic_id: TopicId,
        name: &str,
    ) -> Result<Option<GroupOverview>, Error> {
        let connection = self.connection().await?;
        let params: super::connection::Params<'_> = &[&topic_id.0, &name, &"", &"", &1_i64];
        let row = connection.query_opt(&GROUPS_LIST, params, Effect::None).await?;
        Ok(row.as_ref().map(group_overview))
    }

    /// The living members of a group.
    pub async fn members_describe(&self, group_id: GroupId) -> Result<Vec<MemberOverview>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&MEMBERS_DESCRIBE, &[&group_id.0], Effect::None).await?;
        let member = |row: &Row| MemberOverview {
            session_id: SessionId(row.get("session_id")),
            broker_id: BrokerId(row.get("broker_id")),
            joined_at: row.get("joined_at"),
            partitions: row.get::<_, Vec<i32>>("numbers").into_iter().map(|number| number as u32).collect(),
        };
        Ok(rows.iter().map(member).collect())
    }

    /// One page of lanes, by topic, group and partition.
    pub async fn lanes_describe(&self, filter: LaneFilter<'_>) -> Result<Vec<LaneOverview>, Error> {
        let (topic_id, limit) = (filter.topic_id.map(|id| id.0), i64::from(filter.limit));
        let LaneKey { topic, group, partition } = filter.after;
        let params: super::connection::Params<'_> =
            &[&topic_id, &filter.group, &topic, &group, &partition, &limit];
        let connection = self.connection().await?;
        let rows = connection.query(&LANES_DESCRIBE, params, Effect::None).await?;
        Ok(rows.iter().map(lane_overview).collect())
    }

    /// The youngest brokers.
    pub async fn brokers_list(&self, limit: u32) -> Result<Vec<BrokerOverview>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&BROKERS_LIST, &[&i64::from(limit)], Effect::None).await?;
        let broker = |row: &Row| BrokerOverview {
            broker_id: BrokerId(row.get("broker_id")),
            started_at: row.get("started_at"),
            expires_at: row.get("expires_at"),
            dead_at: row.get("dead_at"),
            sessions: row.get::<_, i64>("sessions") as u64,
            lanes: row.get::<_, i64>("lanes") as u64,
        };
        Ok(rows.iter().map(broker).collect())
    }
}

fn group_overview(row: &Row) -> GroupOverview {
    GroupOverview {
        topic: row.get("topic"),
        name: row.get("name"),
        group: group(row),
        members: row.get::<_, i64>("members") as u32,
        lag: row.get("lag"),
        created_at: row.get("created_at"),
        paused_at: row.get("paused_at"),
    }
}

fn lane_overview(row: &Row) -> LaneOverview {
    LaneOverview {
        topic: row.get("topic"),
        group: row.get("group_name"),
        partition: row.get::<_, i32>("number") as u32,
        epoch: Epoch(row.get("epoch")),
        state: LaneState::parse(row.get("state")).expect("the query knows the same states"),
        holder: row.get::<_, Option<Uuid>>("session_id").map(SessionId),
        broker_id: row.get::<_, Option<Uuid>>("broker_id").map(BrokerId),
        wanted: row.get::<_, Option<Uuid>>("wanted_session").map(SessionId),
        committed: Offset(row.get("committed_offset")),
        next_offset: Offset(row.get("next_offset")),
        lag: row.get("lag"),
        lag_seconds: row.get::<_, Option<f64>>("lag_seconds").unwrap_or_default(),
    }
}
