//! Every operator command when it is asked wrongly, when the broker is away, and when the broker goes in the middle.

use std::process::Stdio;

use laneway_client::wire::Subprotocol;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dead_letters::give_up;
use crate::harness::process::{laneway, run, said};
use crate::harness::socket::Socket;
use crate::harness::{Server, TestDatabase, wait};
use crate::topics::sentence;
use crate::web::Web;

/// One of each command. In this order they all succeed, once, where [`prepare`] was; the first `REPEATABLE` of them always.
fn commands(letters: [i64; 2]) -> Vec<Vec<String>> {
    let [first, second] = letters.map(|id| id.to_string());
    let commands = [
        vec!["topic", "list"],
        vec!["topic", "show", "orders"],
        vec!["topic", "alter", "orders", "--dedup-window", "5m"],
        vec!["group", "list"],
        vec!["group", "show", "orders", "billing"],
        vec!["group", "alter", "orders", "billing", "--max-attempts", "9"],
        vec!["group", "seek", "orders", "billing", "--to", "latest"],
        vec!["lane", "list"],
        vec!["dead", "list"],
        vec!["dead", "show", &first],
        vec!["dead", "replay", &first],
        vec!["dead", "drop", &second, "--yes"],
        vec!["topic", "create", "audit"],
        vec!["group", "delete", "orders", "billing", "--yes"],
        vec!["topic", "delete", "orders", "--yes"],
    ];
    commands.into_iter().map(|args| args.into_iter().map(str::to_owned).collect()).collect()
}

const REPEATABLE: usize = 10;

/// A topic with messages, a group without members, two dead letters.
async fn prepare(database: &TestDatabase, server: &Server) -> [i64; 2] {
    let web = Web::new(server);
    web.create(json!({"name": "orders"})).await;
    web.publish("orders", json!([{"payload": "a"}, {"payload": "b"}])).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    socket.subscribe("billing", "orders").await;
    socket.close().await;
    let members = "SELECT count(*) FROM laneway.member";
    wait::until("the member to leave", async || database.number(members).await == 0).await;
    [give_up(database, "orders", "billing", 0, 0).await, give_up(database, "orders", "billing", 0, 1).await]
}

fn with_url<'a>(args: &'a [String], url: &'a str) -> Vec<&'a str> {
    args.iter().map(String::as_str).chain(["--url", url]).collect()
}

/// A broker where another one was.
async fn serve_again(address: &str, database: &TestDatabase) -> Server {
    let mut command = laneway();
    command.args(["serve", "--listen", address, "--database-url", &database.url]);
    Server::spawn_command(&mut command).listening().await
}

/// Connections to a port of this machine that are open on our side.
fn connected(address: &str) -> usize {
    let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let remote = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields[2].ends_with(&remote) && fields[3] == "01").count()
}

