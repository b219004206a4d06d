//! Promise 2 over HTTP: what is refused is told with its code, its class and the field at fault, and writes nothing.

use laneway_client::{Class, ErrorCode};
use serde_json::{Value, json};

use crate::harness::{Server, TestDatabase};
use crate::web::Web;

async fn server() -> (TestDatabase, Server, Web) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    web.create(json!({"name": "orders", "partitions": 2, "payload_bytes_max": 100})).await;
    web.publish("orders", json!([{"payload": "first", "partition": 0}])).await;
    (database, server, web)
}

/// Everything that a mistake could have written.
async fn stored(web: &Web) -> (Value, Value) {
    (web.get("/v1/topics").await.json(), web.get("/v1/topics/orders").await.json())
}

#[tokio::test]
async fn a_publish_that_breaks_a_rule_is_refused_and_nothing_of_it_is_written() {
    use ErrorCode as E;
    let (_database, mut server, web) = server().await;
    let before = stored(&web).await;
    let trace = "0af7651916cd43dd8448eb211c80319";
    let cases = [
        (json!({"payload": "x".repeat(101)}), E::PayloadTooLarge, "payload", "101 bytes"),
        (json!({"payload": "x".repeat(101), "encoding": "json"}), E::PayloadTooLarge, "payload", "103 bytes"),
        (json!({"payload": "", "key": "k".repeat(1025)}), E::KeyTooLarge, "key", "at most 1024"),
        (
            json!({"payload": "", "headers": {"h": "x".repeat(8 << 10)}}),
            E::HeadersTooLarge,
            "headers",
            "8192",
        ),
        (
            json!({"payload": "", "transaction_id": "x".repeat(256)}),
            E::TransactionIdTooLong,
            "transaction_id",
            "at most 255",
        ),
        (json!({"payload": "", "transaction_id": "a\0b"}), E::InvalidMessage, "transaction_id", "NUL"),
        (json!({"payload": "", "transaction_id": ""}), E::InvalidMessage, "transaction_id", "empty"),
        (json!({"payload": "", "content_type": ""}), E::InvalidMessage, "content_type", "empty"),
        (json!({"payload": "", "content_type": "a\0b"}), E::InvalidMessage, "content_type", "NUL"),
        (json!({"payload": "", "content_type": "x".repeat(256)}), E::InvalidMessage, "content_type", "255"),
        (json!({"payload": "", "trace_id": "0".repeat(32)}), E::InvalidMessage, "trace_id", "all zero"),
        (json!({"payload": "", "trace_id": trace}), E::Malformed, "trace_id", "32 hexadecimal digits"),
        (json!({"payload": "", "partition": 2}), E::PartitionOutOfRange, "partition", "has 2 partitions"),
        (json!({"payload": "!", "encoding": "base64"}), E::Malformed, "payload", "base64"),
        (json!({"payload": "YQ", "encoding": "base64"}), E::Malformed, "payload", "padding"),
        (json!({"payload": 7}), E::Malformed, "payload", r#""encoding": "json""#),
        (json!({"payload": {"a": 1}}), E::Malformed, "payload", "not a string"),
        (json!({"payload": null}), E::Malformed, "payload", "not a string"),
        (json!({"payload": "", "key": 7}), E::Malformed, "key", r#""key_encoding": "json""#),
        (json!({"payload": "", "key": "!", "key_encoding": "base64"}), E::Malformed, "key", "base64"),
    ];
    for (wrong, code, field, words) in cases {
        // Its neighbours are right; they must not be written either, not even those of another partition.
        let right = |partition: u32| json!({"payload": "right", "partition": partition});
        let messages = json!({"messages": [right(0), wrong, right(1)]});
        let problem = web.post("/v1/topics/orders/messages", &messages).await.problem();
        assert_eq!(problem.code, code, "{problem:?}");
        assert_eq!(problem.class, Class::Refused);
        assert_eq!(problem.field.as_deref(), Some(format!("messages[1].{field}").as_str()), "{problem:?}");
        assert!(problem.detail.contains(words), "{words}: {problem:?}");
    }
    let producer = uuid::Uuid::new_v4();
    for (message, words) in [
        (json!({"payload": "", "partition": 0}), "sequence is missing"),
        (json!({"payload": "", "sequence": 0}), "give partition, key or transaction_id"),
        (json!({"payload": "", "partition": 0, "sequence": -1}), "start at 0"),
        (json!({"payload": "", "partition": 0, "sequence": i64::MAX}), "end at"),
        (json!({"payload": "", "partition": 0, "sequence": 7}), "expected 8"),
    ] {
        let publish = json!({"producer_id": producer, "messages": [message, message]});
        let problem = web.post("/v1/topics/orders/messages", &publish).await.problem();
        assert_eq!(problem.code, E::InvalidMessage, "{problem:?}");
        assert!(problem.field.as_ref().unwrap().ends_with("].sequence"), "{problem:?}");
        assert!(problem.detail.contains(words), "{words}: {problem:?}");
    }
    let alone = json!({"messages": [{"payload": "", "sequence": 0}]});
    let problem = web.post("/v1/topics/orders/messages", &alone).await.problem();
    assert_eq!((problem.code, problem.field.as_deref()), (E::InvalidMessage, Some("messages[0].sequence")));
    for sequence in [1, i64::MAX / 2] {
        let message = json!({"payload": "", "partition": 0, "sequence": sequence});
        let gap = json!({"producer_id": producer, "messages": [message]});
        let problem = web.post("/v1/topics/orders/messages", &gap).await.problem();
        assert_eq!(
            (problem.code, problem.class, problem.expected),
            (E::SequenceGap, Class::Refused, Some(0))
        );
    }
    let none = web.post("/v1/topics/orders/messages", &json!({"messages": []})).await.problem();
    assert_eq!((none.code, none.field.as_deref()), (E::InvalidMessage, Some("messages")));
    assert_eq!(stored(&web).await, before);
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn a_body_that_is_no_publish_is_refused_with_where_it_is_wrong() {
    let (_database, _server, web) = server().await;
    let before = stored(&web).await;
    let deep = format!(r#"{{"messages": {}{}}}"#, "[".repeat(200_000), "]".repeat(200_000));
    let surrogate = r#"{"messages": [{"payload": "\ud800"}]}"#;
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "EOF"),
        (b"{".to_vec(), "EOF"),
        (b"messages".to_vec(), "expected"),
        (b"{\"messages\": [{\"payload\": \"\xff\"}]}".to_vec(), "unicode"),
        (surrogate.into(), "surrogate"),
        (b"{}".to_vec(), "missing field `messages`"),
        (br#"{"messages": {}}"#.to_vec(), "messages"),
        (br#"{"messages": [7]}"#.to_vec(), "messages[0]"),
        (br#"{"messages": [{}]}"#.to_vec(), "missing field `payload`"),
        (
            br#"{"messages": [{"payload": ""}, {"payload": "", "colour": 1}]}"#.to_vec(),
            "unknown field `colour`",
        ),
        (br#"{"messages": [{"payload": ""}], "topic": "x"}"#.to_vec(), "unknown field `topic`"),
        (br#"{"messages": [{"payload": "", "partition": -1}]}"#.to_vec(), "messages[0].partition"),
        (br#"{"messages": [{"payload": "", "partition": "0"}]}"#.to_vec(), "messages[0].partition"),
        (br#"{"messages": [{"payload": "", "headers": {"h": 1}}]}"#.to_vec(), "messages[0].headers"),
        (br#"{"messages": [{"payload": "", "encoding": "utf-8"}]}"#.to_vec(), "unknown variant `utf-8`"),
        (br#"{"messages": [{"payload": ""}], "producer_id": "me"}"#.to_vec(), "producer_id"),
        (
            br#"{"messages": [{"payload": "", "sequence": 9223372036854775808}]}"#.to_vec(),
            "messages[0].sequence",
        ),
        (br#"{"messages": [{"payload": ""}]} trailing"#.to_vec(), "trailing"),
        (deep.into_bytes(), "messages[0]"),
    ];
    for (body, words) in cases {
        let problem = web.post_raw("/v1/topics/orders/messages", body).await.problem();
        assert_eq!((problem.code, problem.class), (ErrorCode::Malformed, Class::Refused), "{problem:?}");
        assert!(problem.detail.contains(words), "{words}: {problem:?}");
    }
    // Only what calls itself JSON is read as JSON: a form that another site posts is not.
    let plain =
        web.http.post(web.url("/v1/topics/orders/messages")).body(r#"{"messages": [{"payload": ""}]}"#);
    let problem = web.send(plain).await.problem();
    assert_eq!(problem.code, ErrorCode::Malformed);
    assert!(problem.detail.contains("Content-Type: application/json"), "{problem:?}");
    assert_eq!(stored(&web).await, before);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let (_database, _server, web) = server().await;
    let before = stored(&web).await;
    for bytes in [(16 << 20) + 1, 64 << 20] {
        let problem = web.post_raw("/v1/topics/orders/messages", vec![b' '; bytes]).await.problem();
        assert_eq!((problem.code, problem.status), (ErrorCode::TooLarge, 413));
        assert!(problem.detail.contains("16777216"), "{problem:?}");
    }
    assert_eq!(stored(&web).await, before);
    assert_eq!(web.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_topic_that_breaks_a_rule_is_not_made() {
    use ErrorCode as E;
    let (_database, _server, web) = server().await;
    let before = stored(&web).await;
    let rule = "a-z, A-Z, 0-9, '.', '_' and '-'";
    let long = "x".repeat(250);
    let cases = [
        (json!({"name": ""}), E::InvalidTopicName, "name", rule),
        (json!({"name": "a b"}), E::InvalidTopicName, "name", rule),
        (json!({"name": "a/b"}), E::InvalidTopicName, "name", rule),
        (json!({"name": "naïve"}), E::InvalidTopicName, "name", "'ï'"),
        (json!({"name": "a\0"}), E::InvalidTopicName, "name", rule),
        (json!({"name": long}), E::InvalidTopicName, "name", "at most 249 characters, this one has 250"),
        (json!({"name": "."}), E::InvalidTopicName, "name", "'.' and '..'"),
        (json!({"name": ".."}), E::InvalidTopicName, "name", "'.' and '..'"),
        (json!({"name": "orders"}), E::TopicExists, "name", "already"),
        (json!({"name": "n", "partitions": 0}), E::InvalidSetting, "partitions", "between 1 and 1000"),
        (json!({"name": "n", "partitions": 1001}), E::InvalidSetting, "partitions", "not 1001"),
        (json!({"name": "n", "payload_bytes_max": 0}), E::InvalidSetting, "payload_bytes_max", "between 1"),
        (json!({"name": "n", "segment_messages": 15}), E::InvalidSetting, "segment_messages", "between 16"),
        (json!({"name": "n", "retention_age_ms": 0}), E::InvalidSetting, "retention_age_ms", "between 1"),
        (json!({"name": "n", "retention_bytes": 0}), E::InvalidSetting, "retention_bytes", "between 1"),
        (json!({"name": "n", "retention_bytes": u64::MAX}), E::InvalidSetting, "retention_bytes", "not"),
        (json!({"name": "n", "dedup_window_ms": 0}), E::InvalidSetting, "dedup_window_ms", "between 1"),
        (
            json!({"name": "n", "dedup_window_ms": u64::MAX}),
            E::InvalidSetting,
            "dedup_window_ms",
            "604800000",
        ),
    ];
    for (topic, code, field, words) in cases {
        let problem = web.post("/v1/topics", &topic).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (code, Some(field)), "{problem:?}");
        assert_eq!(problem.class, Class::Refused);
        assert!(problem.detail.contains(words), "{words}: {problem:?}");
    }
    for (body, words) in [
        (r#"{"name": 7}"#, "name: invalid type"),
        (r#"{"partitions": 1}"#, "missing field `name`"),
        (r#"{"name": "n", "partitions": -1}"#, "partitions: invalid value"),
        (r#"{"name": "n", "colour": "red"}"#, "unknown field `colour`"),
    ] {
        let problem = web.post_raw("/v1/topics", body).await.problem();
        assert_eq!(problem.code, E::Malformed, "{problem:?}");
        assert!(problem.detail.contains(words), "{words}: {problem:?}");
    }
    assert_eq!(stored(&web).await, before);
}

#[tokio::test]
async fn a_read_that_makes_no_sense_is_refused() {
    use ErrorCode as E;
    let (_database, _server, web) = server().await;
    let orders = "/v1/topics/orders/partitions/0/messages";
    let cases = [
        (format!("{orders}?limit=0"), E::Malformed, Some("limit"), "between 1 and 10000, not 0"),
        (format!("{orders}?limit=10001"), E::Malformed, Some("limit"), "not 10001"),
        (format!("{orders}?limit=99999999999"), E::Malformed, None, "limit"),
        (format!("{orders}?limit=many"), E::Malformed, None, "limit"),
        (format!("{orders}?from=-1"), E::Malformed, Some("from"), "negative"),
        (format!("{orders}?before=-1"), E::Malformed, Some("before"), "negative"),
        (format!("{orders}?from=1.5"), E::Malformed, None, "from"),
        (format!("{orders}?from=99999999999999999999"), E::Malformed, None, "from"),
        (format!("{orders}?from=0&before=1"), E::Malformed, Some("from"), "one of from, before and at"),
        (format!("{orders}?from=0&at=2026-01-31T12:00:00Z"), E::Malformed, Some("from"), "one of"),
        (format!("{orders}?before=1&at=2026-01-31T12:00:00Z"), E::Malformed, Some("from"), "one of"),
        (format!("{orders}?at=yesterday"), E::Malformed, Some("at"), "2026-01-31T12:00:00Z"),
        (format!("{orders}?at=2026-01-31T12:00:00"), E::Malformed, Some("at"), "2026-01-31T12:00:00Z"),
        (format!("{orders}?offset=0"), E::Malformed, None, "unknown field `offset`"),
        (
            "/v1/topics/orders/partitions/2/messages".into(),
            E::PartitionOutOfRange,
            Some("partition"),
            "2 partitions",
        ),
        ("/v1/topics/orders/partitions/-1/messages".into(), E::Malformed, None, "-1"),
        ("/v1/topics/orders/partitions/x/messages".into(), E::Malformed, None, "x"),
        ("/v1/topics/nowhere/partitions/0/messages".into(), E::UnknownTopic, Some("topic"), "nowhere"),
        ("/v1/topics/nowhere".into(), E::UnknownTopic, Some("topic"), "nowhere"),
        ("/v1/topics/a%20b".into(), E::InvalidTopicName, Some("name"), "a-z, A-Z"),
        ("/v1/topics/a%2Fb".into(), E::InvalidTopicName, Some("name"), "a-z, A-Z"),
        ("/v1/topics/%00".into(), E::InvalidTopicName, Some("name"), "a-z, A-Z"),
        ("/v1/topics/%FF".into(), E::Malformed, None, "UTF-8"),
        ("/v1/topics?befor=x".into(), E::Malformed, None, "unknown field `befor`"),
        ("/v1/traces/xyz/messages".into(), E::Malformed, Some("trace_id"), "32 hexadecimal digits"),
    ];
    for (path, code, field, words) in cases {
        let problem = web.get(&path).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (code, field), "{path}: {problem:?}");
        assert!(problem.detail.contains(words), "{path}: {words}: {problem:?}");
    }
    let publish = json!({"messages": [{"payload": ""}]});
    let problem = web.post("/v1/topics/nowhere/messages", &publish).await.problem();
    assert_eq!((problem.code, problem.field.as_deref()), (E::UnknownTopic, Some("topic")));
    let problem = web.post("/v1/topics/a%20b/messages", &publish).await.problem();
    assert_eq!((problem.code, problem.field.as_deref()), (E::InvalidTopicName, Some("name")));
}

#[tokio::test]
async fn what_retention_dropped_is_out_of_range_with_where_it_starts() {
    let (database, _server, web) = server().await;
    web.create(json!({"name": "brief", "segment_messages": 16, "retention_bytes": 1})).await;
    for _ in 0..10 {
        // What one flush wrote is counted as one: several, so that the segments know what they hold.
        web.publish("brief", (0..4).map(|n| json!({"payload": format!("m{n}")})).collect()).await;
    }
    assert_eq!(web.list("brief", 0, "from=0").await.len(), 40); // the broker remembers the segments now
    let store = database.store();
    for partition in store.segments_full().await.unwrap() {
        store.segments_seal(partition).await.unwrap();
    }
    store.retention_pass().await.unwrap();
    let below = "/v1/topics/brief/partitions/0/messages?from=31";
    let problem = web.get(below).await.problem();
    assert_eq!((problem.code, problem.status, problem.start), (ErrorCode::OutOfRange, 410, Some(32)));
    assert_eq!((problem.class, problem.field.as_deref()), (Class::Refused, Some("from")));
    assert!(problem.detail.contains("below offset 32"), "{problem:?}");
    assert_eq!(web.list("brief", 0, "from=32").await.len(), 8);
    assert_eq!(web.list("brief", 0, "before=36").await.len(), 4);
    assert!(web.list("brief", 0, "before=20").await.is_empty());
    assert_eq!(web.list("brief", 0, "at=2000-01-01T00:00:00Z").await[0].offset, 32);
    let stands = &web.partitions("brief").await[0];
    assert_eq!((stands.start_offset, stands.next_offset), (32, 40));
}

#[tokio::test]
async fn wrong_methods_and_unknown_routes_are_problems_too() {
    let (_database, _server, web) = server().await;
    let before = stored(&web).await;
    for (method, path) in [
        ("PUT", "/v1/topics"),
        ("DELETE", "/v1/topics"),
        ("GET", "/v1/topics/orders/messages"),
        ("POST", "/v1/topics/orders/partitions/0/messages"),
        ("POST", "/healthz"),
        ("OPTIONS", "/v1/topics"),
    ] {
        let problem = web.send(web.http.request(method.parse().unwrap(), web.url(path))).await.problem();
        assert_eq!((problem.code, problem.status), (ErrorCode::MethodNotAllowed, 405), "{method} {path}");
        assert_eq!(problem.detail, format!("{path} does not take {method}"));
    }
    for path in ["/", "/v1", "/v2/topics", "/v1/topics/", "/v1/topics/orders/nothing", "/v1/ws/x"] {
        let problem = web.get(path).await.problem();
        assert_eq!((problem.code, problem.status), (ErrorCode::UnknownRoute, 404), "{path}");
        assert_eq!(problem.detail, format!("there is nothing at {path}"));
    }
    assert_eq!(stored(&web).await, before);
}

#[tokio::test]
async fn a_request_in_a_foreign_name_is_refused_on_every_route() {
    let (_database, _server, web) = server().await;
    let before = stored(&web).await;
    let foreign = [
        ("host", "evil.example"),
        ("host", "localhost.evil.example:7420"),
        ("host", "127.0.0.1.evil.example"),
        ("origin", "http://evil.example"),
        ("origin", "https://localhost.evil.example"),
        ("origin", "null"),
        ("origin", "file://localhost"),
    ];
    for (name, value) in foreign {
        for path in ["/healthz", "/metrics", "/v1/topics", "/nowhere"] {
            let problem = web.send(web.http.get(web.url(path)).header(name, value)).await.problem();
            assert_eq!((problem.code, problem.status), (ErrorCode::ForeignHost, 403), "{name}: {value}");
            assert!(problem.field.unwrap().eq_ignore_ascii_case(name));
            assert!(problem.detail.contains(value), "{}", problem.detail);
        }
        let publish = web.http.post(web.url("/v1/topics/orders/messages")).header(name, value);
        let problem = web.send(publish.json(&json!({"messages": [{"payload": ""}]}))).await.problem();
        assert_eq!(problem.code, ErrorCode::ForeignHost);
    }
    for (name, value) in [
        ("host", "localhost"),
        ("host", "LocalHost:7420"),
        ("host", "[::1]:7420"),
        ("origin", "http://localhost:7420"),
        ("origin", "https://127.0.0.1"),
    ] {
        let answer = web.send(web.http.get(web.url("/v1/topics")).header(name, value)).await;
        assert_eq!(answer.status, 200, "{name}: {value}");
    }
    assert_eq!(stored(&web).await, before);
}

#[tokio::test]
async fn a_name_that_the_operator_allows_is_served() {
    let database = TestDatabase::new().await;
    let args = ["--database-url", &database.url, "--allow-host", "bus.internal,other.internal"];
    let server = Server::start(&args).await;
    let web = Web::new(&server);
    let as_host = async |name: &str, value: &str| {
        web.send(web.http.get(web.url("/v1/topics")).header(name, value)).await.status
    };
    assert_eq!(as_host("host", "bus.internal:7420").await, 200);
    assert_eq!(as_host("origin", "https://Other.Internal").await, 200);
    assert_eq!(as_host("host", "bus.internal.evil.example").await, 403);
}
