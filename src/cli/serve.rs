//! `laneway serve`: a broker, on a private PostgreSQL unless a database is given.
//!
//! Starts in the order of the data (database, schema, broker, port) and ends in the opposite one. A second signal ends the
//! process at once; the private PostgreSQL then stays up and the next broker adopts it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Failure;
use super::key_ring::KeyRingSource;
use super::signals::Signals;
use crate::broker::{Broker, BrokerSettings, Running};
use crate::config::{DatabaseChoice, Exposure, LISTEN_DEFAULT, check_listen};
use crate::encryption::KeyRing;
use crate::limits::{
    BROKER_TTL_MAX, BROKER_TTL_MIN, RETENTION_AGE_MAX, SHUTDOWN_TIMEOUT, TIMES_RETENTION_MIN,
    TRACE_READS_AT_ONCE,
};
use crate::postgres::{PrivatePostgres, Settings, Status, default_data_dir};
use crate::server;
use crate::session::Sessions;
use crate::store::{DatabaseSettings, StatementMode, Store};
use crate::telemetry::spans::Spans;

/// How long the last spans may take to get to their collector.
const EXPORT_END_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  laneway serve\n  laneway serve --data-dir /srv/laneway --listen 127.0.0.1:9000\n  \
    LANEWAY_DATABASE_URL=postgresql://laneway@db.internal/laneway?sslmode=verify-full laneway serve\n  \
    laneway serve --key-ring-file /etc/laneway/keys"
)]
pub(super) struct Serve {
    /// Address to listen on; loopback only, unless --insecure-listen
    #[arg(long, env = "LANEWAY_LISTEN", default_value = LISTEN_DEFAULT, value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Allow an address that others can reach, although there is no authentication yet
    #[arg(long, env = "LANEWAY_INSECURE_LISTEN", value_parser = BoolishValueParser::new())]
    insecure_listen: bool,
    /// A name, beside localhost and addresses, under which browsers and clients may ask; can be given several times
    #[arg(long = "allow-host", env = "LANEWAY_ALLOW_HOST", value_delimiter = ',', value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// A PostgreSQL (14 or newer) to use; absent: a private one
    #[arg(long, env = "LANEWAY_DATABASE_URL", value_name = "URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Directory of the private PostgreSQL [default: /var/lib/laneway as root, else ~/.local/share/laneway]
    #[arg(long, env = "LANEWAY_DATA_DIR", value_name = "DIR", conflicts_with = "database_url")]
    data_dir: Option<PathBuf>,
    /// Where initdb and postgres are [default: looked for on PATH and in the usual places]
    #[arg(long, env = "LANEWAY_POSTGRES_BIN_DIR", value_name = "DIR", conflicts_with = "database_url")]
    postgres_bin_dir: Option<PathBuf>,
    /// An OpenTelemetry collector that takes OTLP over HTTP, such as http://localhost:4318: spans of messages are sent to it
    #[arg(long, env = "LANEWAY_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
    #[command(flatten)]
    key_ring: KeyRingSource,
    #[command(flatten)]
    tuning: Tuning,
}

/// Connections and timeouts.
#[derive(Debug, Args)]
struct Tuning {
    /// Connections shared by readers and chores; about two per core of the database
    #[arg(long, env = "LANEWAY_POOL_SIZE", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pool_size: u32,
    /// Connections that publish, each owning some partitions; about one per core of the database
    #[arg(long, env = "LANEWAY_APPENDERS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    appenders: u16,
    /// How long a request waits for a connection
    #[arg(long, env = "LANEWAY_ACQUIRE_TIMEOUT", default_value = "5s", value_name = "DURATION")]
    acquire_timeout: humantime::Duration,
    /// How long one statement may take
    #[arg(long, env = "LANEWAY_STATEMENT_TIMEOUT", default_value = "30s", value_name = "DURATION")]
    statement_timeout: humantime::Duration,
    /// How long one statement waits for a lock
    #[arg(long, env = "LANEWAY_LOCK_TIMEOUT", default_value = "5s", value_name = "DURATION")]
    lock_timeout: humantime::Duration,
    /// How long a broker may be silent before the others take its lanes; 1s to 5m, the same for all brokers
    #[arg(long, env = "LANEWAY_LEASE_TTL", default_value = "10s", value_name = "DURATION", value_parser = lease_ttl)]
    lease_ttl: Duration,
    /// How long a session may finish what is in flight before its lane moves to another
    #[arg(long, env = "LANEWAY_LANE_DRAIN", default_value = "5s", value_name = "DURATION")]
    lane_drain: humantime::Duration,
    /// How long it is kept when messages were delivered and done, and what has failed; at least 1m, the same for all brokers
    #[arg(long, env = "LANEWAY_DELIVERY_TIMES_RETENTION", default_value = "7d", value_name = "DURATION", value_parser = times_retention)]
    delivery_times_retention: Duration,
    /// For a transaction pooler such as PgBouncer in front of the database: unnamed statements only, no LISTEN
    #[arg(long, env = "LANEWAY_NO_PREPARED_STATEMENTS", value_parser = BoolishValueParser::new())]
    no_prepared_statements: bool,
}

