//! Deleting a topic: gone at once for people, and table by table for the database, whoever publishes or dies meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use laneway::limits::EXPIRE_ROWS_MAX;
use laneway_client::ErrorCode;
use laneway_client::message::{MessageList, PublishResponse};
use laneway_client::topic::TopicList;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::process::run;
use crate::harness::{Server, TestDatabase, wait};
use crate::web::{Web, text};

/// A pass of the sweep begins every ten seconds, and hundreds of tables take some more.
const SWEEP_PATIENCE: Duration = Duration::from_secs(60);

async fn brokers(database: &TestDatabase) -> ([Server; 2], [Web; 2]) {
    let servers = [Server::on_database(&database.url).await, Server::on_database(&database.url).await];
    let webs = [Web::new(&servers[0]), Web::new(&servers[1])];
    (servers, webs)
}

/// Rows and tables that belong to no living topic.
async fn remains(database: &TestDatabase) -> i64 {
    let by_partition = [
        "head",
        "producer_run",
        "transaction_seen",
        "dead_letter",
        "segment",
        "lane",
        "lane_commit",
        "attempt",
    ];
    let rows: String = by_partition
        .iter()
        .map(|table| {
            format!(
                "+ (SELECT count(*) FROM laneway.{table} x
                    WHERE NOT EXISTS (SELECT FROM living l WHERE l.partition_id = x.partition_id))\n"
            )
        })
        .collect();
    let tables = |kind: &str, living: &str| {
        format!(
            "+ (SELECT count(*) FROM pg_class c
                WHERE c.relnamespace = 'laneway'::regnamespace AND c.relkind IN ('r', 'p')
                  AND c.relname ~ '^message_{kind}[0-9]+$' AND NOT EXISTS (
                      SELECT FROM ({living}) AS l (id) WHERE c.relname = 'message_{kind}' || l.id))\n"
        )
    };
    let segments = "SELECT segment_id FROM laneway.segment JOIN living USING (partition_id)";
    let sql = format!(
        "WITH living AS (SELECT partition_id FROM laneway.partition WHERE deleted_at IS NULL)
         SELECT (SELECT count(*) FROM laneway.topic WHERE deleted_at IS NOT NULL)
         + (SELECT count(*) FROM laneway.partition WHERE deleted_at IS NOT NULL)
         + (SELECT count(*) FROM laneway.consumer_group JOIN laneway.topic USING (topic_id) WHERE deleted_at IS NOT NULL)
         {rows}{}{}",
        tables("p", "SELECT partition_id FROM living"),
        tables("s", segments),
    );
    database.number(&sql).await
}

/// Waits until nothing is left of any deleted topic.
pub async fn swept(database: &TestDatabase) {
    wait::until_within(SWEEP_PATIENCE, "the sweep to end", async || remains(database).await == 0).await;
}

/// Asserts that no chore of these brokers has failed: the next pass would hide it.
fn assert_calm(servers: &[Server]) {
    for server in servers {
        let failed = server.log().into_iter().filter(|line| line.contains("failed")).collect::<Vec<_>>();
        assert!(failed.is_empty(), "{failed:?}");
    }
}

/// The tables of messages that there are.
async fn tables(database: &TestDatabase) -> i64 {
    let sql = "SELECT count(*) FROM pg_class WHERE relname ~ '^message_[ps][0-9]+$'
        AND relkind IN ('r', 'p') AND relnamespace = 'laneway'::regnamespace";
    database.number(sql).await
}

