//! What `laneway doctor` looks at in a database. Reads only, on one connection, and judges nothing.
//!
//! It must work where a broker would not start: on an older schema or none, as a role without rights, behind a pooler.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::connection::Connection;
use super::error::{Effect, Error};
use super::migrate::{MigrateError, SERVER_VERSION_MIN, SchemaState};
use super::query::query;
use super::{Role, Store};

query!(SETTINGS_EXAMINE = "settings_examine"[]);
query!(REPLICATION_EXAMINE = "replication_examine"[]);
query!(ACTIVITY_EXAMINE = "activity_examine"[FLOAT8]);
query!(PERMISSIONS_EXAMINE = "permissions_examine"[]);
query!(RELATIONS_EXAMINE = "relations_examine"[]);
query!(BROKERS_COUNT = "brokers_count"[]);

/// What a server is, and what is in it unless it is too old to be asked.
#[derive(Debug, Clone)]
pub struct Examination {
    /// In the server's words.
    pub server_version: String,
    /// Absent for a server older than we support.
    pub database: Option<DatabaseFacts>,
}

/// Facts about a database, all of one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct DatabaseFacts {
    pub settings: SettingFacts,
    /// The database's clock minus ours.
    pub clock_ahead_seconds: f64,
    pub replication: ReplicationFacts,
    pub activity: ActivityFacts,
    pub permissions: PermissionFacts,
    pub schema: SchemaFacts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingFacts {
    pub fsync: String,
    pub full_page_writes: String,
    pub synchronous_commit: String,
    pub synchronous_standby_names: String,
    pub autovacuum: String,
    pub track_counts: String,
    pub max_connections: i64,
    pub reserved_connections: i64,
    pub max_prepared_transactions: i64,
    pub max_locks_per_transaction: i64,
    pub default_transaction_read_only: String,
    pub in_recovery: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationFacts {
    /// Standbys whose word a commit waits for.
    pub confirming: i64,
    pub inactive_slots: Vec<String>,
    /// The most log that one of these slots keeps.
    pub held_bytes: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ActivityFacts {
    pub connections: i64,
    /// Sessions that idle in a transaction for too long, the longest first.
    pub idle_pids: Vec<i32>,
    pub idle_seconds: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionFacts {
    pub role: String,
    pub database: String,
    /// May make schemas, which every start of a broker wants to be able to.
    pub may_create: bool,
    pub has_schema: bool,
    pub owns_schema: bool,
    pub may_enter: bool,
    /// Tables of the schema that belong to others.
    pub foreign_tables: i64,
    /// Of the role or the database, whichever is lower.
    pub connection_limit: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFacts {
    /// Which migrations it has seen; an error if that cannot be told or must not be.
    pub state: Result<SchemaState, MigrateError>,
    /// Tables and views that are no part of another table.
    pub names: Vec<String>,
    pub tables: i64,
    /// Brokers that live; `None` where it cannot be told.
    pub brokers: Option<i64>,
}

impl Store {
    /// Looks at everything once. Changes nothing.
    pub async fn examine(&self, idle: Duration) -> Result<Examination, Error> {
        let connection = self.dedicated(Role::Pool).await?;
        let (number, server_version) = connection.server_version().await?;
        let database = match number >= SERVER_VERSION_MIN {
            true => Some(database(&connection, idle).await?),
            false => None,
        };
        Ok(Examination { server_version, database })
    }
}

async fn database(connection: &Connection, idle: Duration) -> Result<DatabaseFacts, Error> {
    let before = Timestamp::now();
    let settings = one(connection.query(&SETTINGS_EXAMINE, &[], Effect::None).await?)?;
    let after = Timestamp::now();
    let replication = one(connection.query(&REPLICATION_EXAMINE, &[], Effect::None).await?)?;
    let activity = one(connection.query(&ACTIVITY_EXAMINE, &[&idle.as_secs_f64()], Effect::None).await?)?;
    let permissions = one(connection.query(&PERMISSIONS_EXAMINE, &[], Effect::None).await?)?;
    Ok(DatabaseFacts {
        clock_ahead_seconds: clock_ahead(before, settings.get("now"), after),
        settings: setting_facts(&settings),
        replication: ReplicationFacts {
            confirming: replication.get("confirming"),
            inactive_slots: replication.get("inactive_slots"),
            held_bytes: replication.get("held_bytes"),
        },
        activity: ActivityFacts {
            connections: activity.get("connections"),
            idle_pids: activity.get("idle_pids"),
            idle_seconds: activity.get("idle_seconds"),
        },
        permissions: permission_facts(&permissions),
        schema: schema(connection).await?,
    })
}

/// How far a clock is ahead that was read at some moment between two others. Between them, nobody can say it is off.
fn clock_ahead(before: Timestamp, read: Timestamp, after: Timestamp) -> f64 {
    let seconds = |from: Timestamp, to: Timestamp| to.duration_since(from).as_secs_f64();
    if read > after {
        seconds(after, read)
    } else if read < before {
        -seconds(read, before)
    } else {
        0.0
    }
}

async fn schema(connection: &Connection) -> Result<SchemaFacts, Error> {
    let state = super::migrate::state(connection).await;
    let relations = one(connection.query(&RELATIONS_EXAMINE, &[], Effect::None).await?)?;
    let brokers = match connection.query(&BROKERS_COUNT, &[], Effect::None).await {
        Ok(rows) => Some(one(rows)?.get("brokers")),
        Err(Error::TableGone { .. } | Error::Forbidden { .. }) => None,
        Err(error) => return Err(error),
    };
    Ok(SchemaFacts { state, names: relations.get("names"), tables: relations.get("tables"), brokers })
}

fn setting_facts(row: &Row) -> SettingFacts {
    SettingFacts {
        fsync: row.get("fsync"),
        full_page_writes: row.get("full_page_writes"),
        synchronous_commit: row.get("synchronous_commit"),
        synchronous_standby_names: row.get("synchronous_standby_names"),
        autovacuum: row.get("autovacuum"),
        track_counts: row.get("track_counts"),
        max_connections: row.get("max_connections"),
        reserved_connections: row.get("reserved_connections"),
        max_prepared_transactions: row.get("max_prepared_transactions"),
        max_locks_per_transaction: row.get("max_locks_per_transaction"),
        default_transaction_read_only: row.get("default_transaction_read_only"),
        in_recovery: row.get("in_recovery"),
    }
}

fn permission_facts(row: &Row) -> PermissionFacts {
    PermissionFacts {
        role: row.get("role"),
        database: row.get("database"),
        may_create: row.get("may_create"),
        has_schema: row.get("has_schema"),
        owns_schema: row.get("owns_schema"),
        may_enter: row.get("may_enter"),
        foreign_tables: row.get("foreign_tables"),
        connection_limit: row.get("connection_limit"),
    }
}

/// The row of a query that always has one.
fn one(rows: Vec<Row>) -> Result<Row, Error> {
    let none = || Error::Unavailable { reason: "an answer had no row where there is always one".into() };
    rows.into_iter().next().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_off_only_by_what_the_way_of_the_answer_does_not_explain() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        assert_eq!(clock_ahead(at(10), at(12), at(14)), 0.0);
        assert_eq!(clock_ahead(at(10), at(17), at(14)), 3.0);
        assert_eq!(clock_ahead(at(10), at(4), at(14)), -6.0);
    }
}
