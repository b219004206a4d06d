//! What operators change about groups: settings, positions, and whether there is one at all.
//!
//! Locks: the group row, then lanes by id, each before the statement that depends on it. A change is told by the hint that
//! everybody who serves the group listens to.

use super::error::{Effect, Error};
use super::groups::{
    FailurePolicy, FirstOffset, GROUPS_HINT, GROUPS_LOCK, GROUPS_SETTINGS, GroupCapacity, GroupSettings,
    LANES_ADD, MEMBERS_LIST, Ordering, group,
};
use super::query::query;
use super::windows::{ExpiryPolicy, WindowChanges};
use super::{Connection, Store, retry};
use crate::ids::{Epoch, GroupId, Offset, ParkedId};

query!(GROUPS_ALTER = "groups_alter"[
    INT8, INT8, INT4, INT8, FLOAT8, INT8, TEXT, TEXT, INT8, INT8, INT8, INT8, TEXT, TEXT
]);
query!(GROUPS_AT_REST = "groups_at_rest"[INT8, TEXT]);
query!(GROUPS_CLOSE = "groups_close"[INT8]);
query!(GROUPS_DELETE = "groups_delete"[INT8]);
query!(LANES_CLOSE = "lanes_close"[INT8]);
query!(LANES_HOLD = "lanes_hold"[INT8, INT8_ARRAY]);
query!(PARKED_KEYS_OF_GROUP = "parked_keys_of_group"[INT8, INT8]);
query!(LANES_SEEK = "lanes_seek"[INT8, INT8_ARRAY, INT8_ARRAY]);

/// Parked keys that are named when a group is not deleted because of them: enough to go and look.
const PARKED_KEYS_NAMED: i64 = 5;

/// New settings of a group; what is absent stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct GroupChanges {
    pub ack_deadline_ms: Option<u64>,
    pub max_attempts: Option<u32>,
    pub backoff_base_ms: Option<u64>,
    pub backoff_factor: Option<f64>,
    pub backoff_cap_ms: Option<u64>,
    pub on_failure: Option<FailurePolicy>,
    pub capacity: Option<GroupCapacity>,
    pub windows: WindowChanges,
    pub ordering: Option<Ordering>,
}

/// Whether a group was altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupAltered<E> {
    Done,
    /// With those that stay, its settings would not be what they may; nothing happened.
    Refused(E),
    /// Its ordering does not change while somebody consumes; nothing happened.
    InUse,
    /// Its ordering does not change while it has parked keys; nothing happened.
    HasParked,
    /// There is no such group (any more).
    Unknown,
}

/// What becomes of a group that still has members or parked keys when it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfUsed {
    /// It stays.
    Refuse,
    /// It goes with them, and members are told.
    Force,
}

/// Whether a group was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupDeleted {
    Done,
    /// It has this many members; nothing happened.
    HasMembers(usize),
    /// It has this many parked keys, and these are the first of them; nothing happened.
    HasParked {
        keys: i64,
        first: Vec<ParkedId>,
    },
    /// There is no such group (any more).
    Unknown,
}

/// A lane that was moved to another offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sought {
    /// The number of its partition.
    pub partition: u32,
    pub epoch: Epoch,
    pub committed: Offset,
}

