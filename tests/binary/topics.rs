//! `laneway topic` against a broker on a private PostgreSQL: what it prints, where, and how it exits.

use serde_json::Value;

use crate::harness::process::{Said, run};
use crate::home::Home;
use crate::web::Web;

/// Standard output is one JSON document and nothing else.
pub fn document(said: &Said) -> Value {
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stdout))
}

/// One sentence on standard error, nothing on standard output.
pub fn sentence(said: &Said, code: i32) -> String {
    assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{}", said.stderr);
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    said.stderr.strip_prefix("laneway: ").expect("it says who speaks").trim_end().to_owned()
}

#[tokio::test]
async fn topics_are_made_listed_and_shown_by_the_binary() {
    let home = Home::new();
    let mut server = home.serve().await;
    let web = Web::new(&server);
    assert_eq!(web.get("/healthz").await.body, "ok\n");
    assert_eq!(web.get("/readyz").await.body, "ready\n");
    let http = server.url("");
    let socket = format!("ws://{}/v1/ws", server.address);

    assert!(run(&["topic", "list", "--url", &http]).await.stdout.contains("no topics yet"));
    assert_eq!(document(&run(&["topic", "list", "--url", &http, "--json"]).await), Value::Array(vec![]));

    let create = ["topic", "create", "orders", "--partitions", "3", "--retention-age", "7d", "--url", &http];
    let made = document(&run(&[create.as_slice(), &["--json"]].concat()).await);
    assert_eq!((&made["name"], &made["partitions"]), (&"orders".into(), &3.into()));
    assert_eq!(made["retention_age_ms"], 7 * 24 * 3_600_000);
    assert_eq!(made["partition_details"].as_array().unwrap().len(), 3);
    let audit = run(&["topic", "--url", &socket, "create", "audit"]).await;
    assert_eq!((audit.code, audit.stdout.as_str()), (0, "made topic audit with 1 partition\n"));

    let listed = document(&run(&["topic", "list", "--json", "--url", &socket]).await);
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|topic| topic["name"].clone()).collect();
    assert_eq!(names, ["audit", "orders"]);
    let table = run(&["topic", "list", "--url", &http]).await.stdout;
    assert!(table.contains("TOPIC") && table.contains("orders") && table.contains("7days"), "{table}");

    web.publish("orders", serde_json::json!([{"payload": "a", "partition": 1}])).await;
    let shown = document(&run(&["topic", "show", "orders", "--json", "--url", &http]).await);
    assert_eq!(shown["partition_details"][1]["next_offset"], 1);
    let shown = run(&["topic", "show", "orders", "--url", &http]).await.stdout;
    assert!(shown.contains("PARTITION") && shown.contains("never"), "{shown}");

    let exists = sentence(&run(&create).await, 1);
    assert_eq!(exists, "there is a topic orders already (topic_exists)");
    let unknown = sentence(&run(&["topic", "show", "nowhere", "--url", &http]).await, 1);
    assert_eq!(unknown, "there is no topic nowhere (unknown_topic)");
    let name = sentence(&run(&["topic", "create", "a b", "--url", &http, "--json"]).await, 1);
    assert!(name.contains("a-z, A-Z, 0-9, '.', '_' and '-'") && name.contains("' '"), "{name}");
    let dots = sentence(&run(&["topic", "create", "..", "--url", &http]).await, 1);
    assert!(dots.contains("'.' and '..'"), "{dots}");
    let many = sentence(&run(&["topic", "create", "x", "--partitions", "1001", "--url", &http]).await, 1);
    assert_eq!(many, "partitions must be between 1 and 1000, not 1001 (invalid_setting)");

    assert_eq!(server.stop().await, 0);
    let away = sentence(&run(&["topic", "list", "--url", &http]).await, 1);
    assert!(away.contains(&server.address) && away.contains("Connection refused"), "{away}");
    assert!(away.contains("is `laneway serve` running there?"), "{away}");
}

#[tokio::test]
async fn a_broker_of_something_else_is_told_apart_from_one_that_is_away() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        while let Ok((mut stream, _)) = listener.accept().await {
            let _request = stream.read(&mut [0; 4096]).await;
            let _left = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
        }
    });
    let said = sentence(&run(&["topic", "list", "--url", &format!("http://{address}")]).await, 1);
    assert!(said.contains("is not one of a Laneway broker"), "{said}");
    let said = sentence(&run(&["topic", "list", "--url", "127.0.0.1:7420"]).await, 1);
    assert!(said.contains("is not the address of a broker: give one like ws://"), "{said}");
}

#[tokio::test]
async fn wrong_usage_exits_with_two_and_says_what_is_right() {
    for (args, words) in [
        (&[][..], "Usage: laneway [OPTIONS] <COMMAND>"),
        (&["serv"], "unrecognized subcommand 'serv'"),
        (&["topic", "create"], "<NAME>"),
        (&["topic", "create", "x", "--partitions", "many"], "invalid value 'many'"),
        (&["topic", "create", "x", "--retention-age", "long"], "invalid value 'long'"),
        (&["topic", "list", "--jsn"], "unexpected argument '--jsn'"),
        (&["bench", "append", "--rounds", "0"], "0 is not in 1..=100"),
    ] {
        let said = run(args).await;
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}");
        assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
    }
    let version = run(&["--version"]).await;
    assert_eq!((version.code, version.stdout), (0, format!("laneway {}\n", env!("CARGO_PKG_VERSION"))));
}
