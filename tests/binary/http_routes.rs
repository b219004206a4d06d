//! What every route of the HTTP API does when it is asked properly.

use laneway_client::TopicName;
use laneway_client::message::PublishResponse;
use laneway_client::routing::partition_of;
use laneway_client::topic::{TopicDetail, TopicList};
use serde_json::{Value, json};

use crate::harness::{Server, TestDatabase};
use crate::web::{Web, text};

async fn server() -> (TestDatabase, Server, Web) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    (database, server, web)
}

fn texts(messages: &[laneway_client::message::StoredMessage]) -> Vec<String> {
    messages.iter().map(text).collect()
}

#[tokio::test]
async fn health_readiness_and_metrics_answer() {
    let (_database, mut server, web) = server().await;
    let health = web.get("/healthz").await;
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    let ready = web.get("/readyz").await;
    assert_eq!((ready.status, ready.body.as_str()), (200, "ready\n"));
    let metrics = web.get("/metrics").await;
    assert!(metrics.content_type.starts_with("application/openmetrics-text"), "{metrics:?}");
    assert!(metrics.body.contains("# TYPE laneway_") && metrics.body.ends_with("# EOF\n"), "{metrics:?}");
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn a_topic_is_made_with_its_settings_and_shown_as_it_was_made() {
    let (_database, _server, web) = server().await;
    let settings = json!({
        "name": "orders.v2_a-B", "partitions": 3, "payload_bytes_max": 1000, "segment_messages": 16,
        "retention_age_ms": 60_000, "retention_bytes": 1_000_000, "dedup_window_ms": 5_000,
        "delivery_times": false,
    });
    let made = serde_json::to_value(web.create(settings.clone()).await).unwrap();
    for (name, value) in settings.as_object().unwrap() {
        assert_eq!(&made[name], value, "{name}");
    }
    assert_eq!(made["partition_details"].as_array().unwrap().len(), 3);
    let shown: Value = web.get("/v1/topics/orders.v2_a-B").await.json();
    assert_eq!(shown, made);
    // Everything but the name has a default.
    let plain = web.create(json!({"name": "plain"})).await;
    assert_eq!((plain.topic.partitions, plain.topic.payload_bytes_max), (1, 1 << 20));
    assert_eq!((plain.topic.retention_age_ms, plain.topic.retention_bytes), (None, None));
    assert!(plain.topic.delivery_times);
    // The smallest and the largest that the ranges allow.
    web.create(json!({"name": "x".repeat(249), "partitions": 1000, "payload_bytes_max": 64 << 20})).await;
    let detail: TopicDetail = web.get(&format!("/v1/topics/{}", "x".repeat(249))).await.json();
    assert_eq!(detail.partition_details.len(), 1000);
}

#[tokio::test]
async fn topics_are_listed_by_name_page_by_page() {
    let (database, _server, web) = server().await;
    assert!(web.get("/v1/topics").await.json::<TopicList>().topics.is_empty());
    let store = database.store();
    let names: Vec<String> = (0..501).map(|number| format!("t{number:03}")).collect();
    for name in names.iter().rev() {
        let name = TopicName::new(name.as_str()).unwrap();
        store.topics_create(&name, 1, &Default::default()).await.unwrap();
    }
    let first: TopicList = web.get("/v1/topics").await.json();
    assert_eq!((first.topics.len(), first.next.as_deref()), (500, Some("t499")));
    let second: TopicList = web.get("/v1/topics?after=t499").await.json();
    assert_eq!(second.next, None);
    let listed: Vec<String> = first.topics.into_iter().chain(second.topics).map(|topic| topic.name).collect();
    assert_eq!(listed, names);
    // The command line follows the pages.
    let said = crate::harness::process::run(&["topic", "list", "--json", "--url", &web.url("")]).await;
    assert_eq!(serde_json::from_str::<Vec<Value>>(&said.stdout).unwrap().len(), 501);
}

#[tokio::test]
async fn many_messages_go_to_the_partitions_that_they_name_in_their_order() {
    let (_database, _server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 4})).await;
    let message = |number: usize| match number % 3 {
        0 => json!({"payload": format!("m{number}"), "partition": number % 4}),
        1 => json!({"payload": format!("m{number}"), "key": format!("k{}", number % 7)}),
        _ => json!({"payload": format!("m{number}"), "transaction_id": format!("t{number}")}),
    };
    let home = |number: usize| match number % 3 {
        0 => number as u32 % 4,
        1 => partition_of(format!("k{}", number % 7).as_bytes(), 4),
        _ => partition_of(format!("t{number}").as_bytes(), 4),
    };
    let results = web.publish("orders", (0..400).map(message).collect()).await.results;
    let mut expected = vec![Vec::new(); 4];
    for (number, result) in results.iter().enumerate() {
        let partition = &mut expected[home(number) as usize];
        assert_eq!(result.partition, home(number));
        assert_eq!((result.offset, result.duplicate), (Some(partition.len() as i64), false));
        partition.push(format!("m{number}"));
    }
    for (partition, expected) in expected.iter().enumerate() {
        assert_eq!(&texts(&web.all("orders", partition as u32).await), expected);
    }
    let stands: Vec<i64> = web.partitions("orders").await.iter().map(|one| one.next_offset).collect();
    assert_eq!(stands, expected.iter().map(|one| one.len() as i64).collect::<Vec<_>>());
    // Those without a home of their own stay together.
    let homeless = web.publish("orders", (0..50).map(|n| json!({"payload": n.to_string()})).collect()).await;
    assert!(homeless.results.iter().all(|result| result.partition == homeless.results[0].partition));
}