#[tokio::test]
async fn a_deleted_topic_is_unknown_at_once_and_its_name_begins_anew() {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    for topic in ["orders", "audit"] {
        web.create(json!({"name": topic, "partitions": 2})).await;
        let message =
            |n: u32| json!({"payload": format!("{topic}{n}"), "partition": n % 2, "trace_id": trace});
        web.publish(topic, (0..10).map(message).collect()).await;
    }
    let hops = async || web.get(&format!("/v1/traces/{trace}/messages")).await.json::<MessageList>().messages;
    assert_eq!(hops().await.len(), 20);
    let ids = "SELECT max(partition_id) FROM laneway.partition JOIN laneway.topic USING (topic_id)
        WHERE name = 'orders' AND topic.deleted_at IS NULL";
    let before = database.number(ids).await;

    let answer = web.delete("/v1/topics/orders").await;
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    let publish = json!({"messages": [{"payload": "late"}]});
    for answer in [
        web.get("/v1/topics/orders").await,
        web.post("/v1/topics/orders/messages", &publish).await,
        web.get("/v1/topics/orders/partitions/0/messages").await,
        web.delete("/v1/topics/orders").await,
    ] {
        let problem = answer.problem();
        assert_eq!((problem.code, problem.status), (ErrorCode::UnknownTopic, 404), "{problem:?}");
    }
    let listed: TopicList = web.get("/v1/topics").await.json();
    assert_eq!(listed.topics.iter().map(|topic| topic.name.as_str()).collect::<Vec<_>>(), ["audit"]);
    assert!(hops().await.iter().all(|hop| hop.topic == "audit"));
    assert_eq!(hops().await.len(), 10);

    // The new one shares nothing with the old one but its name; more partitions, too.
    web.create(json!({"name": "orders", "partitions": 3})).await;
    let stands: Vec<i64> = web.partitions("orders").await.iter().map(|one| one.next_offset).collect();
    assert_eq!(stands, [0, 0, 0]);
    assert!(web.all("orders", 0).await.is_empty());
    let results = web.publish("orders", json!([{"payload": "new", "partition": 0}])).await.results;
    assert_eq!(results[0].offset, Some(0));
    assert!(database.number(&ids.replace("max", "min")).await > before);
    swept(&database).await;
    assert_eq!(text(&web.all("orders", 0).await[0]), "new");
    assert_eq!(web.all("audit", 1).await.len(), 5);
    assert_eq!(hops().await.len(), 10);
}

