//! One message is published and read over HTTP, with the client and by hand.

use laneway_client::admin::AdminError;
use laneway_client::message::PublishMessage;
use laneway_client::topic::CreateTopic;
use laneway_client::{Admin, ErrorCode, Problem};
use serde_json::{Value, json};

use crate::harness::{Server, TestDatabase};

async fn server() -> (TestDatabase, Server, Admin) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let admin = Admin::new(&server.url("")).unwrap();
    admin.create_topic(&CreateTopic::new("orders", 2)).await.unwrap();
    (database, server, admin)
}

fn message(body: Value) -> PublishMessage {
    serde_json::from_str(&body.to_string()).unwrap()
}

fn refused<T: std::fmt::Debug>(result: Result<T, AdminError>) -> Problem {
    match result.unwrap_err() {
        AdminError::Refused(problem) => *problem,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_message_that_is_published_alone_can_be_read_alone() {
    let (_database, _server, admin) = server().await;
    for number in 0..3 {
        let body = message(json!({"payload": {"n": number}, "encoding": "json", "partition": 1, "key": "k"}));
        let published = admin.publish_message("orders", &body).await.unwrap();
        assert_eq!((published.partition, published.offset, published.duplicate), (1, Some(number), false));
    }
    let read = admin.show_message("orders", 1, 1).await.unwrap();
    assert_eq!((read.topic.as_str(), read.partition, read.offset), ("orders", 1, 1));
    assert_eq!(read.payload.get(), r#"{"n":1}"#);
    assert_eq!(read.key.unwrap().get(), r#""k""#);
}

#[tokio::test]
async fn a_transaction_id_makes_a_second_copy_a_duplicate() {
    let (_database, _server, admin) = server().await;
    let body = message(json!({"payload": "x", "transaction_id": "order-17"}));
    let first = admin.publish_message("orders", &body).await.unwrap();
    let second = admin.publish_message("orders", &body).await.unwrap();
    assert!(second.duplicate && !first.duplicate);
    assert_eq!((second.partition, second.offset), (first.partition, first.offset));
}

#[tokio::test]
async fn a_numbered_message_names_its_producer_beside_it() {
    let (_database, server, _admin) = server().await;
    let producer = uuid::Uuid::new_v4();
    let url = server.url(&format!("/v1/topics/orders/message?producer_id={producer}"));
    let send = async |sequence: i64| {
        let body = json!({"payload": "x", "partition": 0, "sequence": sequence});
        reqwest::Client::new().post(&url).json(&body).send().await.unwrap()
    };
    assert_eq!(send(0).await.status(), 200);
    assert_eq!(send(0).await.json::<Value>().await.unwrap()["duplicate"], true);
    let gap: Problem = send(2).await.json().await.unwrap();
    assert_eq!((gap.code, gap.expected), (ErrorCode::SequenceGap, Some(1)));
}

#[tokio::test]
async fn what_is_wrong_is_named_as_the_body_names_it() {
    let (_database, _server, admin) = server().await;
    for (body, code, field) in [
        (json!({"payload": 7}), ErrorCode::Malformed, "payload"),
        (json!({"payload": "x", "key": "?", "key_encoding": "base64"}), ErrorCode::Malformed, "key"),
        (json!({"payload": "x", "partition": 2}), ErrorCode::PartitionOutOfRange, "partition"),
        (json!({"payload": "x", "partition": 0, "sequence": 0}), ErrorCode::InvalidMessage, "sequence"),
        (json!({"payload": "x", "transaction_id": ""}), ErrorCode::InvalidMessage, "transaction_id"),
    ] {
        let problem = refused(admin.publish_message("orders", &message(body.clone())).await);
        assert_eq!((problem.code, problem.field.as_deref()), (code, Some(field)), "{body}");
    }
    let unknown = refused(admin.publish_message("nothing", &message(json!({"payload": "x"}))).await);
    assert_eq!(unknown.code, ErrorCode::UnknownTopic);
}

#[tokio::test]
async fn an_offset_without_a_message_is_told_from_one_that_cannot_be() {
    let (_database, server, admin) = server().await;
    let beyond = refused(admin.show_message("orders", 0, 0).await);
    assert_eq!(
        (beyond.code, beyond.status, beyond.field.as_deref()),
        (ErrorCode::UnknownMessage, 404, Some("offset"))
    );
    let negative = refused(admin.show_message("orders", 0, -1).await);
    assert_eq!((negative.code, negative.field.as_deref()), (ErrorCode::Malformed, Some("offset")));
    assert_eq!(refused(admin.show_message("orders", 2, 0).await).code, ErrorCode::PartitionOutOfRange);
    assert_eq!(refused(admin.show_message("nothing", 0, 0).await).code, ErrorCode::UnknownTopic);
    let path = "/v1/topics/orders/partitions/0/messages/x";
    let problem: Problem = reqwest::get(server.url(path)).await.unwrap().json().await.unwrap();
    assert_eq!(problem.code, ErrorCode::Malformed);
}
