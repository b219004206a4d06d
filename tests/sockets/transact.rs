//! Steps of pipelines: what is acknowledged and what is published happen together, once, or not at all.

use std::collections::BTreeSet;
use std::time::Duration;

use laneway_client::ErrorCode;
use laneway_client::wire::bounds::PUBLISH_MESSAGES_MAX;
use laneway_client::wire::{
    Ack, Batch, BrokerFrame, ClientFrame, NewMessage, StepPublish, Subprotocol, Transact, Transacted,
};
use uuid::Uuid;

use crate::Bus;
use crate::encryption::admin;
use crate::harness::socket::{BOTH, Socket, ack, make_topic, nack, offsets, payloads, text};
use crate::harness::{Server, wait};

/// A step that acknowledges single messages of a batch and publishes some texts.
pub fn step(batch: &Batch, singles: &[i64], topic: &str, texts: &[&str]) -> Transact {
    let messages: Vec<NewMessage> =
        texts.iter().map(|payload| NewMessage { partition: Some(0), ..text(*payload) }).collect();
    let publish = StepPublish { topic: topic.into(), messages };
    let publishes = if texts.is_empty() { Vec::new() } else { vec![publish] };
    Transact { id: 0, step_id: Uuid::now_v7(), acks: vec![ack(batch, None, singles)], publishes }
}

fn placed(done: &Transacted) -> Vec<Vec<(u32, i64)>> {
    done.placed.iter().map(|publish| publish.iter().map(|at| (at.partition, at.offset)).collect()).collect()
}

const STORED: &str = "SELECT count(*) FROM laneway.message m JOIN laneway.partition p USING (partition_id)
    JOIN laneway.topic t USING (topic_id) WHERE t.name = 'payments'";

