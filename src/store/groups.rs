//! Groups and their members: made by the first subscriber, joined, left, and assigned under the group's row lock.
//!
//! Locks: the group row, then lanes by id. Who gets which lane is decided outside; here it is read and written down.

use std::time::Duration;

use super::error::{Effect, Error};
use super::lanes::{BROKERS_HOLD, LaneRow, lane_row};
use super::management::Running;
use super::pops::{PULLERS, pullers_live};
use super::query::query;
use super::windows::Windows;
use super::{Store, retry};
use crate::ids::{BrokerId, GroupId, Offset, PartitionId, SessionId, TopicId};
use crate::limits::PULLERS_TTL;

query!(
    GROUPS_CREATE = "groups_create"[
        INT8, TEXT, INT8, INT4, INT8, FLOAT8, INT8, TEXT, INT8_ARRAY, INT8_ARRAY, TEXT, INT8, INT8, INT8, INT8, TEXT,
        TEXT
    ]
);
query!(GROUPS_FIND = "groups_find"[INT8, TEXT]);
query!(GROUPS_SETTINGS = "groups_settings"[INT8]);
query!(GROUPS_LOCK = "groups_lock"[INT8]);
query!(GROUPS_HINT = "groups_hint"[INT8_ARRAY]);
query!(SESSIONS_OPEN = "sessions_open"[UUID, UUID, BYTEA]);
query!(MEMBERS_JOIN = "members_join"[INT8, UUID, TEXT]);
query!(MEMBERS_LEAVE = "members_leave"[INT8, UUID, UUID]);
query!(MEMBERS_LIST = "members_list"[INT8]);
query!(LANES_ADD = "lanes_add"[INT8]);
query!(LANES_LIST = "lanes_list"[INT8, UUID, INT8]);
query!(LANES_WANT = "lanes_want"[INT8, INT8_ARRAY, UUID_ARRAY, INT8]);
query!(LANES_REVOKE_OVERDUE = "lanes_revoke_overdue"[INT8]);

/// What happens to a message that has failed too often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It is kept aside, whole, and the lane goes on.
    DeadLetter,
    /// The lane stops at it.
    Block,
    /// The lane goes on without it.
    Skip,
    /// Its key is set aside with everything behind it; only where order is kept by key.
    Park,
}

impl FailurePolicy {
    /// As the wire and the database write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            FailurePolicy::DeadLetter => "dead_letter",
            FailurePolicy::Block => "block",
            FailurePolicy::Skip => "skip",
            FailurePolicy::Park => "park",
        }
    }

    /// Reads what the wire and the database write.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::DeadLetter, Self::Block, Self::Skip, Self::Park]
            .into_iter()
            .find(|policy| policy.as_str() == text)
    }
}

/// What keeps its order in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ordering {
    /// All messages of a partition.
    Partition,
    /// The messages of each key.
    Key,
}

impl Ordering {
    /// As the wire and the database write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Ordering::Partition => "partition",
            Ordering::Key => "key",
        }
    }

    /// Reads what the database writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Partition, Self::Key].into_iter().find(|ordering| ordering.as_str() == text)
    }
}

/// Whether what a group has not done counts against the limits of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupCapacity {
    Counted,
    Excluded,
}

impl GroupCapacity {
    /// As the wire and the database write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            GroupCapacity::Counted => "counted",
            GroupCapacity::Excluded => "excluded",
        }
    }

    /// Reads what the database writes.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Counted, Self::Excluded].into_iter().find(|capacity| capacity.as_str() == text)
    }
}

/// What belongs to a group, for all its members.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupSettings {
    pub ack_deadline: Duration,
    pub max_attempts: u32,
    pub backoff_base: Duration,
    pub backoff_factor: f64,
    pub backoff_cap: Duration,
    pub on_failure: FailurePolicy,
    pub capacity: GroupCapacity,
    pub windows: Windows,
    pub ordering: Ordering,
}

/// A group as it is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    pub group_id: GroupId,
    pub settings: GroupSettings,
}

