//! Hints from other brokers: LISTEN on a connection of its own.
//!
//! A notification is a hint, never the truth: it may be lost with its connection. So every (re)connect counts as a hint to
//! read everything again, and whoever uses hints polls beside them. Behind a transaction pooler there is no LISTEN; then
//! polling is all there is.

use std::time::{Duration, Instant};

use tokio::sync::broadcast;
use tokio_postgres::AsyncMessage;
use tokio_util::sync::CancellationToken;

use super::error::{Effect, Error};
use super::query::query;
use super::{Role, StatementMode, Store};
use crate::ids::{BrokerId, GroupId, PartitionId};

query!(HEADS_HINT = "heads_hint"[TEXT]);

/// Hints that a slow reader may fall behind; it then reads everything again.
const HINTS_MAX: usize = 256;
/// Pauses before LISTEN is tried again: what is notified meanwhile is only found by looking.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(20);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// What may have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// Topics were made, grown or changed.
    Topics,
    /// Members or lanes of a group have changed.
    Group(GroupId),
    /// A broker has published to partitions.
    Heads { broker_id: BrokerId, partitions: Vec<PartitionId> },
    /// Anything: the connection is new, and what was said before is lost.
    Everything,
}

/// What a notification can carry, with room to spare.
const PAYLOAD_BYTES_MAX: usize = 7_900;

impl Hint {
    fn parse(payload: &str) -> Self {
        // Of a newer broker: better too much than too little.
        Self::parse_known(payload).unwrap_or(Hint::Everything)
    }

    fn parse_known(payload: &str) -> Option<Self> {
        if payload == "topics" {
            return Some(Hint::Topics);
        }
        if let Some(group_id) = payload.strip_prefix("group:") {
            return group_id.parse().ok().map(|group_id| Hint::Group(GroupId(group_id)));
        }
        let (broker_id, partitions) = payload.strip_prefix("heads:")?.split_once(':')?;
        let broker_id = BrokerId(broker_id.parse().ok()?);
        let partitions: Result<Vec<_>, _> =
            partitions.split(',').map(|partition| partition.parse().map(PartitionId)).collect();
        Some(Hint::Heads { broker_id, partitions: partitions.ok()? })
    }

    fn payload(&self) -> String {
        match self {
            Hint::Topics => "topics".to_owned(),
            Hint::Group(group_id) => format!("group:{group_id}"),
            Hint::Heads { broker_id, partitions } => {
                let partitions: Vec<String> = partitions.iter().map(ToString::to_string).collect();
                let payload = format!("heads:{broker_id}:{}", partitions.join(","));
                if payload.len() <= PAYLOAD_BYTES_MAX { payload } else { "everything".to_owned() }
            }
            Hint::Everything => "everything".to_owned(),
        }
    }
}

impl Store {
    /// Sends a hint to all brokers.
    pub async fn hint(&self, hint: &Hint) -> Result<(), Error> {
        let payload = hint.payload();
        let connection = self.connection().await?;
        connection.query(&HEADS_HINT, &[&payload], Effect::None).await.map(|_| ())
    }
}

impl Default for Hints {
    fn default() -> Self {
        Self::new()
    }
}

/// The source of hints. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hints {
    sender: broadcast::Sender<Hint>,
}

impl Hints {
    /// A source that is silent until [`Hints::listen`] runs.
    pub fn new() -> Self {
        Self { sender: broadcast::Sender::new(HINTS_MAX) }
    }

    /// Listens until cancelled. Without LISTEN (a pooler) no hint ever comes, and polling does it all.
    pub async fn listen(self, store: Store, stop: CancellationToken) {
        if store.settings().statements == StatementMode::Unnamed {
            return stop.cancelled().await;
        }
        stop.run_until_cancelled(listen_forever(&store, &self.sender)).await;
    }

    /// Tells this broker's own listeners what it knows without the database.
    pub fn tell(&self, hint: Hint) {
        let _nobody = self.sender.send(hint);
    }

    /// Hints from now on. Subscribe before you read what they are about.
    pub fn subscribe(&self) -> broadcast::Receiver<Hint> {
        self.sender.subscribe()
    }
}

async fn listen_forever(store: &Store, sender: &broadcast::Sender<Hint>) {
    let mut pause = RECONNECT_PAUSE_MIN;
    loop {
        let started = Instant::now();
        if let Err(error) = listen_once(store, sender).await {
            tracing::debug!(%error, "LISTEN ended");
        }
        pause = match started.elapsed() > RECONNECT_PAUSE_MAX {
            true => RECONNECT_PAUSE_MIN, // it has listened for a while
            false => (pause * 2).min(RECONNECT_PAUSE_MAX),
        };
        tokio::time::sleep(pause).await;
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
    let (timelines, era) = (store.timelines(), store.timelines().era());
    loop {
        tokio::select! {
            result = &mut listening, if !subscribed => {
                result.map_err(lost)?;
                subscribed = true;
                // Nobody may be listening to us yet: not an error.
                let _nobody = sender.send(Hint::Everything);
            }
            () = timelines.changed_from(era) => return Ok(()), // it may be the former primary that we hear
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_read_as_it_was_sent_and_an_unknown_one_means_everything() {
        let heads = Hint::Heads {
            broker_id: BrokerId(uuid::Uuid::from_u128(7)),
            partitions: vec![PartitionId(1), PartitionId(22)],
        };
        for hint in [Hint::Topics, Hint::Group(GroupId(9)), heads, Hint::Everything] {
            assert_eq!(Hint::parse(&hint.payload()), hint);
        }
        let broker_id = BrokerId(uuid::Uuid::from_u128(7));
        let many = Hint::Heads { broker_id, partitions: (0..2_000).map(PartitionId).collect() };
        assert_eq!(Hint::parse(&many.payload()), Hint::Everything);
        for unknown in ["", "group:x", "heads:1", "schedules"] {
            assert_eq!(Hint::parse(unknown), Hint::Everything, "{unknown}");
        }
    }
}