impl Serve {
    pub(super) async fn run(self) -> Result<(), Failure> {
        crate::telemetry::start();
        let key_ring = self.key_ring.read()?.unwrap_or_default();
        let (spans, exporting) = spans(self.otlp_endpoint.as_deref())?;
        let exposure = if self.insecure_listen { Exposure::Insecure } else { Exposure::LoopbackOnly };
        check_listen(self.listen, exposure)?;
        let listener = TcpListener::bind(self.listen).await.map_err(|error| {
            format!("cannot listen on {}: {error} (choose another --listen)", self.listen)
        })?;
        let signals = Signals::watch()?;
        let postgres = match self.database() {
            DatabaseChoice::Given { .. } => None,
            DatabaseChoice::Private { data_dir, bin_dir } => Some(start_private(data_dir, bin_dir).await?),
        };
        let result = self.serve(listener, &signals, postgres.as_ref(), (spans, key_ring)).await;
        if let Some(exporting) = exporting {
            let _late = tokio::time::timeout(EXPORT_END_TIMEOUT, exporting).await; // the last spans; nobody waits long
        }
        if let Some(postgres) = postgres {
            postgres.stop().await?; // last: until here somebody may have been writing
        }
        tracing::info!("stopped");
        result
    }

    fn database(&self) -> DatabaseChoice {
        match &self.database_url {
            Some(url) => DatabaseChoice::Given { url: url.clone() },
            None => DatabaseChoice::Private {
                data_dir: self.data_dir.clone(),
                bin_dir: self.postgres_bin_dir.clone(),
            },
        }
    }

    async fn serve(
        &self,
        listener: TcpListener,
        signals: &Signals,
        postgres: Option<&PrivatePostgres>,
        (spans, key_ring): (Spans, KeyRing),
    ) -> Result<(), Failure> {
        let url = match (postgres, &self.database_url) {
            (Some(postgres), _) => postgres.url(),
            (None, url) => url.clone().unwrap_or_default(),
        };
        let store = Store::new(self.tuning.settings(url))?.with_key_ring(key_ring);
        let Some(ready) = signals.unless(prepare(&store)).await else { return Ok(()) };
        ready?;
        if let Err(error) = crate::broker::keys::warn_of_missing(&store).await {
            tracing::warn!(%error, "nobody knows whether keys are missing");
        }
        let status = postgres.map(PrivatePostgres::status);
        let mut metrics = Registry::with_prefix("laneway");
        store.register_metrics(&mut metrics);
        spans.register(&mut metrics);
        let (broker, running) = Broker::start_with(store, self.tuning.broker(), spans);
        broker.metrics.register(&mut metrics);
        let address = listener.local_addr()?;
        tracing::info!(%address, "listening");
        let allowed_hosts = self.allowed_hosts.clone().into();
        let context = server::Context {
            sessions: Sessions::new(broker.clone()),
            broker,
            metrics: Arc::new(metrics),
            allowed_hosts,
            postgres: status.clone(),
        };
        serve_until_told(listener, context, signals, status, running).await
    }
}

/// The way of spans to a collector, if there is one.
#[cfg(feature = "otlp")]
fn spans(endpoint: Option<&str>) -> Result<(Spans, Option<JoinHandle<()>>), Failure> {
    let Some(endpoint) = endpoint else { return Ok((Spans::default(), None)) };
    let wrong = |reason| format!("--otlp-endpoint {endpoint}: {reason}");
    let (spans, exporting) = crate::telemetry::otlp::start(endpoint).map_err(wrong)?;
    tracing::info!(endpoint, "spans go to a collector");
    Ok((spans, Some(exporting)))
}

