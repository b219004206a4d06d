//! Fires of what is due: large messages, one that cannot be appended, paused topics beside it, limits in bytes, brokers that race.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use laneway_client::Admin;
use laneway_client::schedule::MoveSchedule;
use laneway_client::topic::CreateTopic;
use laneway_client::wire::{NewMessage, Subprotocol};
use tokio::task::JoinSet;

use crate::harness::socket::{Socket, make_topic};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};
use crate::{Bus, to_partition};

const WAITING: &str = "SELECT count(*) FROM laneway.schedule";
const STORED: &str = "SELECT count(*) FROM laneway.message";

fn admin(server: &Server) -> Admin {
    Admin::new(&server.url("")).unwrap()
}

/// To a partition, in an hour.
fn later(partition: u32, payload: impl Into<String>) -> NewMessage {
    NewMessage { delay_ms: Some(3_600_000), ..to_partition(partition, payload) }
}

/// Everything that waits is due, all at the same moment.
async fn all_are_due(database: &TestDatabase) {
    let sql = "UPDATE laneway.schedule SET due_at = (SELECT clock_timestamp())";
    database.raw().await.execute(sql, &[]).await.unwrap();
}

/// The first characters of all messages of a partition, by offset.
async fn stored(database: &TestDatabase, partition: i32) -> Vec<String> {
    let sql = "SELECT convert_from(substr(m.payload, 1, 20), 'UTF8') FROM laneway.message m
        JOIN laneway.partition p USING (partition_id) JOIN laneway.topic t USING (topic_id)
        WHERE t.name = 'orders' AND p.number = $1 ORDER BY m.\"offset\"";
    let rows = database.raw().await.query(sql, &[&partition]).await.unwrap();
    rows.iter().map(|row| row.get::<_, &str>(0).trim_end_matches('x').to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_that_are_due_together_are_appended_in_order_a_flush_of_bytes_at_a_time() {
    const LARGE: usize = 1_000_000;
    let bus = Bus::with_topic("orders", 2).await;
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    let large = |number: usize| later(0, format!("m{number:02}{}", "x".repeat(LARGE)));
    for numbers in [0..10, 10..20, 20..30] {
        socket.publish("orders", numbers.map(large).collect()).await;
    }
    socket.publish("orders", vec![later(1, "small")]).await;
    all_are_due(&bus.database).await;
    until("everything to be appended", async || bus.database.number(WAITING).await == 0).await;
    let expected: Vec<String> = (0..30).map(|number| format!("m{number:02}")).collect();
    assert_eq!(stored(&bus.database, 0).await, expected);
    assert_eq!(stored(&bus.database, 1).await, ["small"]);
    // A row for each partition and transaction: 8 MiB, and so eight of them at once.
    let most = "SELECT max(messages)::bigint FROM laneway.trace_block";
    assert_eq!(bus.database.number(most).await, 8);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_database_refuses_holds_up_nothing_but_what_is_behind_it() {
    let bus = Bus::with_topic("orders", 3).await;
    let raw = bus.database.raw().await;
    raw.batch_execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
         CREATE TRIGGER refuse BEFORE DELETE ON laneway.schedule
         FOR EACH ROW WHEN (old.payload = 'bad') EXECUTE FUNCTION public.refuse()",
    )
    .await
    .unwrap();
    let mut socket = bus.connect(Subprotocol::Json).await;
    let messages = [(0, "before"), (0, "bad"), (0, "behind"), (1, "one"), (1, "two"), (2, "three")];
    let messages = messages.map(|(partition, payload)| later(partition, payload));
    socket.publish("orders", messages.into()).await;
    all_are_due(&bus.database).await;
    until("the others to be appended", async || bus.database.number(STORED).await == 4).await;
    assert_eq!(stored(&bus.database, 0).await, ["before"]);
    assert_eq!(stored(&bus.database, 1).await, ["one", "two"]);
    // Those that come later are not held up either.
    socket.publish("orders", vec![NewMessage { delay_ms: Some(0), ..to_partition(2, "four") }]).await;
    until("the newest to be appended", async || bus.database.number(STORED).await == 5).await;
    assert_eq!(bus.database.number(WAITING).await, 2);
    raw.batch_execute("DROP TRIGGER refuse ON laneway.schedule").await.unwrap();
    until("the rest to be appended", async || bus.database.number(WAITING).await == 0).await;
    assert_eq!(stored(&bus.database, 0).await, ["before", "bad", "behind"]);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_not_late_beside_a_paused_topic_with_more_of_it_than_a_look_sees() {
    const ROUNDS: usize = 8;
    let bus = Bus::with_topic("orders", 1).await;
    make_topic(&bus.server.address, "stopped", 2).await;
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    for _ in 0..3 {
        let messages = (0..1_000).map(|number| later(number % 2, "waits"));
        socket.publish("stopped", messages.collect()).await;
    }
    admin(&bus.server).pause_topic("stopped").await.unwrap();
    all_are_due(&bus.database).await;
    // By now the broker has seen them, and has nothing else to do than to wait for its next look.
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let started = Instant::now();
        socket.publish("orders", vec![NewMessage { delay_ms: Some(0), ..to_partition(0, "m") }]).await;
        until("it to be appended", async || bus.database.number(STORED).await == round as i64 + 1).await;
        times.push(started.elapsed());
    }
    // The median: whoever has waited in vain once does not queue for some seconds.
    times.sort_unstable();
    assert!(times[ROUNDS / 2] < Duration::from_millis(500), "{times:?}");
    assert_eq!(bus.database.number(WAITING).await, 3_000, "what is paused waits");
    admin(&bus.server).resume_topic("stopped").await.unwrap();
    until("the others to be appended", async || bus.database.number(WAITING).await == 0).await;
    assert_eq!(bus.database.number(STORED).await, 3_000 + ROUNDS as i64);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_not_kept_waiting_by_those_who_write_to_its_partition_without_a_pause() {
    const ROUNDS: usize = 8;
    let bus = Bus::with_topic("orders", 1).await;
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    // Two who take turns with the lock: whoever only looks whether it is free finds it taken.
    let mut writers = JoinSet::new();
    for _ in 0..2 {
        let raw = bus.database.raw().await;
        writers.spawn(async move {
            let write =
                "BEGIN; SELECT FROM laneway.partition FOR NO KEY UPDATE; SELECT pg_sleep(0.02); COMMIT";
            while raw.batch_execute(write).await.is_ok() {}
        });
    }
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("one waits for the other", async || bus.database.number(waits).await > 0).await;
    let started = Instant::now();
    for round in 0..ROUNDS {
        socket.publish("orders", vec![NewMessage { delay_ms: Some(0), ..to_partition(0, "m") }]).await;
        until("it to be appended", async || bus.database.number(STORED).await == round as i64 + 1).await;
    }
    let took = started.elapsed();
    assert!(took < Duration::from_millis(500) * ROUNDS as u32, "{took:?} for {ROUNDS} messages");
    writers.shutdown().await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_takes_a_topic_to_its_limit_of_bytes_and_not_past_it_whatever_the_sizes_are() {
    const LIMIT: i64 = 100_000;
    let bus = Bus::start().await;
    let request = CreateTopic { max_backlog_bytes: Some(LIMIT as u64), ..CreateTopic::new("orders", 1) };
    admin(&bus.server).create_topic(&request).await.unwrap();
    let mut consumer = bus.connect(Subprotocol::Json).await;
    consumer.subscribe("billing", "orders").await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let large = (0..5).map(|number| later(0, format!("l{number}{}", "x".repeat(39_998))));
    let small = (0..95).map(|number| later(0, format!("s{number}")));
    producer.publish("orders", large.chain(small).collect()).await;
    all_are_due(&bus.database).await;
    let depth = "SELECT coalesce(max(bytes_total), 0)::bigint FROM laneway.head";
    until("some to be appended", async || bus.database.number(depth).await > 0).await;
    let (mut done, mut bytes) = (0, 0);
    while done < 100 {
        let batch = consumer.batch().await;
        let deep = bus.database.number(depth).await - bytes;
        assert!(deep <= LIMIT, "{deep} bytes, and it takes {LIMIT}");
        bytes += batch.messages.iter().map(|message| message.payload.len() as i64).sum::<i64>();
        done = batch.messages.last().unwrap().offset + 1;
        consumer.ack_below(&batch, done).await.unwrap();
    }
    assert_eq!(bus.database.number(WAITING).await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_or_a_move_at_one_broker_meets_the_fire_of_another_in_a_queue() {
    const MESSAGES: usize = 120;
    let bus = Bus::with_topic("orders", 3).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let mut socket = Socket::connect(&bus.server.address, Subprotocol::MessagePack).await;
    // The last are far off: whatever the machine is busy with, some are appended and some are cancelled.
    let delay = |number: usize| if number < MESSAGES - 4 { 200 + number as u64 * 8 } else { 3_600_000 };
    let messages = (0..MESSAGES).map(|number| NewMessage {
        delay_ms: Some(delay(number)),
        ..to_partition(number as u32 % 3, format!("m{number}"))
    });
    let published = socket.publish("orders", messages.collect()).await;
    let scheduled = published.units.iter().flat_map(|unit| unit.scheduled.clone());
    let mut ids: Vec<(usize, i64)> = scheduled.map(|one| (one.position as usize, one.schedule)).collect();
    ids.sort_unstable();
    until("the first to be appended", async || bus.database.number(STORED).await > 0).await;
    let mut changes = JoinSet::new();
    for half in [0, 1] {
        // From the end, so that they meet what is due half-way.
        let (admin, ids) = (admin(&other), ids.clone());
        changes.spawn(async move {
            let mut cancelled = BTreeSet::new();
            for (number, id) in ids.into_iter().rev().filter(|(number, _)| number % 2 == half) {
                if half == 0 {
                    if admin.cancel_schedule(id).await.is_ok() {
                        cancelled.insert(format!("m{number}"));
                    }
                } else {
                    let soon = MoveSchedule { deliver_at: None, delay_ms: Some(number as u64 % 5 * 10) };
                    let _ = admin.move_schedule(id, &soon).await; // it may be appended by now
                }
            }
            cancelled
        });
    }
    let cancelled: BTreeSet<String> = changes.join_all().await.into_iter().flatten().collect();
    until("everything to be appended", async || bus.database.number(WAITING).await == 0).await;
    let mut appended = Vec::new();
    for partition in 0..3 {
        appended.extend(stored(&bus.database, partition).await);
    }
    let distinct: BTreeSet<String> = appended.iter().cloned().collect();
    assert_eq!(distinct.len(), appended.len(), "none twice");
    assert!(distinct.is_disjoint(&cancelled), "none both");
    assert_eq!(distinct.len() + cancelled.len(), MESSAGES, "and none lost");
    assert!(cancelled.len() >= 2, "some were cancelled");
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}
