//! How a broker on a private PostgreSQL starts, ends, is killed, and comes back.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::harness::process::{laneway, run_command};
use crate::harness::{Server, TestDatabase, wait};
use crate::home::{Home, gone, is_alive};
use crate::web::{Answer, Web, text};

const FAST_SHUTDOWN: &str = "received fast shutdown request";

/// Publishes one message at a time; every one of them is acknowledged when this returns.
async fn publish(web: &Web, range: std::ops::Range<usize>) {
    for number in range {
        web.publish("orders", json!([{"payload": format!("m{number}")}])).await;
    }
}

async fn assert_stored(web: &Web, messages: usize) {
    let texts: Vec<_> = web.all("orders", 0).await.iter().map(text).collect();
    assert_eq!(texts, (0..messages).map(|number| format!("m{number}")).collect::<Vec<_>>());
}

/// A publish whose body is still on its way: the broker has to wait for the rest.
struct Unfinished {
    stream: TcpStream,
    rest: &'static str,
}

impl Unfinished {
    async fn begin(server: &Server) -> Self {
        let body = r#"{"messages": [{"payload": "late"}]}"#;
        let (front, rest) = body.split_at(10);
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        let head = format!(
            "POST /v1/topics/orders/messages HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            server.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The broker asks for the body, so the request is under way.
        let mut answer = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&answer));
        stream.write_all(front.as_bytes()).await.unwrap();
        Self { stream, rest }
    }

    /// Sends the rest and returns the answer.
    async fn finish(mut self) -> String {
        self.stream.write_all(self.rest.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _closed = self.stream.read_to_string(&mut answer).await;
        answer
    }
}

