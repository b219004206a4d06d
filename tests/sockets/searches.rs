//! Searching messages over HTTP: by key, transaction id and time; recent first, page by page.

use laneway_client::message::FoundMessages;
use laneway_client::wire::{NewMessage, Subprotocol};
use serde_json::{Value, json};

use crate::Bus;
use crate::harness::socket::text;

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
