//! How a parked key with many copies is looked at: by indexes, and only where it has to be.

use crate::delivery_times::held_lane;
use crate::harness::TestDatabase;
use crate::harness::produce::topic;

/// One key with many copies, of which one in the midst has failed.
const FILL: &str = "
    INSERT INTO laneway.parked_key (group_id, partition_id, parked_offset, key, state, messages)
        SELECT group_id, partition_id, 0, 'a', 'parked', 30000 FROM laneway.lane;
    INSERT INTO laneway.parked_message
        (group_id, partition_id, \"offset\", parked_offset, attempts, reason, published_at, trace_id, payload)
        SELECT group_id, partition_id, n, 0, CASE WHEN n = 15000 THEN 3 ELSE 0 END, 'no', now(), gen_random_uuid(), 'x'
        FROM laneway.lane, generate_series(0, 29999) n;
    ANALYZE laneway.parked_key, laneway.parked_message";

#[tokio::test]
async fn the_copy_that_a_parked_key_failed_at_is_found_without_reading_the_others() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let topic = topic(&broker, "orders", 1).await;
    held_lane(&database, topic.partitions[0]).await;
    let raw = database.raw().await;
    raw.batch_execute(FILL).await.unwrap();
    for name in ["parked_messages_drop", "parked_keys_find"] {
        let path = format!("{}/schema/queries/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        let sql = std::fs::read_to_string(path).unwrap();
        for mode in ["force_custom_plan", "force_generic_plan"] {
            let explained = format!(
                "SET plan_cache_mode = {mode}; DEALLOCATE ALL; PREPARE look (bigint) AS {sql};
                 EXPLAIN (COSTS OFF) EXECUTE look (1)"
            );
            let rows = raw.simple_query(&explained).await.unwrap();
            let line = |row: &tokio_postgres::SimpleQueryMessage| match row {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            };
            let plan = rows.iter().filter_map(line).collect::<Vec<_>>().join("\n");
            assert!(plan.contains("using parked_message_failed"), "{name}, {mode}:\n{plan}");
            assert!(!plan.contains("Seq Scan on parked_message"), "{name}, {mode}:\n{plan}");
        }
    }
    broker.stop().await;
}
