//! Brings the schema to the shape that this binary knows. Forward only, checksummed, one migrator at a time.
//!
//! Brokers that start together queue at a transaction-level advisory lock: the first migrates, the others find it done.
//! Each migration is a transaction of its own together with its record, so a crash leaves a version, never half of one.
//! Invariant: what was applied is never edited; a difference is refused, not repaired.

use sha2::{Digest as _, Sha256};

use super::error::{Effect, Error};
use super::query::query;
use super::{Role, Store};

query!(MIGRATIONS_LOCK = "migrations_lock"[INT8]);
query!(MIGRATIONS_LIST = "migrations_list"[]);
query!(MIGRATIONS_RECORD = "migrations_record"[INT4, TEXT, BYTEA]);

/// "laneway" in ASCII: the key of the advisory lock that migrators queue at.
const LOCK_KEY: i64 = 0x006c_616e_6577_6179;

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
];

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
        for step in 0.. {
            let transaction = connection.begin().await?;
            // The upkeep role does not wait for locks; here waiting is the point.
            run(&transaction, "SET LOCAL lock_timeout = 0").await?;
            transaction.query(&MIGRATIONS_LOCK, &[&LOCK_KEY], Effect::None).await?;
            run(&transaction, BOOTSTRAP).await?;
            let Some(next) = next_migration(&transaction, migrations).await? else {
                transaction.commit().await?;
                tracing::debug!(applied = step, "schema is up to date");
                break;
            };
            run(&transaction, next.sql).await?;
            let checksum = checksum(next.sql);
            transaction.execute(&MIGRATIONS_RECORD, &[&next.version, &next.name, &checksum]).await?;
            transaction.commit().await?;
            tracing::info!(version = next.version, name = next.name, "migration applied");
        }
        Ok(())
    }
}

async fn run(connection: &super::Connection, sql: &str) -> Result<(), Error> {
    connection.batch(sql).await.map_err(|error| Error::classify(&error, Effect::Possible))
}

async fn check_server(connection: &super::Connection) -> Result<(), MigrateError> {
    let (number, text) = connection.server_version().await?;
    if number < 140_000 {
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
