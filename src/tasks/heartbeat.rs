//! The broker's heartbeat, on a connection of its own: registers, renews, and buries those that have fallen silent.
//!
//! Only a broker whose own heartbeats have succeeded for one whole ttl buries others: one that was frozen itself must not
//! conclude from its own silence that the others are dead. When the database comes to another timeline, the broker's life
//! there is over, and it begins anew at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::broker::lease::LeaseKeeper;
use crate::broker::metrics::Metrics;
use crate::ids::BrokerId;
use crate::limits::HEARTBEATS_PER_TTL;
use crate::store::brokers::{Registration, Renewal};
use crate::store::listen::{Hint, Hints};
use crate::store::timeline::Era;
use crate::store::{Connection, Error, Role, Store};

/// Before a heartbeat is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Heartbeats between two looks for rows that nobody needs.
const FORGET_EVERY: u32 = 100;

struct Heartbeat {
    store: Store,
    keeper: LeaseKeeper,
    ttl: Duration,
    metrics: Arc<Metrics>,
    hints: Hints,
    connection: Option<Connection>,
    broker_id: Option<BrokerId>,
    /// In which era it lives.
    era: Era,
    /// Its id in the era before, until nothing is left of it in the tables.
    former_id: Option<BrokerId>,
    /// When the first of the others expires if it is not heard of, as the last heartbeat saw it.
    first_expiry_at: Option<Instant>,
    /// When the last heartbeat succeeded.
    beat_at: Option<Instant>,
    /// Since when every heartbeat has succeeded.
    steady_since: Option<Instant>,
    beats: u32,
    /// Why the last try of a heartbeat has failed.
    failure: Option<String>,
}

