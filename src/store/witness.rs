//! What the verifier reads and does behind the brokers' backs. Nothing else uses it.

use std::time::Duration;

use uuid::Uuid;

use super::Store;
use super::config::Role;
use super::error::{Effect, Error};
use super::query::query;

query!(WITNESS_MESSAGES = "witness_messages"[TEXT]);
query!(WITNESS_COMMITS = "witness_commits"[TEXT]);
query!(WITNESS_UNMANNED = "witness_unmanned"[TEXT]);
query!(WITNESS_LAG = "witness_lag"[TEXT]);
query!(WITNESS_LATER = "witness_later"[TEXT]);
query!(WITNESS_WAITING = "witness_waiting"[TEXT]);
query!(WITNESS_DEPTH = "witness_depth"[TEXT]);
query!(WITNESS_HOLDERS = "witness_holders"[TEXT]);
query!(WITNESS_DEAD_LETTERS = "witness_dead_letters"[TEXT]);
query!(WITNESS_DROPS = "witness_drops"[TEXT]);
query!(WITNESS_PARKED = "witness_parked"[TEXT]);
query!(WITNESS_TERMINATE = "witness_terminate"[TEXT]);

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessedMessage {
    pub partition: u32,
    pub offset: i64,
    pub payload: Vec<u8>,
    pub trace_id: Uuid,
}

/// A message as it is stored, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessedLater {
    pub partition: u32,
    pub offset: i64,
    pub payload: Vec<u8>,
    /// In microseconds since 1970.
    pub published_us: i64,
}

/// Something about a lane: how far it is, or what it has given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessedLane {
    pub group: String,
    pub partition: u32,
    pub offset: i64,
}

impl Store {
    /// Everything that a topic holds, in no order.
    pub async fn witness_messages(&self, topic: &str) -> Result<Vec<WitnessedMessage>, Error> {
        let rows = self.connection().await?.query(&WITNESS_MESSAGES, &[&topic], Effect::None).await?;
        let message = |row: &tokio_postgres::Row| WitnessedMessage {
            partition: row.get::<_, i32>(0) as u32,
            offset: row.get(1),
            payload: row.get(2),
            trace_id: row.get(3),
        };
        Ok(rows.iter().map(message).collect())
    }

    /// Everything that a topic holds, and since when, in no order.
    pub async fn witness_later(&self, topic: &str) -> Result<Vec<WitnessedLater>, Error> {
        let rows = self.connection().await?.query(&WITNESS_LATER, &[&topic], Effect::None).await?;
        let later = |row: &tokio_postgres::Row| WitnessedLater {
            partition: row.get::<_, i32>(0) as u32,
            offset: row.get(1),
            payload: row.get(2),
            published_us: row.get(3),
        };
        Ok(rows.iter().map(later).collect())
    }

    /// How many messages of a topic wait for their time.
    pub async fn witness_waiting(&self, topic: &str) -> Result<i64, Error> {
        let row = self.connection().await?.query_opt(&WITNESS_WAITING, &[&topic], Effect::None).await?;
        Ok(row.map_or(0, |row| row.get("waiting")))
    }

    /// How far the slowest group of a topic is behind.
    pub async fn witness_depth(&self, topic: &str) -> Result<i64, Error> {
        let row = self.connection().await?.query_opt(&WITNESS_DEPTH, &[&topic], Effect::None).await?;
        Ok(row.map_or(0, |row| row.get("messages")))
    }

    /// How far each lane of a topic has come.
    pub async fn witness_commits(&self, topic: &str) -> Result<Vec<WitnessedLane>, Error> {
        let rows = self.connection().await?.query(&WITNESS_COMMITS, &[&topic], Effect::None).await?;
        Ok(rows.iter().map(lane).collect())
    }

    /// Groups of a topic that nobody could take a lane for.
    pub async fn witness_unmanned(&self, topic: &str) -> Result<Vec<String>, Error> {
        let rows = self.connection().await?.query(&WITNESS_UNMANNED, &[&topic], Effect::None).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// How many lanes a topic has, and how many of them have not committed everything.
    pub async fn witness_lag(&self, topic: &str) -> Result<(i64, i64), Error> {
        let row = self.connection().await?.query_opt(&WITNESS_LAG, &[&topic], Effect::None).await?;
        Ok(row.map_or((0, 0), |row| (row.get("lanes"), row.get("behind"))))
    }

    /// The lanes of a topic that somebody holds: group, partition and epoch.
    pub async fn witness_holders(&self, topic: &str) -> Result<Vec<(String, u32, i64)>, Error> {
        let rows = self.connection().await?.query(&WITNESS_HOLDERS, &[&topic], Effect::None).await?;
        let holder = |row: &tokio_postgres::Row| (row.get(0), row.get::<_, i32>(1) as u32, row.get(2));
        Ok(rows.iter().map(holder).collect())
    }

    /// What the groups of a topic have given up.
    pub async fn witness_dead_letters(
        &self,
        topic: &str,
    ) -> Result<Vec<(WitnessedLane, Vec<u8>, Uuid)>, Error> {
        let rows = self.connection().await?.query(&WITNESS_DEAD_LETTERS, &[&topic], Effect::None).await?;
        Ok(rows.iter().map(|row| (lane(row), row.get(3), row.get(4))).collect())
    }

    /// What somebody has dropped of parked keys.
    pub async fn witness_drops(&self, topic: &str) -> Result<Vec<WitnessedLane>, Error> {
        let rows = self.connection().await?.query(&WITNESS_DROPS, &[&topic], Effect::None).await?;
        Ok(rows.iter().map(lane).collect())
    }

    /// How many keys are parked, or released and not done.
    pub async fn witness_parked(&self, topic: &str) -> Result<i64, Error> {
        let row = self.connection().await?.query_opt(&WITNESS_PARKED, &[&topic], Effect::None).await?;
        Ok(row.map_or(0, |row| row.get("parked")))
    }

    /// Ends the connections whose name is like that. Returns how many there were.
    pub async fn witness_terminate(&self, application_name_pattern: &str) -> Result<usize, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&WITNESS_TERMINATE, &[&application_name_pattern], Effect::None).await?;
        Ok(rows.len())
    }
}

/// What a transaction that somebody leaves open keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// A transaction id's place in line: it is idle.
    Nothing,
    /// A snapshot of the moment it began.
    Snapshot,
}

impl Store {
    /// Leaves a transaction open for a while, on a connection of its own.
    pub async fn witness_idle(&self, keeps: Keeps, hold: Duration) -> Result<(), Error> {
        let connection = self.dedicated(Role::Pool).await?;
        let begin = match keeps {
            Keeps::Nothing => "BEGIN; SELECT txid_current()",
            Keeps::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM laneway.topic",
        };
        // Somebody else's connection has none of the timeouts of ours.
        let begin = format!("SET idle_in_transaction_session_timeout = 0; {begin}");
        connection.batch(&begin).await.map_err(|error| Error::classify(&error, Effect::None))?;
        tokio::time::sleep(hold).await;
        connection.batch("ROLLBACK").await.map_err(|error| Error::classify(&error, Effect::None))
    }
}

fn lane(row: &tokio_postgres::Row) -> WitnessedLane {
    WitnessedLane { group: row.get(0), partition: row.get::<_, i32>(1) as u32, offset: row.get(2) }
}
