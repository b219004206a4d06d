//! How a fault is done, and undone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::sync::mpsc;

use super::VerifyError;
use super::history::{Event, Recorder};
use super::plan::Planned;
use super::process::{Clock, faketime_library};
use super::scene::Order;
use super::settings::{FaultKind, TTL};
use super::stage::{Broker, Stage};
use crate::postgres::StopMode;
use crate::store::witness::Keeps;
use crate::store::{DatabaseSettings, Role, Store};

/// What each chunk of a slow wire costs.
const SLOW: Duration = Duration::from_millis(40);
/// Most connections that somebody else takes.
const FOREIGN_CONNECTIONS_MAX: usize = 500;
/// Bytes that still pass on a wire that will end in the middle.
const TRUNCATE_BYTES_MAX: u64 = 300;

/// Who does the faults.
#[derive(Debug)]
pub(super) struct Faults {
    pub stage: Arc<Stage>,
    pub recorder: Arc<Recorder>,
    /// To each consumer.
    pub orders: Vec<mpsc::Sender<Order>>,
}

impl Faults {
    /// Lets one fault after the other fall, at their times.
    pub async fn run(&self, track: Vec<Planned>, started_at: Instant) -> Result<(), VerifyError> {
        for planned in track {
            tokio::time::sleep_until((started_at + planned.at).into()).await;
            if !self.is_possible(planned.kind) {
                continue;
            }
            let broker = self.strikes_broker(planned.kind).then(|| self.number(planned.dice));
            self.recorder.note(Event::FaultBegan { kind: planned.kind, broker });
            let done = self.strike(planned).await;
            self.recorder.note(Event::FaultEnded { kind: planned.kind });
            done?;
        }
        Ok(())
    }

    fn is_possible(&self, kind: FaultKind) -> bool {
        kind != FaultKind::SkewClock || faketime_library().is_some()
    }

    fn strikes_broker(&self, kind: FaultKind) -> bool {
        use FaultKind::*;
        !matches!(
            kind,
            RestartPostgres
                | KillConsumer
                | FreezeConsumer
                | ChurnConsumers
                | TerminateBackends
                | ExhaustConnections
                | IdleInTransaction
                | RepeatableRead
                | LoseListen
        )
    }

    fn number(&self, dice: u64) -> usize {
        (dice % self.stage.brokers.len() as u64) as usize
    }

    async fn strike(&self, planned: Planned) -> Result<(), VerifyError> {
        use FaultKind::*;
        let number = self.number(planned.dice);
        let broker = &self.stage.brokers[number];
        match planned.kind {
            KillBroker | StopBroker | SkewClock => self.restart(number, planned).await?,
            FreezeBroker => freeze(broker, planned.hold).await,
            RestartPostgres => self.restart_postgres(planned.hold).await?,
            KillConsumer => self.order(planned.dice, 1, Order::Die).await,
            FreezeConsumer => self.order(planned.dice, 2, Order::Freeze(planned.hold)).await,
            ChurnConsumers => self.order(planned.dice, self.orders.len() / 2, Order::Leave).await,
            CutClients => broker.clients.cut(),
            CutDatabase => broker.database.cut(),
            DelayClients => held(&broker.clients, planned.hold, |wire| wire.delay(SLOW)).await,
            DelayDatabase => held(&broker.database, planned.hold, |wire| wire.delay(SLOW)).await,
            BlackholeClients => held(&broker.clients, planned.hold, super::proxy::Proxy::blackhole).await,
            BlackholeDatabase => held(&broker.database, planned.hold, super::proxy::Proxy::blackhole).await,
            TruncateClients => broker.clients.truncate(bytes(planned.dice), planned.hold).await,
            TruncateDatabase => broker.database.truncate(bytes(planned.dice), planned.hold).await,
            TerminateBackends => self.terminate("laneway%").await,
            LoseListen => self.terminate("laneway listen").await,
            ExhaustConnections => self.exhaust(planned.hold).await?,
            IdleInTransaction => self.foreign(Keeps::Nothing, planned.hold).await?,
            RepeatableRead => self.foreign(Keeps::Snapshot, planned.hold).await?,
        }
        Ok(())
    }

    /// Ends a broker in one of several ways and starts it again.
    async fn restart(&self, number: usize, planned: Planned) -> Result<(), VerifyError> {
        let mut process = self.stage.brokers[number].process.lock().await;
        match planned.kind {
            FaultKind::KillBroker => process.kill().await,
            _ => {
                process.stop().await;
            }
        }
        tokio::time::sleep(planned.hold).await;
        let skew = 2 * TTL.as_secs() as i64;
        let clock = match (planned.kind, planned.dice & 1) {
            (FaultKind::SkewClock, 0) => Clock::Off(skew),
            (FaultKind::SkewClock, _) => Clock::Off(-skew),
            _ => Clock::Right,
        };
        process.start(clock).await?;
        self.recorder.note(Event::BrokerUp { broker: number });
        Ok(())
    }

    async fn restart_postgres(&self, hold: Duration) -> Result<(), VerifyError> {
        self.stage.cluster.stop(StopMode::Immediate).await?;
        tokio::time::sleep(hold).await;
        self.stage.cluster.start().await?;
        Ok(())
    }

    /// Orders some consumers about, beginning with one that the dice choose.
    async fn order(&self, dice: u64, count: usize, order: Order) {
        for index in 0..count.min(self.orders.len()) {
            let consumer = (dice as usize).wrapping_add(index) % self.orders.len();
            self.orders[consumer].try_send(order).ok(); // one that is frozen has enough to do
        }
    }

    /// Ends connections of the brokers; a database that is away has none.
    async fn terminate(&self, pattern: &str) {
        if let Err(error) = self.stage.store.witness_terminate(pattern).await {
            tracing::debug!(%error, "no backend was terminated");
        }
    }

    /// Takes every connection that is left.
    async fn exhaust(&self, hold: Duration) -> Result<(), VerifyError> {
        let foreign = Store::new(DatabaseSettings::new(self.stage.cluster.url()))?;
        let mut taken = Vec::new();
        while taken.len() < FOREIGN_CONNECTIONS_MAX {
            match foreign.dedicated(Role::Pool).await {
                Ok(connection) => taken.push(connection),
                Err(_) => break,
            }
        }
        tokio::time::sleep(hold).await;
        Ok(())
    }

    /// A transaction that somebody else leaves open. If the database goes away meanwhile, so does it.
    async fn foreign(&self, keeps: Keeps, hold: Duration) -> Result<(), VerifyError> {
        let foreign = Store::new(DatabaseSettings::new(self.stage.cluster.url()))?;
        if let Err(error) = foreign.witness_idle(keeps, hold).await {
            tracing::debug!(%error, "the foreign transaction was lost");
        }
        Ok(())
    }
}

async fn freeze(broker: &Broker, hold: Duration) {
    let process = broker.process.lock().await;
    process.signal(Signal::SIGSTOP);
    tokio::time::sleep(hold).await;
    process.signal(Signal::SIGCONT);
}

async fn held(wire: &super::proxy::Proxy, hold: Duration, begin: impl FnOnce(&super::proxy::Proxy)) {
    begin(wire);
    tokio::time::sleep(hold).await;
    wire.heal();
}

fn bytes(dice: u64) -> u32 {
    (1 + (dice >> 8) % TRUNCATE_BYTES_MAX) as u32
}