/// Runs until stopped; then the broker resigns, so that its lanes move at once.
pub async fn run(
    store: Store,
    keeper: LeaseKeeper,
    ttl: Duration,
    metrics: Arc<Metrics>,
    hints: Hints,
    stop: CancellationToken,
) {
    let mut heartbeat = Heartbeat {
        era: store.timelines().era(),
        former_id: None,
        store,
        keeper,
        ttl,
        metrics,
        hints,
        connection: None,
        broker_id: None,
        first_expiry_at: None,
        beat_at: None,
        steady_since: None,
        beats: 0,
        failure: None,
    };
    let mut ticks = tokio::time::interval(ttl / HEARTBEATS_PER_TTL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while stop.run_until_cancelled(heartbeat.due(&mut ticks)).await.is_some() {
        // A heartbeat that takes longer than the pause to the next one is of no use any more.
        let beat = tokio::time::timeout(ttl / HEARTBEATS_PER_TTL, heartbeat.beat());
        let failure = match beat.await {
            Ok(()) => {
                stop.run_until_cancelled(heartbeat.until_expiry(ttl / HEARTBEATS_PER_TTL)).await;
                let failure = match tokio::time::timeout(ttl / HEARTBEATS_PER_TTL, heartbeat.bury()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "no answer in time".to_owned(),
                };
                tracing::warn!(
                    error = failure,
                    "silent brokers could not be buried; the next heartbeat tries again"
                );
                continue;
            }
            Err(_) => heartbeat.failure.take().unwrap_or_else(|| "no answer in time".to_owned()),
        };
        tracing::warn!(error = failure, "heartbeat failed");
        heartbeat.connection = None;
        heartbeat.steady_since = None;
    }
    heartbeat.resign().await;
}

impl Heartbeat {
    /// Tries until it has succeeded: whoever waits for it decides when it is too late.
    ///
    /// Why: a backend that somebody has ended, or a connection that breaks off, is no sign that the database, or we, were away.
    async fn beat(&mut self) {
        let mut reused = self.connection.take().filter(Connection::is_usable);
        let is_new = reused.is_none();
        self.failure = None;
        let mut connection = loop {
            match self.renew_on(reused.take()).await {
                Ok(connection) => break connection,
                Err(error) => {
                    tracing::debug!(%error, "a heartbeat is tried again on a new connection");
                    self.failure = Some(error.to_string());
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        };
        // Whoever was frozen has been silent itself, even if no heartbeat has failed.
        let now = Instant::now();
        if self.beat_at.is_some_and(|last| now - last > self.ttl / 2) {
            self.steady_since = None;
        }
        self.beat_at = Some(now);
        self.steady_since.get_or_insert(now);
        self.beats = self.beats.wrapping_add(1);
        // Why: behind a pooler the database changes without a new connection, and only whoever has seen the log grow can
        // tell an older copy. Order: after the renewal, which must not wait for it, nor fail with it.
        match if is_new { Ok(()) } else { connection.meet_timeline().await } {
            Ok(()) => self.connection = Some(connection),
            Err(error) => tracing::debug!(%error, "the next heartbeat connects anew"),
        }
    }

    async fn renew_on(&mut self, connection: Option<Connection>) -> Result<Connection, Error> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.store.dedicated(Role::Heartbeat).await?,
        };
        self.renew(&mut connection).await?;
        Ok(connection)
    }

    /// Waits for the next heartbeat; another era begins with one.
    async fn due(&self, ticks: &mut tokio::time::Interval) {
        tokio::select! {
            _ = ticks.tick() => {}
            () = self.store.timelines().changed_from(self.era) => {}
        }
    }

    /// In another era the life of the one before is over, whatever the tables say.
    fn look_at_era(&mut self) {
        let era = self.store.timelines().era();
        if era != self.era {
            self.era = era;
            self.former_id = self.broker_id.take().or(self.former_id);
            self.steady_since = None;
            self.keeper.lost();
        }
    }

    /// Waits for the end of one that has fallen silent, if that comes before the next heartbeat: its lanes need not wait longer.
    async fn until_expiry(&self, pause: Duration) {
        let next_beat = Instant::now() + pause;
        if let Some(expiry) = self.first_expiry_at.filter(|expiry| *expiry < next_beat) {
            tokio::select! {
                () = tokio::time::sleep_until(expiry.into()) => {}
                () = self.store.timelines().changed_from(self.era) => {}
            }
        }
    }

    /// Looks after the others, once the own heartbeats have been steady. A failure here says nothing about ourselves.
    async fn bury(&mut self) -> Result<(), Error> {
        let Some(mut connection) = self.connection.take().filter(Connection::is_usable) else {
            return Ok(());
        };
        if self.steady_since.is_some_and(|steady| steady.elapsed() >= self.ttl) {
            for buried in connection.brokers_bury().await? {
                self.metrics.burials.inc();
                tracing::warn!(broker = %buried, "a broker has fallen silent; its lanes are free");
                self.hints.tell(Hint::Everything); // our own groups need not wait for a notification that may be lost
            }
        }
        if self.beats.is_multiple_of(FORGET_EVERY) {
            connection.brokers_forget().await?;
        }
        self.connection = Some(connection);
        Ok(())
    }

    async fn renew(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let started = Instant::now();
        self.look_at_era();
        if let Some(former_id) = self.former_id {
            connection.brokers_disown(former_id).await?;
            self.former_id = None;
        }
        if let Some(broker_id) = self.broker_id {
            match connection.brokers_renew(broker_id, self.ttl).await? {
                Renewal::Renewed { others, first_expiry, clock_at } => {
                    self.keeper.heard_time(clock_at, self.era);
                    self.first_expiry_at = first_expiry.map(|expiry| Instant::now() + expiry);
                    self.keeper.renewed(broker_id, (started, self.era), self.ttl, others);
                    return Ok(());
                }
                Renewal::Buried => {
                    tracing::warn!(broker = %broker_id, "this broker was buried: its lanes are lost, it begins anew");
                    self.broker_id = None;
                    self.steady_since = None;
                    self.keeper.lost();
                }
            }
        }
        let broker_id = BrokerId(uuid::Uuid::new_v4());
        self.store.timelines().lives_as(broker_id);
        let Registration { others, clock_at } = connection.brokers_register(broker_id, self.ttl).await?;
        if let Some(clock_at) = clock_at {
            self.keeper.heard_time(clock_at, self.era);
        }
        tracing::info!(broker = %broker_id, "broker registered");
        self.broker_id = Some(broker_id);
        self.keeper.renewed(broker_id, (started, self.era), self.ttl, others);
        Ok(())
    }

    async fn resign(&mut self) {
        let Some(broker_id) = self.broker_id else { return };
        let resigned = async {
            let mut connection = match self.connection.take().filter(Connection::is_usable) {
                Some(connection) => connection,
                None => self.store.dedicated(Role::Heartbeat).await?,
            };
            connection.brokers_resign(broker_id).await
        };
        self.keeper.lost();
        match tokio::time::timeout(self.ttl / HEARTBEATS_PER_TTL, resigned).await {
            Ok(Ok(())) => tracing::info!(broker = %broker_id, "broker resigned"),
            Ok(Err(error)) => tracing::warn!(%error, "could not resign; the others will notice"),
            Err(_) => tracing::warn!("could not resign in time; the others will notice"),
        }
    }
}
