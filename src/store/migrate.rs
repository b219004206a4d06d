//! Brings the schema to the shape that this binary knows. Forward only, checksummed, one migrator at a time.
//!
//! Brokers that start together queue at a transaction-level advisory lock: the first migrates, the others find it done.
//! Each migration is a transaction of its own together with its record, so a crash leaves a version, never half of one.
//! Invariant: what was applied is never edited; a difference is refused, not repaired.

use std::time::Duration;

use rand::Rng as _;
use sha2::{Digest as _, Sha256};

use super::error::{Effect, Error};
use super::query::query;
use super::{Role, Store};
use crate::limits::{DDL_LOCK_TIMEOUT, DDL_TRIES};

query!(MIGRATIONS_LOCK = "migrations_lock"[INT8]);
query!(MIGRATIONS_LIST = "migrations_list"[]);
query!(MIGRATIONS_RECORD = "migrations_record"[INT4, TEXT, BYTEA]);

/// "laneway" in ASCII: the key of the advisory lock that migrators queue at.
const LOCK_KEY: i64 = 0x006c_616e_6577_6179;

/// Before a migration that did not get its tables is tried again, so that those who use them come to their turn.
const CONTENDED_PAUSE: Duration = Duration::from_millis(200);

/// The oldest server that has what the schema uses (multiranges), as `server_version_num` counts.
pub const SERVER_VERSION_MIN: u32 = 140_000;

/// What must exist before the first migration can be looked up.
const BOOTSTRAP: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/migrations/bootstrap.sql"));

/// One step of the schema.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    pub version: i32,
    pub name: &'static str,
    pub sql: &'static str,
}

macro_rules! migrations {
    ($($version:literal $name:literal),* $(,)?) => {
        &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/migrations/", $name, ".sql")),
        }),*]
    };
}

/// All of them, in order.
pub const MIGRATIONS: &[Migration] = migrations![
    1 "0001_create_topics",
    2 "0002_create_messages",
    3 "0003_create_deduplication",
    4 "0004_create_trace_index",
    5 "0005_create_groups",
    6 "0006_create_views",
    7 "0007_create_utilisation",
    8 "0008_create_steps",
    9 "0009_create_traces",
    10 "0010_create_schedules",
    11 "0011_create_capacity",
    12 "0012_create_pops",
    13 "0013_create_management",
    14 "0014_create_windows",
    18 "0018_extend_pops",
    19 "0019_extend_schedules",
    20 "0020_create_keys",
    21 "0021_create_encryption",
    22 "0022_create_labels",
    23 "0023_drop_run_index",
    24 "0024_index_schedules",
    27 "0027_fence_encryption",
    29 "0029_index_failed_copies",
    31 "0031_date_selections",
];

/// How the schema of a database stands to the migrations that this binary knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaState {
    /// There is none yet.
    Absent,
    /// Some migrations are still to be applied, by the next broker that starts.
    Behind { found: i32, known: i32 },
    /// As this binary wants it.
    Current { version: i32 },
}

/// The tables and views that the schema of today consists of, by name.
pub fn relations() -> impl Iterator<Item = &'static str> {
    let scripts = std::iter::once(BOOTSTRAP).chain(MIGRATIONS.iter().map(|migration| migration.sql));
    scripts.flat_map(|sql| sql.lines().filter_map(made))
}

/// What a line of SQL makes: `topic`, of `CREATE TABLE laneway.topic (`.
fn made(line: &str) -> Option<&str> {
    let kinds = ["CREATE TABLE IF NOT EXISTS laneway.", "CREATE TABLE laneway.", "CREATE VIEW laneway."];
    kinds.into_iter().find_map(|kind| line.strip_prefix(kind))?.split_whitespace().next()
}

