//! The lives of brokers: registered, renewed by a heartbeat, and buried when nothing was heard for too long.
//!
//! All arithmetic is SQL on the Postgres clock. A burial takes a broker's lanes and sessions from it in the same
//! transaction, so nobody ever finds a lane whose holder is half dead.

use std::time::Duration;

use jiff::Timestamp;

use super::error::{Effect, Error};
use super::groups::GROUPS_HINT;
use super::pops::PULLERS;
use super::query::query;
use super::{Connection, Store};
use crate::ids::{BrokerId, GroupId};

query!(BROKERS_REGISTER = "brokers_register"[UUID, INT8]);
query!(BROKERS_RENEW = "brokers_renew"[UUID, INT8]);
query!(BROKERS_BURY = "brokers_bury"[]);
query!(BROKERS_RESIGN = "brokers_resign"[UUID]);
query!(BROKERS_ELDEST = "brokers_eldest"[]);
query!(BROKERS_FORGET = "brokers_forget"[FLOAT8]);
query!(LANES_LEAP = "lanes_leap"[UUID, INT8, UUID]);
query!(LANES_ORPHAN = "lanes_orphan"[UUID_ARRAY]);
query!(SESSIONS_LOCK_ORPHANED = "sessions_lock_orphaned"[UUID_ARRAY]);
query!(SESSIONS_ORPHAN = "sessions_orphan"[UUID_ARRAY]);

/// A buried broker is remembered this long, for people who ask what happened.
const REMEMBERED_SECONDS: f64 = 3_600.0;

/// Epochs that a lane may have been given on a timeline whose end is lost: a lane changes hands a few times a minute at most.
const EPOCHS_LOST_MAX: i64 = 1_000;

/// What a broker finds that begins to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// How many others live.
    pub others: usize,
    /// What time it was; absent if nobody said.
    pub clock_at: Option<Timestamp>,
}

/// What a heartbeat finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// It lives, and so do this many others. The first of them to expire, if it is not heard of, does so after a while.
    Renewed { others: usize, first_expiry: Option<Duration>, clock_at: Timestamp },
    /// It was buried: it holds nothing any more.
    Buried,
}

impl Store {
    /// The broker that has lived longest, if any lives.
    pub async fn brokers_eldest(&self) -> Result<Option<BrokerId>, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&BROKERS_ELDEST, &[], Effect::None).await?;
        Ok(row.map(|row| BrokerId(row.get("broker_id"))))
    }
}

impl Connection {
    /// Begins a life.
    pub async fn brokers_register(&self, broker_id: BrokerId, ttl: Duration) -> Result<Registration, Error> {
        let ttl_ms = ttl.as_millis() as i64;
        let row = self.query_opt(&BROKERS_REGISTER, &[&broker_id.0, &ttl_ms], Effect::Possible).await?;
        Ok(Registration {
            others: row.as_ref().map_or(0, |row| row.get::<_, i64>("others") as usize),
            clock_at: row.map(|row| row.get("clock_at")),
        })
    }

    /// Prolongs it.
    pub async fn brokers_renew(&self, broker_id: BrokerId, ttl: Duration) -> Result<Renewal, Error> {
        let ttl_ms = ttl.as_millis() as i64;
        let row = self.query_opt(&BROKERS_RENEW, &[&broker_id.0, &ttl_ms], Effect::Possible).await?;
        let millis = |expiry: i64| Duration::from_millis(expiry.max(0) as u64);
        Ok(row.map_or(Renewal::Buried, |row| Renewal::Renewed {
            others: row.get::<_, i64>("others") as usize,
            first_expiry: row.get::<_, Option<i64>>("first_expiry_ms").map(millis),
            clock_at: row.get("clock_at"),
        }))
    }

    /// Buries those that were not heard of in time, and frees what they held. Returns them.
    pub async fn brokers_bury(&mut self) -> Result<Vec<BrokerId>, Error> {
        let transaction = self.begin().await?;
        let rows = transaction.query(&BROKERS_BURY, &[], Effect::Possible).await?;
        let buried: Vec<uuid::Uuid> = rows.iter().map(|row| row.get("broker_id")).collect();
        match buried.is_empty() {
            true => transaction.rollback().await?,
            false => {
                orphan(&transaction, &buried).await?;
                transaction.commit().await?;
            }
        }
        Ok(buried.into_iter().map(BrokerId).collect())
    }

    /// Ends its own life in order.
    pub async fn brokers_resign(&mut self, broker_id: BrokerId) -> Result<(), Error> {
        let transaction = self.begin().await?;
        transaction.execute(&BROKERS_RESIGN, &[&broker_id.0]).await?;
        orphan(&transaction, &[broker_id.0]).await?;
        transaction.commit().await
    }

    /// Ends a life on a timeline that it was not begun on, or not to its end: whatever the broker remembers of its lanes,
    /// nothing of it counts here, and no epoch that it may have used is given again.
    pub async fn brokers_disown(&mut self, broker_id: BrokerId) -> Result<(), Error> {
        let transaction = self.begin().await?;
        transaction.execute(&BROKERS_RESIGN, &[&broker_id.0]).await?;
        transaction.execute(&LANES_LEAP, &[&broker_id.0, &EPOCHS_LOST_MAX, &PULLERS.0]).await?;
        orphan(&transaction, &[broker_id.0]).await?;
        transaction.commit().await
    }

    /// Drops rows that nobody needs any more.
    pub async fn brokers_forget(&self) -> Result<(), Error> {
        self.execute(&BROKERS_FORGET, &[&REMEMBERED_SECONDS]).await.map(|_| ())
    }
}

/// Order: sessions are locked before lanes, as by `sessions_take`, or the two would wait for each other while a client resumes
/// elsewhere. Lanes go before sessions, so that the members of a group never vanish while a lane still names one.
async fn orphan(transaction: &Connection, broker_ids: &[uuid::Uuid]) -> Result<(), Error> {
    transaction.query(&SESSIONS_LOCK_ORPHANED, &[&broker_ids], Effect::Possible).await?;
    let mut groups: Vec<i64> = Vec::new();
    for query in [&LANES_ORPHAN, &SESSIONS_ORPHAN] {
        let rows = transaction.query(query, &[&broker_ids], Effect::Possible).await?;
        groups.extend(rows.iter().map(|row| GroupId(row.get("group_id")).0));
    }
    groups.sort_unstable();
    groups.dedup();
    transaction.query(&GROUPS_HINT, &[&groups], Effect::Possible).await.map(|_| ())
}
