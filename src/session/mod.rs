//! Sessions: the life of one connection each, and of those that resume it.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the way in, how a connection is put together and taken apart, draining |
//! | `reader` | WebSocket messages in, frames out |
//! | `handshake` | from the upgrade to `welcome`; resuming |
//! | `state` | what may be asked when, and what follows; pure |
//! | `owner` | the loop: events to the state, its actions carried out |
//! | `publishing` | publishes in order, their answers as they come |
//! | `writer` | the outbox to the socket, heartbeats, trust in the lease |
//! | `members`, `registry` | subscriptions; sessions that are live or may come back |
//! | `ending`, `remains` | how a connection ends; what remains of its session, until nobody can come back |
//! | `activity` | when a connection last moved a byte |
//! | `fault` | the one place where an error becomes a code |
//!
//! Knows no SQL, and nothing of HTTP beyond the upgraded socket. Reader, owner and writer are three tasks; everything
//! between them is bounded.

pub mod activity;
mod ending;
pub mod fault;
mod handshake;
mod members;
mod owner;
mod publishing;
mod reader;
mod refusals;
mod registry;
mod remains;
mod selecting;
mod state;
mod step_spans;
mod transacting;
mod writer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::WebSocket;
use futures_util::{FutureExt as _, StreamExt as _};
use laneway_client::wire::{BrokerFrame, GoAway, ResumeOutcome, Subprotocol};
use rand::Rng as _;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use activity::Activity;
use ending::Ending;
use handshake::Admitted;
use owner::{Owner, Writing};
use registry::Registry;
use state::State;
use writer::{FrameSink, Writer};

use crate::broker::Broker;
use crate::broker::tailing::Tailing;
use crate::broker::watching::Watcher;
use crate::limits::{CLOSE_TIMEOUT, DRAIN_SPREAD_MAX, DRAIN_SPREAD_PER_SESSION, INBOX_FRAMES_MAX};

