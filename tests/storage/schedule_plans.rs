//! What it costs to look for what is due: nothing for what waits, however much that is, and nothing for what was appended before.

use serde_json::Value;

use crate::harness::TestDatabase;
use crate::harness::produce::topic;

/// Pages that one look may touch: some of the indexes, and the next few messages that are ahead.
const PAGES_MAX: u64 = 150;

/// Messages, one after the other from some time on, 20 a second.
fn fill(from: &str) -> String {
    format!(
        "INSERT INTO laneway.schedule (topic_id, partition_id, due_at, scheduled_at, trace_id, payload)
            SELECT p.topic_id, p.partition_id, clock_timestamp() + interval '{from}' + n * interval '50 milliseconds',
                now(), gen_random_uuid(), 'x'
            FROM laneway.partition p, generate_series(1, 15000) n ORDER BY n;
         ANALYZE laneway.schedule"
    )
}

/// How many pages a look touches that begins so long ago.
async fn pages(raw: &tokio_postgres::Client, mode: &str, ago: &str) -> u64 {
    let path = format!("{}/schema/queries/schedules_look.sql", env!("CARGO_MANIFEST_DIR"));
    let sql = std::fs::read_to_string(path).unwrap();
    let explained = format!(
        "SET plan_cache_mode = {mode}; DEALLOCATE ALL; PREPARE look (timestamptz, bigint[], bigint, bigint[]) AS {sql};
         EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)
             EXECUTE look (now() - interval '{ago}', '{{}}', 1000, '{{}}')"
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
    let blocks = |name: &str| plan[0]["Plan"][name].as_u64().unwrap();
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

#[tokio::test]
async fn a_look_costs_nothing_for_what_waits_and_nothing_for_what_was_appended_under_a_foreign_snapshot() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    topic(&broker, "orders", 2).await;
    broker.stop().await; // nobody else looks
    let raw = database.raw().await;
    raw.batch_execute(&fill("1 day")).await.unwrap();
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let touched = pages(&raw, mode, "2 seconds").await;
        assert!(touched < PAGES_MAX, "{mode}: {touched} pages while 30,000 messages wait");
    }
    let foreign = database.raw().await;
    foreign.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    raw.batch_execute(&fill("-2 hours")).await.unwrap();
    raw.batch_execute("DELETE FROM laneway.schedule WHERE due_at < now()").await.unwrap();
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let touched = pages(&raw, mode, "2 seconds").await;
        assert!(touched < PAGES_MAX, "{mode}: {touched} pages after 30,000 messages were appended");
        let from_the_first = pages(&raw, mode, "1 day").await;
        assert!(from_the_first > 2 * PAGES_MAX, "{mode}: only {from_the_first} pages from the very first");
    }
    foreign.batch_execute("COMMIT").await.unwrap();
}
