//! Reading by trace id: every message of it, in the order of publishing, from any topic, partition and segment.

use std::collections::BTreeSet;

use laneway::broker::Broker;
use laneway::broker::appender::Unit;
use laneway::broker::message::{Cause, Draft};
use laneway::broker::reader::Hop;
use laneway::ids::{Offset, PartitionId, TraceId};
use laneway::store::traces::Payloads;
use laneway_client::topic::CreateTopic;
use serde_json::Value;
use uuid::Uuid;

use crate::harness::TestDatabase;
use crate::harness::produce::{draft, texts, topic, topic_of_segments, unit};
use crate::harness::quiet::{QuietBroker, seal};

/// A unit of messages that each belong to a trace.
fn traced(partition_id: PartitionId, messages: &[(TraceId, &str)]) -> Unit {
    let message = |(trace_id, text): &(TraceId, &str)| {
        Draft { trace_id: Some(*trace_id), ..draft(*text) }.check(100).unwrap()
    };
    Unit { messages: messages.iter().map(message).collect(), ..unit(partition_id, []) }
}

async fn publish(broker: &Broker, partition_id: PartitionId, messages: &[(TraceId, &str)]) {
    broker.appender.append(traced(partition_id, messages)).await.unwrap();
}

async fn found(broker: &Broker, trace_id: TraceId) -> Vec<String> {
    let hops = broker.reader.trace(trace_id, Payloads::Read).await.unwrap().hops;
    assert!(hops.iter().all(|hop| hop.message.trace_id == trace_id));
    hops.iter().flat_map(|hop| texts(std::slice::from_ref(&hop.message))).collect()
}

fn random() -> TraceId {
    TraceId(Uuid::new_v4())
}

#[tokio::test]
async fn a_trace_is_found_in_every_topic_and_partition_in_the_order_of_publishing() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let orders = topic(&broker, "orders", 3).await;
    let invoices = topic_of_segments(&broker, "invoices", 2, 16).await;
    for trace_id in [random(), TraceId::generate(), random(), TraceId::generate()] {
        let other = random();
        publish(&broker, orders.partitions[0], &[(other, "noise"), (trace_id, "a"), (other, "noise")]).await;
        publish(&broker, invoices.partitions[1], &[(trace_id, "b"), (trace_id, "c"), (other, "noise")]).await;
        publish(&broker, orders.partitions[2], &[(other, "noise")]).await;
        publish(&broker, orders.partitions[0], &[(trace_id, "d")]).await;
        // Beyond the end of a segment of 16, in one batch.
        let long: Vec<_> =
            (0..30).map(|place| (if place % 10 == 9 { trace_id } else { other }, "e")).collect();
        publish(&broker, invoices.partitions[0], &long).await;
        assert_eq!(found(&broker, trace_id).await, ["a", "b", "c", "d", "e", "e", "e"]);
        assert_eq!(broker.reader.trace(other, Payloads::Read).await.unwrap().hops.len(), 4 + 27);
    }
    assert_eq!(found(&broker, random()).await, [""; 0]);
}

#[tokio::test]
async fn hops_say_where_they_are_and_what_caused_them() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 2).await;
    let trace_id = TraceId::generate();
    publish(&broker, topic.partitions[1], &[(random(), "noise"), (trace_id, "cause")]).await;
    let cause = Some(Cause { partition_id: topic.partitions[1], offset: Offset(1) });
    let effect = Draft { trace_id: Some(trace_id), cause, ..draft("effect") }.check(100).unwrap();
    let unit = Unit { messages: vec![effect], ..unit(topic.partitions[0], []) };
    broker.appender.append(unit).await.unwrap();
    let hops = broker.reader.trace(trace_id, Payloads::Read).await.unwrap().hops;
    let place = |hop: &Hop| (hop.partition_id, hop.message.offset, hop.message.cause);
    assert_eq!(
        hops.iter().map(place).collect::<Vec<_>>(),
        [(topic.partitions[1], Offset(1), None), (topic.partitions[0], Offset(0), cause)]
    );
}

