//! A healthy session beside a bad one: what it publishes it receives, before and after.

use laneway_client::wire::Subprotocol;

use crate::harness::socket::{Socket, make_topic, payloads, text};

/// A session on a topic and a group of its own.
pub struct Witness {
    socket: Socket,
    topic: String,
    heard: usize,
}

impl Witness {
    pub async fn new(address: &str, subprotocol: Subprotocol) -> Self {
        let topic = format!("witness-{}", uuid::Uuid::new_v4());
        make_topic(address, &topic, 1).await;
        let mut socket = Socket::connect(address, subprotocol).await;
        socket.subscribe("witness", &topic).await;
        let mut witness = Self { socket, topic, heard: 0 };
        witness.lives().await;
        witness
    }

    /// Publishes something and receives it, and commits that.
    pub async fn lives(&mut self) {
        let word = format!("word {}", self.heard);
        self.heard += 1;
        self.socket.publish(&self.topic.clone(), vec![text(&word)]).await;
        let batch = self.socket.batch().await;
        assert_eq!(payloads(&batch), [word]);
        let next = self.heard as i64;
        assert_eq!(self.socket.ack_below(&batch, next).await, Ok(next));
    }
}
