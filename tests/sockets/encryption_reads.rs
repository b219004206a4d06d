//! Reads, lists and pops beside messages that do not open: nothing of those is given out, and nothing else is held up by them.

use laneway_client::ErrorCode;
use laneway_client::admin::AdminError;
use laneway_client::management::Purge;
use laneway_client::pull_api::{PopExtend, PopNack, PopRequest};
use laneway_client::topic::{CreateTopic, Encryption};
use laneway_client::wire::{
    BrokerFrame, ClientFrame, CreditGrant, NewMessage, Publish, Start, Subprotocol, Subscribe, Tail,
};
use serde_json::Value;
use uuid::Uuid;

use crate::encryption::{SECRET, admin, make_encrypted, serve, tables_with};
use crate::harness::process::run;
use crate::harness::socket::{BOTH, Socket, make_topic, quick_retries, subscribe};
use crate::harness::{Server, TestDatabase, wait};
use crate::keys::{keyed, parked, parking};
use crate::to_partition;

/// An answer over HTTP, which never has a secret in it.
async fn get(server: &Server, path: &str) -> (u16, Value) {
    let answer = reqwest::get(server.url(path)).await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

/// The code of an answer that is refused.
async fn refused(server: &Server, path: &str) -> (u16, String) {
    let (status, body) = get(server, path).await;
    assert!(!body.to_string().contains(SECRET), "{path}: {body}");
    (status, body["code"].as_str().unwrap_or_default().to_owned())
}

fn offsets(body: &Value) -> Vec<i64> {
    let messages = body["messages"].as_array().unwrap_or_else(|| panic!("{body}"));
    messages.iter().map(|message| message["offset"].as_i64().unwrap()).collect()
}

/// Changes the payload of one message, or changes it back.
async fn flip(database: &TestDatabase, partition: i32, offset: i64) {
    let flip = "UPDATE laneway.message m SET payload = set_byte(m.payload, 12, get_byte(m.payload, 12) # 1)
        FROM laneway.partition p WHERE p.partition_id = m.partition_id AND p.number = $1 AND m.\"offset\" = $2";
    assert_eq!(database.raw().await.execute(flip, &[&partition, &offset]).await.unwrap(), 1);
}

/// Secrets of one trace in a topic of short segments.
async fn with_segments(server: &Server, messages: usize, trace_id: Uuid) {
    let (encryption, segment_messages) = (Some(Encryption::Aes256Gcm), Some(16));
    let topic = CreateTopic { encryption, segment_messages, ..CreateTopic::new("orders", 1) };
    admin(server).create_topic(&topic).await.unwrap();
    let mut socket = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let message = |number: usize| NewMessage {
        trace_id: Some(trace_id),
        ..to_partition(0, format!("{SECRET} {number}"))
    };
    socket.publish("orders", (0..messages).map(message).collect()).await;
    socket.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_meets_in_the_next_segment_what_does_not_open_returns_what_stands_before_it() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &["a"]).await;
    with_segments(&server, 40, Uuid::new_v4()).await;
    let path = "/v1/topics/orders/partitions/0/messages";
    flip(&database, 0, 16).await;
    let (_, forward) = get(&server, &format!("{path}?from=0&limit=100")).await;
    assert_eq!(offsets(&forward), (0..16).collect::<Vec<_>>());
    flip(&database, 0, 16).await;
    flip(&database, 0, 31).await;
    let (_, back) = get(&server, &format!("{path}?before=40&limit=100")).await;
    assert_eq!(offsets(&back), (32..40).rev().collect::<Vec<_>>());
    for from in ["?from=31", "?before=32"] {
        let refused = refused(&server, &format!("{path}{from}")).await;
        assert_eq!(refused, (500, "not_authentic".to_owned()), "who goes on from there is told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_purged_need_not_open_any_more() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &["a"]).await;
    let trace_id = Uuid::new_v4();
    with_segments(&server, 12, trace_id).await;
    admin(&server)
        .purge_topic("orders", &Purge::BeforeOffset { partition: 0, before_offset: 8 })
        .await
        .unwrap();
    for offset in 0..8 {
        flip(&database, 0, offset).await;
    }
    let (_, back) = get(&server, "/v1/topics/orders/partitions/0/messages?limit=100").await;
    assert_eq!(offsets(&back), [11, 10, 9, 8]);
    let (_, below) = get(&server, "/v1/topics/orders/partitions/0/messages?before=8").await;
    assert_eq!(offsets(&below), [0; 0]);
    let (_, trace) = get(&server, &format!("/v1/traces/{trace_id}/messages")).await;
    assert_eq!(offsets(&trace), [8, 9, 10, 11]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pop_whose_message_does_not_open_stays_and_holds_up_no_other() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &["a"]).await;
    make_encrypted(&server, "orders", 2).await;
    let admin = admin(&server);
    let mut socket = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let messages =
        [0, 1, 0, 1].iter().map(|partition| to_partition(*partition, format!("{SECRET} {partition}")));
    socket.publish("orders", messages.collect()).await;
    socket.close().await;
    let one = PopRequest { max_messages: Some(1), wait_ms: Some(20_000), ..PopRequest::default() };
    let pop = async || admin.pop("orders", "billing", &one).await.unwrap().expect("there are messages");
    let first = pop().await;
    admin.alter_group("orders", "billing", &quick_retries(1)).await.unwrap();
    flip(&database, first.partition as i32, 0).await;
    let (partition, epoch) = (first.partition, first.epoch);
    let nack = PopNack { partition, epoch, offset: 0, ..PopNack::default() };
    match admin.nack("orders", "billing", &nack).await.unwrap_err() {
        AdminError::Refused(problem) => assert_eq!(problem.code, ErrorCode::NotAuthentic, "{problem:?}"),
        other => panic!("{other}"),
    }
    let extend = PopExtend { partition, epoch, ack_deadline_ms: Some(100) };
    admin.extend("orders", "billing", &extend).await.unwrap();
    wait::until("its time to be over", async || {
        let over = "SELECT count(*) FROM laneway.lane WHERE popped_until_at <= clock_timestamp()";
        database.number(over).await == 1
    })
    .await;
    for offset in 0..2 {
        let other = pop().await;
        assert_eq!((other.partition, other.messages[0].offset), (1 - partition, offset));
        let all = laneway_client::pull_api::PopAck::all(&other);
        admin.ack("orders", "billing", &all).await.unwrap();
    }
    server.logged("a pop that is over stays").await;
    assert_eq!(database.number("SELECT count(*) FROM laneway.dead_letter").await, 0);
    flip(&database, first.partition as i32, 0).await;
    let next = pop().await;
    assert_eq!((next.partition, next.messages[0].offset), (partition, 1), "the first is given up");
    assert_eq!(database.number("SELECT count(*) FROM laneway.dead_letter").await, 1);
}

/// A topic with a dead letter, a parked key and a schedule, and another one with a dead letter that everybody can read.
async fn with_everything(keeper: &Server) -> Uuid {
    make_encrypted(keeper, "orders", 1).await;
    make_topic(&keeper.address, "open", 1).await;
    let mut socket = Socket::connect(&keeper.address, Subprotocol::MessagePack).await;
    let trace_id = Uuid::new_v4();
    for topic in ["orders", "open"] {
        let message = keyed([format!("k:{SECRET} {topic}").as_str()]).remove(0);
        socket.publish(topic, vec![NewMessage { trace_id: Some(trace_id), ..message }]).await;
        let wish = Subscribe { settings: Some(quick_retries(1)), ..subscribe("billing", topic) };
        socket.subscribe_with(wish).await.unwrap();
        let batch = socket.batch().await;
        socket.nack(&batch, 0, "bad").await.unwrap();
        let later = NewMessage { delay_ms: Some(600_000), ..to_partition(0, format!("{SECRET} later")) };
        socket.publish(topic, vec![later]).await;
    }
    let wish = Subscribe { settings: Some(parking(1)), ..subscribe("parker", "orders") };
    socket.subscribe_with(wish).await.unwrap();
    let batch = socket.batch().await;
    socket.nack(&batch, 0, "bad").await.unwrap();
    wait::until("its key to be parked", async || !parked(&admin(keeper)).await.is_empty()).await;
    socket.close().await;
    trace_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_the_key_lists_without_payloads_and_gives_out_nothing_else() {
    let database = TestDatabase::new().await;
    let mut keeper = serve(&database, &["a"]).await;
    let trace_id = with_everything(&keeper).await;
    keeper.stop().await;
    let stranger = serve(&database, &["b"]).await;
    let admin = admin(&stranger);
    // Lists have every entry; what does not open has its code in the place of its payload.
    let missing = (Some(ErrorCode::KeyMissing), "null".to_owned());
    let dead = admin.list_dead_letters(&Default::default()).await.unwrap().dead_letters;
    let shown: Vec<_> = dead.iter().map(|dead| (dead.error, dead.payload.get().to_owned())).collect();
    assert_eq!(shown, [missing.clone(), (None, format!("\"k:{SECRET} open\""))]);
    let schedules = admin.list_schedules(&Default::default()).await.unwrap().schedules;
    let shown: Vec<_> = schedules.iter().map(|one| (one.error, one.payload.get().to_owned())).collect();
    assert_eq!(shown, [missing.clone(), (None, format!("\"{SECRET} later\""))]);
    let keys = parked(&admin).await;
    let first = keys[0].first.as_ref().unwrap();
    assert_eq!((first.error, first.message.payload.get().to_owned()), missing);
    assert_eq!((first.message.offset, first.reason.as_str()), (0, "bad"));
    for list in ["dead", "schedule", "parked"] {
        let said = run(&[list, "list", "--url", &format!("ws://{}/v1/ws", stranger.address)]).await;
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert!(said.stderr.contains("does not open at this broker: key_missing"), "{}", said.stderr);
    }
    // Whoever asks for one of them gets nothing.
    for path in [
        "/v1/topics/orders/partitions/0/messages?before=100".to_owned(),
        "/v1/topics/orders/partitions/0/messages/0".to_owned(),
        "/v1/topics/orders/search?key=k".to_owned(),
        format!("/v1/traces/{trace_id}/messages"),
        format!("/v1/schedules/{}", schedules[0].id),
        format!("/v1/dead-letters/{}", dead[0].id),
        format!("/v1/parked/{}", keys[0].id),
    ] {
        assert_eq!(refused(&stranger, &path).await, (503, "key_missing".to_owned()), "{path}");
    }
    let (status, trace) = get(&stranger, &format!("/v1/traces/{trace_id}")).await;
    assert!(status == 200 && !trace.to_string().contains(SECRET), "{trace}");
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&stranger.address, subprotocol).await;
        let id = socket.id();
        let credit = CreditGrant { messages: 10, bytes: 1 << 20 };
        let (topic, start) = ("orders".into(), Some(Start::Earliest));
        socket
            .send(ClientFrame::Tail(Tail { id, topic, partitions: None, start, credit, batch: None }))
            .await;
        let told = socket.error().await;
        assert_eq!((told.code, told.partition), (ErrorCode::KeyMissing, Some(0)), "{told:?}");
        socket.close().await;
    }
    // What needs no payload works: to cancel, to drop.
    admin.cancel_schedule(schedules[0].id).await.unwrap();
    let dropped = admin.drop_parked(keys[0].id).await.unwrap();
    assert_eq!(dropped.first.unwrap().error, Some(ErrorCode::KeyMissing));
    admin.delete_dead_letter(dead[0].id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_a_ring_takes_no_message_that_is_to_wait() {
    let database = TestDatabase::new().await;
    let server = serve(&database, &[]).await;
    make_encrypted(&server, "orders", 1).await;
    for subprotocol in BOTH {
        let mut socket = Socket::connect(&server.address, subprotocol).await;
        let id = socket.id();
        let later = NewMessage { delay_ms: Some(600_000), ..to_partition(0, SECRET) };
        let (topic, messages) = ("orders".into(), vec![later]);
        socket
            .send(ClientFrame::Publish(Publish { id, topic, producer_id: None, messages, wait_ms: None }))
            .await;
        let error = socket
            .wait_for(|frame| match frame {
                BrokerFrame::Published(published) => panic!("it waits: {published:?}"),
                BrokerFrame::Error(error) if error.id == Some(id) => Some(error.code),
                _ => None,
            })
            .await;
        assert_eq!(error, ErrorCode::KeyMissing);
        socket.close().await;
    }
    assert_eq!(database.number("SELECT count(*) FROM laneway.schedule").await, 0);
    assert_eq!(tables_with(&database, SECRET).await, [""; 0]);
}