/// A group as it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupNow {
    pub settings: GroupSettings,
    /// Whether its topic keeps delivery times.
    pub delivery_times: bool,
    /// Whether it is delivered to: neither it nor its topic is paused.
    pub running: Running,
}

/// Where a new group begins in one partition; `None`: after the newest message.
pub type FirstOffset = (PartitionId, Option<Offset>);

/// What the assignment is decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    pub lanes: Vec<LaneRow>,
    /// Living members, in the order in which they joined; at last the pullers, who are one together.
    pub members: Vec<SessionId>,
    /// Those of them that have lost their connection and may come back.
    pub away: Vec<SessionId>,
}

/// Who is to have a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    pub partition_id: PartitionId,
    pub session_id: Option<SessionId>,
}

impl Store {
    /// Makes a group. `None`: there is one already.
    pub async fn groups_create(
        &self,
        topic_id: TopicId,
        name: &str,
        settings: &GroupSettings,
        first_offsets: &[FirstOffset],
    ) -> Result<Option<GroupId>, Error> {
        let (ack_deadline_ms, max_attempts) = (millis(settings.ack_deadline), settings.max_attempts as i32);
        let (base_ms, cap_ms) = (millis(settings.backoff_base), millis(settings.backoff_cap));
        let partition_ids: Vec<i64> = first_offsets.iter().map(|(partition_id, _)| partition_id.0).collect();
        let offsets: Vec<Option<i64>> =
            first_offsets.iter().map(|(_, offset)| offset.map(|offset| offset.0)).collect();
        let (on_failure, capacity) = (settings.on_failure.as_str(), settings.capacity.as_str());
        let windows = &settings.windows;
        let (delay_ms, max_age_ms) = (millis(windows.delay), millis(windows.max_age));
        let (window_ms, window_max_ms) = (millis(windows.window), millis(windows.window_max));
        let connection = self.connection().await?;
        let params: super::connection::Params<'_> = &[
            &topic_id.0,
            &name,
            &ack_deadline_ms,
            &max_attempts,
            &base_ms,
            &settings.backoff_factor,
            &cap_ms,
            &on_failure,
            &partition_ids,
            &offsets,
            &capacity,
            &delay_ms,
            &window_ms,
            &window_max_ms,
            &max_age_ms,
            &windows.on_expiry.as_str(),
            &settings.ordering.as_str(),
        ];
        let row = connection.query_opt(&GROUPS_CREATE, params, Effect::Possible).await?;
        Ok(row.map(|row| GroupId(row.get("group_id"))))
    }

    /// A group of a topic by name.
    pub async fn groups_find(&self, topic_id: TopicId, name: &str) -> Result<Option<Group>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&GROUPS_FIND, &[&topic_id.0, &name], Effect::None).await?;
        Ok(row.as_ref().map(group))
    }

    /// What belongs to a group now; `None`: it is gone.
    pub async fn groups_settings(&self, group_id: GroupId) -> Result<Option<GroupNow>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&GROUPS_SETTINGS, &[&group_id.0], Effect::None).await?;
        Ok(row.as_ref().map(|row| GroupNow {
            settings: group(row).settings,
            delivery_times: row.get("delivery_times"),
            running: if row.get("paused") { Running::Paused } else { Running::Resumed },
        }))
    }

    /// A session becomes a member. `false`: the broker was buried, and nothing happened.
    pub async fn members_join(
        &self,
        group_id: GroupId,
        session_id: SessionId,
        broker_id: BrokerId,
        resume_hash: &[u8],
        terms: &str,
    ) -> Result<bool, Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.begin().await?;
        if transaction.query_opt(&BROKERS_HOLD, &[&broker_id.0], Effect::None).await?.is_none() {
            transaction.rollback().await?;
            return Ok(false);
        }
        transaction.execute(&SESSIONS_OPEN, &[&session_id.0, &broker_id.0, &resume_hash]).await?;
        transaction.execute(&MEMBERS_JOIN, &[&group_id.0, &session_id.0, &terms]).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// A session leaves a group, unless it has moved to another broker.
    pub async fn members_leave(
        &self,
        group_id: GroupId,
        session_id: SessionId,
        broker_id: BrokerId,
    ) -> Result<(), Error> {
        let connection = self.connection().await?;
        connection.execute(&MEMBERS_LEAVE, &[&group_id.0, &session_id.0, &broker_id.0]).await?;
        connection.query(&GROUPS_HINT, &[&vec![group_id.0]], Effect::None).await.map(|_| ())
    }

    /// The lanes of a group, as they are.
    pub async fn lanes_list(&self, group_id: GroupId) -> Result<Vec<LaneRow>, Error> {
        let connection = self.connection().await?;
        lanes(&connection, group_id).await
    }

    /// Decides anew who gets which lane, alone in the group, and tells everybody. Returns the lanes as they are then;
    /// `None`: the group is gone.
    pub async fn groups_assign(
        &self,
        group_id: GroupId,
        drain: Duration,
        decide: impl Fn(&GroupView) -> Vec<Want>,
    ) -> Result<Option<Vec<LaneRow>>, Error> {
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            if transaction.query_opt(&GROUPS_LOCK, &[&group_id.0], Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(None);
            }
            transaction.execute(&LANES_ADD, &[&group_id.0]).await?;
            transaction.execute(&LANES_REVOKE_OVERDUE, &[&group_id.0]).await?;
            let view = view(&transaction, group_id).await?;
            let wants = decide(&view);
            if wants.is_empty() {
                transaction.commit().await?;
                return Ok(Some(view.lanes));
            }
            let partition_ids: Vec<i64> = wants.iter().map(|want| want.partition_id.0).collect();
            let sessions: Vec<Option<uuid::Uuid>> =
                wants.iter().map(|want| want.session_id.map(|session_id| session_id.0)).collect();
            let drain_ms = millis(drain);
            transaction.execute(&LANES_WANT, &[&group_id.0, &partition_ids, &sessions, &drain_ms]).await?;
            let lanes = lanes(&transaction, group_id).await?;
            transaction.query(&GROUPS_HINT, &[&vec![group_id.0]], Effect::Possible).await?;
            transaction.commit().await?;
            Ok(Some(lanes))
        })
        .await
    }
}

