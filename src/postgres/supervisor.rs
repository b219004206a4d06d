//! The task that owns a private server: keeps it running, restarts it when it dies, gives up when only a
//! person can help, restarts it in order when its binaries were upgraded, stops it when asked.
//!
//! Spawned by `private`, which holds the other end of the inbox and of the status. Owns the broker's lock.
//! Invariant: `state` names the postmaster before any await, so that `advance` may be dropped at any point
//! and a stop still finds it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::backoff;
use super::cluster::Cluster;
use super::error::{Error, Recovery};
use super::lock::BrokerLock;
use super::postmaster::{Exit, Postmaster, StopMode};
use super::probe;
use super::readiness::Readiness;
use super::upgrade::{Fingerprint, Verdict, Watch};

/// Tries of the very first start before the caller is told: enough for orphaned backends of a killed server
/// to go.
const FIRST_START_ATTEMPTS_MAX: u32 = 6;

/// Misses in a row before a living postmaster without a socket is restarted: one may be a restart by hand.
const LISTENER_MISSES_MAX: u32 = 3;

/// What the private server does, for health checks and for whoever waits for it.
#[derive(Debug, Clone)]
pub enum Status {
    Running,
    /// Not available at the moment; `attempt` counts from 1 since it was last healthy.
    Restarting {
        attempt: u32,
    },
    /// Only a person can help; the sentence says how.
    Failed(Arc<Error>),
    Stopped,
}

pub(super) enum Request {
    Stop { reply: oneshot::Sender<Result<(), Error>> },
}

pub(super) struct Supervisor {
    cluster: Cluster,
    lock: BrokerLock,
    state: State,
    /// Failures since it was last healthy.
    failures: u32,
    upgrade: Watch,
    upgrade_tick: Interval,
    listener_tick: Interval,
    listener_misses: u32,
    status: watch::Sender<Status>,
}

enum State {
    /// Nothing runs that we know of; to be launched at `until`.
    Idle {
        until: Instant,
    },
    Starting {
        postmaster: Postmaster,
    },
    Running {
        postmaster: Postmaster,
        since: Instant,
    },
    /// Given up.
    Failed,
}

enum News {
    Exited(Exit),
    UpgradeTick,
    ListenerTick,
}

impl Supervisor {
    pub(super) fn new(cluster: Cluster, lock: BrokerLock, status: watch::Sender<Status>) -> Self {
        let pace = cluster.settings.pace;
        let started_with = Fingerprint::of(&cluster.binaries.postgres());
        Self {
            cluster,
            lock,
            state: State::Idle { until: Instant::now() },
            failures: 0,
            upgrade: Watch::new(started_with),
            upgrade_tick: ticks(pace.upgrade_check),
            listener_tick: ticks(pace.listener_check),
            listener_misses: 0,
            status,
        }
    }

    /// The first start: like every other, but the caller waits and is told after a few failures.
    pub(super) async fn bring_up(&mut self) -> Result<(), Error> {
        while !matches!(self.state, State::Running { .. }) {
            match self.advance().await {
                Ok(()) => {}
                Err(error) if error.recovery() == Recovery::Permanent => return Err(error),
                Err(error) if self.failures + 1 >= FIRST_START_ATTEMPTS_MAX => return Err(error),
                Err(error) => self.rest(&error),
            }
        }
        Ok(())
    }

