//! The operator's side of the binary: `laneway group`, `lane`, `dead` and `topic alter`, and the views for psql.

use laneway_client::wire::{OnFailure, Subprotocol, WantedSettings};
use serde_json::{Value, json};

use crate::dead_letters::give_up;
use crate::harness::process::{Said, laneway, run, run_command};
use crate::harness::socket::{Socket, offsets, quick_retries, subscribe};
use crate::harness::{Server, TestDatabase, wait};
use crate::topics::{document, sentence};
use crate::web::Web;

async fn server() -> (TestDatabase, Server, Web) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    (database, server, web)
}

/// Runs a command that must succeed; what it prints for people has no spaces at the ends of lines.
async fn told(args: &[&str], url: &str) -> String {
    let said = run(&[args, &["--url", url]].concat()).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{args:?}: {}", said.stdout);
    assert!(said.stdout.lines().all(|line| line.trim_end() == line), "{:?}", said.stdout);
    said.stdout
}

async fn asked(args: &[&str], url: &str) -> Value {
    document(&run(&[args, &["--json", "--url", url]].concat()).await)
}

async fn refused(args: &[&str], url: &str) -> String {
    sentence(&run(&[args, &["--url", url]].concat()).await, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_lanes_are_listed_shown_altered_moved_and_deleted() {
    let (_database, server, web) = server().await;
    let url = format!("ws://{}/v1/ws", server.address);
    assert!(told(&["group", "list"], &url).await.starts_with("no groups yet"));
    assert!(told(&["lane", "list"], &url).await.starts_with("no lanes"));
    assert_eq!(asked(&["group", "list"], &url).await, json!([]));
    web.create(json!({"name": "orders"})).await;
    web.publish("orders", json!([{"payload": "a"}, {"payload": "b"}])).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    socket.subscribe("billing", "orders").await;
    let batch = socket.batch().await;
    socket.ack_below(&batch, 2).await.unwrap();

    let table = told(&["group", "list", "--topic", "orders"], &url).await;
    assert!(table.contains("GROUP") && table.contains("billing") && table.contains("dead_letter"), "{table}");
    assert_eq!(asked(&["group", "list"], &url).await[0]["lag_messages"], 0);
    let shown = told(&["group", "show", "orders", "billing"], &url).await;
    assert!(
        shown.contains("at most 5 attempts") && shown.contains("MEMBER") && shown.contains("held"),
        "{shown}"
    );
    let shown = asked(&["group", "show", "orders", "billing"], &url).await;
    assert_eq!((&shown["members"], &shown["lanes"][0]["committed_offset"]), (&json!(1), &json!(2)));
    let lanes = asked(&["lane", "list", "--group", "billing"], &url).await;
    assert_eq!(lanes[0], shown["lanes"][0]);
    assert!(told(&["lane", "list", "--topic", "orders"], &url).await.contains("HOLDER"));

    let alter = ["group", "alter", "orders", "billing", "--max-attempts", "9", "--ack-deadline", "2m"];
    assert!(told(&alter, &url).await.contains("ack within 120000 ms, at most 9 attempts"));
    let altered = asked(&["group", "alter", "orders", "billing", "--on-failure", "skip"], &url).await;
    assert_eq!(
        (&altered["settings"]["on_failure"], &altered["settings"]["max_attempts"]),
        (&json!("skip"), &json!(9))
    );

    let sought = asked(&["group", "seek", "orders", "billing", "--to", "1", "--partition", "0"], &url).await;
    assert_eq!(sought, json!({"lanes": [{"partition": 0, "epoch": 2, "committed_offset": 1}]}));
    assert_eq!(offsets(&socket.batch().await), [1]);
    let table = told(&["group", "seek", "orders", "billing", "--to", "2000-01-01T00:00:00Z"], &url).await;
    assert!(table.contains("GOES ON AT"), "{table}");
    assert_eq!(offsets(&socket.batch().await), [0, 1]);
    assert_eq!(asked(&["group", "list"], &url).await[0]["lag_messages"], 2);
    let table = told(&["group", "list"], &url).await;
    let columns = |line: usize| table.lines().nth(line).unwrap().split_whitespace().nth(3).unwrap();
    assert_eq!((columns(0), columns(1)), ("LAG", "2"), "{table}");

    let delete = ["group", "delete", "orders", "billing"];
    assert!(refused(&delete, &url).await.ends_with("say --yes, or use a terminal to be asked"));
    let members = refused(&[&delete[..], &["--yes"]].concat(), &url).await;
    assert!(members.contains("has 1 members") && members.ends_with("(group_has_members)"), "{members}");
    let gone = told(&[&delete[..], &["--yes", "--force"]].concat(), &url).await;
    assert_eq!(gone, "deleted group billing of topic orders\n");
    assert_eq!(
        refused(&["group", "show", "orders", "billing"], &url).await,
        "topic orders has no group billing (unknown_group)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_altered_by_the_binary_at_the_url_of_the_environment() {
    let (_database, server, web) = server().await;
    let url = server.url("");
    web.create(json!({"name": "orders", "retention_bytes": 1000})).await;
    let alter = [
        "topic",
        "alter",
        "orders",
        "--partitions",
        "2",
        "--retention-age",
        "7d",
        "--retention-bytes",
        "none",
    ];
    let said = run_command(laneway().args(alter).arg("--json").env("LANEWAY_URL", &url)).await;
    let altered = document(&said);
    assert_eq!((&altered["partitions"], &altered["retention_bytes"]), (&json!(2), &Value::Null));
    assert_eq!(altered["retention_age_ms"], 7 * 24 * 3_600_000);
    assert!(told(&["topic", "alter", "orders", "--dedup-window", "5s"], &url).await.contains("kept 7days"));
    let fewer = refused(&["topic", "alter", "orders", "--partitions", "1"], &url).await;
    assert_eq!(fewer, "topic orders has 2 partitions, and a topic never loses one (invalid_setting)");
    let off = ["topic", "alter", "orders", "--delivery-times", "off"];
    assert!(told(&off, &url).await.contains("delivery times not kept"));
    let on = asked(&["topic", "alter", "orders", "--delivery-times", "on"], &url).await;
    assert_eq!(on["delivery_times"], json!(true));
    let made = asked(&["topic", "create", "clicks", "--delivery-times", "off"], &url).await;
    assert_eq!(made["delivery_times"], json!(false));
    assert!(told(&["topic", "list"], &url).await.contains("orders"));
    assert!(told(&["topic", "show", "orders"], &url).await.contains("PARTITION"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_shown_replayed_and_dropped() {
    let (database, server, web) = server().await;
    let url = server.url("");
    assert_eq!(told(&["dead", "list"], &url).await, "no dead letters\n");
    web.create(json!({"name": "orders"})).await;
    let message = json!({"payload": "line\nline", "key": "k", "headers": {"a": "b"}});
    web.publish("orders", json!([message, {"payload": {"n": 1}, "encoding": "json"}])).await;
    let first = give_up(&database, "orders", "mail", 0, 0).await.to_string();
    let second = give_up(&database, "orders", "mail", 0, 1).await.to_string();

    let table = told(&["dead", "list", "--topic", "orders", "--group", "mail"], &url).await;
    assert!(table.contains("REASON") && table.contains("it does not parse"), "{table}");
    let page = run(&["dead", "list", "--limit", "1", "--url", &url]).await;
    assert_eq!((page.code, page.stderr), (0, format!("there are more: --after {first}\n")));
    let rest = asked(&["dead", "list", "--after", &first], &url).await;
    assert_eq!(rest["dead_letters"].as_array().unwrap().len(), 1);
    let shown = told(&["dead", "show", &first], &url).await;
    assert!(
        shown.contains("given up by group mail after 3 attempts") && shown.contains("header a: b"),
        "{shown}"
    );
    assert!(shown.ends_with("\nline\nline\n"), "{shown}");
    assert_eq!(asked(&["dead", "show", &second], &url).await["payload"], json!({"n": 1}));

    let replayed = asked(&["dead", "replay", &first], &url).await;
    assert_eq!(
        replayed["replayed"],
        json!([{"id": first.parse::<i64>().unwrap(), "partition": 0, "offset": 2}])
    );
    assert!(refused(&["dead", "replay", &first], &url).await.ends_with("(unknown_dead_letter)"));
    assert!(refused(&["dead", "drop", &second], &url).await.contains("goes for good: say --yes"));
    assert_eq!(
        told(&["dead", "drop", &second, "--yes"], &url).await,
        format!("dropped dead letter {second}\n")
    );
    assert_eq!(told(&["dead", "list"], &url).await, "no dead letters\n");
}

#[tokio::test]
async fn what_is_asked_wrongly_exits_with_two_and_a_broker_that_is_away_with_one() {
    for (args, words) in [
        (&["group", "show", "orders"][..], "<GROUP>"),
        (&["group", "alter", "orders", "billing"], "--ack-deadline"),
        (
            &["group", "alter", "orders", "billing", "--on-failure", "shrug"],
            "say dead_letter, skip, block or park",
        ),
        (&["group", "alter", "orders", "billing", "--backoff-factor", "NaN"], "finite"),
        (&["group", "seek", "orders", "billing"], "--to <WHERE>"),
        (&["group", "seek", "orders", "billing", "--to", "middle"], "say earliest, latest, a time"),
        (&["topic", "alter", "orders"], "--partitions"),
        (&["topic", "alter", "orders", "--retention-bytes", "few"], "invalid value 'few'"),
        (&["dead", "show", "first"], "invalid value 'first'"),
        (&["lane", "lst"], "unrecognized subcommand"),
    ] {
        let said: Said = run(args).await;
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}");
        assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("ws://{free}/v1/ws");
    for args in [
        &["group", "list"][..],
        &["group", "show", "orders", "billing"],
        &["group", "alter", "orders", "billing", "--max-attempts", "2"],
        &["group", "seek", "orders", "billing", "--to", "latest"],
        &["group", "delete", "orders", "billing", "--yes"],
        &["lane", "list"],
        &["dead", "list"],
        &["dead", "show", "1"],
        &["dead", "replay", "1"],
        &["dead", "drop", "1", "--yes"],
        &["topic", "alter", "orders", "--partitions", "2"],
    ] {
        let away = refused(args, &url).await;
        assert!(away.contains("is `laneway serve` running there?"), "{args:?}: {away}");
    }
    for command in ["group", "lane", "dead", "topic"] {
        let help = run(&[command, "--help"]).await;
        assert!(help.code == 0 && help.stdout.contains("--json"), "{}", help.stdout);
    }
    let help = run(&["group", "seek", "--help"]).await.stdout;
    assert!(help.contains("Examples:") && help.contains("--to 2026-11-16T06:00:00Z"), "{help}");
}

/// One row of a view, as text.
async fn rows(database: &TestDatabase, columns: &str, view: &str) -> Vec<String> {
    let sql = format!("SELECT concat_ws(' ', {columns}) FROM laneway.{view} ORDER BY 1");
    let rows = database.raw().await.query(&sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_view_answers() {
    let (database, server, web) = server().await;
    for view in ["lanes", "lag", "stuck_lanes", "dead_letters_by_group"] {
        assert_eq!(database.number(&format!("SELECT count(*) FROM laneway.{view}")).await, 0, "{view}");
    }
    web.create(json!({"name": "orders", "partitions": 2})).await;
    let messages = (0..4).map(|n| json!({"payload": "m", "partition": n % 2}));
    web.publish("orders", messages.collect()).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    let mut wanted = subscribe("billing", "orders");
    wanted.settings = Some(WantedSettings { on_failure: Some(OnFailure::Block), ..quick_retries(1) });
    socket.subscribe_with(wanted).await.unwrap();
    for batch in socket.batches(4).await {
        match batch.partition {
            0 => socket.ack_below(&batch, 2).await.unwrap(),
            _ => socket.nack(&batch, 0, "no").await.unwrap(),
        };
    }
    give_up(&database, "orders", "mail", 0, 0).await;
    let lanes = rows(&database, "topic, group_name, partition, epoch, state", "lanes").await;
    assert_eq!(lanes, ["orders billing 0 1 held", "orders billing 1 1 blocked"]);
    let held = "SELECT count(*) FROM laneway.lanes l JOIN laneway.broker b ON b.broker_id = l.broker
                JOIN laneway.session s ON s.session_id = l.holder";
    assert_eq!(database.number(held).await, 2);
    let lag = rows(
        &database,
        "group_name, partition, committed_offset, next_offset, lag_messages, lag_seconds > 0",
        "lag",
    )
    .await;
    assert_eq!(lag, ["billing 0 2 2 0 f", "billing 1 0 2 2 t"]);
    let stuck = rows(&database, "partition, lag_messages, reason", "stuck_lanes").await;
    assert_eq!(stuck, ["1 2 a message has failed too often, and the policy is to stop at it"]);
    let dead =
        rows(&database, "topic, group_name, dead_letters, payload_bytes", "dead_letters_by_group").await;
    assert_eq!(dead, ["orders mail 1 1"]);
    socket.close().await;
    wait::until("the lane to be stuck for want of a holder", async || {
        rows(&database, "partition, reason", "stuck_lanes").await == ["1 nobody holds it"]
    })
    .await;
}
