//! The store: the only module that knows SQL. Everything durable goes through here, nothing here knows a socket.
//!
//! | file | owns |
//! |---|---|
//! | `config`, `tls`, `manager`, `connection`, `query`, `timing`, `pool_use` | how statements reach Postgres, how long they take, what they wait for |
//! | `error`, `retry` | what an SQLSTATE means, and what is tried again |
//! | `migrate`, `listen` | the schema's version; hints from other brokers |
//! | `timeline` | which history of the database this is; what is remembered of another one is void |
//! | `topics`, `partitions` | names, settings, where partitions start and end |
//! | `flush` | the one transaction that publishes and commits lanes |
//! | `brokers`, `sessions`, `groups`, `lanes` | who lives, who is a member of what, who holds what |
//! | `pops` | lanes that stateless consumers have for a while |
//! | `examine` | what `laneway doctor` looks at |
//! | `overview`, `group_changes` | what operators look at, and what they change about groups |
//! | `segments`, `retention`, `upkeep` | the tables that hold messages, from their making to their dropping |
//! | `retention_history`, `retention_counts` | what retention has dropped, when and why: in the database, and what of it this broker did |
//! | `group_expiry` | groups that nobody uses, until they are gone |
//! | `capacity` | how much a topic holds, and how far its groups are behind |
//! | `deleted` | what a deleted topic leaves, until nothing is left |
//! | `trace_cuts` | the tables of the trace index, likewise |
//! | `times` | when messages were delivered and done, and which attempts have failed |
//! | `messages`, `traces`, `deduplication` | reading by offset, time and trace; what was published already |
//! | `vault`, `data_keys`, `sealing_counts` | what payloads are sealed with and opened with; the keys that were derived for it |
//! | `dead_letters` | messages that a group has given up |
//! | `schedules`, `fires` | messages that wait for their time, and those that are due |
//! | `witness` | what the verifier reads and does behind the brokers' backs |
//!
//! Invariant: a caller can always tell `nothing happened` from `outcome unknown`; see [`Error`].

pub mod brokers;
pub mod capacity;
pub mod config;
pub mod connection;
pub mod data_keys;
pub mod dead_letters;
pub mod deduplication;
mod deleted;
pub mod error;
pub mod examine;
pub mod fires;
pub mod flush;
pub mod group_changes;
mod group_expiry;
pub mod groups;
pub mod lanes;
pub mod listen;
mod locks;
pub mod management;
pub mod manager;
pub mod messages;
pub mod migrate;
pub mod overview;
pub mod parked;
pub mod partitions;
mod pool_use;
pub mod pops;
mod query;
pub mod retention;
mod retention_counts;
pub mod retention_history;
pub mod retry;
pub mod schedules;
mod sealing_counts;
pub mod segments;
pub mod selections;
pub mod sessions;
pub mod steps;
pub mod timeline;
pub mod times;
mod timing;
mod tls;
pub mod topics;
pub mod trace_cuts;
pub mod traces;
pub mod upkeep;
pub mod vault;
pub mod windows;
pub mod witness;

use std::sync::Arc;
use std::time::Duration;

pub use config::{DatabaseSettings, Role, StatementMode, Target, UrlError};
pub use connection::Connection;
pub use error::{Effect, Error};
use prometheus_client::registry::Registry;
use timing::QueryTimes;

use manager::Connector;
use pool_use::PoolUse;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::limits::DDL_CONCURRENCY;

/// Under which name the driver logs.
pub const DRIVER_LOG_TARGET: &str = "tokio_postgres";
/// First pause between two tries to reach a database that is not there yet.
const WAIT_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two such tries; also how often we say that we wait.
const WAIT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// A handle on the database. Cheap to clone: every part of a broker has one.
#[derive(Debug, Clone)]
pub struct Store(Arc<Parts>);

/// What all handles share.
#[derive(Debug, Clone)]
pub struct Parts {
    pool: bb8::Pool<Connector>,
    /// For schema changes: without statement timeout, with a short lock timeout.
    upkeep: bb8::Pool<Connector>,
    /// Who waits longest for an upkeep connection gets it; the pool alone lets those in a loop overtake.
    upkeep_turns: Arc<Semaphore>,
    connector: Connector,
    times: Arc<QueryTimes>,
    vault: Arc<vault::Vault>,
    let_go: Arc<retention_counts::RetentionCounts>,
}