#[tokio::test]
async fn the_command_line_deletes_only_after_a_yes() {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    let url = server.url("");
    for topic in ["orders", "audit"] {
        web.create(json!({"name": topic})).await;
    }
    let refused = run(&["topic", "delete", "orders", "--url", &url]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(
        refused.stderr.starts_with("laneway: topic orders goes with everything in it"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    assert_eq!(web.get("/v1/topics/orders").await.status, 200);
    let deleted = run(&["topic", "delete", "orders", "--yes", "--url", &url]).await;
    assert_eq!((deleted.code, deleted.stdout.as_str()), (0, "deleted topic orders\n"), "{}", deleted.stderr);
    let deleted = run(&["topic", "delete", "audit", "--yes", "--json", "--url", &url]).await;
    assert_eq!(serde_json::from_str::<Value>(&deleted.stdout).unwrap(), json!({"deleted": "audit"}));
    let again = run(&["topic", "delete", "orders", "--yes", "--url", &url]).await;
    assert_eq!((again.code, again.stdout.as_str()), (1, ""));
    assert_eq!(again.stderr, "laneway: there is no topic orders (unknown_topic)\n");
    assert!(web.get("/v1/topics").await.json::<TopicList>().topics.is_empty());
}

/// What one publisher was told.
#[derive(Default)]
struct Told {
    /// Where each message stands that was acknowledged.
    receipts: HashMap<String, (u32, i64)>,
    refusals: usize,
}

/// Publishes to "orders", one unique message after the other, until told to stop. Answers are receipts or `unknown_topic`.
async fn publish(web: Web, number: usize, stop: Arc<AtomicBool>) -> Told {
    let mut told = Told::default();
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        let value = format!("{number}-{n}");
        let message = json!({"payload": value, "partition": n % 4, "transaction_id": value});
        let answer = web.post("/v1/topics/orders/messages", &json!({"messages": [message]})).await;
        match answer.status {
            200 => {
                let result = answer.json::<PublishResponse>().results.remove(0);
                let offset = result.offset.unwrap_or_else(|| panic!("{answer:?}"));
                told.receipts.insert(value, (result.partition, offset));
            }
            _ => {
                assert_eq!(answer.problem().code, ErrorCode::UnknownTopic, "{answer:?}");
                told.refusals += 1;
            }
        }
    }
    told
}

fn crowd(webs: &[Web], stop: &Arc<AtomicBool>) -> JoinSet<Told> {
    let webs = webs.iter().cycle().take(8).cloned().enumerate();
    webs.map(|(number, web)| publish(web, number, stop.clone())).collect()
}

/// Publishes to "kept" without a pause until told to stop. Returns how many messages, all acknowledged, and the longest wait.
async fn keep_busy(web: Web, stop: Arc<AtomicBool>) -> (i64, Duration) {
    let (mut messages, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let results =
            web.publish("kept", vec![json!({"payload": "p".repeat(200)}); 200].into()).await.results;
        assert!(results.iter().all(|result| result.offset.is_some()), "{results:?}");
        messages += results.len() as i64;
        longest = longest.max(began.elapsed());
    }
    (messages, longest)
}

async fn some_published(database: &TestDatabase, messages: i64) {
    wait::until("some messages", async || {
        let sql = "SELECT sum(n)::bigint FROM (SELECT max(next_offset) AS n FROM laneway.head
            JOIN laneway.partition USING (partition_id) JOIN laneway.topic t USING (topic_id)
            WHERE t.name = 'orders' AND t.deleted_at IS NULL GROUP BY partition_id) AS newest";
        database.number(sql).await >= messages
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_topic_deleted_under_its_publishers_leaves_nothing_behind() {
    let database = TestDatabase::new().await;
    let (servers, webs) = brokers(&database).await;
    webs[0].create(json!({"name": "kept"})).await;
    webs[0].publish("kept", json!([{"payload": "stays"}])).await;
    webs[0].create(json!({"name": "orders", "partitions": 16, "segment_messages": 16})).await;
    let stop = Arc::new(AtomicBool::new(false));
    let publishing = crowd(&webs, &stop);
    let busy: JoinSet<_> =
        webs.iter().cycle().take(4).map(|web| keep_busy(web.clone(), stop.clone())).collect();
    some_published(&database, 200).await;
    assert_eq!(webs[1].delete("/v1/topics/orders").await.status, 204);
    let publish = json!({"messages": [{"payload": "late"}]});
    let late = webs[1].post("/v1/topics/orders/messages", &publish).await;
    assert_eq!(late.problem().code, ErrorCode::UnknownTopic);
    swept(&database).await; // while they still try
    stop.store(true, Ordering::Relaxed);
    for told in publishing.join_all().await {
        assert!(told.refusals > 0 && !told.receipts.is_empty());
    }
    // Its neighbour was busy all the time: tables were dropped between its flushes, and it lost none.
    let mut messages = 1;
    for (published, longest) in busy.join_all().await {
        println!("{published} messages beside the sweep, the longest wait {longest:?}");
        messages += published;
    }
    assert_eq!(webs[0].partitions("kept").await[0].next_offset, messages);
    assert_eq!(remains(&database).await, 0);
    assert_eq!(database.number("SELECT count(*) FROM laneway.topic").await, 1);
    assert_eq!(tables(&database).await, 3, "those of the topic that stays");
    assert_eq!(text(&webs[0].list("kept", 0, "from=0&limit=1").await[0]), "stays");
    webs[1].publish("kept", json!([{"payload": "more"}])).await;
    assert_calm(&servers);
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_go_on_with_the_new_topic_of_the_same_name_from_offset_zero() {
    let database = TestDatabase::new().await;
    let (servers, webs) = brokers(&database).await;
    let orders = json!({"name": "orders", "partitions": 4, "segment_messages": 16});
    webs[0].create(orders.clone()).await;
    let stop = Arc::new(AtomicBool::new(false));
    let publishing = crowd(&webs, &stop);
    for round in 0..3 {
        some_published(&database, 100).await;
        assert_eq!(webs[round % 2].delete("/v1/topics/orders").await.status, 204);
        webs[(round + 1) % 2].create(orders.clone()).await;
    }
    some_published(&database, 100).await;
    stop.store(true, Ordering::Relaxed);
    let mut receipts = HashMap::new();
    for told in publishing.join_all().await {
        receipts.extend(told.receipts);
    }
    let mut stored = 0;
    for partition in 0..4 {
        let messages = webs[0].all("orders", partition).await;
        assert!(messages.iter().map(|message| message.offset).eq(0..messages.len() as i64));
        for message in &messages {
            assert_eq!(receipts.get(&text(message)), Some(&(partition, message.offset)), "{}", text(message));
        }
        stored += messages.len();
    }
    assert!((100..receipts.len()).contains(&stored), "{stored} of {}", receipts.len());
    swept(&database).await;
    assert_eq!(database.number("SELECT count(*) FROM laneway.topic").await, 1);
    assert_eq!(webs[1].all("orders", 0).await.len(), webs[0].all("orders", 0).await.len());
    assert_calm(&servers);
}

/// A topic with all that can belong to one, and more rows than one statement of the sweep deletes.
async fn furnish(database: &TestDatabase, web: &Web) {
    web.create(json!({"name": "orders", "partitions": 2, "segment_messages": 16})).await;
    web.publish("orders", (0..60).map(|n| json!({"payload": "m", "partition": n % 2})).collect()).await;
    let many = EXPIRE_ROWS_MAX * 2 + 7;
    let sql = format!(
        "INSERT INTO laneway.transaction_seen SELECT min(partition_id), 't' || n, n, now()
            FROM laneway.partition, generate_series(1, {many}) AS n GROUP BY n;
         INSERT INTO laneway.producer_run SELECT min(partition_id), gen_random_uuid(), 0, 0, n, now()
            FROM laneway.partition, generate_series(1, {many}) AS n GROUP BY n;
         INSERT INTO laneway.dead_letter (topic_id, group_name, partition_id, \"offset\", attempts, reason, published_at,
                trace_id, payload)
            SELECT topic_id, 'mail', partition_id, 0, 1, 'r', now(), gen_random_uuid(), '' FROM laneway.partition;
         INSERT INTO laneway.broker VALUES (gen_random_uuid(), now(), now());
         INSERT INTO laneway.session SELECT gen_random_uuid(), broker_id, '', now() FROM laneway.broker LIMIT 1;
         INSERT INTO laneway.consumer_group (topic_id, name, ack_deadline_ms, max_attempts, backoff_base_ms, backoff_factor,
                backoff_cap_ms, on_failure)
            SELECT topic_id, 'mail', 1, 1, 1, 1, 1, 'dead_letter' FROM laneway.topic;
         INSERT INTO laneway.member SELECT group_id, session_id, '' FROM laneway.consumer_group, laneway.session;
         INSERT INTO laneway.lane (group_id, partition_id, first_offset)
            SELECT group_id, partition_id, 0 FROM laneway.consumer_group, laneway.partition;
         INSERT INTO laneway.lane_commit SELECT group_id, partition_id, 1, 1, 1 FROM laneway.lane;
         INSERT INTO laneway.attempt SELECT group_id, partition_id, 1, 1, 'r', now(), now() FROM laneway.lane;"
    );
    database.raw().await.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn everything_that_belongs_to_a_topic_goes_with_it() {
    let database = TestDatabase::new().await;
    let (servers, webs) = brokers(&database).await;
    furnish(&database, &webs[0]).await;
    // Were no topic left, no window would remember anything, and deduplication would hide what the sweep forgets.
    webs[0].create(json!({"name": "kept"})).await;
    assert_eq!(webs[0].delete("/v1/topics/orders").await.status, 204);
    // What consumers see goes at once.
    for table in ["consumer_group", "member", "lane", "lane_commit", "attempt"] {
        assert_eq!(database.number(&format!("SELECT count(*) FROM laneway.{table}")).await, 0, "{table}");
    }
    // As if a group had been made at the very moment.
    let late =
        "INSERT INTO laneway.consumer_group (topic_id, name, ack_deadline_ms, max_attempts, backoff_base_ms,
            backoff_factor, backoff_cap_ms, on_failure)
        SELECT topic_id, 'late', 1, 1, 1, 1, 1, 'skip' FROM laneway.topic WHERE deleted_at IS NOT NULL";
    database.raw().await.execute(late, &[]).await.unwrap();
    swept(&database).await;
    for (table, rows) in [
        ("topic", 1),
        ("partition", 1),
        ("segment", 0),
        ("head", 0),
        ("producer_run", 0),
        ("transaction_seen", 0),
        ("dead_letter", 0),
    ] {
        assert_eq!(database.number(&format!("SELECT count(*) FROM laneway.{table}")).await, rows, "{table}");
    }
    assert_eq!(tables(&database).await, 0);
    assert_calm(&servers);
}

#[tokio::test]
async fn brokers_killed_in_the_middle_of_the_sweep_leave_the_rest_to_the_next() {
    const PARTITIONS: u32 = 24;
    let database = TestDatabase::new().await;
    let mut server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    web.create(json!({"name": "orders", "partitions": PARTITIONS, "segment_messages": 16})).await;
    web.create(json!({"name": "kept"})).await;
    web.publish("kept", json!([{"payload": "stays"}])).await;
    for partition in 0..PARTITIONS {
        web.publish("orders", (0..40).map(|_| json!({"payload": "m", "partition": partition})).collect())
            .await;
    }
    let full = tables(&database).await;
    assert!(full >= i64::from(PARTITIONS) * 4, "{full}");
    assert_eq!(web.delete("/v1/topics/orders").await.status, 204);
    let mut kills = 0;
    for goal in [full - 5, full / 2, full / 4] {
        wait::until_within(SWEEP_PATIENCE, "a part of the sweep", async || tables(&database).await < goal)
            .await;
        server.kill().await;
        kills += i64::from(remains(&database).await > 0);
        server = Server::on_database(&database.url).await; // its first pass begins at once
    }
    assert!(kills >= 2, "only {kills} kills came in the middle");
    let other = Server::on_database(&database.url).await;
    swept(&database).await;
    assert_eq!(tables(&database).await, 3);
    assert_calm(&[server]);
    let web = Web::new(&other);
    assert_eq!(text(&web.all("kept", 0).await[0]), "stays");
    assert_eq!(web.publish("kept", json!([{"payload": "more"}])).await.results[0].offset, Some(1));
}