/// Why the schema could not be brought up to date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MigrateError {
    /// The file was changed after it had been applied here.
    #[error(
        "migration {version} ({name}) was applied to this database in another form: an applied migration must never be \
         edited; restore the file it was, and put the change into a new one"
    )]
    Edited { version: i32, name: String },
    /// The database has seen a newer binary.
    #[error(
        "the schema of this database is at version {found}, and this laneway knows versions up to {known}: \
         run a newer laneway"
    )]
    TooNew { found: i32, known: i32 },
    /// The server is older than we support.
    #[error("PostgreSQL {found} is too old: laneway needs version 14 or newer")]
    ServerTooOld { found: String },
    /// The database did not do it.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Store {
    /// Applies what is missing. Safe to call from any number of brokers at once.
    pub async fn migrate(&self) -> Result<(), MigrateError> {
        self.migrate_with(MIGRATIONS).await
    }

    /// As [`Store::migrate`], with a given list: how tests try an edited or a newer one.
    pub async fn migrate_with(&self, migrations: &[Migration]) -> Result<(), MigrateError> {
        let mut connection = self.dedicated(Role::Upkeep).await?;
        check_server(&connection).await?;
        let mut tries = 0;
        loop {
            match apply_next(&mut connection, migrations).await {
                Ok(Some(applied)) => {
                    tracing::info!(version = applied.version, name = applied.name, "migration applied");
                    tries = 0;
                }
                Ok(None) => break,
                Err(MigrateError::Store(error @ Error::Contended { .. })) if tries < DDL_TRIES => {
                    tries += 1;
                    tracing::warn!(%error, tries, "a table is in use; the migration is tried again in a moment");
                    let pause = CONTENDED_PAUSE.mul_f64(rand::rng().random_range(0.5..1.5));
                    tokio::time::sleep(pause).await;
                    connection = self.dedicated(Role::Upkeep).await?; // the last one is in mid-transaction
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Applies the first migration that is missing; `None`: the schema is up to date.
///
/// Locks: migrators wait for each other, for as long as it takes. For a table nobody waits long, because everybody else who
/// wants that table waits behind a migration that waits.
async fn apply_next<'a>(
    connection: &mut super::Connection,
    migrations: &'a [Migration],
) -> Result<Option<&'a Migration>, MigrateError> {
    let transaction = connection.begin().await?;
    run(&transaction, "SET LOCAL lock_timeout = 0").await?;
    transaction.query(&MIGRATIONS_LOCK, &[&LOCK_KEY], Effect::None).await?;
    run(&transaction, BOOTSTRAP).await?;
    let Some(next) = next_migration(&transaction, migrations).await? else {
        transaction.commit().await?;
        return Ok(None);
    };
    run(&transaction, &format!("SET LOCAL lock_timeout = {}", DDL_LOCK_TIMEOUT.as_millis())).await?;
    run(&transaction, next.sql).await?;
    let checksum = checksum(next.sql);
    transaction.execute(&MIGRATIONS_RECORD, &[&next.version, &next.name, &checksum]).await?;
    transaction.commit().await?;
    Ok(Some(next))
}

/// How the schema stands, without changing it.
pub(super) async fn state(connection: &super::Connection) -> Result<SchemaState, MigrateError> {
    let known = MIGRATIONS.last().map_or(0, |migration| migration.version);
    match next_migration(connection, MIGRATIONS).await {
        Ok(None) => Ok(SchemaState::Current { version: known }),
        Ok(Some(next)) => Ok(SchemaState::Behind { found: next.version - 1, known }),
        Err(MigrateError::Store(Error::TableGone { .. })) => Ok(SchemaState::Absent),
        Err(error) => Err(error),
    }
}

async fn run(connection: &super::Connection, sql: &str) -> Result<(), Error> {
    connection.batch(sql).await.map_err(|error| Error::classify(&error, Effect::Possible))
}

async fn check_server(connection: &super::Connection) -> Result<(), MigrateError> {
    let (number, text) = connection.server_version().await?;
    if number < SERVER_VERSION_MIN {
        return Err(MigrateError::ServerTooOld { found: text });
    }
    Ok(())
}

/// The first migration that the database has not seen, after checking those it has.
async fn next_migration<'a>(
    connection: &super::Connection,
    migrations: &'a [Migration],
) -> Result<Option<&'a Migration>, MigrateError> {
    let rows = connection.query(&MIGRATIONS_LIST, &[], Effect::None).await?;
    let known = migrations.last().map_or(0, |migration| migration.version);
    let found: i32 = rows.last().map_or(0, |row| row.get(0));
    let mut seen = 0;
    for row in rows {
        let (version, name, sha256): (i32, String, Vec<u8>) = (row.get(0), row.get(1), row.get(2));
        match migrations.iter().find(|migration| migration.version == version) {
            None => return Err(MigrateError::TooNew { found, known }),
            Some(migration) if checksum(migration.sql) != sha256 => {
                return Err(MigrateError::Edited { version, name });
            }
            Some(_) => seen = version,
        }
    }
    Ok(migrations.iter().find(|migration| migration.version > seen))
}

fn checksum(sql: &str) -> Vec<u8> {
    Sha256::digest(sql.as_bytes()).to_vec()
}
