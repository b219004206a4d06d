//! `laneway dead replay` and `drop` of several, and of all of a group.

use serde_json::{Value, json};

use crate::dead_letters::give_up;
use crate::harness::process::run;
use crate::harness::pty::OnTerminal;
use crate::harness::{Server, TestDatabase};
use crate::topics::{document, sentence};
use crate::web::Web;

/// Dead letters of groups `mail` and `billing` in topics `orders` and `audit`.
struct Yard {
    database: TestDatabase,
    server: Server,
    web: Web,
}

impl Yard {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let server = Server::on_database(&database.url).await;
        let web = Web::new(&server);
        for topic in ["orders", "audit"] {
            web.create(json!({"name": topic})).await;
            let messages = (0..5).map(|n| json!({"payload": format!("m{n}")})).collect();
            web.publish(topic, messages).await;
        }
        Self { database, server, web }
    }

    /// As text, because that is how a command takes it.
    async fn bury(&self, topic: &str, group: &str, offset: i64) -> String {
        give_up(&self.database, topic, group, 0, offset).await.to_string()
    }

    async fn left(&self) -> Vec<String> {
        let list = self.web.get("/v1/dead-letters").await.json::<Value>();
        let ids = list["dead_letters"].as_array().unwrap().iter().map(|letter| letter["id"].to_string());
        ids.collect()
    }
}

