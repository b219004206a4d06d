//! What the examples of the document name, so that every operation can succeed: see the `example`s in `src/server`.

use futures_util::StreamExt as _;
use laneway_client::parked::ParkedQuery;
use laneway_client::pull_api::PopRequest;
use laneway_client::wire::{
    BrokerFrame, GroupOrdering, NewMessage, OnFailure, Subprotocol, Subscribe, WantedSettings,
};
use laneway_client::{Admin, Client};
use tokio::task::JoinHandle;

use crate::harness::Server;
use crate::harness::socket::{Socket, make_topic, offsets, quick_retries, subscribe};
use crate::harness::wait::until;

/// The trace that the document shows.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
/// So many that some are left when others were dropped or replayed. `hooks.py` counts on them.
const DEAD_LETTERS: i64 = 70;
/// Likewise, that some are left when others were cancelled or moved.
const SCHEDULES: i64 = 70;
/// Likewise, that some are left when others were replayed or dropped.
const PARKED_KEYS: i64 = 70;
/// Until they are due.
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// A member that takes part for as long as it lives.
pub struct Seeded {
    member: JoinHandle<()>,
}

impl Drop for Seeded {
    fn drop(&mut self) {
        self.member.abort();
    }
}

/// Topics `orders`, `obsolete` and `idle`; on `orders` the groups `billing`, with a member, `obsolete` and `idle`, and dead letters and
/// schedules from 1 on; the groups `acked`, `nacked` and `extended`, popped from; a topic `keyed` with parked keys from 1 on.
pub async fn seed(server: &Server) -> Seeded {
    make_topic(&server.address, "orders", 2).await;
    make_topic(&server.address, "obsolete", 1).await;
    make_topic(&server.address, "idle", 1).await;
    publish(server).await;
    give_up(server).await;
    take(server).await;
    park(server).await;
    let url = format!("ws://{}/v1/ws", server.address);
    let client = Client::connect(&url, laneway_client::Options::default()).await.unwrap();
    drop(client.subscribe("orders", "idle").await.unwrap());
    let mut orders = client.subscribe("orders", "billing").await.unwrap();
    let member = tokio::spawn(async move {
        while let Some(delivery) = orders.next().await {
            delivery.ack();
        }
    });
    Seeded { member }
}

async fn publish(server: &Server) {
    let mut producer = Socket::connect(&server.address, Subprotocol::Json).await;
    let trace_id = Some(uuid::Uuid::parse_str(TRACE).unwrap());
    let message = |number: i64| NewMessage {
        payload: format!("order {number}").into(),
        partition: Some(0),
        trace_id,
        ..NewMessage::default()
    };
    producer.publish("orders", (0..100).map(message).collect()).await;
    let later = |number: i64| NewMessage { delay_ms: Some(DAY_MS), ..message(number) };
    let published = producer.publish("orders", (0..SCHEDULES).map(later).collect()).await;
    let ids: Vec<i64> = published.units[0].scheduled.iter().map(|one| one.schedule).collect();
    assert_eq!(ids, (1..=SCHEDULES).collect::<Vec<_>>(), "the document names schedules by these ids");
    producer.close().await;
}

/// Groups that have been popped from, each once, for longer than a test takes.
async fn take(server: &Server) {
    let admin = Admin::new(&server.url("")).unwrap();
    let wish = PopRequest { ack_deadline_ms: Some(3_600_000), ..PopRequest::default() };
    for group in ["acked", "nacked", "extended"] {
        let pop = admin.pop("orders", group, &wish).await.unwrap().unwrap();
        assert_eq!((pop.partition, pop.epoch), (0, 1), "the document names them so");
    }
}

/// A group by key that parks every key.
async fn park(server: &Server) {
    make_topic(&server.address, "keyed", 1).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    let message = |number: i64| NewMessage {
        payload: format!("order {number}").into(),
        key: Some(format!("customer {number}").into_bytes().into()),
        ..NewMessage::default()
    };
    socket.publish("keyed", (0..PARKED_KEYS).map(message).collect()).await;
    let settings = WantedSettings {
        ordering: Some(GroupOrdering::Key),
        on_failure: Some(OnFailure::Park),
        ..quick_retries(1)
    };
    let wish = Subscribe { settings: Some(settings), ..subscribe("parked", "keyed") };
    socket.subscribe_with(wish).await.unwrap();
    for batch in socket.batches(PARKED_KEYS as usize).await {
        for offset in offsets(&batch) {
            socket.nack(&batch, offset, "it is poison").await.unwrap();
        }
    }
    let admin = Admin::new(&server.url("")).unwrap();
    let ids = async || {
        let parked = admin.list_parked(&ParkedQuery::default()).await.unwrap().parked;
        parked.iter().map(|key| key.id).collect::<Vec<i64>>()
    };
    until("every key is parked", async || ids().await.len() == PARKED_KEYS as usize).await;
    assert_eq!(
        ids().await,
        (1..=PARKED_KEYS).collect::<Vec<_>>(),
        "the document names parked keys by these ids"
    );
    socket.close().await;
}

/// A group that gives up messages, and is then left.
async fn give_up(server: &Server) {
    let mut consumer = Socket::connect(&server.address, Subprotocol::Json).await;
    let wish = Subscribe { settings: Some(quick_retries(1)), ..subscribe("obsolete", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    let mut round = 0;
    for offset in 0..DEAD_LETTERS {
        let batch = consumer
            .wait_for(|frame| match frame {
                // A nack ends the round: what was sent before it is void.
                BrokerFrame::Batch(batch) if batch.round > round => Some(batch.clone()),
                _ => None,
            })
            .await;
        assert_eq!(offsets(&batch)[0], offset);
        round = batch.round;
        consumer.nack(&batch, offset, "it is poison").await.unwrap();
    }
    consumer.close().await;
    let admin = Admin::new(&server.url("")).unwrap();
    let dead = admin.list_dead_letters(&Default::default()).await.unwrap().dead_letters;
    let ids: Vec<i64> = dead.iter().map(|dead_letter| dead_letter.id).collect();
    assert_eq!(ids, (1..=DEAD_LETTERS).collect::<Vec<_>>(), "the document names dead letters by these ids");
}
