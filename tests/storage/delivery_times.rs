//! How times and failures are dropped: page by page, what is too old or belongs to nobody, and nothing else is read.

use std::time::{Duration, Instant};

use laneway::broker::appender::{CommitError, Urgency};
use laneway::ids::{Epoch, GroupId, Offset, PartitionId, SessionId};
use laneway::limits::WALK_PAGES_MAX;
use laneway::store::lanes::{Commit, Fence, Release, Settled, Settlement};
use laneway::store::times::{FailedAttempt, FailureOutcome, LaneTime, Record, TimesUnderWay};
use uuid::Uuid;

use crate::harness::TestDatabase;
use crate::harness::produce::topic;

/// A group of a topic, and many rows of it and of one that is gone: every fourth of them is old, every eighth is nobody's.
const FILL: &str = "
    INSERT INTO laneway.topic (name, payload_bytes_max, segment_messages, dedup_window_ms) VALUES ('orders', 1, 16, 1);
    INSERT INTO laneway.consumer_group
        (topic_id, name, ack_deadline_ms, max_attempts, backoff_base_ms, backoff_factor, backoff_cap_ms, on_failure)
        SELECT topic_id, 'billing', 1, 1, 1, 1, 1, 'skip' FROM laneway.topic;
    INSERT INTO laneway.lane_time
        SELECT g.group_id + CASE WHEN n % 8 = 1 THEN 1 ELSE 0 END, 1, n, n + 1, at, at
        FROM laneway.consumer_group g, generate_series(0, 79999) n,
            LATERAL (SELECT now() - CASE WHEN n % 4 = 0 THEN interval '8 days' ELSE interval '6 days' END AS at) moment;
    INSERT INTO laneway.failure
        SELECT group_id, partition_id, first_offset, 1, 'retry', 'no', delivered_at, acked_at FROM laneway.lane_time;
    INSERT INTO laneway.producer_run
        SELECT 1, '00000000-0000-4000-8000-000000000001', first_offset, first_offset, first_offset, acked_at FROM laneway.lane_time;
    ANALYZE laneway.lane_time, laneway.failure, laneway.producer_run, laneway.consumer_group";

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

#[tokio::test]
async fn what_is_too_old_or_belongs_to_no_group_goes_page_by_page_and_the_rest_stays() {
    let database = TestDatabase::new().await;
    database.raw().await.batch_execute(FILL).await.unwrap();
    let store = database.store();
    for (record, table) in [(Record::LaneTimes(WEEK), "lane_time"), (Record::Failures(WEEK), "failure")] {
        let mut page = 0;
        let mut gone = 0;
        loop {
            let expired = store.records_expire(record, page).await.unwrap();
            assert!(expired.rows > 0 && expired.rows < 20_000, "{expired:?} from page {page} of {table}");
            gone += expired.rows;
            page += WALK_PAGES_MAX;
            if page >= expired.pages {
                break;
            }
        }
        assert!(page > WALK_PAGES_MAX, "{table} has too few pages to show anything");
        assert_eq!(gone, 20_000 + 10_000, "{table}");
        let left = format!("SELECT count(*) FROM laneway.{table}");
        assert_eq!(database.number(&left).await, 50_000);
        let again = store.records_expire(record, 0).await.unwrap();
        assert_eq!(again.rows, 0);
    }
}

#[tokio::test]
async fn a_look_for_what_is_too_old_reads_the_pages_that_it_is_told_and_no_others() {
    let database = TestDatabase::new().await;
    let raw = database.raw().await;
    raw.batch_execute(FILL).await.unwrap();
    for (name, types, values) in [
        ("lane_times_expire", "bigint, bigint, bigint", "128, 256, 1000"),
        ("failures_expire", "bigint, bigint, bigint", "128, 256, 1000"),
        ("producer_runs_expire", "bigint, bigint", "128, 256"),
    ] {
        let path = format!("{}/schema/queries/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        let sql = std::fs::read_to_string(path).unwrap();
        for mode in ["force_custom_plan", "force_generic_plan"] {
            let explained = format!(
                "SET plan_cache_mode = {mode}; DEALLOCATE ALL; PREPARE look ({types}) AS {sql};
                 EXPLAIN (COSTS OFF) EXECUTE look ({values})"
            );
            let rows = raw.simple_query(&explained).await.unwrap();
            let plan: Vec<String> = rows
                .iter()
                .filter_map(|row| match row {
                    tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                })
                .collect();
            let plan = plan.join("\n");
            assert!(plan.contains("Tid Range Scan on"), "{name}, {mode}:\n{plan}");
            assert!(
                ["lane_time", "failure", "producer_run"]
                    .iter()
                    .all(|table| !plan.contains(&format!("Seq Scan on {table}"))),
                "{plan}"
            );
        }
    }
}

/// A lane that somebody holds.
pub async fn held_lane(database: &TestDatabase, partition_id: PartitionId) -> Fence {
    let session_id = Uuid::new_v4();
    let raw = database.raw().await;
    let make = "WITH made AS (
            INSERT INTO laneway.consumer_group
                (topic_id, name, ack_deadline_ms, max_attempts, backoff_base_ms, backoff_factor, backoff_cap_ms, on_failure)
            SELECT topic_id, 'billing', 1, 1, 1, 1, 1, 'skip' FROM laneway.partition WHERE partition_id = $1
            RETURNING group_id
        )
        SELECT group_id FROM made";
    let group_id: i64 = raw.query_one(make, &[&partition_id.0]).await.unwrap().get(0);
    let hold = "INSERT INTO laneway.lane (group_id, partition_id, first_offset, epoch, session_id, broker_id)
        VALUES ($1, $2, 0, 3, $3, $3)";
    raw.execute(hold, &[&group_id, &partition_id.0, &session_id]).await.unwrap();
    let (group_id, session_id) = (GroupId(group_id), SessionId(session_id));
    Fence { group_id, partition_id, epoch: Epoch(3), session_id }
}

