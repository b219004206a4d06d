//! Groups that nobody uses: noticed by the retention chore, and deleted after as long as their topic allows.
//!
//! A group is used while it has members, those who pull among them, and whenever the epoch of one of its lanes rises: a commit
//! needs a holder, and a holder a grant. Locks: the group row, then its lanes, then the look that decides, as with every other change.

use super::error::{Effect, Error};
use super::group_changes::{GROUPS_CLOSE, GROUPS_DELETE, LANES_CLOSE};
use super::groups::{GROUPS_HINT, MEMBERS_LIST};
use super::pops::pullers_live;
use super::query::query;
use super::retention::or_later;
use super::{Store, retry};
use crate::ids::GroupId;
use crate::limits::PULLERS_TTL;

query!(GROUPS_IDLE = "groups_idle"[INT8]);
query!(GROUPS_EXPIRED = "groups_expired"[INT8]);
query!(RETENTION_EVENTS_RECORD_GROUP = "retention_events_record_group"[INT8]);

/// A group that nobody has used for long enough.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unused {
    group_id: GroupId,
    group: String,
    topic: String,
}

impl Store {
    /// One pass: notes which groups are unused, and deletes those that have been for too long. Returns how many went.
    pub async fn groups_expire(&self) -> Result<usize, Error> {
        let pullers_ms = PULLERS_TTL.as_millis() as i64;
        let noted = retry::contended(retry::Policy::CONTENDED, || async {
            self.upkeep_connection().await?.execute(&GROUPS_IDLE, &[&pullers_ms]).await
        });
        or_later(noted.await)?;
        let rows =
            self.upkeep_connection().await?.query(&GROUPS_EXPIRED, &[&None::<i64>], Effect::None).await?;
        let unused = |row: &tokio_postgres::Row| Unused {
            group_id: GroupId(row.get("group_id")),
            group: row.get("name"),
            topic: row.get("topic"),
        };
        let mut gone = 0;
        for Unused { group_id, group, topic } in rows.iter().map(unused) {
            let expired = retry::contended(retry::Policy::CONTENDED, || self.group_expire(group_id));
            if or_later(expired.await)? == Some(true) {
                gone += 1;
                self.let_go.groups.inc();
                tracing::info!(group.name = group, topic.name = topic, "group deleted: nobody used it");
            }
        }
        Ok(gone)
    }

    /// Deletes a group if it is still unused. `false`: it is not, or it is gone.
    async fn group_expire(&self, group_id: GroupId) -> Result<bool, Error> {
        let mut connection = self.upkeep_connection().await?;
        let transaction = connection.begin().await?;
        let closed = transaction.query_opt(&GROUPS_CLOSE, &[&group_id.0], Effect::None).await?.is_some();
        let members = transaction.query(&MEMBERS_LIST, &[&group_id.0], Effect::None).await?;
        transaction.query(&LANES_CLOSE, &[&group_id.0], Effect::None).await?;
        let is_pulled = pullers_live(&transaction, group_id).await?;
        let due = transaction.query_opt(&GROUPS_EXPIRED, &[&Some(group_id.0)], Effect::None).await?;
        if !closed || is_pulled || !members.is_empty() || due.is_none() {
            transaction.rollback().await?;
            return Ok(false);
        }
        transaction.execute(&RETENTION_EVENTS_RECORD_GROUP, &[&group_id.0]).await?;
        transaction.execute(&GROUPS_DELETE, &[&group_id.0]).await?;
        transaction.query(&GROUPS_HINT, &[&vec![group_id.0]], Effect::Possible).await?;
        transaction.commit().await?;
        Ok(true)
    }
}