impl Store {
    /// Reads the settings; no connection is made yet.
    pub fn new(settings: DatabaseSettings) -> Result<Self, UrlError> {
        let target = Target::parse(&settings.url)?;
        let times = Arc::new(QueryTimes::new());
        let (size, timeout) = (settings.pool_size, settings.acquire_timeout);
        let connector = Connector::new(target, Arc::new(settings), times.clone());
        let pool = |size, connector| {
            bb8::Pool::builder()
                .max_size(size)
                .min_idle(Some(0))
                .connection_timeout(timeout)
                .test_on_check_out(true) // a look, not a ping: see Connector::is_valid
                .build_unchecked(connector)
        };
        let upkeep = pool(DDL_CONCURRENCY, connector.for_role(Role::Upkeep));
        let upkeep_turns = Arc::new(Semaphore::new(DDL_CONCURRENCY as usize));
        let (pool, vault, let_go) = (pool(size, connector.clone()), Arc::default(), Arc::default());
        Ok(Self(Arc::new(Parts { pool, upkeep, upkeep_turns, connector, times, vault, let_go })))
    }

    /// The same, with keys to seal and open payloads.
    pub fn with_key_ring(self, ring: crate::encryption::KeyRing) -> Self {
        Self(Arc::new(Parts { vault: Arc::new(vault::Vault::new(ring)), ..Arc::unwrap_or_clone(self.0) }))
    }

    /// Waits until the database answers, and says so. Errors that waiting does not cure end the wait.
    pub async fn wait_until_reachable(&self) -> Result<(), Error> {
        let mut pause = WAIT_PAUSE_MIN;
        loop {
            match self.connector.connect().await {
                Ok(_) => return Ok(()),
                Err(error @ Error::Unavailable { .. }) => {
                    tracing::warn!(%error, "waiting for the database");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(WAIT_PAUSE_MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A connection of the shared pool.
    pub async fn connection(&self) -> Result<bb8::PooledConnection<'_, Connector>, Error> {
        acquired(&self.pool, &self.connector).await
    }

    /// A connection for schema changes; there are few, because they meet at the same locks anyway. Waits for its turn
    /// as long as it takes: a first publish to a thousand partitions is a thousand turns.
    pub async fn upkeep_connection(&self) -> Result<UpkeepConnection<'_>, Error> {
        let turn = self.upkeep_turns.acquire().await.expect("the turns are never closed");
        let connection = acquired(&self.upkeep, &self.connector).await?;
        Ok(UpkeepConnection { connection, _turn: turn })
    }

    /// A connection of one's own, in a role.
    pub async fn dedicated(&self, role: Role) -> Result<Connection, Error> {
        self.connector.for_role(role).connect().await
    }

    /// The history of the database that is known.
    pub fn timelines(&self) -> &timeline::Timelines {
        self.connector.timelines()
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &DatabaseSettings {
        self.connector.settings()
    }

    /// Asks the database for a sign of life.
    pub async fn ping(&self) -> Result<(), Error> {
        let connection = self.connection().await?;
        connection.batch("SELECT 1").await.map_err(|error| Error::classify(&error, Effect::None))
    }

    /// Publishes the time per named query, failures, commits, and how the pools are used.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.times.register(registry);
        self.vault.register_metrics(registry);
        self.let_go.register(registry);
        let pools = [("shared", self.pool.clone()), ("upkeep", self.upkeep.clone())];
        registry.register_collector(Box::new(PoolUse::new(pools)));
    }
}

impl std::ops::Deref for Store {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// A connection for schema changes, and the turn to have it. Held for one transaction at a time.
#[derive(Debug)]
pub struct UpkeepConnection<'a> {
    connection: bb8::PooledConnection<'a, Connector>,
    _turn: SemaphorePermit<'a>,
}

impl std::ops::Deref for UpkeepConnection<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl std::ops::DerefMut for UpkeepConnection<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// bb8 says only that it timed out; why no connection could be made, the connector remembers.
async fn acquired<'a>(
    pool: &'a bb8::Pool<Connector>,
    connector: &Connector,
) -> Result<bb8::PooledConnection<'a, Connector>, Error> {
    match pool.get().await {
        Ok(connection) => Ok(connection),
        Err(bb8::RunError::User(error)) => Err(error),
        Err(bb8::RunError::TimedOut) => {
            let waited = connector.settings().acquire_timeout;
            Err(connector.last_failure().unwrap_or(Error::Unavailable {
                reason: match pool.state().connections {
                    0 => format!("no connection could be made for {waited:?}"),
                    _ => format!("every connection of the pool was busy for {waited:?} (see --pool-size)"),
                },
            }))
        }
    }
}
