//! Messages as a client library sends them: with a key and a trace id of their own, and numbered by partition, so that the broker
//! deduplicates.

use laneway_client::routing::partition_of;
use laneway_client::wire::{ClientFrame, NewMessage, Publish};
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::session::encoded;
use crate::bench::messages::Supply;

/// One producer.
pub(super) struct Numbered {
    topic: String,
    producer_id: Uuid,
    /// The next number of each partition.
    sequences: Vec<i64>,
    supply: Supply,
    /// Of the last publish.
    pub id: u64,
}

impl Numbered {
    pub fn new(topic: &str, partitions: u32, supply: Supply) -> Self {
        let sequences = vec![0; partitions as usize];
        Self { topic: topic.to_owned(), producer_id: Uuid::new_v4(), sequences, supply, id: 0 }
    }

    /// The next message, which goes where its key sends it.
    pub fn message(&mut self) -> NewMessage {
        let (payload, key) = self.supply.draw();
        let home = partition_of(&key, self.sequences.len() as u32);
        let sequence = self.sequences[home as usize];
        self.sequences[home as usize] += 1;
        NewMessage {
            key: Some(key),
            payload,
            trace_id: Some(Uuid::now_v7()),
            sequence: Some(sequence),
            ..NewMessage::default()
        }
    }

    /// The next publish.
    pub fn publish(&mut self, messages: Vec<NewMessage>) -> Message {
        self.id += 1;
        encoded(&ClientFrame::Publish(Publish {
            id: self.id,
            topic: self.topic.clone(),
            producer_id: Some(self.producer_id),
            wait_ms: None,
            messages,
        }))
    }
}
