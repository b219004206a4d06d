//! Selections of topics: what sessions select, and which topics have changed since a look.

use std::time::Duration;

use jiff::Timestamp;
use laneway_client::labels::Labels;

use super::error::{Effect, Error};
use super::groups::SESSIONS_OPEN;
use super::lanes::BROKERS_HOLD;
use super::query::query;
use super::{Connection, Store, topics};
use crate::ids::{BrokerId, SessionId, TopicId};

query!(TOPICS_CHANGED = "topics_changed"[TIMESTAMPTZ]);
query!(SELECTIONS_ENTER = "selections_enter"[UUID, INT8, TEXT]);
query!(SELECTIONS_LEAVE = "selections_leave"[UUID, INT8, UUID]);
query!(SELECTIONS_BEFORE = "selections_before"[INT8, TEXT]);
query!(SELECTIONS_OF_SESSION = "selections_of_session"[UUID]);

/// How long a change may take from its date to its commit: statements and waits for locks end long before.
const COMMIT_PATIENCE: Duration = Duration::from_secs(60);

/// A topic as far as selections know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTopic {
    pub topic_id: TopicId,
    pub name: String,
    pub labels: Labels,
}

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicNews {
    pub there: Vec<ListedTopic>,
    pub deleted: Vec<TopicId>,
    /// On the database clock: from where to ask next.
    pub asked_at: Timestamp,
}

impl Store {
    /// Topics that have changed since another look; `None`: all that are there.
    pub async fn topics_changed(&self, since: Option<Timestamp>) -> Result<TopicNews, Error> {
        let connection = self.connection().await?;
        let since = since.map(|since| since.checked_sub(COMMIT_PATIENCE).unwrap_or(Timestamp::UNIX_EPOCH));
        let rows = connection.query(&TOPICS_CHANGED, &[&since], Effect::None).await?;
        let asked_at = rows.first().map_or(Timestamp::UNIX_EPOCH, |row| row.get("asked_at"));
        let mut news = TopicNews { there: Vec::new(), deleted: Vec::new(), asked_at };
        for row in &rows {
            let Some(topic_id) = row.get::<_, Option<i64>>("topic_id").map(TopicId) else { continue };
            match row.get("deleted") {
                true => news.deleted.push(topic_id),
                false => {
                    let (name, labels) = (row.get("name"), topics::labels(row));
                    news.there.push(ListedTopic { topic_id, name, labels });
                }
            }
        }
        Ok(news)
    }

    /// A session selects topics. `false`: the broker was buried, and nothing happened.
    pub async fn selections_enter(
        &self,
        session_id: SessionId,
        broker_id: BrokerId,
        resume_hash: &[u8],
        number: u32,
        terms: &str,
    ) -> Result<bool, Error> {
        let mut connection = self.connection().await?;
        let transaction = connection.begin().await?;
        if transaction.query_opt(&BROKERS_HOLD, &[&broker_id.0], Effect::None).await?.is_none() {
            transaction.rollback().await?;
            return Ok(false);
        }
        transaction.execute(&SESSIONS_OPEN, &[&session_id.0, &broker_id.0, &resume_hash]).await?;
        transaction.execute(&SELECTIONS_ENTER, &[&session_id.0, &i64::from(number), &terms]).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// What was selected under the name of a group before a topic was made or labelled, as JSON, with the labels it has now.
    pub async fn selections_before(
        &self,
        topic_id: TopicId,
        group: &str,
    ) -> Result<Vec<(String, Labels)>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&SELECTIONS_BEFORE, &[&topic_id.0, &group], Effect::None).await?;
        Ok(rows.iter().map(|row| (row.get("terms"), topics::labels(row))).collect())
    }

    /// A session selects topics no longer, unless it has moved to another broker.
    pub async fn selections_leave(
        &self,
        session_id: SessionId,
        broker_id: BrokerId,
        number: u32,
    ) -> Result<(), Error> {
        let connection = self.connection().await?;
        let params: super::connection::Params<'_> = &[&session_id.0, &i64::from(number), &broker_id.0];
        connection.execute(&SELECTIONS_LEAVE, params).await.map(|_| ())
    }
}

/// The terms of all selections of a session.
pub(super) async fn of_session(
    transaction: &Connection,
    session_id: SessionId,
) -> Result<Vec<String>, Error> {
    let rows = transaction.query(&SELECTIONS_OF_SESSION, &[&session_id.0], Effect::None).await?;
    Ok(rows.iter().map(|row| row.get("terms")).collect())
}
