//! `laneway topic pause`, `resume`, `purge` and `partitions`, `laneway group pause` and `resume`, and what is refused.

use serde_json::{Value, json};

use crate::harness::process::run;
use crate::harness::pty::OnTerminal;
use crate::harness::{Server, TestDatabase};
use crate::topics::{document, sentence};
use crate::web::Web;

struct Desk {
    _database: TestDatabase,
    server: Server,
    web: Web,
}

impl Desk {
    /// A broker with five messages in `orders`, and a group `billing`.
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let server = Server::on_database(&database.url).await;
        let web = Web::new(&server);
        web.create(json!({"name": "orders"})).await;
        web.publish("orders", (0..5).map(|n| json!({"payload": format!("m{n}")})).collect()).await;
        let mut member =
            crate::harness::socket::Socket::connect(&server.address, laneway_client::wire::Subprotocol::Json)
                .await;
        member.subscribe("billing", "orders").await;
        member.close().await;
        Self { _database: database, server, web }
    }

    fn args<'a>(&'a self, url: &'a str, args: &[&'a str]) -> Vec<&'a str> {
        [args, &["--url", url]].concat()
    }

    fn url(&self) -> String {
        format!("ws://{}/v1/ws", self.server.address)
    }

    async fn asked(&self, args: &[&str]) -> Value {
        document(&run(&self.args(&self.url(), &[args, &["--json"]].concat())).await)
    }

    async fn refused(&self, args: &[&str]) -> String {
        sentence(&run(&self.args(&self.url(), args)).await, 1)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_and_groups_are_paused_resumed_counted_and_purged_from_the_command_line() {
    let desk = Desk::new().await;
    let url = desk.url();
    assert!(desk.asked(&["topic", "pause", "orders"]).await["paused_at"].is_string());
    let shown = run(&desk.args(&url, &["topic", "show", "orders"])).await.stdout;
    assert!(shown.contains("paused since"), "{shown}");
    let listed = run(&desk.args(&url, &["topic", "list"])).await.stdout;
    assert!(listed.contains("paused: orders\n"), "{listed}");
    let refused = desk.web.post("/v1/topics/orders/message", &json!({"payload": "no"})).await;
    assert_eq!(refused.status, 409, "{}", refused.body);
    let problem: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!((&problem["code"], &problem["class"]), (&json!("topic_paused"), &json!("retry")));
    assert_eq!(desk.asked(&["topic", "resume", "orders"]).await.get("paused_at"), None);
    assert!(desk.asked(&["group", "pause", "orders", "billing"]).await["paused_at"].is_string());
    let shown = run(&desk.args(&url, &["group", "show", "orders", "billing"])).await.stdout;
    assert!(shown.contains("paused since"), "{shown}");
    let listed = run(&desk.args(&url, &["group", "list"])).await.stdout;
    assert!(listed.contains("paused: orders/billing\n"), "{listed}");
    assert_eq!(desk.asked(&["group", "resume", "orders", "billing"]).await.get("paused_at"), None);
    let table = run(&desk.args(&url, &["topic", "partitions", "orders"])).await.stdout;
    assert!(table.contains("IN FLIGHT") && table.contains("billing"), "{table}");
    assert_eq!(desk.asked(&["topic", "partitions", "orders"]).await[0]["scheduled_messages"], 0);
    let later = json!({"payload": "later", "delay_ms": 3_600_000, "partition": 0});
    desk.web.publish("orders", json!([later, later])).await;
    assert_eq!(desk.asked(&["topic", "partitions", "orders"]).await[0]["scheduled_messages"], 2);
    assert_eq!(desk.asked(&["topic", "partitions", "orders"]).await[0]["stored_messages"], 5);
    // Without a terminal there is nobody to ask.
    let unasked = desk.refused(&["topic", "purge", "orders", "--all"]).await;
    assert!(unasked.contains("say --yes"), "{unasked}");
    // On a terminal, only the name is a yes.
    let args = desk.args(&url, &["topic", "purge", "orders", "--all"]);
    let mut command = OnTerminal::start(&args);
    command.shows("the question", |text| text.contains("Type its name to go on:")).await;
    command.type_keys("yes\n");
    assert_eq!(command.ended().await, 1);
    command.shows("the answer", |text| text.contains("nothing was purged")).await;
    assert_eq!(desk.asked(&["topic", "partitions", "orders"]).await[0]["stored_messages"], 5);
    let bounded = ["topic", "purge", "orders", "--before-offset", "2", "--partition", "0", "--yes"];
    assert_eq!(desk.asked(&bounded).await["messages"], 2);
    let mut command = OnTerminal::start(&args);
    command.shows("the question", |text| text.contains("Type its name to go on:")).await;
    command.type_keys("orders\n");
    assert_eq!(command.ended().await, 0);
    command.shows("the answer", |text| text.contains("purged 3 messages of topic orders")).await;
    let left = &desk.asked(&["topic", "partitions", "orders"]).await[0];
    assert_eq!(
        (&left["start_offset"], &left["stored_messages"], &left["stored_bytes"]),
        (&json!(5), &json!(0), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_or_is_not_known_is_refused_and_nothing_changes() {
    let desk = Desk::new().await;
    let purge = "/v1/topics/orders/purge";
    for (path, body, status, code, field) in [
        (purge, json!({}), 400, "malformed", None),
        (purge, json!({"all": false}), 400, "malformed", None),
        (purge, json!({"all": true, "before_offset": 1, "partition": 0}), 400, "malformed", None),
        (purge, json!({"before_offset": -1, "partition": 0}), 400, "malformed", None),
        (purge, json!({"before_offset": 6, "partition": 0}), 400, "malformed", Some("before_offset")),
        (
            purge,
            json!({"before_offset": 0, "partition": 7}),
            422,
            "partition_out_of_range",
            Some("partition"),
        ),
        (purge, json!({"before_at": "2999-01-01T00:00:00Z"}), 400, "malformed", Some("before_at")),
        (purge, json!({"before_at": "soon"}), 400, "malformed", Some("before_at")),
        ("/v1/topics/none/purge", json!({"all": true}), 404, "unknown_topic", Some("topic")),
        ("/v1/topics/none/pause", json!({}), 404, "unknown_topic", Some("topic")),
        ("/v1/topics/orders/groups/none/pause", json!({}), 404, "unknown_group", Some("group")),
    ] {
        let answer = desk.web.post(path, &body).await;
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        let said = (answer.status, problem["code"].as_str().unwrap(), problem["field"].as_str());
        assert_eq!(said, (status, code, field), "{path} {body}: {}", answer.body);
    }
    // Settings are merged; those that are not known, or hold only from the beginning, are refused whole.
    let patch = async |path: &str, body: Value| {
        let answer = desk.web.http.patch(desk.web.url(path)).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, before) = patch("/v1/topics/orders", json!({"payload_bytes_max": 2000})).await;
    assert_eq!((status, &before["payload_bytes_max"]), (200, &json!(2000)));
    for unknown in [
        json!({"payload_bytes_max": 1, "colour": 1}),
        json!({"segment_messages": 100, "payload_bytes_max": 1}),
    ] {
        let (status, problem) = patch("/v1/topics/orders", unknown.clone()).await;
        assert_eq!((status, &problem["code"]), (400, &json!("malformed")), "{unknown}: {problem}");
    }
    let (_, after) = patch("/v1/topics/orders", json!({"dedup_window_ms": 60_000})).await;
    assert_eq!((&after["payload_bytes_max"], &after["dedup_window_ms"]), (&json!(2000), &json!(60_000)));
    let group = "/v1/topics/orders/groups/billing";
    patch(group, json!({"max_attempts": 9})).await;
    let (status, problem) = patch(group, json!({"max_attempts": 1, "colour": 1})).await;
    assert_eq!((status, &problem["code"]), (400, &json!("malformed")), "{problem}");
    let (_, after) = patch(group, json!({"ack_deadline_ms": 7000})).await;
    assert_eq!(
        (&after["settings"]["max_attempts"], &after["settings"]["ack_deadline_ms"]),
        (&json!(9), &json!(7000))
    );
    let counted = desk.web.get("/v1/topics/orders/partitions?limit=0").await;
    assert_eq!(counted.status, 400, "{}", counted.body);
}
