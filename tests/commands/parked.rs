//! `laneway parked`, and groups ordered by key: set, shown, listed, replayed, dropped, mistakes.

use laneway_client::wire::{NewMessage, Subprotocol};
use serde_json::Value;

use crate::harness::socket::{Socket, ack, offsets, subscribe, text};
use crate::harness::wait::until;
use crate::running::{Bus, sentence, wrong_usage};

fn keyed(key: &str, payload: &str) -> NewMessage {
    NewMessage { key: Some(key.as_bytes().to_vec().into()), partition: Some(0), ..text(payload) }
}

async fn connect(bus: &Bus) -> Socket {
    Socket::connect(&bus.server.address, Subprotocol::Json).await
}

/// A group ordered by key, set so by the command, and its consumer.
async fn consumer(bus: &Bus) -> Socket {
    let mut first = connect(bus).await;
    first.subscribe("billing", "orders").await;
    first.close().await;
    until("nobody consumes", async || bus.database.number("SELECT count(*) FROM laneway.member").await == 0)
        .await;
    let alter = ["group", "alter", "orders", "billing"];
    let by_key = ["--ordering", "key", "--on-failure", "park", "--max-attempts", "1"];
    let said = bus.run(&[&alter[..], &by_key].concat()).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(said.stdout.contains("at most 1 attempt, then park"), "{}", said.stdout);
    assert!(said.stdout.contains("in order by key"), "{}", said.stdout);
    wrong_usage(&bus.run(&[&alter[..], &["--ordering", "size"]].concat()).await, "say partition or key");
    let mut consumer = connect(bus).await;
    consumer.subscribe_with(subscribe("billing", "orders")).await.unwrap();
    consumer
}

async fn listed(bus: &Bus) -> Vec<Value> {
    let said = bus.run(&["parked", "list", "--json"]).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    serde_json::from_str::<Value>(&said.stdout).unwrap()["parked"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_keys_are_listed_shown_replayed_and_dropped() {
    let bus = Bus::new(1).await;
    let mut consumer = consumer(&bus).await;
    let none = bus.run(&["parked", "list"]).await;
    assert_eq!((none.code, none.stdout.as_str()), (0, "no parked keys\n"));
    let mut producer = connect(&bus).await;
    let messages = vec![keyed("a", "a0"), keyed("b", "b1"), keyed("a", "a2"), keyed("b", "b3")];
    producer.publish("orders", messages).await;
    let batch = consumer.batch().await;
    consumer.nack(&batch, 0, "it is\npoison").await.unwrap();
    consumer.nack(&batch, 1, "so is this").await.unwrap();
    until("both keys are parked with what is behind them", async || {
        let parked = listed(&bus).await;
        parked.len() == 2 && parked.iter().all(|key| key["messages"] == 2)
    })
    .await;
    let ids: Vec<String> = listed(&bus).await.iter().map(|key| key["id"].to_string()).collect();
    let table = bus.run(&["parked", "list", "--group", "billing", "--limit", "1"]).await;
    assert_eq!(table.stdout.lines().count(), 2, "{}", table.stdout);
    assert!(table.stdout.contains("it is poison"), "{}", table.stdout);
    assert!(table.stderr.contains(&format!("there are more: --after {}", ids[0])), "{}", table.stderr);
    let shown = bus.run(&["parked", "show", &ids[1]]).await;
    for words in
        ["key b of topic orders", "parked by group billing", "failed at offset 1, 1 attempt(s)", "b1"]
    {
        assert!(shown.stdout.contains(words), "{words}: {}", shown.stdout);
    }
    let unsure = sentence(&bus.run(&["parked", "drop", &ids[0]]).await, 1);
    assert!(unsure.contains("--yes"), "{unsure}");
    let dropped = bus.run(&["parked", "drop", &ids[0], "--yes"]).await;
    assert!(dropped.stdout.contains("dropped the message that it failed at"), "{}", dropped.stdout);
    let batch = consumer.batch().await;
    assert_eq!(offsets(&batch), [2]);
    consumer.ack(ack(&batch, None, &[2])).await.unwrap();
    let replayed = bus.run(&["parked", "replay", "--group", "billing", "--all"]).await;
    assert!(replayed.stdout.contains(&format!("parked key {}: replayed", ids[1])), "{}", replayed.stdout);
    let batch = consumer.batch().await;
    assert_eq!(offsets(&batch), [1, 3]);
    consumer.ack(ack(&batch, None, &[1, 3])).await.unwrap();
    until("nothing is parked", async || listed(&bus).await.is_empty()).await;
    let gone = sentence(&bus.run(&["parked", "show", &ids[1]]).await, 1);
    assert!(gone.contains("no parked key"), "{gone}");
    wrong_usage(&bus.run(&["parked", "replay"]).await, "required");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_with_parked_keys_is_deleted_only_by_force() {
    let bus = Bus::new(1).await;
    let mut consumer = consumer(&bus).await;
    let mut producer = connect(&bus).await;
    producer.publish("orders", vec![keyed("a", "a0")]).await;
    let batch = consumer.batch().await;
    consumer.nack(&batch, 0, "it is poison").await.unwrap();
    consumer.close().await;
    until("nobody consumes", async || bus.database.number("SELECT count(*) FROM laneway.member").await == 0)
        .await;
    let id = listed(&bus).await[0]["id"].to_string();
    let delete = ["group", "delete", "orders", "billing", "--yes"];
    let refused = sentence(&bus.run(&delete).await, 1);
    let why = format!("has 1 parked keys ({id}); replay or drop them first");
    assert!(refused.contains(&why) && refused.ends_with("(group_has_parked)"), "{refused}");
    assert_eq!(listed(&bus).await.len(), 1, "nothing happened");
    let deleted = bus.run(&[&delete[..], &["--force"]].concat()).await;
    assert_eq!((deleted.code, deleted.stderr.as_str()), (0, ""));
    assert_eq!(listed(&bus).await.len(), 0);
}