/// A connection that was upgraded.
#[derive(Debug)]
pub struct Connection {
    pub socket: WebSocket,
    pub subprotocol: Subprotocol,
    pub activity: Arc<Activity>,
    /// Its place among all connections; given back when the socket is closed.
    pub place: Arc<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct Shared {
    broker: Broker,
    tailing: Tailing,
    watcher: Watcher,
    registry: Registry,
    /// Cancelled when the broker drains.
    draining: CancellationToken,
    /// Cancelled when those that have not ended are cut off.
    over: CancellationToken,
    tasks: TaskTracker,
}

/// All sessions of a broker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

impl Sessions {
    pub fn new(broker: Broker) -> Self {
        let tailing = Tailing::new(broker.topics.clone(), broker.reader.clone(), broker.tails.clone());
        let (store, traces) = (broker.store.clone(), broker.traces.clone());
        let watcher = Watcher::new(store, broker.topics.clone(), broker.reader.clone(), traces);
        Self {
            shared: Arc::new(Shared {
                broker,
                tailing,
                watcher,
                registry: Registry::default(),
                draining: CancellationToken::new(),
                over: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    fn broker(&self) -> &Broker {
        &self.shared.broker
    }

    fn tailing(&self) -> &Tailing {
        &self.shared.tailing
    }

    fn watcher(&self) -> &Watcher {
        &self.shared.watcher
    }

    fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Whether the broker takes nobody in any more.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.is_cancelled()
    }

    /// Resolves when the broker drains. Cancel safety: safe.
    async fn draining(&self) {
        self.shared.draining.cancelled().await;
    }

    /// Asks a client to come back, at a moment of its own.
    fn go_away(&self) -> BrokerFrame {
        let sessions = u32::try_from(self.registry().len()).unwrap_or(u32::MAX);
        let spread = DRAIN_SPREAD_PER_SESSION.saturating_mul(sessions).min(DRAIN_SPREAD_MAX);
        let delay_ms = rand::rng().random_range(0..=spread.as_millis() as u64);
        BrokerFrame::GoAway(GoAway { reason: "drain".to_owned(), delay_ms })
    }

    /// Asks every session to go, and waits until all are gone, or are cut off because they are late.
    pub async fn drain(&self, timeout: Duration) {
        tracing::info!(sessions = self.registry().len(), "draining");
        self.shared.draining.cancel();
        self.shared.tasks.close();
        if tokio::time::timeout(timeout, self.shared.tasks.wait()).await.is_err() {
            tracing::warn!(sessions = self.registry().len(), "some sessions did not end in time");
        }
        self.shared.over.cancel();
        self.shared.tasks.wait().await;
    }

    /// Serves one connection until it ends, and its session until nobody can come back to it.
    /// Why boxes, here and below: what wraps a future holds it as a value, several times over, for as long as it lives.
    pub fn serve(self, connection: Connection) -> impl Future<Output = ()> + Send {
        let (tasks, over) = (self.shared.tasks.clone(), self.shared.over.clone());
        let serving = Box::pin(self.serve_connection(connection));
        tasks.track_future(over.run_until_cancelled_owned(serving)).map(drop)
    }

    async fn serve_connection(self, connection: Connection) {
        let Connection { socket, subprotocol, activity, place } = connection;
        let (sink, stream) = socket.split();
        let mut sink = FrameSink { sink, subprotocol, activity: activity.clone() };
        let (sender, mut inbox) = mpsc::channel(INBOX_FRAMES_MAX);
        let reading = AbortOnDropHandle::new(tokio::spawn(reader::run(stream, subprotocol, sender)));
        let mut state = State::new(Instant::now());
        let greeting = Box::pin(handshake::greet(&self, &mut state, &mut inbox, &mut sink));
        let admitted = match greeting.await {
            Ok(admitted) => *admitted,
            Err(ending) => {
                tracing::debug!(?ending, "a connection ended before its session began");
                drop(inbox);
                let last_words = async {
                    let _lost = sink.close(&ending).await;
                };
                return Box::pin(close(&ending, last_words, reading, &activity)).await;
            }
        };
        let Admitted { opened, pushed, .. } = admitted;
        let metrics = self.broker().metrics.clone();
        metrics.sessions.inc();
        let resumed =
            opened.welcome.resume.as_ref().is_some_and(|report| report.outcome == ResumeOutcome::Resumed);
        metrics.sessions_resumed.inc_by(u64::from(resumed));
        let heartbeat = Duration::from_millis(u64::from(opened.welcome.heartbeat_ms));
        let writer = Writer::new(sink, pushed, self.broker().lease.clone(), opened.broker_id, heartbeat);
        let mut owner = Box::new(Owner::new(self, state, opened, activity.clone()));
        let (finish, told) = oneshot::channel();
        let mut writing: Writing = AbortOnDropHandle::new(tokio::spawn(writer.run(told)));
        let ending = owner.run(inbox, &mut writing).await;
        metrics.sessions.dec();
        let verdict = ending.verdict;
        let socket = async move {
            let last_words = async {
                let _writer_has_ended = finish.send(ending.clone());
                if !writing.is_finished() {
                    let _ended = (&mut writing).await;
                }
            };
            close(&ending, last_words, reading, &activity).await;
            drop((writing, place)); // a writer that is late is aborted; the socket is closed
        };
        let settled = owner.into_remains().settle(verdict);
        Box::pin(async { tokio::join!(socket, settled) }).await;
    }
}

/// Ends a connection: its last words, then the socket. Nobody is waited for long.
async fn close(
    ending: &Ending,
    last_words: impl Future<Output = ()>,
    reading: AbortOnDropHandle<()>,
    activity: &Activity,
) {
    if ending.close.is_some() {
        activity.linger(); // the client may still be sending
    }
    if tokio::time::timeout(CLOSE_TIMEOUT, last_words).await.is_ok() && ending.close.is_none() {
        // A client that has closed the connection gets its close frame back from the reading half.
        let _late = tokio::time::timeout(CLOSE_TIMEOUT, reading).await;
    }
}
