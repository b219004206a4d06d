//! `laneway trace`: the drawing, the document, waiting for what comes, mistakes.

use laneway_client::trace::Trace;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::process::run_command;
use crate::harness::pty::{COLUMNS, OnTerminal};
use crate::running::{Bus, Running, sentence, wrong_usage};

const TRACE: &str = "0198f5a0-1c2d-7e3f-8a4b-5c6d7e8f9a0b";

/// Publishes a message of the trace over HTTP.
async fn publish(bus: &Bus, key: &str, cause: Option<i64>) {
    let mut body = json!({"payload": "an order", "key": key, "trace_id": TRACE, "partition": 0});
    if let Some(offset) = cause {
        body["cause"] = json!({"topic": "orders", "partition": 0, "offset": offset});
    }
    let url = bus.server.url("/v1/topics/orders/message");
    let answer = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_draws_the_tree_or_prints_the_document() {
    let bus = Bus::new(1).await;
    publish(&bus, "customer-17", None).await;
    publish(&bus, "an \u{1b}[31mevil key", Some(0)).await;
    publish(&bus, "customer-17", Some(1)).await;
    let said = bus.run(&["trace", TRACE, "--width", "100"]).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
    assert!(said.stdout.starts_with(&format!("trace {TRACE}\n3 messages in 1 topic, ")), "{}", said.stdout);
    for part in [
        "orders/0@0* customer-17",
        "└─ orders/0@1* an \u{fffd}[31mevil key",
        "   └─ orders/0@2*",
        "no group",
        "• published",
    ] {
        assert!(said.stdout.contains(part), "{part} in\n{}", said.stdout);
    }
    assert!(!said.stdout.contains('\u{1b}') && said.stdout.lines().all(|line| line.chars().count() <= 100));
    let simple = TRACE.replace('-', "");
    for id in [simple.as_str(), &format!("00-{simple}-b7ad6b7169203331-01")] {
        let said = bus.run(&["trace", id, "--json"]).await;
        let trace: Trace = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!((trace.trace_id.as_str(), trace.critical_path), (TRACE, vec![0, 1, 2]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_it_is_as_wide_as_that_and_in_colour() {
    const GREEN: vt100::Color = vt100::Color::Idx(2);
    const YELLOW: vt100::Color = vt100::Color::Idx(3);
    let bus = Bus::new(1).await;
    publish(&bus, "customer-17", None).await;
    let popped = bus.run(&["pop", "orders", "--group", "billing", "--count", "1"]).await;
    assert_eq!(popped.code, 0, "{}", popped.stderr);
    publish(&bus, "顧客", Some(0)).await;
    publish(&bus, "customer-17", Some(1)).await;
    let mut shown = OnTerminal::start(&["trace", TRACE, "--url", &bus.url()]);
    assert_eq!(shown.ended().await, 0);
    shown.shows("the whole drawing", |text| text.contains("* critical path")).await;
    let text = shown.text();
    let columns = |line: &str| line.chars().map(|char| 1 + usize::from("顧客".contains(char))).sum::<usize>();
    let widest = text.lines().map(columns).max();
    assert_eq!(widest, Some(usize::from(COLUMNS)), "what waits does so to the right edge:\n{text}");
    for (glyph, colour) in [("░", YELLOW), ("▌", GREEN)] {
        // The legend has no colour.
        let colours = shown.colours_of(glyph);
        let plain = colours.iter().filter(|found| **found == vt100::Color::Default).count();
        let painted = colours.iter().filter(|found| **found == colour).count();
        assert!(
            painted > 0 && plain == 1 && painted + plain == colours.len(),
            "{glyph}: {colours:?} in\n{text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_follows_what_comes() {
    let bus = Bus::new(1).await;
    let mut running = Running::start(&bus, &["trace", TRACE, "--follow", "--json"]);
    crate::harness::wait::until("it to wait", async || running.said().contains("nobody has published")).await;
    for hop in 0..3_usize {
        publish(&bus, "customer-17", hop.checked_sub(1).map(|cause| cause as i64)).await;
        let line: Value = serde_json::from_str(&running.line().await.unwrap()).unwrap();
        assert_eq!(line["hops"].as_array().unwrap().len(), hop + 1);
    }
    running.signal(Signal::SIGINT);
    running.rest().await;
    assert_eq!(running.ended().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_following_when_its_broker_comes_back() {
    let mut bus = Bus::new(1).await;
    publish(&bus, "customer-17", None).await;
    let mut running = Running::start(&bus, &["trace", TRACE, "--follow", "--json"]);
    let first: Value = serde_json::from_str(&running.line().await.unwrap()).unwrap();
    assert_eq!(first["hops"].as_array().unwrap().len(), 1);
    bus.server.kill().await;
    crate::harness::wait::until("it to notice", async || running.said().contains("does not answer")).await;
    bus.start_again().await;
    publish(&bus, "customer-17", Some(0)).await;
    let second: Value = serde_json::from_str(&running.line().await.unwrap()).unwrap();
    assert_eq!(second["hops"].as_array().unwrap().len(), 2);
    running.signal(Signal::SIGINT);
    running.rest().await;
    assert_eq!(running.ended().await, 0);
    // At an address where nobody ever answered it says so at once.
    bus.server.kill().await;
    let said = bus.run(&["trace", TRACE, "--follow"]).await;
    assert!(sentence(&said, 1).contains("no broker answers"), "{}", said.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_trace_is_said() {
    let bus = Bus::new(1).await;
    let said = bus.run(&["trace", TRACE]).await;
    let said = sentence(&said, 1);
    assert!(said.contains(&format!("no message of trace {TRACE} is stored")), "{said}");
    for id in ["nonsense", "00000000000000000000000000000000", "00-0af7"] {
        wrong_usage(&bus.run(&["trace", id]).await, "'<ID>'");
    }
}

/// The pipeline that the README ends with, as cargo has built it beside the binary.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_a_pipeline_ends_with_its_trace() {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_laneway"));
    let mut command = tokio::process::Command::new(binary.with_file_name("examples").join("order_pipeline"));
    command.stdin(std::process::Stdio::null());
    let said = run_command(&mut command).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
    for part in [
        "dead after 2 attempts: the limit of the card is exceeded",
        "7 messages in 4 topics",
        "charge acked ×2",
        "attempt 1 failed: the bank does not answer",
        "charge dead letter ×2",
        "✗",
    ] {
        assert!(said.stdout.contains(part), "{part} in\n{}", said.stdout);
    }
}
