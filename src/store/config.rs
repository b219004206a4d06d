//! How to reach the database: URL, TLS, pool and timeouts, and which of two ways statements are sent.
//!
//! The rule for the pool: readers and chores share it, each for milliseconds; two connections per core of the database is
//! where more of them only wait for each other. Appenders, LISTEN and heartbeats have connections of their own beside it.

use std::time::Duration;

use tokio_postgres::config::SslMode;

use super::tls::{self, Verification};

/// Unacknowledged bytes to the database for this long: the connection is given up.
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often an idle connection is tried.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// How statements reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementMode {
    /// Prepared once per connection, and timeouts set when it connects: a connection of our own.
    Prepared,
    /// Unnamed statements, timeouts by `SET LOCAL`: behind a transaction pooler, where the next transaction may run elsewhere.
    Unnamed,
}

/// What a connection is for; decides its timeouts and how it is named in `pg_stat_activity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Reads and small writes.
    Pool,
    /// Flushes: must let go of its locks within a second if this process freezes.
    Appender,
    /// Table-making and vacuum: no statement timeout, short lock timeout.
    Upkeep,
    /// LISTEN.
    Listen,
    /// The broker's heartbeat: short statements that nothing may hold up.
    Heartbeat,
}

/// Settings of the store.
#[derive(Debug, Clone)]
pub struct DatabaseSettings {
    /// `postgresql://…`, with libpq's `sslmode` and `sslrootcert`.
    pub url: String,
    /// Connections of the shared pool.
    pub pool_size: u32,
    /// How long a caller waits for one of them.
    pub acquire_timeout: Duration,
    /// How long one statement of the pool may take.
    pub statement_timeout: Duration,
    /// How long one statement of the pool waits for a lock.
    pub lock_timeout: Duration,
    /// Connections of the appender: about one per core of the database, each owning a disjoint set of partitions.
    pub appenders: usize,
    /// How statements are sent.
    pub statements: StatementMode,
}

impl DatabaseSettings {
    /// The defaults, for a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            pool_size: 8,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            appenders: 2,
            statements: StatementMode::Prepared,
        }
    }
}

/// A URL that cannot be used, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// tokio-postgres does not take it.
    #[error(
        "the database URL cannot be read ({reason}): it looks like postgresql://user:password@host:5432/database"
    )]
    Malformed { reason: String },
    /// A certificate file is not there or holds none.
    #[error("the certificates in {path:?} (sslrootcert) cannot be read: {reason}")]
    Certificates { path: String, reason: String },
}

/// Where to connect and how to verify who answers.
#[derive(Clone)]
pub struct Target {
    pub(super) config: tokio_postgres::Config,
    pub(super) tls: tokio_postgres_rustls::MakeRustlsConnect,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({:?})", self.config.get_hosts()) // never the password
    }
}

impl Target {
    /// Reads a URL. The TLS parameters that libpq knows and tokio-postgres does not are taken out first.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let (url, verification) = tls::split(url);
        let mut config: tokio_postgres::Config = url
            .parse()
            .map_err(|error: tokio_postgres::Error| UrlError::Malformed { reason: reason(&error) })?;
        if verification != Verification::None {
            config.ssl_mode(SslMode::Require);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        let tls = tls::connector(&verification)?;
        Ok(Self { config, tls })
    }

    /// A plain connection, without any of our settings: for measuring what Postgres does by itself.
    pub async fn connect(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        tokio::spawn(connection); // ends with its client
        Ok(client)
    }

    /// The configuration of one connection in a role.
    pub(super) fn config_for(&self, role: Role, settings: &DatabaseSettings) -> tokio_postgres::Config {
        let mut config = self.config.clone();
        config.application_name(role.application_name());
        // The server's timeouts do not help when the server is gone without a word.
        config.tcp_user_timeout(DEAD_PEER_TIMEOUT);
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(2);
        if settings.statements == StatementMode::Prepared {
            let own = config.get_options().unwrap_or_default().to_owned();
            let options = role
                .server_settings(settings)
                .iter()
                .fold(own, |options, (name, value)| format!("{options} -c {name}={value}"));
            config.options(options.trim());
        }
        config
    }
}

