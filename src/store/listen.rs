//! Hints from other brokers: LISTEN on a connection of its own.
//!
//! A notification is a hint, never the truth: it may be lost with its connection. So every (re)connect counts as a hint to
//! read everything again, and whoever uses hints polls beside them. Behind a transaction pooler there is no LISTEN; then
//! polling is all there is.

use std::time::Duration;

use tokio::sync::broadcast;
use tokio_postgres::AsyncMessage;
use tokio_util::sync::CancellationToken;

use super::error::{Effect, Error};
use super::{Role, StatementMode, Store};

/// Hints that a slow reader may fall behind; it then reads everything again.
const HINTS_MAX: usize = 256;
/// Pause before LISTEN is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// What may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// Topics were made, grown or changed.
    Topics,
    /// Anything: the connection is new, and what was said before is lost.
    Everything,
}

impl Hint {
    fn parse(payload: &str) -> Self {
        match payload {
            "topics" => Hint::Topics,
            _ => Hint::Everything, // of a newer broker: better too much than too little
        }
    }
}

/// The source of hints. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hints {
    sender: broadcast::Sender<Hint>,
}

impl Hints {
    /// Starts listening, until cancelled. Without LISTEN (a pooler) no hint ever comes, and polling does it all.
    pub fn start(store: Store, stop: CancellationToken) -> (Self, tokio::task::JoinHandle<()>) {
        let (sender, _) = broadcast::channel(HINTS_MAX);
        let hints = Self { sender: sender.clone() };
        let task = tokio::spawn(async move {
            if store.settings().statements == StatementMode::Unnamed {
                return stop.cancelled().await;
            }
            stop.run_until_cancelled(listen_forever(&store, &sender)).await;
        });
        (hints, task)
    }

    /// Hints from now on. Subscribe before you read what they are about.
    pub fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.sender.subscribe()
    }
}

async fn listen_forever(store: &Store, sender: &broadcast::Sender<Hint>) {
    loop {
        if let Err(error) = listen_once(store, sender).await {
            tracing::debug!(%error, "LISTEN ended");
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Listens until the connection ends.
async fn listen_once(store: &Store, sender: &broadcast::Sender<Hint>) -> Result<(), Error> {
    let lost = |error: tokio_postgres::Error| Error::classify(&error, Effect::None);
    let target = store.connector.target();
    let config = target.config_for(Role::Listen, store.settings());
    let (client, mut connection) = config.connect(target.tls.clone()).await.map_err(lost)?;
    let mut messages = std::pin::pin!(futures_util::stream::poll_fn(move |cx| connection.poll_message(cx)));
    let mut listening = std::pin::pin!(client.batch_execute("LISTEN laneway"));
    let mut subscribed = false;
    loop {
        tokio::select! {
            result = &mut listening, if !subscribed => {
                result.map_err(lost)?;
                subscribed = true;
                // Nobody may be listening to us yet: not an error.
                let _nobody = sender.send(Hint::Everything);
            }
            message = futures_util::StreamExt::next(&mut messages) => match message {
                Some(Ok(AsyncMessage::Notification(note))) => {
                    let _nobody = sender.send(Hint::parse(note.payload()));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(lost(error)),
                None => return Ok(()),
            },
        }
    }
}