fn number(id: &str) -> i64 {
    id.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn several_are_replayed_and_dropped_and_each_is_reported() {
    let yard = Yard::new().await;
    let url = yard.server.url("");
    let (a, b, c) = (
        yard.bury("orders", "mail", 0).await,
        yard.bury("orders", "mail", 1).await,
        yard.bury("audit", "mail", 0).await,
    );
    let said = run(&["dead", "replay", &a, &c, &a, "--url", &url]).await;
    let lines = format!(
        "published dead letter {a} again: partition 0, offset 5\npublished dead letter {c} again: partition 0, offset 5\n"
    );
    assert_eq!((said.code, said.stdout, said.stderr.as_str()), (0, lines, ""));
    assert_eq!(yard.left().await, std::slice::from_ref(&b));

    // One that is gone does not keep the others from it.
    let d = yard.bury("orders", "mail", 2).await;
    let said = run(&["dead", "drop", &b, &a, &d, "--yes", "--url", &url]).await;
    assert_eq!((said.code, said.stdout), (1, format!("dropped dead letter {b}\ndropped dead letter {d}\n")));
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert!(
        lines[0].starts_with(&format!("dead letter {a}: ")) && lines[0].ends_with("(unknown_dead_letter)")
    );
    assert_eq!(lines[1], format!("laneway: 1 of 3 dead letters failed: {a}"));
    assert!(yard.left().await.is_empty());

    let e = yard.bury("orders", "mail", 3).await;
    let said = run(&["dead", "drop", &e, &a, "--yes", "--json", "--url", &url]).await;
    assert_eq!(said.code, 1, "{}", said.stderr);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["dropped"], json!([{"id": number(&e)}]));
    assert_eq!((&report["failed"][0]["id"], &report["not_tried"]), (&json!(number(&a)), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_a_group_are_replayed_or_dropped_and_no_other() {
    let yard = Yard::new().await;
    let url = yard.server.url("");
    let other = yard.bury("orders", "billing", 0).await;
    let audit = yard.bury("audit", "mail", 1).await;
    yard.web.publish("orders", (5..120).map(|n| json!({"payload": format!("m{n}")})).collect()).await;
    for offset in 0..120 {
        yard.bury("orders", "mail", offset).await; // more than one page
    }
    let all = ["--group", "mail", "--topic", "orders", "--all", "--url", &url];
    let said = document(&run(&[&["dead", "replay", "--json"], &all[..]].concat()).await);
    assert_eq!(said["replayed"].as_array().unwrap().len(), 120);
    assert_eq!(yard.left().await, [other.clone(), audit]);
    assert_eq!(yard.web.partitions("orders").await[0].next_offset, 240);

    let drop = ["dead", "drop", "--group", "mail", "--all", "--url", &url];
    let unasked = sentence(&run(&drop).await, 1);
    assert!(unasked.ends_with("goes for good: say --yes, or use a terminal to be asked"), "{unasked}");
    yard.bury("audit", "mail", 2).await;
    let said = run(&[&drop[..], &["--yes"]].concat()).await;
    assert_eq!((said.code, said.stdout.lines().count(), said.stderr.as_str()), (0, 2, ""));
    assert_eq!(yard.left().await, [other]);
    let said = run(&[&drop[..], &["--yes"]].concat()).await;
    assert_eq!((said.code, said.stdout.as_str()), (0, "no dead letters\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_asked_before_many_are_dropped() {
    let yard = Yard::new().await;
    let url = yard.server.url("");
    for offset in 0..3 {
        yard.bury("orders", "mail", offset).await;
    }
    let args = ["dead", "drop", "--group", "mail", "--all", "--url", &url];
    let mut command = OnTerminal::start(&args);
    command.shows("the question", |text| text.contains("Drop 3 dead letters for good? [y/N]")).await;
    command.type_keys("n\n");
    assert_eq!(command.ended().await, 1);
    command.shows("the answer", |text| text.contains("nothing was deleted")).await;
    assert_eq!(yard.left().await.len(), 3);
    let mut command = OnTerminal::start(&args);
    command.shows("the question", |text| text.contains("[y/N]")).await;
    command.type_keys("y\n");
    assert_eq!(command.ended().await, 0);
    assert!(yard.left().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_sees_how_far_long_work_is() {
    let yard = Yard::new().await;
    yard.web.publish("orders", (5..25).map(|n| json!({"payload": format!("m{n}")})).collect()).await;
    for offset in 0..25 {
        yard.bury("orders", "mail", offset).await;
    }
    // Somebody holds the partition, so the first replay waits.
    let holder = yard.database.raw().await;
    holder.batch_execute("BEGIN; SELECT FROM laneway.partition FOR UPDATE").await.unwrap();
    let url = yard.server.url("");
    let mut command = OnTerminal::start(&["dead", "replay", "--group", "mail", "--all", "--url", &url]);
    command.shows("how far it is", |text| text.contains("0/25 dead letters")).await;
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(command.ended().await, 0);
    command.shows("all of them", |text| text.matches("published dead letter").count() == 25).await;
    assert!(!command.text().contains("/25"), "the bar is gone:\n{}", command.text());
}

#[tokio::test]
async fn what_is_meant_must_be_said() {
    for (args, words) in [
        (&["dead", "replay"][..], "<ID|--all>"),
        (&["dead", "drop", "--yes"], "<ID|--all>"),
        (&["dead", "replay", "--all"], "--group <GROUP>"),
        (&["dead", "replay", "--group", "mail"], "--all"),
        (&["dead", "replay", "--topic", "orders"], "--all"),
        (&["dead", "drop", "1", "--all", "--group", "mail"], "cannot be used with"),
        (&["dead", "drop", "one"], "invalid value 'one'"),
    ] {
        let said = run(args).await;
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}");
        assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_goes_away_ends_the_work_and_what_is_left_is_said() {
    let mut yard = Yard::new().await;
    let url = yard.server.url("");
    let ids = [
        yard.bury("orders", "mail", 0).await,
        yard.bury("orders", "mail", 1).await,
        yard.bury("orders", "mail", 2).await,
    ];
    yard.server.kill().await;
    let replay = ["dead", "replay", &ids[0], &ids[1], &ids[2], "--url", &url];
    let said = run(&replay).await;
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.contains("is `laneway serve` running there?"), "{}", said.stderr);
    let last =
        format!("laneway: 3 of 3 dead letters failed (2 of them were not tried): {}\n", ids.join(", "));
    assert!(said.stderr.ends_with(&last), "{}", said.stderr);

    let server = Server::start(&["--database-url", &yard.database.url]).await;
    let said = run(&[&replay[..5], &["--url", &server.url("")]].concat()).await;
    assert_eq!((said.code, said.stdout.lines().count()), (0, 3), "{}", said.stderr);
}