async fn two_topics(bus: &Bus) {
    make_topic(&bus.server.address, "payments", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_acknowledges_and_publishes_once_however_often_it_is_sent() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        two_topics(&bus).await;
        bus.publish("orders", 0, 0..5).await;
        let mut consumer = bus.connect(subprotocol).await;
        consumer.subscribe("billing", "orders").await;
        let batch = consumer.batch().await;
        let first = step(&batch, &[0, 1], "payments", &["a", "b"]);
        let done = consumer.transact(first.clone()).await.unwrap();
        assert_eq!((done.repeated, placed(&done)), (false, vec![vec![(0, 0), (0, 1)]]));
        let again = consumer.transact(first.clone()).await.unwrap();
        assert_eq!((again.repeated, placed(&again)), (true, placed(&done)));
        let mut other = first.clone();
        other.publishes[0].messages[0].payload = "other".into();
        let refused = consumer.transact(other).await.unwrap_err();
        assert_eq!((refused.code, refused.field.as_deref()), (ErrorCode::StepMismatch, Some("step_id")));
        // Another step cannot do the same work once more.
        let twice = consumer.transact(step(&batch, &[1], "payments", &["twice"])).await.unwrap_err();
        assert_eq!(twice.code, ErrorCode::AlreadyDone);
        // A step may publish nothing, and to several topics and partitions.
        consumer.transact(step(&batch, &[2], "payments", &[])).await.unwrap();
        let mut wide = step(&batch, &[3], "payments", &["c"]);
        wide.publishes[0].messages.push(NewMessage { partition: Some(1), ..text("d") });
        wide.publishes.push(StepPublish {
            topic: "orders".into(),
            messages: vec![NewMessage { partition: Some(0), ..text("e") }],
        });
        let done = consumer.transact(wide).await.unwrap();
        assert_eq!(placed(&done), [vec![(0, 2), (1, 0)], vec![(0, 5)]]);
        assert_eq!(bus.database.number(STORED).await, 4);
        // What steps have acknowledged survives the session, and what they have published is delivered.
        consumer.close().await;
        let mut heir = bus.connect(subprotocol).await;
        heir.subscribe("billing", "orders").await;
        assert_eq!(heir.granted().await.committed_offset, 4);
        let rest: Vec<i64> = heir.batches(2).await.iter().flat_map(offsets).collect();
        assert_eq!(rest, [4, 5]);
        heir.subscribe("audit", "payments").await;
        let mut seen: Vec<String> = heir.batches(4).await.iter().flat_map(payloads).collect();
        seen.sort();
        assert_eq!(seen, ["a", "b", "c", "d"]);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_of_steps_are_found_even_if_no_commit_of_the_lane_was_written_since() {
    let bus = Bus::with_topic("orders", 1).await;
    two_topics(&bus).await;
    bus.publish("orders", 0, 0..6).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    consumer.transact(step(&batch, &[0, 2, 4], "payments", &["a"])).await.unwrap();
    let mut bus = bus;
    bus.server.kill().await;
    // As if the broker had died before it told the lane's commits.
    let client = bus.database.raw().await;
    client.execute("DELETE FROM laneway.lane_commit", &[]).await.unwrap();
    bus.server = Server::start(&["--database-url", &bus.database.url, "--lease-ttl", "2s"]).await;
    let mut heir = bus.connect(Subprotocol::MessagePack).await;
    heir.subscribe("billing", "orders").await;
    let granted = heir.granted().await;
    assert_eq!(granted.committed_offset, 1);
    let rest: Vec<i64> = heir.batches(3).await.iter().flat_map(offsets).collect();
    assert_eq!(rest, [1, 3, 5]);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lease_publishes_nothing_and_a_step_that_was_done_is_known_on_any_broker() {
    let bus = Bus::with_topic("orders", 1).await;
    two_topics(&bus).await;
    bus.publish("orders", 0, 0..4).await;
    let mut other = Server::start(&["--database-url", &bus.database.url]).await;
    let mut first = bus.connect(Subprotocol::Json).await;
    first.subscribe("billing", "orders").await;
    let batch = first.batch().await;
    let done_step = step(&batch, &[0], "payments", &["a"]);
    let done = first.transact(done_step.clone()).await.unwrap();
    // Never answered, as far as this client knows: it asks elsewhere, where its lane is not.
    first.cut();
    let mut second = Socket::connect(&other.address, Subprotocol::Json).await;
    second.subscribe("billing", "orders").await;
    let granted = second.granted().await;
    assert_eq!((granted.epoch, granted.committed_offset), (2, 1));
    let again = second.transact(done_step).await.unwrap();
    assert_eq!((again.repeated, placed(&again)), (true, placed(&done)));
    // A step of the old epoch that was not done never will be.
    let late = second.transact(step(&batch, &[1], "payments", &["late"])).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::LeaseLost);
    assert_eq!(bus.database.number(STORED).await, 1);
    // Under the new epoch it is done once, by whoever has the lane.
    let fresh = second.batch().await;
    second.transact(step(&fresh, &[1], "payments", &["b"])).await.unwrap();
    assert_eq!(bus.database.number(STORED).await, 2);
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_a_rule_is_refused_whole_and_the_work_can_still_be_done() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 2).await;
        two_topics(&bus).await;
        bus.publish("orders", 0, 0..3).await;
        let mut consumer = bus.connect(subprotocol).await;
        consumer.subscribe("billing", "orders").await;
        let batch = consumer.batch().await;
        let good = || step(&batch, &[0], "payments", &["x"]);
        let change = |change: &dyn Fn(&mut Transact)| {
            let mut transact = good();
            change(&mut transact);
            transact
        };
        let lane = |change: &dyn Fn(&mut Ack)| {
            let mut transact = good();
            change(&mut transact.acks[0]);
            transact
        };
        let cases = [
            (change(&|t| t.step_id = Uuid::nil()), ErrorCode::Malformed, "step_id"),
            (change(&|t| t.acks.clear()), ErrorCode::Malformed, "acks"),
            (change(&|t| t.acks.push(t.acks[0].clone())), ErrorCode::Malformed, "acks"),
            (
                change(&|t| t.acks.push(Ack { epoch: t.acks[0].epoch + 1, ..t.acks[0].clone() })),
                ErrorCode::Malformed,
                "acks",
            ),
            (change(&|t| t.acks = vec![t.acks[0].clone(); 65]), ErrorCode::TooLarge, "acks"),
            (change(&|t| t.publishes = vec![t.publishes[0].clone(); 65]), ErrorCode::TooLarge, "publishes"),
            (
                change(&|t| t.publishes[0].messages = vec![text("x"); PUBLISH_MESSAGES_MAX + 1]),
                ErrorCode::TooLarge,
                "publishes[0].messages",
            ),
            (
                change(&|t| {
                    t.publishes[0].messages = vec![text("x"); PUBLISH_MESSAGES_MAX / 2 + 1];
                    t.publishes.push(t.publishes[0].clone());
                }),
                ErrorCode::TooLarge,
                "messages",
            ),
            (change(&|t| t.publishes[0].messages.clear()), ErrorCode::Malformed, "publishes"),
            (change(&|t| t.publishes[0].messages[0].sequence = Some(0)), ErrorCode::Malformed, "publishes"),
            (
                change(&|t| t.publishes[0].topic = "nowhere".into()),
                ErrorCode::UnknownTopic,
                "publishes[0].topic",
            ),
            (
                change(&|t| t.publishes[0].messages[0].partition = Some(9)),
                ErrorCode::PartitionOutOfRange,
                "publishes[0].messages[0].partition",
            ),
            (
                change(&|t| t.publishes[0].messages[0].trace_id = Some(Uuid::nil())),
                ErrorCode::InvalidMessage,
                "publishes[0].messages[0].trace_id",
            ),
            (
                change(&|t| t.publishes[0].messages[0].payload = vec![b'x'; 2 << 20].into()),
                ErrorCode::PayloadTooLarge,
                "publishes[0].messages[0].payload",
            ),
            (lane(&|a| a.epoch += 1), ErrorCode::LeaseLost, "acks"),
            (lane(&|a| a.partition = 7), ErrorCode::LeaseLost, "acks"),
            (lane(&|a| a.round += 1), ErrorCode::StaleRound, "acks"),
            (lane(&|a| a.ranges = vec![(2, 9).into()]), ErrorCode::BeyondSent, "acks"),
            (lane(&|a| a.subscription = 9), ErrorCode::UnknownSubscription, "subscription"),
        ];
        for (transact, code, field) in cases {
            let refused = consumer.transact(transact.clone()).await.unwrap_err();
            assert_eq!(
                (refused.code, refused.field.as_deref()),
                (code, Some(field)),
                "{:?}, {} publishes: {refused:?}",
                transact.acks,
                transact.publishes.len()
            );
        }
        assert_eq!(bus.database.number(STORED).await, 0);
        assert_eq!(bus.database.number("SELECT count(*) FROM laneway.step_ack").await, 0);
        consumer.transact(good()).await.unwrap();
        assert_eq!(bus.database.number(STORED).await, 1);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_known_is_not_stored_again_by_a_step() {
    let bus = Bus::with_topic("orders", 1).await;
    two_topics(&bus).await;
    bus.publish("orders", 0, 0..3).await;
    let named =
        |name: &str| NewMessage { partition: Some(0), transaction_id: Some(name.into()), ..text(name) };
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.publish("payments", vec![named("old")]).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    let mut transact = step(&batch, &[0], "payments", &["x"]);
    transact.publishes[0].messages.extend([named("old"), named("new"), named("new")]);
    let done = consumer.transact(transact).await.unwrap();
    assert_eq!(placed(&done), [[(0, 1), (0, 0), (0, 2), (0, 2)]]);
    assert_eq!(bus.database.number(STORED).await, 3);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_run_over_the_ends_of_segments_together_and_alone() {
    let bus = Bus::with_topic("orders", 4).await;
    let body = serde_json::json!({ "name": "payments", "partitions": 1, "segment_messages": 100 });
    let made = reqwest::Client::new().post(bus.server.url("/v1/topics")).json(&body).send().await.unwrap();
    assert_eq!(made.status(), 201);
    for partition in 0..4 {
        bus.publish("orders", partition, 0..16).await;
    }
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let texts: Vec<String> = (0..90).map(|number| number.to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut sent = 0;
    while sent < 64 {
        let batch = consumer.batch().await;
        for offset in offsets(&batch) {
            let id = consumer.id();
            consumer
                .send(ClientFrame::Transact(Transact { id, ..step(&batch, &[offset], "payments", &texts) }))
                .await;
            sent += 1;
        }
    }
    let mut stored = BTreeSet::new();
    for _ in 0..64 {
        let done = consumer.wait_for(|frame| match frame {
            BrokerFrame::Transacted(done) => Some(done.clone()),
            BrokerFrame::Error(error) => panic!("{error:?}"),
            _ => None,
        });
        stored.extend(done.await.placed[0].iter().map(|at| at.offset));
    }
    assert_eq!(stored, (0..64 * 90).collect());
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_wait_together_share_a_transaction_and_each_counts_once() {
    let bus = Bus::with_topic("orders", 4).await;
    two_topics(&bus).await;
    let mut workers = Vec::new();
    for _ in 0..4 {
        let mut socket = bus.connect(Subprotocol::MessagePack).await;
        socket.subscribe("billing", "orders").await;
        workers.push(socket);
    }
    let settled = "SELECT count(DISTINCT session_id) FROM laneway.lane WHERE session_id = wanted_session";
    wait::until("each to have a lane", async || bus.database.number(settled).await == 4).await;
    for partition in 0..4 {
        bus.publish("orders", partition, 0..16).await;
    }
    // Somebody else holds the partition for a moment, so that all of them wait.
    let client = bus.database.raw().await;
    client.batch_execute("BEGIN; SELECT FROM laneway.partition FOR UPDATE").await.unwrap();
    let worked: Vec<_> = workers.into_iter().map(|socket| tokio::spawn(work(socket, 16))).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bus.database.number(STORED).await, 0);
    client.batch_execute("COMMIT").await.unwrap();
    let mut published = BTreeSet::new();
    for worked in worked {
        published.extend(worked.await.unwrap());
    }
    assert_eq!(published.len(), 64);
    assert_eq!(bus.database.number(STORED).await, 64);
    let metrics = reqwest::get(bus.server.url("/metrics")).await.unwrap().text().await.unwrap();
    let count = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    assert_eq!(count("laneway_steps_total"), 64);
    let flushes = count("laneway_step_flushes_total");
    assert!(flushes <= 6, "{flushes} transactions for 64 steps"); // the one that waited, and what came meanwhile
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_written_together_with_one_whose_lane_is_lost_is_done_all_the_same() {
    let bus = Bus::with_topic("orders", 2).await;
    two_topics(&bus).await;
    for partition in 0..2 {
        bus.publish("orders", partition, 0..2).await;
    }
    let mut worker = bus.connect(Subprotocol::MessagePack).await;
    worker.subscribe("billing", "orders").await;
    let mut batches = worker.batches(4).await;
    batches.sort_by_key(|batch| batch.partition);
    let lost = batches.iter().find(|batch| batch.partition == 1).unwrap();
    // Somebody takes a lane, and while the locks are held everything waits for the same flush.
    let client = bus.database.raw().await;
    let take = "BEGIN; SELECT FROM laneway.partition FOR UPDATE; UPDATE laneway.lane SET epoch = epoch + 1
        WHERE partition_id = (SELECT max(partition_id) FROM laneway.lane)";
    client.batch_execute(take).await.unwrap();
    let steps = [(&batches[0], 0), (lost, 0), (&batches[0], 1)];
    for (id, (batch, offset)) in (1_000..).zip(steps) {
        let transact = Transact { id, ..step(batch, &[offset], "payments", &["result"]) };
        worker.send(ClientFrame::Transact(transact)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    client.batch_execute("COMMIT").await.unwrap();
    let mut answers = std::collections::BTreeMap::new();
    while answers.len() < 3 {
        let answer = worker.wait_for(|frame| match frame {
            BrokerFrame::Transacted(done) => Some((done.id, None)),
            BrokerFrame::Error(error) => error.id.map(|id| (id, Some(error.code))),
            _ => None,
        });
        answers.extend([answer.await]);
    }
    assert_eq!(answers.into_values().collect::<Vec<_>>(), [None, Some(ErrorCode::LeaseLost), None]);
    assert_eq!(bus.database.number(STORED).await, 2);
    bus.stop().await;
}

/// Flushes of steps that wait for a partition.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%partitions_lock_waiting%'";

/// Sends a step that waits for its partition until the connection says `COMMIT`.
async fn hold_up(bus: &Bus, consumer: &mut Socket, id: u64, transact: Transact) -> tokio_postgres::Client {
    let client = bus.database.raw().await;
    client.batch_execute("BEGIN; SELECT FROM laneway.partition FOR UPDATE").await.unwrap();
    consumer.send(ClientFrame::Transact(Transact { id, ..transact })).await;
    wait::until("the step to be under way", async || bus.database.number(WAITING).await > 0).await;
    client
}

async fn done(consumer: &mut Socket, id: u64) -> Transacted {
    let done = consumer.wait_for(|frame| match frame {
        BrokerFrame::Transacted(done) if done.id == id => Some(done.clone()),
        BrokerFrame::Error(error) if error.id == Some(id) => panic!("{error:?}"),
        _ => None,
    });
    done.await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_under_way_keeps_its_messages_whatever_else_comes_under_its_id() {
    let bus = Bus::with_topic("orders", 2).await;
    two_topics(&bus).await;
    for partition in 0..2 {
        bus.publish("orders", partition, 0..3).await;
    }
    let mut consumer = bus.connect(Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let mut batches = consumer.batches(6).await;
    batches.sort_by_key(|batch| batch.partition);
    consumer.transact(step(&batches[0], &[2], "payments", &["makes its table"])).await.unwrap();
    let first = step(&batches[0], &[0], "payments", &["first"]);
    let client = hold_up(&bus, &mut consumer, 1_000, first.clone()).await;
    let other = |acks: Vec<Ack>, topic: &str, payload: &str| Transact {
        acks,
        ..step(&batches[0], &[0], topic, &[payload])
    };
    let [same, beside, both] = [
        first.acks.clone(),
        vec![ack(&batches[0], None, &[1])],
        vec![first.acks[0].clone(), ack(&batches[1], None, &[0])],
    ];
    let others = [
        (other(same.clone(), "payments", "second"), ErrorCode::StepMismatch),
        (other(beside, "payments", "third"), ErrorCode::OutcomeUnknown),
        (other(same, "nowhere", "fourth"), ErrorCode::OutcomeUnknown),
        (other(both, "payments", "fifth"), ErrorCode::StepMismatch),
    ]
    .map(|(transact, code)| (Transact { step_id: first.step_id, ..transact }, code));
    // And a step of another id that wants the same message: none of them has given it away.
    let thief = (step(&batches[0], &[0], "payments", &["thief"]), ErrorCode::AlreadyDone);
    let mut expected = std::collections::BTreeMap::new();
    for (id, (transact, code)) in (2_000..).zip(others.into_iter().chain([thief])) {
        consumer.send(ClientFrame::Transact(Transact { id, ..transact })).await;
        expected.insert(id, code);
    }
    let mut refused = std::collections::BTreeMap::new();
    while refused.len() < expected.len() {
        let answer = consumer.wait_for(|frame| match frame {
            BrokerFrame::Transacted(done) => panic!("done before the first one is: {done:?}"),
            BrokerFrame::Error(error) => error.id.map(|id| (id, error.code)),
            _ => None,
        });
        refused.extend([answer.await]);
    }
    assert_eq!(refused, expected);
    client.batch_execute("COMMIT").await.unwrap();
    assert!(!done(&mut consumer, 1_000).await.repeated);
    assert_eq!(bus.database.number(STORED).await, 2);
    // And none of them keeps what it has named.
    for (batch, offset) in [(&batches[0], 1), (&batches[1], 0)] {
        consumer.transact(step(batch, &[offset], "payments", &["next"])).await.unwrap();
    }
    assert_eq!(bus.database.number(STORED).await, 4);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_under_way_is_not_said_to_be_lost_when_its_round_has_ended() {
    let bus = Bus::with_topic("orders", 1).await;
    two_topics(&bus).await;
    bus.publish("orders", 0, 0..3).await;
    let mut consumer = bus.connect(Subprotocol::MessagePack).await;
    consumer.subscribe("billing", "orders").await;
    let batch = consumer.batch().await;
    consumer.transact(step(&batch, &[0], "payments", &["makes its table"])).await.unwrap();
    let first = step(&batch, &[2], "payments", &["first"]);
    let client = hold_up(&bus, &mut consumer, 1_000, first.clone()).await;
    consumer.send(ClientFrame::Nack(nack(&batch, 1, "not now"))).await;
    let again = consumer.transact(first.clone()).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::OutcomeUnknown, "{again:?}");
    client.batch_execute("COMMIT").await.unwrap();
    let placed_first = placed(&done(&mut consumer, 1_000).await);
    let again = consumer.transact(first).await.unwrap();
    assert_eq!((again.repeated, placed(&again)), (true, placed_first));
    assert_eq!(bus.database.number(STORED).await, 2);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_was_done_is_known_also_when_its_topic_is_gone() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        two_topics(&bus).await;
        bus.publish("orders", 0, 0..2).await;
        let mut consumer = bus.connect(subprotocol).await;
        consumer.subscribe("billing", "orders").await;
        let first = step(&consumer.batch().await, &[0], "payments", &["a"]);
        let first_placed = placed(&consumer.transact(first.clone()).await.unwrap());
        // Moved back, the lane knows nothing of it any more.
        let seek =
            laneway_client::group_api::Seek { to: laneway_client::wire::Start::Earliest, partitions: None };
        admin(&bus.server).seek_group("orders", "billing", &seek).await.unwrap();
        let batch = consumer.batch().await;
        assert_eq!(offsets(&batch)[0], 0);
        let gone = reqwest::Client::new().delete(bus.server.url("/v1/topics/payments")).send().await.unwrap();
        assert!(gone.status().is_success(), "{gone:?}");
        let mut again = Transact { acks: vec![ack(&batch, None, &[0])], ..first };
        let known = consumer.transact(again.clone()).await.unwrap();
        assert_eq!((known.repeated, placed(&known)), (true, first_placed));
        // What it has acknowledged is done here, too.
        let twice = consumer.transact(step(&batch, &[0], "orders", &["twice"])).await.unwrap_err();
        assert_eq!(twice.code, ErrorCode::AlreadyDone);
        again.publishes[0].messages[0].payload = "other".into();
        let other = consumer.transact(again).await.unwrap_err();
        assert_eq!((other.code, other.field.as_deref()), (ErrorCode::StepMismatch, Some("step_id")));
        // One that was never done is refused as before.
        let new = consumer.transact(step(&batch, &[1], "payments", &["b"])).await.unwrap_err();
        assert_eq!((new.code, new.field.as_deref()), (ErrorCode::UnknownTopic, Some("publishes[0].topic")));
        consumer.transact(step(&batch, &[1], "orders", &["c"])).await.unwrap();
        bus.stop().await;
    }
}

/// Does everything of some lanes, each message with a step of its own. Returns where the results stand.
async fn work(mut socket: Socket, messages: usize) -> Vec<(u32, i64)> {
    let (mut sent, mut placed) = (0, Vec::new());
    while sent < messages {
        let batch = socket.batch().await;
        for offset in offsets(&batch) {
            let id = socket.id();
            let text = format!("{}-{offset}", batch.partition);
            let transact = Transact { id, ..step(&batch, &[offset], "payments", &[&text]) };
            socket.send(ClientFrame::Transact(transact)).await;
            sent += 1;
        }
    }
    while placed.len() < messages {
        let done = socket.wait_for(|frame| match frame {
            BrokerFrame::Transacted(done) => Some(done.clone()),
            _ => None,
        });
        placed.extend(done.await.placed[0].iter().map(|at| (at.partition, at.offset)));
    }
    placed
}
