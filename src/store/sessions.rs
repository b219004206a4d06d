//! Sessions that are members of groups: entered with their first group, ended, or taken over by another broker.

use std::time::Duration;

use super::error::{Effect, Error};
use super::groups::GROUPS_HINT;
use super::lanes::BROKERS_HOLD;
use super::query::query;
use super::{Store, retry, selections};
use crate::ids::{BrokerId, GroupId, SessionId};

query!(SESSIONS_CLOSE = "sessions_close"[UUID, UUID]);
query!(SESSIONS_FIND = "sessions_find"[UUID]);
query!(SESSIONS_AWAY = "sessions_away"[UUID, UUID, INT8]);
query!(SESSIONS_TAKE = "sessions_take"[UUID, BYTEA, UUID]);
query!(LANES_TAKE = "lanes_take"[UUID, UUID]);
query!(MEMBERS_OF_SESSION = "members_of_session"[UUID]);

/// A group that a session belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    pub group_id: GroupId,
    pub group: String,
    pub topic: String,
    /// What it subscribed with, as JSON.
    pub terms: String,
}

/// What a session had at the broker that it was taken from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    pub memberships: Vec<Membership>,
    /// The terms of what it selects, as JSON.
    pub selections: Vec<String>,
}

impl Store {
    /// Ends a session, unless it has moved to another broker. Lanes that it still holds are free.
    pub async fn sessions_close(&self, session_id: SessionId, broker_id: BrokerId) -> Result<(), Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.begin().await?;
        let params: super::connection::Params<'_> = &[&session_id.0, &broker_id.0];
        let rows = transaction.query(&SESSIONS_CLOSE, params, Effect::Possible).await?;
        let groups: Vec<i64> = rows.iter().map(|row| row.get("group_id")).collect();
        if !groups.is_empty() {
            transaction.query(&GROUPS_HINT, &[&groups], Effect::Possible).await?;
        }
        transaction.commit().await
    }

    /// A session has lost its connection and may come back for so long; zero: it is back.
    pub async fn sessions_away(
        &self,
        session_id: SessionId,
        broker_id: BrokerId,
        away: Duration,
    ) -> Result<(), Error> {
        let away_ms = i64::try_from(away.as_millis()).unwrap_or(i64::MAX);
        let connection = self.connection().await?;
        connection.execute(&SESSIONS_AWAY, &[&session_id.0, &broker_id.0, &away_ms]).await.map(|_| ())
    }

    /// The broker that a session lives on; `None`: it has joined no group, or is over.
    pub async fn sessions_find(&self, session_id: SessionId) -> Result<Option<BrokerId>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&SESSIONS_FIND, &[&session_id.0], Effect::None).await?;
        Ok(row.map(|row| BrokerId(row.get("broker_id"))))
    }

    /// Takes a session over from another broker, with its lanes, whose epochs rise. `None`: there is no such session, or
    /// the token is wrong, or this broker was buried.
    pub async fn sessions_take(
        &self,
        session_id: SessionId,
        resume_hash: &[u8],
        broker_id: BrokerId,
    ) -> Result<Option<Taken>, Error> {
        let take = || self.session_take(session_id, resume_hash, broker_id);
        retry::contended(retry::Policy::CONTENDED, take).await
    }

    /// Order: the broker, the session, its lanes by id.
    async fn session_take(
        &self,
        session_id: SessionId,
        resume_hash: &[u8],
        broker_id: BrokerId,
    ) -> Result<Option<Taken>, Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.begin().await?;
        let alive = transaction.query_opt(&BROKERS_HOLD, &[&broker_id.0], Effect::None).await?.is_some();
        let params: super::connection::Params<'_> = &[&session_id.0, &resume_hash, &broker_id.0];
        if !alive || transaction.query_opt(&SESSIONS_TAKE, params, Effect::Possible).await?.is_none() {
            transaction.rollback().await?;
            return Ok(None);
        }
        transaction.execute(&LANES_TAKE, &[&session_id.0, &broker_id.0]).await?;
        let rows = transaction.query(&MEMBERS_OF_SESSION, &[&session_id.0], Effect::None).await?;
        let memberships: Vec<Membership> = rows.iter().map(membership).collect();
        let selections = selections::of_session(&transaction, session_id).await?;
        let groups: Vec<i64> = memberships.iter().map(|membership| membership.group_id.0).collect();
        transaction.query(&GROUPS_HINT, &[&groups], Effect::Possible).await?;
        transaction.commit().await?;
        Ok(Some(Taken { memberships, selections }))
    }
}

fn membership(row: &tokio_postgres::Row) -> Membership {
    Membership {
        group_id: GroupId(row.get("group_id")),
        group: row.get("group_name"),
        topic: row.get("topic_name"),
        terms: row.get("terms"),
    }
}