#[tokio::test]
async fn traces_that_share_their_first_half_are_told_apart() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 2).await;
    let half = 0x0123_4567_89ab_cdef_u64;
    let [one, other, third] = [1, 2, 3].map(|rest| TraceId(Uuid::from_u64_pair(half, rest)));
    let negative = TraceId(Uuid::from_u64_pair(u64::MAX, 1));
    publish(&broker, topic.partitions[0], &[(one, "one"), (other, "other"), (negative, "negative")]).await;
    publish(&broker, topic.partitions[1], &[(other, "other again")]).await;
    assert_eq!(found(&broker, one).await, ["one"]);
    assert_eq!(found(&broker, other).await, ["other", "other again"]);
    assert_eq!(found(&broker, third).await, [""; 0]);
    assert_eq!(found(&broker, negative).await, ["negative"]);
}

/// Blocks of messages that retention has dropped, more than are asked for at once, all with the first half of one trace id.
const MANY_BLOCKS: &str = "
    INSERT INTO laneway.trace_block (partition_id, first_offset, messages, published_at, traces)
        SELECT b.partition_id, b.first_offset, b.messages, b.published_at, b.traces
        FROM laneway.trace_block b, generate_series(1, 10000);
    UPDATE laneway.partition SET start_offset = 1";

#[tokio::test]
async fn a_trace_is_found_behind_more_blocks_than_are_asked_for_at_once() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    let [one, other] = [1, 2].map(|rest| TraceId(Uuid::from_u64_pair(7, rest)));
    publish(&broker, topic.partitions[0], &[(one, "one")]).await;
    database.raw().await.batch_execute(MANY_BLOCKS).await.unwrap();
    publish(&broker, topic.partitions[0], &[(other, "other")]).await;
    let found = broker.reader.trace(other, Payloads::Read).await.unwrap();
    assert_eq!((found.hops.len(), found.truncated), (1, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_trace_of_a_busy_topic_is_found_whole_by_any_broker() {
    let database = TestDatabase::new().await;
    let brokers = [database.broker(), database.broker()];
    let topic = topic_of_segments(&brokers[0], "orders", 4, 64).await;
    let traces: Vec<TraceId> =
        (0..50).map(|number| if number % 2 == 0 { random() } else { TraceId::generate() }).collect();
    let mut answers = Vec::new();
    for round in 0..12 {
        for (number, trace_id) in traces.iter().enumerate() {
            let broker = &brokers[(round + number) % 2];
            let text = format!("{round}");
            let unit = traced(topic.partitions[(round * 7 + number) % 4], &[(*trace_id, &text)]);
            answers.push(broker.appender.submit(unit).unwrap());
        }
    }
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    for (number, trace_id) in traces.iter().enumerate() {
        let hops = brokers[number % 2].reader.trace(*trace_id, Payloads::Read).await.unwrap().hops;
        assert_eq!(hops.len(), 12);
        assert!(hops.is_sorted_by_key(|hop| hop.message.published_at));
        let rounds: BTreeSet<Vec<u8>> = hops.iter().map(|hop| hop.message.payload.to_vec()).collect();
        assert_eq!(rounds.len(), 12);
    }
}

#[tokio::test]
async fn a_trace_that_retention_has_cut_in_two_shows_what_is_left() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let request =
        CreateTopic { segment_messages: Some(16), retention_bytes: Some(1), ..CreateTopic::new("orders", 1) };
    let partition_id = broker.topics.create(&request).await.unwrap().partitions[0];
    let trace_id = random();
    for number in 0..40 {
        publish(&broker, partition_id, &[(trace_id, &format!("{number}"))]).await;
    }
    // One batch that lies on both sides of the coming start.
    let long: Vec<_> = (40..60).map(|_| (trace_id, "long")).collect();
    publish(&broker, partition_id, &long).await;
    publish(&broker, partition_id, &[(random(), "noise")]).await;
    assert_eq!(broker.reader.trace(trace_id, Payloads::Read).await.unwrap().hops.len(), 60);
    seal(&broker.store).await;
    broker.store.retention_pass().await.unwrap();
    // The reader remembers tables that are gone.
    let hops = broker.reader.trace(trace_id, Payloads::Read).await.unwrap().hops;
    let offsets: Vec<i64> = hops.iter().map(|hop| hop.message.offset.0).collect();
    assert_eq!(offsets, (48..60).collect::<Vec<_>>());
}

/// A lane with a slow message, long after which steps go on: every second message is done, and only few are told by a commit.
const STEPS: &str = "
    INSERT INTO laneway.consumer_group
        (topic_id, name, ack_deadline_ms, max_attempts, backoff_base_ms, backoff_factor, backoff_cap_ms, on_failure)
        SELECT topic_id, 'billing', 1, 1, 1, 1, 1, 'skip' FROM laneway.topic;
    INSERT INTO laneway.lane (group_id, partition_id, first_offset, epoch)
        SELECT group_id, partition_id, 0, 5 FROM laneway.consumer_group, laneway.partition;
    INSERT INTO laneway.lane_commit (group_id, partition_id, epoch, number, committed_offset, acked)
        SELECT group_id, partition_id, 3, 1, 198990, '{[198991,198992)}' FROM laneway.lane;
    INSERT INTO laneway.step_ack (group_id, partition_id, epoch, from_offset, to_offset)
        SELECT group_id, partition_id, epochs.epoch, 2 * n, 2 * n + 1
        FROM laneway.lane, generate_series(0, 99999) n, (VALUES (2), (3)) AS epochs (epoch);
    INSERT INTO laneway.step_ack (group_id, partition_id, epoch, from_offset, to_offset)
        SELECT group_id, partition_id, 5, 198993, 198996 FROM laneway.lane;
    VACUUM ANALYZE laneway.step_ack, laneway.lane, laneway.lane_commit, laneway.consumer_group, laneway.partition";

/// The pages of a table that a plan has touched.
fn pages(plan: &Value, table: &str) -> u64 {
    let own = if plan["Relation Name"] == table {
        ["Shared Hit Blocks", "Shared Read Blocks"].map(|blocks| plan[blocks].as_u64().unwrap()).iter().sum()
    } else {
        0
    };
    let parts = plan["Plans"].as_array().into_iter().flatten();
    own + parts.map(|part| pages(part, table)).sum::<u64>()
}

#[tokio::test]
async fn what_steps_have_acknowledged_is_looked_up_and_not_read_through() {
    let database = TestDatabase::new().await;
    let broker = QuietBroker::start(database.store());
    let partition_id = topic(&broker, "orders", 1).await.partitions[0];
    let raw = database.raw().await;
    for statement in STEPS.split(';') {
        raw.batch_execute(statement).await.unwrap(); // VACUUM wants to be alone
    }
    let asked = [199_001, 199_000, 198_995, 198_989].map(|offset| (partition_id, Offset(offset)));
    let groups = broker.store.trace_groups(&asked).await.unwrap();
    let found: Vec<(bool, i64)> = groups.iter().map(|group| (group.is_done, group.ahead)).collect();
    // Not done before 199,001, from 198,990 on: the odd ones that neither the commit nor the last step has, 198,997 and 198,999.
    assert_eq!(found, [(false, 2), (true, 0), (true, 0), (true, 0)]);
    let path = format!("{}/schema/queries/trace_groups.sql", env!("CARGO_MANIFEST_DIR"));
    let sql = std::fs::read_to_string(path).unwrap();
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let explained = format!(
            "SET plan_cache_mode = {mode}; DEALLOCATE ALL; PREPARE look (bigint[], bigint[]) AS {sql};
             EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)
                 EXECUTE look ('{{{partition_id},{partition_id}}}', '{{199001,199000}}')"
        );
        let rows = raw.simple_query(&explained).await.unwrap();
        let plan: String = rows
            .iter()
            .filter_map(|row| match row {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            })
            .collect();
        let plan: Value = serde_json::from_str(&plan).unwrap();
        let touched = pages(&plan[0]["Plan"], "step_ack");
        assert!((1..150).contains(&touched), "{mode}: {touched} pages of step_ack in\n{plan:#}");
    }
}
