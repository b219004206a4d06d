//! `laneway tail`: places, filters, mistakes, and a broker that restarts in the middle.

use nix::sys::signal::Signal;

use crate::harness::process::{Said, laneway, run_command};
use crate::running::{Bus, NOBODY, Running, numbers, payloads, sentence, wrong_usage};

async fn tailed(bus: &Bus, more: &[&str]) -> Said {
    let said = bus.run(&[&["tail", "orders", "--format", "raw"], more].concat()).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn it_prints_what_is_asked_for_and_commits_nothing() {
    let bus = Bus::new(1).await;
    let trace = "0198f5a01c2d7e3f8a4b5c6d7e8f9a0b";
    bus.run_with(&["publish", "orders", "--key", "a"], b"1\n2\n").await;
    bus.run_with(&["publish", "orders", "--key", "b", "--trace", trace], b"3\n4\n").await;
    bus.run_with(&["publish", "orders", "--key", "a", "--trace", trace], b"5\n").await;
    let earliest = ["--from", "earliest"];
    assert_eq!(
        tailed(&bus, &[&earliest[..], &["--key", "a", "--count", "3"]].concat()).await.stdout,
        "1\n2\n5\n"
    );
    assert_eq!(tailed(&bus, &[&earliest[..], &["--key", "b", "--count", "1"]].concat()).await.stdout, "3\n");
    let both =
        tailed(&bus, &[&earliest[..], &["--key", "a", "--trace", trace, "--count", "1"]].concat()).await;
    assert_eq!(both.stdout, "5\n");
    assert_eq!(tailed(&bus, &["--from", "2", "--count", "1"]).await.stdout, "3\n");
    let since = tailed(&bus, &["--from", "2000-01-01T00:00:00Z", "--trace", trace, "--count", "3"]).await;
    let mut lines: Vec<&str> = since.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["3", "4", "5"]);
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.lane_commit").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_place_it_begins_with_what_comes() {
    let bus = Bus::new(1).await;
    bus.publish(0, numbers(0..3)).await;
    let mut running = Running::start(&bus, &["tail", "orders", "--format", "json"]);
    let metrics = bus.server.url("/metrics");
    crate::harness::wait::until("the tail to be there", async || {
        let metrics = reqwest::get(&metrics).await.unwrap().text().await.unwrap();
        metrics.lines().any(|line| line == "laneway_sessions 1")
    })
    .await;
    let mut number = 3;
    let first = loop {
        bus.publish(0, numbers(number..number + 1)).await;
        number += 1;
        let line = tokio::time::timeout(std::time::Duration::from_secs(1), running.line()).await;
        if let Ok(line) = line {
            break line.unwrap();
        }
    };
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert!(first["offset"].as_i64().unwrap() >= 3, "{first}");
    running.signal(Signal::SIGTERM);
    running.rest().await;
    assert_eq!((running.ended().await, running.said().as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_ends_it() {
    let bus = Bus::new(1).await;
    bus.publish(0, numbers(0..1)).await;
    let mut running = Running::start(&bus, &["tail", "orders", "--from", "earliest"]);
    running.objects(1).await;
    running.close_output();
    bus.publish(0, numbers(1..2)).await;
    assert_eq!((running.ended().await, running.said().as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_refused() {
    let bus = Bus::new(1).await;
    let asked = async |more: &[&str]| bus.run(&[&["tail", "orders"], more].concat()).await;
    wrong_usage(&asked(&["--from", "soon"]).await, "say earliest, latest, a time like");
    wrong_usage(&asked(&["--trace", "17"]).await, "--trace");
    wrong_usage(&asked(&["--count", "none"]).await, "--count");
    wrong_usage(&bus.run(&["tail"]).await, "<TOPIC>");
    let unknown = sentence(&bus.run(&["tail", "nowhere"]).await, 1);
    assert_eq!(unknown, "there is no topic nowhere (unknown_topic)");
    let away = sentence(&run_command(laneway().args(["tail", "orders", "--url", NOBODY])).await, 1);
    assert!(away.contains(NOBODY) && away.ends_with("(is `laneway serve` running there?)"), "{away}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_takes_connections_and_says_nothing_is_given_up_in_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/v1/ws", silent.local_addr().unwrap());
    let since = std::time::Instant::now();
    let away = sentence(&run_command(laneway().args(["tail", "orders", "--url", &url])).await, 1);
    assert!(away.contains("it took too long"), "{away}");
    assert!(since.elapsed() < std::time::Duration::from_secs(20), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_in_the_middle_leaves_no_gap_and_no_repetition() {
    let mut bus = Bus::new(1).await;
    bus.publish(0, numbers(0..3_000)).await;
    let mut running = Running::start(&bus, &["tail", "orders", "--from", "earliest", "--format", "json"]);
    let mut seen = running.objects(500).await;
    bus.crash_and_restart().await;
    bus.publish(0, numbers(3_000..3_100)).await;
    seen.extend(running.objects(2_600).await);
    assert_eq!(payloads(&seen), numbers(0..3_100));
    running.says("laneway: connection lost, trying again: ").await;
    running.says("laneway: the connection is back").await;
    running.signal(Signal::SIGINT);
    assert_eq!((running.rest().await.len(), running.ended().await), (0, 0));
}
