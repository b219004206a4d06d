//! `laneway doctor`: what is wrong with a database and a broker, and what to do about it.
//!
//! Data flows one way: facts, gathered once by the command, become findings by the pure functions below.
//!
//! | file | judges |
//! |---|---|
//! | `reach` | whether the database and the broker answer, and in which versions |
//! | `server` | settings of PostgreSQL, replication, clock |
//! | `room` | connections, locks, sessions that hold back vacuum |
//! | `keys` | whether the broker has the keys of encrypted topics |
//! | `schema` | rights, version and completeness of the schema |
//!
//! Must stay true: a finding that is not ok says what to do. `wrong` means that messages, or the broker itself, are at
//! risk now; `warn` means that they will be if nobody looks.

mod keys;
mod reach;
mod room;
mod schema;
mod server;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::Serialize;

use crate::limits::BROKER_CONNECTIONS_BESIDE;
use crate::store::examine::{DatabaseFacts, Examination};

pub use reach::{BrokerFacts, Expected, Trouble};

/// Everything that is known; see [`findings`].
#[derive(Debug, Clone)]
pub struct Facts {
    pub database: Result<Examination, Trouble>,
    pub broker: BrokerFacts,
    pub plan: Plan,
}

/// What brokers are told, as far as it matters to the database.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub pool_size: u32,
    pub appenders: u16,
    /// From when on a session that idles in a transaction is worth a word.
    pub idle_max: Duration,
}

impl Plan {
    /// Connections of one broker, at most.
    fn connections(&self) -> i64 {
        i64::from(self.pool_size) + i64::from(self.appenders) + i64::from(BROKER_CONNECTIONS_BESIDE)
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    Warn,
    Wrong,
}

impl Verdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Wrong => "wrong",
        }
    }
}

/// What one check has come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub verdict: Verdict,
    /// What is there.
    pub found: String,
    /// What to do about it; absent if all is well.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), todo: None }
    }

    fn warn(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.into(), todo: Some(todo.into()) }
    }

    fn wrong(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Wrong, found: found.into(), todo: Some(todo.into()) }
    }
}

/// Judges everything, in the order in which a broker would run into it.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = reach::database(&facts.database);
    if let Ok(Examination { database: Some(database), .. }) = &facts.database {
        all.extend(of_database(database, &facts.plan));
    }
    all.extend(reach::broker(&facts.broker));
    all
}

fn of_database(facts: &DatabaseFacts, plan: &Plan) -> Vec<Finding> {
    vec![
        server::fsync(&facts.settings),
        server::full_page_writes(&facts.settings),
        server::synchronous_commit(&facts.settings),
        server::synchronous_standbys(&facts.settings, &facts.replication),
        server::replication_slots(&facts.replication),
        server::writable(&facts.settings),
        server::autovacuum(&facts.settings),
        server::clock(facts.clock_ahead_seconds),
        room::connections(facts, plan),
        room::locks(facts),
        room::idle_transactions(&facts.activity, plan),
        schema::permissions(&facts.permissions),
        schema::version(&facts.schema),
        schema::tables(&facts.schema),
    ]
}