#[tokio::test]
async fn without_a_broker_every_command_says_so() {
    for args in commands([1, 2]) {
        for json in [&[][..], &["--json"]] {
            let args = [&with_url(&args, "http://127.0.0.1:1"), json].concat();
            let away = sentence(&run(&args).await, 1);
            assert!(away.contains("no broker answers at http://127.0.0.1:1/"), "{args:?}: {away}");
            assert!(away.contains("is `laneway serve` running there?"), "{args:?}: {away}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_refuses_is_a_sentence_with_its_code() {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    prepare(&database, &server).await;
    let url = server.url("");
    for (args, code) in [
        (&["topic", "create", "orders"][..], "topic_exists"),
        (&["topic", "create", "a/b"], "invalid_topic_name"),
        (&["topic", "create", "x", "--partitions", "0"], "invalid_setting"),
        (&["topic", "show", "nowhere"], "unknown_topic"),
        (&["topic", "show", "a b"], "invalid_topic_name"),
        (&["topic", "alter", "nowhere", "--partitions", "2"], "unknown_topic"),
        (&["topic", "alter", "orders", "--payload-bytes-max", "0"], "invalid_setting"),
        (&["topic", "delete", "nowhere", "--yes"], "unknown_topic"),
        (&["group", "list", "--topic", "nowhere"], "unknown_topic"),
        (&["group", "show", "orders", "nobody"], "unknown_group"),
        (&["group", "show", "orders", "a b"], "invalid_group_name"),
        (&["group", "alter", "orders", "billing", "--max-attempts", "0"], "invalid_setting"),
        (&["group", "seek", "orders", "nobody", "--to", "latest"], "unknown_group"),
        (&["group", "seek", "orders", "billing", "--to", "0", "--partition", "7"], "partition_out_of_range"),
        (&["group", "delete", "orders", "nobody", "--yes"], "unknown_group"),
        (&["lane", "list", "--topic", "nowhere"], "unknown_topic"),
        (&["lane", "list", "--group", "a b"], "invalid_group_name"),
        (&["dead", "list", "--topic", "nowhere"], "unknown_topic"),
        (&["dead", "list", "--limit", "0"], "malformed"),
        (&["dead", "show", "999999"], "unknown_dead_letter"),
        (&["dead", "replay", "999999"], "unknown_dead_letter"),
        (&["dead", "drop", "999999", "--yes"], "unknown_dead_letter"),
        (&["dead", "replay", "--group", "a b", "--all"], "invalid_group_name"),
    ] {
        let refused = sentence(&run(&[args, &["--url", &url]].concat()).await, 1);
        assert!(refused.ends_with(&format!("({code})")), "{args:?}: {refused}");
    }
}

#[tokio::test]
async fn what_no_broker_could_do_is_wrong_usage() {
    for (args, words) in [
        (&["topic", "show"][..], "<NAME>"),
        (&["topic", "list", "orders"], "unexpected argument 'orders'"),
        (&["topic", "create", "x", "--dedup-window", "long"], "invalid value 'long'"),
        (&["topic", "alter", "orders", "--retention-age", "soon"], "invalid value 'soon'"),
        (&["topic", "delete"], "<NAME>"),
        (&["group", "list", "orders"], "unexpected argument 'orders'"),
        (&["group", "delete", "orders"], "<GROUP>"),
        (&["group", "seek", "orders", "billing", "--to", "1", "--partition", "-1"], "unexpected argument"),
        (&["lane", "list", "--partition", "1"], "unexpected argument '--partition'"),
        (&["lane"], "Usage: laneway lane"),
        (&["dead", "list", "--limit", "few"], "invalid value 'few'"),
        (&["dead", "show"], "<ID>"),
    ] {
        let said = run(args).await;
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{args:?}");
        assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
    }
}

/// The broker is frozen, takes every request without an answer, and dies: nothing happened, and everything works afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_under_a_command_is_told_and_the_same_command_succeeds_afterwards() {
    let database = TestDatabase::new().await;
    let mut server = Server::on_database(&database.url).await;
    let commands = commands(prepare(&database, &server).await);
    let (address, url) = (server.address.clone(), server.url(""));
    server.signal(Signal::SIGSTOP);
    let mut running = JoinSet::new();
    for args in commands.clone() {
        let url = url.clone();
        running.spawn(async move { (run(&with_url(&args, &url)).await, args) });
    }
    wait::until("every command to have connected", async || connected(&address) >= commands.len()).await;
    server.kill().await;
    for (said, args) in running.join_all().await {
        let told = sentence(&said, 1);
        assert!(told.starts_with(&format!("no broker answers at {url}/: ")), "{args:?}: {told}");
    }
    let _server = serve_again(&address, &database).await;
    for args in &commands {
        let said = run(&with_url(args, &url)).await;
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{args:?}: {}", said.stdout);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn during_a_restart_a_command_succeeds_or_says_why_not() {
    let database = TestDatabase::new().await;
    let mut server = Server::on_database(&database.url).await;
    let letters = prepare(&database, &server).await;
    let (address, url) = (server.address.clone(), server.url(""));
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    for args in commands(letters).into_iter().take(REPEATABLE) {
        let (url, stop) = (url.clone(), stop.clone());
        running.spawn(async move {
            let (mut done, mut failed) = (0, 0);
            while !stop.is_cancelled() {
                let said = run(&with_url(&args, &url)).await;
                match said.code {
                    0 => done += 1,
                    _ => {
                        assert!(!sentence(&said, 1).is_empty(), "{args:?}");
                        failed += 1;
                    }
                }
            }
            (done, failed)
        });
    }
    assert_eq!(server.stop().await, 0);
    let _server = serve_again(&address, &database).await;
    stop.cancel();
    let (done, failed) = running.join_all().await.into_iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    assert!(done + failed >= REPEATABLE, "{done} and {failed}");
    for args in commands(letters) {
        let said = run(&with_url(&args, &url)).await;
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{args:?}: {}", said.stdout);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_has_gone_away_ends_a_command_without_a_panic() {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    for args in [&["topic", "list"][..], &["topic", "list", "--json"], &["lane", "list"]] {
        let mut command = laneway();
        command.args(args).args(["--url", &format!("ws://{}/v1/ws", server.address)]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take()); // as `| head -0` does
        let said = said(child.wait_with_output().await.unwrap());
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{args:?}");
    }
}