    /// Cancel safety: none. Spawned once and polled to completion.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Request>) {
        let request = loop {
            tokio::select! {
                biased; // a stop does not wait for a recovery
                request = inbox.recv() => break request,
                step = self.advance() => step.unwrap_or_else(|error| self.on_error(error)),
            }
        };
        match request {
            Some(Request::Stop { reply }) => self.on_stop(reply).await,
            None => tracing::info!("PostgreSQL runs on without supervision: its owner is gone"),
        }
    }

    /// One step of the server's life. Cancel safety: may be dropped at any point and called again.
    async fn advance(&mut self) -> Result<(), Error> {
        match &mut self.state {
            State::Idle { until } => {
                sleep_until(*until).await;
                self.launch().await
            }
            State::Starting { postmaster } => {
                let readiness = self.cluster.ready(postmaster).await?;
                self.on_readiness(readiness).await
            }
            State::Running { postmaster, .. } => {
                let news = tokio::select! {
                    biased; // a dead server makes the other news worthless
                    exit = postmaster.exited() => News::Exited(exit),
                    _ = self.upgrade_tick.tick() => News::UpgradeTick,
                    _ = self.listener_tick.tick() => News::ListenerTick,
                };
                self.on_news(news).await
            }
            State::Failed => std::future::pending().await,
        }
    }

    /// Order: binaries first; those of the last start may have been replaced or removed since.
    async fn launch(&mut self) -> Result<(), Error> {
        if self.upgrade.look(self.fingerprint()) != Verdict::Unchanged {
            self.cluster.binaries = self.cluster.find_binaries().await?;
        }
        self.upgrade = Watch::new(self.fingerprint());
        self.listener_misses = 0;
        self.state = State::Starting { postmaster: self.cluster.launch()? };
        Ok(())
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        Fingerprint::of(&self.cluster.binaries.postgres())
    }

    async fn on_readiness(&mut self, readiness: Readiness) -> Result<(), Error> {
        match readiness {
            Readiness::Ready => {
                self.on_ready();
                Ok(())
            }
            Readiness::Unfit(reason) => {
                tracing::warn!(%reason, "restarting PostgreSQL in order");
                self.restart_in_order().await
            }
        }
    }

    fn on_ready(&mut self) {
        let idle = State::Idle { until: Instant::now() };
        self.state = match std::mem::replace(&mut self.state, idle) {
            State::Starting { postmaster } | State::Running { postmaster, .. } => {
                State::Running { postmaster, since: Instant::now() }
            }
            other @ (State::Idle { .. } | State::Failed) => other,
        };
        tracing::info!(socket_dir = %self.cluster.socket_dir().display(), "PostgreSQL is ready");
        self.status.send_replace(Status::Running);
    }

    async fn on_news(&mut self, news: News) -> Result<(), Error> {
        match news {
            News::Exited(exit) => Err(self.on_exit(exit)),
            News::UpgradeTick => self.on_upgrade_tick().await,
            News::ListenerTick => self.on_listener_tick().await,
        }
    }

    fn on_exit(&mut self, exit: Exit) -> Error {
        if let State::Running { since, .. } = &self.state
            && since.elapsed() >= self.cluster.settings.pace.healthy_after
        {
            self.failures = 0;
        }
        Error::Exited { status: exit.to_string(), line: None, log_dir: self.cluster.log_dir().into() }
    }

    async fn on_upgrade_tick(&mut self) -> Result<(), Error> {
        match self.upgrade.look(self.fingerprint()) {
            Verdict::Unchanged | Verdict::Settling => Ok(()),
            Verdict::Gone => {
                let dir = self.cluster.binaries.dir.display();
                tracing::warn!(%dir, "the binaries of the running PostgreSQL were removed");
                Ok(())
            }
            Verdict::Changed => self.on_upgraded().await,
        }
    }

    /// Without binaries that fit, the old server is better than none.
    async fn on_upgraded(&mut self) -> Result<(), Error> {
        match self.cluster.find_binaries().await {
            Ok(binaries) => {
                let version = binaries.version;
                tracing::warn!(%version, "PostgreSQL was upgraded: restarting it in order");
                self.cluster.binaries = binaries;
                self.restart_in_order().await
            }
            Err(error) => {
                tracing::warn!(%error, "new binaries of PostgreSQL do not fit: the old server runs on");
                self.upgrade = Watch::new(self.fingerprint());
                Ok(())
            }
        }
    }

    async fn on_listener_tick(&mut self) -> Result<(), Error> {
        if !probe::is_listener_gone(self.cluster.socket_dir()).await {
            self.listener_misses = 0;
            return Ok(());
        }
        self.listener_misses += 1;
        if self.listener_misses < LISTENER_MISSES_MAX {
            return Ok(());
        }
        tracing::warn!("the socket of PostgreSQL is gone although it runs: restarting it in order");
        self.restart_in_order().await
    }

    async fn restart_in_order(&mut self) -> Result<(), Error> {
        self.status.send_replace(Status::Restarting { attempt: 1 });
        self.stop_server().await?;
        self.state = State::Idle { until: Instant::now() };
        Ok(())
    }

    async fn stop_server(&mut self) -> Result<(), Error> {
        match &mut self.state {
            State::Starting { postmaster } | State::Running { postmaster, .. } => {
                postmaster.stop(StopMode::Fast, &self.cluster.settings.pace).await
            }
            State::Idle { .. } | State::Failed => self.cluster.stop(StopMode::Fast).await,
        }
    }

    fn on_error(&mut self, error: Error) {
        match error.recovery() {
            Recovery::Transient => self.rest(&error),
            Recovery::Permanent => {
                tracing::error!(%error, "giving up on PostgreSQL");
                self.state = State::Failed;
                self.status.send_replace(Status::Failed(Arc::new(error)));
            }
        }
    }

    fn rest(&mut self, error: &Error) {
        self.failures = self.failures.saturating_add(1);
        let pause = backoff::delay(self.failures, &self.cluster.settings.pace, rand::random());
        let attempt = self.failures;
        tracing::warn!(%error, attempt, ?pause, "PostgreSQL is down: starting it again after a pause");
        self.state = State::Idle { until: Instant::now() + pause };
        self.status.send_replace(Status::Restarting { attempt });
    }

    /// Order: server, lock, answer; whoever got the answer may start again at once.
    async fn on_stop(mut self, reply: oneshot::Sender<Result<(), Error>>) {
        let outcome = self.stop_server().await;
        drop(self.lock);
        self.status.send_replace(Status::Stopped);
        let _ = reply.send(outcome); // an asker who left does not need the answer
    }
}

/// The first tick comes after one period, not at once.
fn ticks(period: std::time::Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.reset();
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
