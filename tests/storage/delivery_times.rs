//! How times and failures are dropped: page by page, what is too old or belongs to nobody, and nothing else is read.

use std::time::Duration;

use laneway::limits::TIMES_PAGES_MAX;
use laneway::store::times::Record;

use crate::harness::TestDatabase;

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
    ANALYZE laneway.lane_time, laneway.failure, laneway.consumer_group";

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

#[tokio::test]
async fn what_is_too_old_or_belongs_to_no_group_goes_page_by_page_and_the_rest_stays() {
    let database = TestDatabase::new().await;
    database.raw().await.batch_execute(FILL).await.unwrap();
    let store = database.store();
    for (record, table) in [(Record::LaneTimes, "lane_time"), (Record::Failures, "failure")] {
        let mut page = 0;
        let mut gone = 0;
        loop {
            let expired = store.times_expire(record, page, WEEK).await.unwrap();
            assert!(expired.rows > 0 && expired.rows < 20_000, "{expired:?} from page {page} of {table}");
            gone += expired.rows;
            page += TIMES_PAGES_MAX;
            if page >= expired.pages {
                break;
            }
        }
        assert!(page > TIMES_PAGES_MAX, "{table} has too few pages to show anything");
        assert_eq!(gone, 20_000 + 10_000, "{table}");
        let left = format!("SELECT count(*) FROM laneway.{table}");
        assert_eq!(database.number(&left).await, 50_000);
        let again = store.times_expire(record, 0, WEEK).await.unwrap();
        assert_eq!(again.rows, 0);
    }
}

#[tokio::test]
async fn a_look_for_what_is_too_old_reads_the_pages_that_it_is_told_and_no_others() {
    let database = TestDatabase::new().await;
    let raw = database.raw().await;
    raw.batch_execute(FILL).await.unwrap();
    for name in ["lane_times_expire", "failures_expire"] {
        let path = format!("{}/schema/queries/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        let sql = std::fs::read_to_string(path).unwrap();
        for mode in ["force_custom_plan", "force_generic_plan"] {
            let explained = format!(
                "SET plan_cache_mode = {mode}; DEALLOCATE ALL; PREPARE look (bigint, bigint, bigint) AS {sql};
                 EXPLAIN (COSTS OFF) EXECUTE look (128, 256, 1000)"
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
                !plan.contains("Seq Scan on lane_time") && !plan.contains("Seq Scan on failure"),
                "{plan}"
            );
        }
    }
}
