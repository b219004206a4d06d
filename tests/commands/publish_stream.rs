//! `laneway publish` with an input that goes on: restarts in the middle, Ctrl-C, more than fits into memory.

use nix::sys::signal::Signal;
use tokio::io::AsyncWriteExt as _;

use crate::harness::wait;
use crate::running::{Bus, Running, numbers};

const LINES: usize = 20_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_in_the_middle_leaves_one_copy_each_in_order() {
    let mut bus = Bus::new(2).await;
    let mut publishing = Running::start(&bus, &["publish", "orders", "--partition", "1", "--json"]);
    let mut input = publishing.input.take().unwrap();
    let feeding = tokio::spawn(async move {
        for chunk in numbers(0..LINES).chunks(100) {
            input.write_all((chunk.join("\n") + "\n").as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    wait::until("some to be stored", async || bus.count().await > 0).await;
    bus.crash_and_restart().await;
    feeding.await.unwrap();
    let summary = publishing.rest().await.join("\n");
    assert_eq!(publishing.ended().await, 0, "{}", publishing.said());
    let stored: Vec<String> =
        bus.stored(1).await.into_iter().map(|payload| String::from_utf8(payload).unwrap()).collect();
    assert_eq!(stored.len(), LINES);
    assert_eq!(stored, numbers(0..LINES));
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["messages"], LINES);
    assert_eq!(summary["partitions"][0]["first_offset"], 0);
    assert_eq!(summary["partitions"][0]["last_offset"], LINES - 1);
    let said = publishing.said();
    assert!(said.contains("laneway: connection lost, trying again: "), "{said}");
    assert!(said.contains("laneway: the connection is back\n"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_the_input_and_what_was_read_is_published() {
    let bus = Bus::new(1).await;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let before = bus.count().await;
        let mut publishing = Running::start(&bus, &["publish", "orders"]);
        let input = publishing.input.as_mut().unwrap();
        input.write_all(b"one\ntwo\nthree\nhalf a li").await.unwrap();
        wait::until("the lines to be stored", async || bus.count().await == before + 3).await;
        publishing.signal(signal);
        let said = publishing.rest().await;
        assert_eq!((publishing.ended().await, publishing.said().as_str()), (0, ""));
        assert_eq!(said[0], "3 messages in topic orders");
        assert_eq!(bus.count().await, before + 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_while_the_broker_is_away_ends_soon_and_says_what_is_not_known() {
    let mut bus = Bus::new(1).await;
    let mut publishing = Running::start(&bus, &["publish", "orders", "--json"]);
    let mut input = publishing.input.take().unwrap();
    input.write_all(b"one\n").await.unwrap();
    wait::until("a line to be stored", async || bus.count().await == 1).await;
    bus.server.kill().await;
    publishing.says("connection lost").await;
    input.write_all("more\n".repeat(50_000).as_bytes()).await.unwrap(); // more than a pipe holds: some of it is read
    publishing.signal(Signal::SIGINT);
    let summary: serde_json::Value = serde_json::from_str(&publishing.rest().await.join("\n")).unwrap();
    assert_eq!(publishing.ended().await, 1);
    let (messages, unknown) = (summary["messages"].as_u64().unwrap(), summary["unknown"].as_u64().unwrap());
    assert!(messages <= 1 && unknown > 0, "{summary}");
    assert_eq!(bus.count().await, 1);
    assert!(
        publishing.said().contains("laneway: stopped: not every receipt came in time"),
        "{}",
        publishing.said()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_larger_than_its_memory_streams_through() {
    const MEGABYTES: usize = 192;
    let bus = Bus::new(1).await;
    let mut publishing = Running::start(&bus, &["publish", "orders", "--json"]);
    let mut input = publishing.input.take().unwrap();
    let line = [vec![b'x'; (128 << 10) - 1], vec![b'\n']].concat();
    for _ in 0..MEGABYTES * 8 {
        input.write_all(&line).await.unwrap();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", publishing.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kilobytes: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    drop(input);
    let summary: serde_json::Value = serde_json::from_str(&publishing.rest().await.join("\n")).unwrap();
    assert_eq!(publishing.ended().await, 0, "{}", publishing.said());
    assert_eq!(summary["messages"], MEGABYTES * 8);
    assert!(peak_kilobytes < 128 << 10, "{peak_kilobytes} kB at its peak, for {MEGABYTES} MB of input");
}
