//! A producer that numbers its messages, through the real binary: a retry is one copy, a hole is refused.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::{Server, TestDatabase};

struct Web {
    server: Server,
    http: reqwest::Client,
}

impl Web {
    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.http.post(self.server.url(path)).json(body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

fn numbered(producer: Uuid, sequences: std::ops::Range<i64>) -> Value {
    let messages: Vec<_> =
        sequences.map(|n| json!({"partition": 0, "payload": format!("m{n}"), "sequence": n})).collect();
    json!({"producer_id": producer, "messages": messages})
}

#[tokio::test]
async fn a_numbered_publish_over_http_is_stored_once_however_often_it_is_sent() {
    let database = TestDatabase::new().await;
    let mut web = Web { server: Server::on_database(&database.url).await, http: reqwest::Client::new() };
    let path = "/v1/topics/orders/messages";
    web.post("/v1/topics", &json!({"name": "orders"})).await;
    let producer = Uuid::new_v4();
    let (status, first) = web.post(path, &numbered(producer, 0..3)).await;
    assert_eq!((status, &first["results"][2]), (200, &json!({"partition": 0, "offset": 2})));
    let (_, again) = web.post(path, &numbered(producer, 0..4)).await;
    assert_eq!(again["results"][0], json!({"partition": 0, "offset": 0, "duplicate": true}));
    assert_eq!(again["results"][3], json!({"partition": 0, "offset": 3}));

    let (status, gap) = web.post(path, &numbered(producer, 9..10)).await;
    assert_eq!((status, &gap["code"], &gap["expected"]), (409, &json!("sequence_gap"), &json!(4)));
    for (broken, field) in [
        (json!({"messages": [{"partition": 0, "payload": "x", "sequence": 0}]}), "messages[0].sequence"),
        (
            json!({"producer_id": producer, "messages": [{"partition": 0, "payload": "x"}]}),
            "messages[0].sequence",
        ),
        (
            json!({"producer_id": producer, "messages": [{"payload": "x", "sequence": 4}]}),
            "messages[0].sequence",
        ),
        (
            json!({"producer_id": producer, "messages": [
                {"partition": 0, "payload": "x", "sequence": 4}, {"partition": 0, "payload": "y", "sequence": 6}]}),
            "messages[1].sequence",
        ),
    ] {
        let (status, problem) = web.post(path, &broken).await;
        assert_eq!(
            (status, &problem["code"], &problem["field"]),
            (422, &json!("invalid_message"), &json!(field))
        );
    }
    assert_eq!(database.number("SELECT max(next_offset) FROM laneway.head").await, 4);
    assert_eq!(web.server.stop().await, 0);
}