/// A commit of everything below an offset, of which the last five messages are new.
fn commit(number: i64, committed: i64) -> Commit {
    let now = Instant::now();
    let time = LaneTime {
        first: Offset(committed - 5),
        end: Offset(committed),
        delivered_at: now - Duration::from_millis(20),
        acked_at: now - Duration::from_millis(10),
    };
    Commit { number, committed: Offset(committed), acked: "{}".into(), times: [time].into() }
}

const RANGES: &str = "SELECT count(*) FROM laneway.lane_time";

#[tokio::test]
async fn times_and_failures_are_told_once_whichever_of_a_commit_and_a_settlement_arrives_first_or_twice() {
    let database = TestDatabase::new().await;
    let (broker, store) = (database.broker(), database.store());
    let topic = topic(&broker, "orders", 1).await;
    let fence = held_lane(&database, topic.partitions[0]).await;
    let send = async |commit: &Commit| {
        let answer = broker.appender.commit(fence, commit.clone(), Urgency::Now).unwrap();
        answer.await.unwrap()
    };
    // As if the first answer had been lost.
    let first = commit(1, 5);
    assert_eq!(send(&first).await, Ok(()));
    assert_eq!(send(&first).await, Ok(()));
    assert_eq!(database.number(RANGES).await, 1);
    // The same of a settlement, with a failure.
    let failure = FailedAttempt {
        offset: Offset(10),
        attempt: 1,
        outcome: FailureOutcome::Retry,
        reason: "no".into(),
        delivered_at: None,
        failed_at: Instant::now(),
    };
    let charged = Settlement { commit: Some(commit(2, 10)), failure: Some(failure), ..Settlement::default() };
    for _ in 0..2 {
        assert_eq!(store.lane_settle(&fence, &charged).await.unwrap(), Settled::Done);
    }
    assert_eq!(database.number(RANGES).await, 2);
    assert_eq!(database.number("SELECT count(*) FROM laneway.failure").await, 1);
    // A commit has arrived, and its lane does not know yet: the settlement need not tell its times.
    let third = commit(3, 15);
    assert_eq!(send(&third).await, Ok(()));
    let under_way = |commit: &Commit| {
        let (number, times) = (commit.number, commit.times.clone());
        Some(TimesUnderWay { number, times })
    };
    let after =
        Settlement { commit: Some(commit(4, 20)), under_way: under_way(&third), ..Settlement::default() };
    store.lane_settle(&fence, &after).await.unwrap();
    assert_eq!(database.number(RANGES).await, 4);
    // A release overtakes a commit: it tells its times, and the commit finds the lane gone.
    let late = commit(5, 25);
    let release = Settlement {
        commit: Some(commit(6, 30)),
        under_way: under_way(&late),
        release: Some(Release { suspect_until: Offset(0), avoided: None }),
        ..Settlement::default()
    };
    store.lane_settle(&fence, &release).await.unwrap();
    assert_eq!(send(&late).await, Err(CommitError::LeaseLost));
    assert_eq!(database.number(RANGES).await, 6);
    let told =
        "SELECT sum(end_offset - first_offset)::bigint FROM laneway.lane_time WHERE acked_at - delivered_at
        BETWEEN interval '9 milliseconds' AND interval '11 milliseconds' AND acked_at <= clock_timestamp()";
    assert_eq!(database.number(told).await, 30);
    broker.stop().await;
}