async fn lanes(connection: &super::Connection, group_id: GroupId) -> Result<Vec<LaneRow>, Error> {
    let params: super::connection::Params<'_> = &[&group_id.0, &PULLERS.0, &millis(PULLERS_TTL)];
    let rows = connection.query(&LANES_LIST, params, Effect::None).await?;
    Ok(rows.iter().map(lane_row).collect())
}

async fn view(transaction: &super::Connection, group_id: GroupId) -> Result<GroupView, Error> {
    let lanes = lanes(transaction, group_id).await?;
    let members = transaction.query(&MEMBERS_LIST, &[&group_id.0], Effect::None).await?;
    let pullers = pullers_live(transaction, group_id).await?.then_some(PULLERS);
    let session = |row: &tokio_postgres::Row| SessionId(row.get("session_id"));
    Ok(GroupView {
        lanes,
        members: members.iter().map(session).chain(pullers).collect(),
        away: members.iter().filter(|row| row.get("away")).map(session).collect(),
    })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn group(row: &tokio_postgres::Row) -> Group {
    let ms = |name| Duration::from_millis(row.get::<_, i64>(name) as u64);
    let (on_failure, capacity): (&str, &str) = (row.get("on_failure"), row.get("capacity"));
    Group {
        group_id: GroupId(row.get("group_id")),
        settings: GroupSettings {
            ack_deadline: ms("ack_deadline_ms"),
            max_attempts: row.get::<_, i32>("max_attempts") as u32,
            backoff_base: ms("backoff_base_ms"),
            backoff_factor: row.get("backoff_factor"),
            backoff_cap: ms("backoff_cap_ms"),
            on_failure: FailurePolicy::parse(on_failure).expect("the database knows the same policies"),
            capacity: GroupCapacity::parse(capacity).expect("the database knows the same words"),
            windows: Windows::of(row),
            ordering: Ordering::parse(row.get("ordering")).expect("the database knows the same words"),
        },
    }
}
