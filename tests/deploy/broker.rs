//! A broker in which everything has happened once that the rules and the dashboard ask for.

use laneway_client::wire::{NewMessage, Subprotocol, Subscribe};

use crate::harness::socket::{Socket, make_topic, quick_retries, subscribe, text};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};

pub struct Experienced {
    pub server: Server,
    _database: TestDatabase,
    /// Holds a lane.
    _member: Socket,
}

impl Experienced {
    /// Published, scheduled, delivered, acked, given up; a lane that is held, one that was lost; lag that was looked at.
    pub async fn start() -> Self {
        let database = TestDatabase::new().await;
        let server = Server::on_database(&database.url).await;
        make_topic(&server.address, "orders", 1).await;
        let mut leaver = Socket::connect(&server.address, Subprotocol::Json).await;
        let wish = Subscribe { settings: Some(quick_retries(1)), ..subscribe("billing", "orders") };
        leaver.subscribe_with(wish.clone()).await.unwrap();
        leaver.publish("orders", vec![text("a"), text("b")]).await;
        leaver.publish("orders", vec![NewMessage { delay_ms: Some(3_600_000), ..text("later") }]).await;
        let batch = leaver.batch().await;
        leaver.nack(&batch, 0, "no").await.unwrap();
        leaver.close().await;
        let mut member = Socket::connect(&server.address, Subprotocol::Json).await;
        member.subscribe_with(wish).await.unwrap();
        member.granted().await;
        let experienced = Self { server, _database: database, _member: member };
        let held = "laneway_group_lag_messages{topic=\"orders\",group=\"billing\",held=\"true\"}";
        until("the lag is told", async || {
            let told = experienced.metrics("*/*").await;
            told.contains(held) && told.contains("laneway_topic_scheduled_messages")
        })
        .await;
        experienced
    }

    /// What it tells to who accepts this.
    pub async fn metrics(&self, accept: &str) -> String {
        let request = reqwest::Client::new().get(self.server.url("/metrics")).header("accept", accept);
        request.send().await.unwrap().text().await.unwrap()
    }
}
