//! `laneway top` on a real terminal, and as a picture in a pipe.

use laneway::top::terminal::FullScreen;
use laneway_client::wire::Subprotocol;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::harness::process::{laneway, run};
use crate::harness::pty::OnTerminal;
use crate::harness::socket::Socket;
use crate::harness::{Server, TestDatabase};
use crate::topics::{document, sentence};
use crate::web::Web;

async fn server() -> (TestDatabase, Server, Web) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    (database, server, web)
}

/// The cells of the row that begins with a name.
fn row(text: &str, name: &str) -> Option<Vec<String>> {
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    text.lines().map(cells).find(|cells| cells.first().is_some_and(|first| first == name))
}

/// Whether a topic has a rate above zero, after at least one second look.
fn has_rate(text: &str, topic: &str) -> bool {
    let rate = row(text, topic).and_then(|cells| cells.last()?.strip_suffix("/s")?.parse::<f64>().ok());
    rate.is_some_and(|rate| rate > 0.0)
}

/// Publishes for as long as it is not told to stop, whether the broker is there or not.
fn publisher(web: &Web, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
    let (web, stop) = (web.clone(), stop.clone());
    tokio::spawn(async move {
        let body = json!({"messages": [{"payload": "m"}]});
        while !stop.is_cancelled() {
            let sent = web.http.post(web.url("/v1/topics/orders/messages")).json(&body).send().await;
            if sent.is_err() {
                tokio::task::yield_now().await; // nobody is there: the next try finds out
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_rates_and_outlives_a_restart_of_the_broker_and_gives_the_terminal_back() {
    let (database, mut server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    socket.subscribe("billing", "orders").await;
    let address = server.address.clone();
    let stop = CancellationToken::new();
    let publishing = publisher(&web, &stop);

    let mut top = OnTerminal::start(&["top", "--interval", "200ms", "--url", &server.url("")]);
    top.shows("a rate", |text| has_rate(text, "orders")).await;
    top.shows("the lag", |text| {
        let group = text.lines().find(|line| line.contains("billing"));
        group.is_some_and(|line| line.split_whitespace().nth(4).is_some_and(|lag| lag != "0"))
    })
    .await;
    assert!(top.text().contains("1 held") && top.text().contains("alive, ttl"), "{}", top.text());
    assert!(!top.is_restored(), "it has the terminal");

    server.kill().await;
    top.shows("that the broker is away", |text| text.contains("broker away for")).await;
    assert!(row(&top.text(), "orders").is_some(), "what was seen stays:\n{}", top.text());
    let mut command = laneway();
    command.args(["serve", "--listen", &address, "--database-url", &database.url]);
    let _server = Server::spawn_command(&mut command).listening().await;
    top.shows("that it is back", |text| !text.contains("broker away") && has_rate(text, "orders")).await;

    top.type_keys("s");
    top.shows("another order", |text| text.contains("by rate")).await;
    top.type_keys("\t");
    top.shows("another table", |text| text.contains(">groups")).await;
    top.type_keys("q");
    assert_eq!(top.ended().await, 0);
    top.shows("a terminal as before", |_| top.is_restored()).await;
    stop.cancel();
    publishing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_out_gives_the_terminal_back() {
    let (_database, server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    let start = async || {
        let top = OnTerminal::start(&["top", "--url", &server.url("")]);
        top.shows("the topic", |text| row(text, "orders").is_some()).await;
        top
    };
    for key in ["q", "\x1b", "\x03"] {
        let mut top = start().await;
        top.type_keys(key);
        assert_eq!(top.ended().await, 0, "{key:?}");
        top.shows("a terminal as before", |_| top.is_restored()).await;
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let mut top = start().await;
        kill(Pid::from_raw(top.child.id().unwrap() as i32), signal).unwrap();
        assert_eq!(top.ended().await, 0, "{signal}");
        top.shows("a terminal as before", |_| top.is_restored()).await;
    }
}

#[tokio::test]
async fn a_panic_gives_the_terminal_back_before_it_says_why() {
    let this = std::env::current_exe().unwrap();
    let name = "top::a_process_that_panics_with_the_terminal_in_its_hands";
    let args = ["--ignored", "--exact", name, "--nocapture", "--test-threads=1"];
    let mut process = OnTerminal::start_program(this.as_os_str(), &args);
    assert_ne!(process.ended().await, 0);
    process.shows("why", |text| text.contains("on purpose")).await;
    assert!(process.is_restored(), "{}", process.text());
}

#[test]
#[ignore = "run by another test, on a terminal of its own"]
fn a_process_that_panics_with_the_terminal_in_its_hands() {
    let screen = FullScreen::enter().unwrap();
    std::mem::forget(screen); // so that only the panic itself can give it back
    panic!("on purpose");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_it_is_one_picture() {
    let (_database, server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 2})).await;
    let messages = (0..6).map(|n| json!({"payload": "m", "partition": n % 2})).collect();
    web.publish("orders", messages).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    socket.subscribe("billing", "orders").await;
    let url = server.url("");
    let look = ["top", "--interval", "100ms", "--url", &url];
    let said = run(&look).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert_eq!(row(&said.stdout, "orders").unwrap(), ["orders", "2", "6", "0.0/s"]);
    for words in ["GROUP", "billing", "LANES", "BROKER", "alive, ttl"] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    let view = document(&run(&[&look[..], &["--json"]].concat()).await);
    assert_eq!(view["topics"][0], json!({"topic": "orders", "partitions": 2, "published": 6, "rate": 0.0}));
    assert_eq!((&view["groups"][0]["lag_messages"], &view["groups"][0]["rate"]), (&json!(6), &json!(0.0)));
    assert!(view["groups"][0]["lag_seconds"].as_f64().unwrap() > 0.0, "{view}");
    assert_eq!((&view["lanes"]["held"], &view["brokers"][0]["alive"]), (&json!(2), &json!(true)));

    let mut once = OnTerminal::start(&[&look[..], &["--once"]].concat());
    assert_eq!(once.ended().await, 0);
    once.shows("a table", |text| row(text, "orders").is_some()).await;
    assert!(once.is_restored());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_topics_the_first_are_shown_and_that_is_said() {
    let (_database, server, web) = server().await;
    for n in 0..33 {
        web.create(json!({"name": format!("t{n:02}")})).await;
    }
    let said = run(&["top", "--interval", "100ms", "--url", &server.url("")]).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, "only the first 32 topics are shown\n"));
    assert!(row(&said.stdout, "t31").is_some() && row(&said.stdout, "t32").is_none(), "{}", said.stdout);
    let view: Value =
        document(&run(&["top", "--interval", "100ms", "--json", "--url", &server.url("")]).await);
    assert_eq!(view["notes"], json!(["only the first 32 topics are shown"]));
}

#[tokio::test]
async fn a_broker_that_is_away_at_the_start_is_one_sentence() {
    let away = sentence(&run(&["top", "--url", "http://127.0.0.1:1"]).await, 1);
    assert!(away.contains("is `laneway serve` running there?"), "{away}");
    let mut top = OnTerminal::start(&["top", "--url", "http://127.0.0.1:1"]);
    assert_eq!(top.ended().await, 1);
    top.shows("why", |text| text.starts_with("laneway: no broker answers at http://127.0.0.1:1/")).await;
    assert!(top.is_restored());
    for (args, words) in
        [(["top", "--interval", "1ms"], "at least 100ms"), (["top", "--interval", "x"], "invalid")]
    {
        let said = run(&args).await;
        assert!(said.code == 2 && said.stderr.contains(words), "{}", said.stderr);
    }
}