#[tokio::test]
async fn sigterm_ends_the_broker_and_then_its_postgres_in_order() {
    let home = Home::new();
    let mut server = home.serve().await;
    let web = Web::new(&server);
    web.create(json!({"name": "orders"})).await;
    publish(&web, 0..3).await;
    let postmaster = home.postmaster().expect("a postmaster runs");
    // Somebody who connects and says nothing must not hold up the end.
    let _silent = TcpStream::connect(&server.address).await.unwrap();
    let began = Instant::now();
    assert_eq!(server.stop().await, 0, "{}", server.log().join("\n"));
    assert!(began.elapsed() < Duration::from_secs(10), "the end took {:?}", began.elapsed());
    assert!(!is_alive(postmaster), "PostgreSQL must be gone before the broker is");
    let log = home.postgres_log();
    assert_eq!(log.matches(FAST_SHUTDOWN).count(), 1, "{log}");
    assert!(log.contains("database system is shut down"), "{log}");
    // The next start needs no recovery.
    let mut server = home.serve().await;
    assert_stored(&Web::new(&server), 3).await;
    assert!(!home.postgres_log().contains("was not properly shut down"));
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn ctrl_c_reaches_the_broker_only_and_a_request_under_way_is_answered() {
    let home = Home::new();
    let mut server = home.serve_in_group().await;
    Web::new(&server).create(json!({"name": "orders"})).await;
    let unfinished = Unfinished::begin(&server).await;
    let postmaster = home.postmaster().expect("a postmaster runs");
    killpg(server.pid(), Signal::SIGINT).unwrap(); // what a terminal does
    server.logged("stopping").await;
    // PostgreSQL works on: it did not get the signal.
    home.raw().await.batch_execute("SELECT 1").await.unwrap();
    assert!(is_alive(postmaster) && !home.postgres_log().contains(FAST_SHUTDOWN));
    let answer = unfinished.finish().await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""offset":0"#), "{answer}");
    assert_eq!(server.ended().await, 0);
    assert!(!is_alive(postmaster));
    assert_eq!(home.postgres_log().matches(FAST_SHUTDOWN).count(), 1);
    let mut server = home.serve().await;
    assert_eq!(text(&Web::new(&server).all("orders", 0).await[0]), "late");
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn a_second_sigterm_ends_at_once_and_the_next_broker_adopts_postgres() {
    let home = Home::new();
    let mut server = home.serve().await;
    let web = Web::new(&server);
    web.create(json!({"name": "orders"})).await;
    publish(&web, 0..3).await;
    let unfinished = Unfinished::begin(&server).await;
    let postmaster = home.postmaster().expect("a postmaster runs");
    server.signal(Signal::SIGTERM);
    server.logged("stopping").await;
    let began = Instant::now();
    assert_eq!(server.stop().await, 1);
    assert!(began.elapsed() < Duration::from_secs(5), "the end took {:?}", began.elapsed());
    server.logged("told twice").await;
    drop(unfinished);
    assert!(is_alive(postmaster));
    let mut server = home.serve().await;
    assert_eq!(home.postmaster(), Some(postmaster));
    server.logged("adopting").await;
    assert_stored(&Web::new(&server), 3).await;
    assert_eq!(server.stop().await, 0);
    assert!(!is_alive(postmaster), "an adopted server is stopped like an own one");
}

#[tokio::test]
async fn postgres_outlives_a_killed_broker_and_every_acknowledged_message_is_there() {
    let home = Home::new();
    let mut server = home.serve().await;
    let web = Web::new(&server);
    web.create(json!({"name": "orders"})).await;
    publish(&web, 0..50).await;
    let postmaster = home.postmaster().expect("a postmaster runs");
    server.kill().await;
    assert!(is_alive(postmaster));
    let mut server = home.serve().await;
    assert_eq!(home.postmaster(), Some(postmaster));
    let web = Web::new(&server);
    assert_stored(&web, 50).await;
    publish(&web, 50..60).await;
    assert_stored(&web, 60).await;
    assert_eq!(server.stop().await, 0);
    gone(postmaster).await;
}

#[tokio::test]
async fn a_killed_postgres_comes_back_by_itself_and_readiness_tells_both() {
    let home = Home::new();
    let mut server = home.serve().await;
    let web = Web::new(&server);
    web.create(json!({"name": "orders"})).await;
    publish(&web, 0..50).await;
    assert_stored(&web, 50).await; // readers have connections now
    let postmaster = home.postmaster().expect("a postmaster runs");
    kill(postmaster, Signal::SIGKILL).unwrap();
    wait::until("readiness to tell of the trouble", async || {
        // One that is asked at the very moment waits for the server; the next is told.
        let asked = web.http.get(web.url("/readyz")).timeout(Duration::from_millis(50)).send().await;
        match asked {
            Ok(response) if response.status() != 200 => {
                let problem = Answer::of(response).await.problem();
                assert_eq!((problem.status, problem.code.as_str()), (503, "unavailable"));
                true
            }
            Ok(_) | Err(_) => false,
        }
    })
    .await;
    assert_eq!(web.get("/healthz").await.status, 200);
    wait::until("readiness", async || web.get("/readyz").await.status == 200).await;
    assert_ne!(home.postmaster(), Some(postmaster));
    // Nobody has to ask twice: connections that died with the server are not handed out again.
    assert_stored(&web, 50).await;
    publish(&web, 50..60).await;
    assert_stored(&web, 60).await;
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn a_second_broker_on_the_same_directory_is_refused_and_the_first_works_on() {
    let home = Home::new();
    let mut server = home.serve().await;
    let postmaster = home.postmaster();
    let mut second = laneway();
    let second = second.args(["serve", "--listen", "127.0.0.1:0"]).args(home.arguments());
    let second = run_command(second).await;
    assert_eq!(second.code, 1, "{}", second.stderr);
    let sentence = second.stderr.lines().last().unwrap();
    assert!(sentence.starts_with("laneway: The data directory "), "{sentence}");
    assert!(sentence.contains(&format!("(pid {})", server.pid())), "{sentence}");
    assert!(sentence.contains(home.data_dir().to_str().unwrap()), "{sentence}");
    assert_eq!(home.postmaster(), postmaster);
    assert_eq!(Web::new(&server).get("/readyz").await.status, 200);
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn a_broker_whose_log_nobody_reads_any_more_works_on() {
    let database = TestDatabase::new().await;
    let mut command = laneway();
    command.args(["serve", "--listen", "127.0.0.1:0", "--database-url", &database.url]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = loop {
        let line = lines.next_line().await.unwrap().expect("it says where it listens");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if let Some(address) = event["address"].as_str() {
            break address.to_owned();
        }
    };
    drop(lines); // as `laneway serve 2>&1 | head` does
    let mut server = Server { child, address, log: Arc::default() };
    let web = Web::new(&server);
    web.create(json!({"name": "orders"})).await; // which is logged
    publish(&web, 0..3).await;
    assert_stored(&web, 3).await;
    assert_eq!(server.stop().await, 0);
}