impl Store {
    /// Changes settings and tells those who serve the group. `check` is asked under the lock, about those that there are then.
    pub async fn groups_alter<E>(
        &self,
        group_id: GroupId,
        changes: &GroupChanges,
        check: impl Fn(&GroupSettings) -> Result<(), E>,
    ) -> Result<GroupAltered<E>, Error> {
        let ms = |ms: Option<u64>| ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        let (deadline, base) = (ms(changes.ack_deadline_ms), ms(changes.backoff_base_ms));
        let (cap, attempts) =
            (ms(changes.backoff_cap_ms), changes.max_attempts.map(|attempts| attempts as i32));
        let on_failure = changes.on_failure.map(FailurePolicy::as_str);
        let capacity = changes.capacity.map(GroupCapacity::as_str);
        let windows = &changes.windows;
        let (delay, max_age) = (ms(windows.delay_ms), ms(windows.max_age_ms));
        let (window, window_max) = (ms(windows.window_ms), ms(windows.window_max_ms));
        let on_expiry = windows.on_expiry.map(ExpiryPolicy::as_str);
        let ordering = changes.ordering.map(Ordering::as_str);
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            let lock = if ordering.is_some() { &GROUPS_CLOSE } else { &GROUPS_LOCK }; // nobody joins while it is closed
            let locked = transaction.query_opt(lock, &[&group_id.0], Effect::None).await?;
            let now = transaction.query_opt(&GROUPS_SETTINGS, &[&group_id.0], Effect::None).await?;
            let (Some(_), Some(now)) = (locked, now) else {
                transaction.rollback().await?;
                return Ok(GroupAltered::Unknown);
            };
            if let Err(error) = check(&group(&now).settings) {
                transaction.rollback().await?;
                return Ok(GroupAltered::Refused(error));
            }
            if let Some(obstacle) = may_reorder(&transaction, group_id, ordering).await? {
                transaction.rollback().await?;
                return Ok(obstacle);
            }
            let params: super::connection::Params<'_> = &[
                &group_id.0,
                &deadline,
                &attempts,
                &base,
                &changes.backoff_factor,
                &cap,
                &on_failure,
                &capacity,
                &delay,
                &window,
                &window_max,
                &max_age,
                &on_expiry,
                &ordering,
            ];
            if transaction.execute(&GROUPS_ALTER, params).await? == 0 {
                transaction.rollback().await?;
                return Ok(GroupAltered::Unknown);
            }
            transaction.query(&GROUPS_HINT, &[&vec![group_id.0]], Effect::Possible).await?;
            transaction.commit().await?;
            Ok(GroupAltered::Done)
        })
        .await
    }

    /// Deletes a group with its members, lanes, commits and parked keys. Its dead letters stay.
    pub async fn groups_delete(&self, group_id: GroupId, if_used: IfUsed) -> Result<GroupDeleted, Error> {
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            if transaction.query_opt(&GROUPS_CLOSE, &[&group_id.0], Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(GroupDeleted::Unknown);
            }
            let members = transaction.query(&MEMBERS_LIST, &[&group_id.0], Effect::None).await?.len();
            if members > 0 && if_used == IfUsed::Refuse {
                transaction.rollback().await?;
                return Ok(GroupDeleted::HasMembers(members));
            }
            transaction.query(&LANES_CLOSE, &[&group_id.0], Effect::None).await?;
            // Order: after the lanes are closed, so that what their last holders have parked is seen.
            let params: super::connection::Params<'_> = &[&group_id.0, &PARKED_KEYS_NAMED];
            let parked = transaction.query(&PARKED_KEYS_OF_GROUP, params, Effect::None).await?;
            if let Some(row) = parked.first().filter(|_| if_used == IfUsed::Refuse) {
                let first = parked.iter().map(|row| ParkedId(row.get("parked_id"))).collect();
                let refused = GroupDeleted::HasParked { keys: row.get("keys"), first };
                transaction.rollback().await?;
                return Ok(refused);
            }
            transaction.execute(&GROUPS_DELETE, &[&group_id.0]).await?;
            transaction.query(&GROUPS_HINT, &[&vec![group_id.0]], Effect::Possible).await?;
            transaction.commit().await?;
            Ok(GroupDeleted::Done)
        })
        .await
    }

    /// Moves lanes to other offsets, whoever holds them: a `None` offset is after the newest message. Their holders lose
    /// them, and those who are wanted acquire them at the new place. `None`: the group is gone.
    pub async fn lanes_seek(
        &self,
        group_id: GroupId,
        targets: &[FirstOffset],
    ) -> Result<Option<Vec<Sought>>, Error> {
        let partition_ids: Vec<i64> = targets.iter().map(|(partition_id, _)| partition_id.0).collect();
        let offsets: Vec<Option<i64>> =
            targets.iter().map(|(_, offset)| offset.map(|offset| offset.0)).collect();
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            if transaction.query_opt(&GROUPS_LOCK, &[&group_id.0], Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(None);
            }
            transaction.execute(&LANES_ADD, &[&group_id.0]).await?;
            transaction.query(&LANES_HOLD, &[&group_id.0, &partition_ids], Effect::None).await?;
            let params: super::connection::Params<'_> = &[&group_id.0, &partition_ids, &offsets];
            let rows = transaction.query(&LANES_SEEK, params, Effect::Possible).await?;
            transaction.query(&GROUPS_HINT, &[&vec![group_id.0]], Effect::Possible).await?;
            transaction.commit().await?;
            let sought = |row: &tokio_postgres::Row| Sought {
                partition: row.get::<_, i32>("number") as u32,
                epoch: Epoch(row.get("epoch")),
                committed: Offset(row.get("committed_offset")),
            };
            Ok(Some(rows.iter().map(sought).collect()))
        })
        .await
    }
}

/// What keeps a group from another ordering, if it is another. Locks: it is closed, so nobody joins it.
async fn may_reorder<E>(
    transaction: &Connection,
    group_id: GroupId,
    ordering: Option<&str>,
) -> Result<Option<GroupAltered<E>>, Error> {
    let Some(ordering) = ordering else { return Ok(None) };
    let row = transaction.query_opt(&GROUPS_AT_REST, &[&group_id.0, &ordering], Effect::None).await?;
    Ok(row.and_then(|row| match (row.get("in_use"), row.get("has_parked")) {
        (true, _) => Some(GroupAltered::InUse),
        (false, true) => Some(GroupAltered::HasParked),
        (false, false) => None,
    }))
}
