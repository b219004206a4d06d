//! Searching messages over HTTP: by key, transaction id and time; recent first, page by page.

use laneway_client::message::FoundMessages;
use laneway_client::wire::{NewMessage, Subprotocol};
use serde_json::{Value, json};

use crate::harness::socket::text;
use crate::{Bus, to_partition};

async fn search(bus: &Bus, query: &str) -> FoundMessages {
    let url = bus.server.url(&format!("/v1/topics/orders/search?{query}"));
    let answer = reqwest::get(url).await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    answer.json().await.unwrap()
}

/// All pages of a search, as payloads.
async fn all(bus: &Bus, query: &str) -> Vec<String> {
    let (mut found, mut before) = (Vec::new(), String::new());
    for _ in 0..1_000 {
        let page = search(bus, &format!("{query}{before}")).await;
        found
            .extend(page.messages.iter().map(|message| serde_json::from_str(message.payload.get()).unwrap()));
        match page.next {
            Some(next) => before = format!("&before={next}"),
            None => return found,
        }
    }
    panic!("a search without an end: {found:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_found_by_key_transaction_id_and_time_recent_first() {
    let bus = Bus::with_topic("orders", 4).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let mut moments = Vec::new();
    for number in 0..30 {
        let key = Some(["anna", "bert", "carl"][number % 3].into());
        let transaction_id = (number % 10 == 0).then(|| format!("payment-{number}"));
        producer
            .publish("orders", vec![NewMessage { key, transaction_id, ..text(format!("m{number}")) }])
            .await;
        moments.push(search(&bus, "limit=1").await.messages[0].published_at.clone());
    }
    let numbers = |numbers: &[usize]| numbers.iter().map(|number| format!("m{number}")).collect::<Vec<_>>();
    let everything: Vec<usize> = (0..30).rev().collect();
    let anna: Vec<usize> = (0..30).rev().filter(|number| number % 3 == 0).collect();
    for limit in [1, 4, 7, 1_000] {
        assert_eq!(all(&bus, &format!("limit={limit}")).await, numbers(&everything), "limit {limit}");
        assert_eq!(all(&bus, &format!("key=anna&limit={limit}")).await, numbers(&anna), "limit {limit}");
    }
    let range = format!("from={}&to={}", moments[10], moments[20]);
    let within: Vec<usize> = (10..20).rev().collect();
    assert_eq!(all(&bus, &format!("{range}&limit=3")).await, numbers(&within));
    let bert: Vec<usize> = within.iter().copied().filter(|number| number % 3 == 1).collect();
    assert_eq!(all(&bus, &format!("{range}&key=bert&limit=2")).await, numbers(&bert));
    assert_eq!(all(&bus, "transaction_id=payment-20").await, ["m20"]);
    assert_eq!(all(&bus, "transaction_id=payment-21").await, Vec::<String>::new());
    // Once the window has forgotten it, the partition that the id or the key decides is read.
    bus.database.raw().await.execute("DELETE FROM laneway.transaction_seen", &[]).await.unwrap();
    assert_eq!(all(&bus, "transaction_id=payment-20&key=carl").await, ["m20"]);
    for partition in 0..4 {
        let url = format!("partition={partition}&limit=5");
        let found = all(&bus, &url).await;
        let sorted = everything.iter().map(|number| format!("m{number}")).filter(|m| found.contains(m));
        assert_eq!(found, sorted.collect::<Vec<_>>());
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_copy_of_a_transaction_id_is_found_also_those_that_the_window_has_forgotten() {
    let bus = Bus::with_topic("orders", 4).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let named = |payload: &str, partition| NewMessage {
        transaction_id: Some("payment".into()),
        partition,
        ..text(payload)
    };
    producer.publish("orders", vec![named("first", None)]).await;
    bus.database.raw().await.execute("DELETE FROM laneway.transaction_seen", &[]).await.unwrap();
    producer.publish("orders", vec![named("second", None)]).await;
    let home = search(&bus, "transaction_id=payment&limit=1").await.messages[0].partition;
    // A producer that chooses partitions itself may use an id in each.
    for payload in ["third", "fourth"] {
        let other = (home + if payload == "third" { 1 } else { 2 }) % 4;
        producer.publish("orders", vec![named(payload, Some(other))]).await;
    }
    for limit in [1, 2, 3, 100] {
        let found = all(&bus, &format!("transaction_id=payment&limit={limit}")).await;
        assert_eq!(found, ["fourth", "third", "second", "first"], "limit {limit}");
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_makes_no_sense_is_refused() {
    let bus = Bus::with_topic("orders", 2).await;
    for (query, status, code, field) in [
        ("partition=2", 422, "partition_out_of_range", "partition"),
        ("limit=0", 400, "malformed", "limit"),
        ("limit=1001", 400, "malformed", "limit"),
        ("from=yesterday", 400, "malformed", "from"),
        ("before=12-x-3", 400, "malformed", "before"),
        ("before=1-2-3-4", 400, "malformed", "before"),
        ("transaction_id=", 400, "malformed", "transaction_id"),
        ("transaction_id=a%00b", 400, "malformed", "transaction_id"),
    ] {
        let answer =
            reqwest::get(bus.server.url(&format!("/v1/topics/orders/search?{query}"))).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{query}");
        let error: Value = answer.json().await.unwrap();
        assert_eq!((&error["code"], &error["field"]), (&json!(code), &json!(field)), "{query}");
    }
    let answer = reqwest::get(bus.server.url("/v1/topics/nowhere/search")).await.unwrap();
    assert_eq!(answer.status().as_u16(), 404);
    assert_eq!(search(&bus, "").await.messages.len(), 0);
    bus.stop().await;
}

/// Publishes messages `m0`, `m1`, … one after the other, to three partitions in turn; those of partition 0 are large.
async fn uneven(bus: &Bus, messages: usize) {
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    for number in 0..messages {
        let partition = (number % 3) as u32;
        let padding = if partition == 0 { "x".repeat(900 << 10) } else { String::new() };
        let message = to_partition(partition, format!("m{number} {padding}"));
        producer.publish("orders", vec![NewMessage { key: Some("anna".into()), ..message }]).await;
    }
}

/// The first words of all messages of a search.
async fn names(bus: &Bus, query: &str) -> Vec<String> {
    let found = all(bus, query).await;
    found.iter().map(|payload| payload.split(' ').next().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_bytes_of_a_page_leave_out_comes_with_the_next_over_segments_and_partitions() {
    let bus = Bus::start().await;
    let topic = json!({ "name": "orders", "partitions": 3, "segment_messages": 16 });
    let made = reqwest::Client::new().post(bus.server.url("/v1/topics")).json(&topic).send().await.unwrap();
    assert!(made.status().is_success(), "{made:?}");
    uneven(&bus, 60).await;
    let of = |partition: Option<usize>| {
        let numbers = (0..60).rev().filter(|number| partition.is_none_or(|one| number % 3 == one));
        numbers.map(|number| format!("m{number}")).collect::<Vec<_>>()
    };
    for filter in ["", "&key=anna"] {
        let found = names(&bus, &format!("partition=0&limit=1000{filter}")).await;
        assert_eq!(found, of(Some(0)), "of one partition {filter}");
    }
    for limit in [7, 1_000] {
        assert_eq!(names(&bus, &format!("limit={limit}")).await, of(None), "limit {limit}");
    }
    bus.stop().await;
}

/// As if a broker had written so many messages without a key: only the tables know how they came.
const FILL: &str = "
    INSERT INTO laneway.message (partition_id, \"offset\", published_at, trace_id, payload)
        SELECT h.partition_id, n, clock_timestamp(), gen_random_uuid(), ''
        FROM laneway.head h, generate_series(1, 400100) n;
    INSERT INTO laneway.head (partition_id, published_at, next_offset, bytes_total)
        SELECT partition_id, clock_timestamp(), 400101, bytes_total FROM laneway.head";

#[tokio::test(flavor = "multi_thread")]
async fn a_rare_key_is_found_behind_more_messages_than_one_page_looks_at() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    producer.publish("orders", vec![NewMessage { key: Some("rare".into()), ..text("found") }]).await;
    bus.database.raw().await.batch_execute(FILL).await.unwrap();
    let first = search(&bus, "key=rare&limit=10").await;
    assert_eq!((first.messages.len(), first.next.is_some()), (0, true));
    assert_eq!(all(&bus, "key=rare&limit=10").await, ["found"]);
    assert_eq!(all(&bus, "key=none&limit=10").await, [""; 0]);
    bus.stop().await;
}