/// The driver's own words where they name a parameter that we know; others could quote a piece of a password.
fn reason(error: &tokio_postgres::Error) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    match cause.starts_with("invalid value for option") {
        true => cause,
        false => error.to_string(),
    }
}

impl Role {
    fn application_name(self) -> &'static str {
        match self {
            Role::Pool => "laneway",
            Role::Appender => "laneway appender",
            Role::Upkeep => "laneway upkeep",
            Role::Listen => "laneway listen",
            Role::Heartbeat => "laneway heartbeat",
        }
    }

    /// Server settings of a connection in this role: timeouts in milliseconds, 0 for off, and how to plan.
    pub(super) fn server_settings(self, settings: &DatabaseSettings) -> Vec<(&'static str, String)> {
        // Every statement of ours has an index. A plan made while a table was small must not scan it when it is large,
        // and the price that scans then have must not switch JIT on.
        let plans = [("enable_seqscan", "0"), ("jit", "0")];
        // A flush of one message looks cheaper to a planner that sees it than one of unknown size: it would be planned each time.
        let appender_plans = [("enable_bitmapscan", "0"), ("plan_cache_mode", "force_generic_plan")];
        let appender_plans = appender_plans.into_iter().filter(|_| self == Role::Appender);
        let timeouts = self.timeouts(settings).into_iter().map(|(name, value)| (name, value.to_string()));
        let plans = plans.into_iter().chain(appender_plans).map(|(name, value)| (name, value.to_owned()));
        timeouts.chain(plans).collect()
    }

    /// How long a statement in this role may go without an answer; `None`: as long as it takes.
    pub(super) fn silence_max(self, settings: &DatabaseSettings) -> Option<Duration> {
        use crate::limits::{FLUSH_STATEMENT_TIMEOUT, SILENCE_SLACK};
        match self {
            Role::Pool | Role::Listen | Role::Heartbeat => {
                Some(settings.statement_timeout + settings.lock_timeout + SILENCE_SLACK)
            }
            Role::Appender => Some(FLUSH_STATEMENT_TIMEOUT + SILENCE_SLACK),
            Role::Upkeep => None, // a vacuum takes its time; keepalives watch the connection
        }
    }

    fn timeouts(self, settings: &DatabaseSettings) -> Vec<(&'static str, u128)> {
        use crate::limits::{
            APPENDER_STALL_TIMEOUT, DDL_LOCK_TIMEOUT, FLUSH_STATEMENT_TIMEOUT, POOL_STALL_TIMEOUT,
        };
        let stall = APPENDER_STALL_TIMEOUT.as_millis();
        match self {
            Role::Pool | Role::Heartbeat => vec![
                ("statement_timeout", settings.statement_timeout.as_millis()),
                ("lock_timeout", settings.lock_timeout.as_millis()),
                ("idle_in_transaction_session_timeout", POOL_STALL_TIMEOUT.as_millis()),
            ],
            Role::Appender => vec![
                ("statement_timeout", FLUSH_STATEMENT_TIMEOUT.as_millis()),
                ("lock_timeout", settings.lock_timeout.as_millis()),
                ("idle_in_transaction_session_timeout", stall),
                ("tcp_user_timeout", stall),
                ("client_connection_check_interval", stall / 2),
            ],
            Role::Upkeep => vec![
                ("statement_timeout", 0),
                ("lock_timeout", DDL_LOCK_TIMEOUT.as_millis()),
                ("idle_in_transaction_session_timeout", settings.statement_timeout.as_millis()),
            ],
            Role::Listen => vec![("statement_timeout", settings.statement_timeout.as_millis())],
        }
    }
}