/// This build has no way to a collector.
#[cfg(not(feature = "otlp"))]
fn spans(endpoint: Option<&str>) -> Result<(Spans, Option<JoinHandle<()>>), Failure> {
    match endpoint {
        None => Ok((Spans::default(), None)),
        Some(_) => Err("--otlp-endpoint: this binary was built without the feature otlp".into()),
    }
}

async fn start_private(
    data_dir: Option<PathBuf>,
    bin_dir: Option<PathBuf>,
) -> Result<PrivatePostgres, Failure> {
    let data_dir = match data_dir {
        Some(data_dir) => data_dir,
        None => default_data_dir()?,
    };
    tracing::info!(data_dir = %data_dir.display(), "starting the private PostgreSQL");
    let mut settings = Settings::new(data_dir);
    settings.bin_dir = bin_dir;
    Ok(PrivatePostgres::start(settings).await?)
}

async fn prepare(store: &Store) -> Result<(), Failure> {
    store.wait_until_reachable().await?;
    store.migrate().await?;
    if let Err(error) = store.trace_reads_prepare(TRACE_READS_AT_ONCE).await {
        tracing::debug!(%error, "the first read of a trace will take longer"); // and finds out itself what is wrong
    }
    Ok(())
}

/// Serves until a signal comes or the private PostgreSQL is beyond help, then ends everything in order.
async fn serve_until_told(
    listener: TcpListener,
    context: server::Context,
    signals: &Signals,
    status: Option<watch::Receiver<Status>>,
    mut running: Running,
) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let mut serving = tokio::spawn(server::serve(listener, context, stop.clone()));
    let verdict: Result<(), Failure> = tokio::select! {
        () = signals.stopped() => {
            tracing::info!("stopping");
            Ok(())
        }
        error = beyond_help(status) => Err(error),
        () = running.broken() => Err("an appender has ended by itself; its log line says why".into()),
        ended = &mut serving => Err(format!("the server ended by itself: {ended:?}").into()),
    };
    stop.cancel(); // the listener stops; sessions drain; requests under way go on
    if !serving.is_finished() && tokio::time::timeout(SHUTDOWN_TIMEOUT, &mut serving).await.is_err() {
        tracing::warn!("some requests did not end in time");
        serving.abort();
    }
    running.stop(SHUTDOWN_TIMEOUT).await; // the last handles went with the server: appenders flush and return
    verdict
}

/// Resolves when the private PostgreSQL has failed in a way that only a person can mend.
async fn beyond_help(status: Option<watch::Receiver<Status>>) -> Failure {
    let Some(mut status) = status else { return std::future::pending().await };
    loop {
        if let Status::Failed(error) = &*status.borrow_and_update() {
            return error.to_string().into();
        }
        if status.changed().await.is_err() {
            return std::future::pending().await; // the supervisor ends only when we stop it
        }
    }
}

fn lease_ttl(text: &str) -> Result<Duration, String> {
    let ttl = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match (BROKER_TTL_MIN..=BROKER_TTL_MAX).contains(&ttl) {
        true => Ok(ttl),
        false => Err("it must be between 1s and 5m".to_owned()),
    }
}

fn times_retention(text: &str) -> Result<Duration, String> {
    let retention = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match (TIMES_RETENTION_MIN..=RETENTION_AGE_MAX).contains(&retention) {
        true => Ok(retention),
        false => Err("it must be between 1m and 100 years".to_owned()),
    }
}

impl Tuning {
    fn broker(&self) -> BrokerSettings {
        BrokerSettings {
            ttl: self.lease_ttl,
            drain: *self.lane_drain,
            times_retention: self.delivery_times_retention,
        }
    }

    fn settings(&self, url: String) -> DatabaseSettings {
        DatabaseSettings {
            url,
            pool_size: self.pool_size,
            acquire_timeout: *self.acquire_timeout,
            statement_timeout: *self.statement_timeout,
            lock_timeout: *self.lock_timeout,
            appenders: usize::from(self.appenders),
            statements: match self.no_prepared_statements {
                true => StatementMode::Unnamed,
                false => StatementMode::Prepared,
            },
        }
    }
}