#[tokio::test]
async fn a_transaction_id_is_stored_once_and_answered_with_its_first_offset() {
    let (_database, _server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    let named = |payload: &str| json!([{"payload": payload, "transaction_id": "t-1"}]);
    let first = web.publish("orders", named("a")).await.results.remove(0);
    assert_eq!((first.offset, first.duplicate), (Some(0), false));
    let again = web.publish("orders", named("b")).await.results.remove(0);
    assert_eq!((again.offset, again.duplicate), (Some(0), true));
    assert_eq!(texts(&web.all("orders", 0).await), ["a"]);
}

#[tokio::test]
async fn a_numbered_publish_that_is_sent_again_is_one_copy() {
    let (_database, _server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 2})).await;
    let producer = uuid::Uuid::new_v4();
    let message = |n: i64| json!({"payload": format!("m{n}"), "partition": n % 2, "sequence": n / 2});
    let publish = |range: std::ops::Range<i64>| json!({"producer_id": producer, "messages": range.map(message).collect::<Vec<_>>()});
    let path = "/v1/topics/orders/messages";
    let first: PublishResponse = web.post(path, &publish(0..10)).await.json();
    let again: PublishResponse = web.post(path, &publish(0..14)).await.json();
    for (n, result) in again.results.iter().enumerate() {
        assert_eq!((result.offset, result.duplicate), (Some(n as i64 / 2), n < 10));
    }
    assert!(first.results.iter().all(|result| !result.duplicate));
    for partition in 0..2 {
        let expected: Vec<_> = (0..14).filter(|n| n % 2 == partition).map(|n| format!("m{n}")).collect();
        assert_eq!(texts(&web.all("orders", partition).await), expected);
    }
}

#[tokio::test]
async fn messages_are_listed_both_ways_by_key_set() {
    let (_database, _server, web) = server().await;
    web.create(json!({"name": "orders", "segment_messages": 16})).await;
    web.publish("orders", (0..100).map(|n| json!({"payload": format!("m{n}")})).collect()).await;
    let names = |range: std::ops::Range<usize>| range.map(|n| format!("m{n}")).collect::<Vec<_>>();
    let back = |range: std::ops::Range<usize>| range.rev().map(|n| format!("m{n}")).collect::<Vec<_>>();
    let list = async |query: &str| texts(&web.list("orders", 0, query).await);
    assert_eq!(list("from=0&limit=30").await, names(0..30));
    assert_eq!(list("from=30&limit=10000").await, names(30..100));
    assert_eq!(list("from=99").await, names(99..100));
    assert!(list("from=100").await.is_empty());
    assert!(list("from=9223372036854775807").await.is_empty());
    assert_eq!(list("limit=5").await, back(95..100), "without a position: the newest first");
    assert_eq!(list("before=95&limit=50").await, back(45..95));
    assert_eq!(list("before=1").await, names(0..1));
    assert!(list("before=0").await.is_empty());
    assert_eq!(list("before=9223372036854775807&limit=1").await, names(99..100));
    assert_eq!(list("").await.len(), 100);
}

#[tokio::test]
async fn messages_are_found_by_the_time_of_their_publishing() {
    let (_database, _server, web) = server().await;
    web.create(json!({"name": "orders", "segment_messages": 16})).await;
    for round in 0..6 {
        let messages = (0..7).map(|n| json!({"payload": format!("{round}-{n}")})).collect();
        web.publish("orders", messages).await;
    }
    let all = web.all("orders", 0).await;
    for round in 0..6 {
        let first = &all[round * 7];
        let found = web.list("orders", 0, &format!("at={}&limit=1", first.published_at)).await;
        assert_eq!((found[0].offset, text(&found[0])), (round as i64 * 7, format!("{round}-0")));
    }
    let found = async |at: &str| web.list("orders", 0, &format!("at={at}")).await.len();
    assert_eq!(found("2000-01-01T00:00:00Z").await, 42);
    assert_eq!(found("1969-12-31T23:59:59%2B00:00").await, 42);
    assert_eq!(found("2100-01-01T00:00:00Z").await, 0);
    // The ends of what a time can be written as.
    assert_eq!(found("-009999-01-02T01:59:59Z").await, 42);
    assert_eq!(found("9999-12-30T22:00:00Z").await, 0);
}

#[tokio::test]
async fn a_trace_is_found_across_topics_in_the_order_of_publishing() {
    let (_database, _server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 3})).await;
    web.create(json!({"name": "audit"})).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let hyphens = "0af76519-16cd-43dd-8448-eb211c80319c";
    for hop in 0..5 {
        let topic = if hop % 2 == 0 { "orders" } else { "audit" };
        web.publish(
            topic,
            json!([{"payload": "other"}, {"payload": format!("hop{hop}"), "trace_id": trace}]),
        )
        .await;
    }
    for spelled in [trace, hyphens, &trace.to_uppercase()] {
        let answer = web.get(&format!("/v1/traces/{spelled}/messages")).await;
        let hops = answer.json::<laneway_client::message::MessageList>().messages;
        assert_eq!(texts(&hops), ["hop0", "hop1", "hop2", "hop3", "hop4"]);
        let topics: Vec<&str> = hops.iter().map(|hop| hop.topic.as_str()).collect();
        assert_eq!(topics, ["orders", "audit", "orders", "audit", "orders"]);
        assert!(hops.iter().all(|hop| hop.trace_id == hyphens));
    }
    let none: Value = web.get(&format!("/v1/traces/{}/messages", uuid::Uuid::new_v4())).await.json();
    assert_eq!(none, json!({"messages": []}));
    // Without a trace id, every message gets one of its own.
    let others = web.all("audit", 0).await;
    assert_ne!(others[0].trace_id, others[2].trace_id);
}
