//! `laneway subscribe`: formats, counts, mistakes, and what is committed when it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use laneway_client::wire::{Subprotocol, WantedSettings};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::process::{Said, laneway, run_command};
use crate::harness::socket::{Socket, subscribe};
use crate::running::{Bus, NOBODY, Running, numbers, payloads, sentence, wrong_usage};

const SUBSCRIBE: [&str; 4] = ["subscribe", "orders", "--group", "billing"];

async fn subscribed(bus: &Bus, more: &[&str]) -> Said {
    let said = bus.run(&[&SUBSCRIBE, more].concat()).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
    said
}

fn start(bus: &Bus, more: &[&str]) -> Running {
    Running::start(bus, &[&SUBSCRIBE, more].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_ends_it_with_exactly_so_many_committed_in_each_form() {
    let bus = Bus::new(1).await;
    bus.publish(0, numbers(0..10)).await;
    let raw = subscribed(&bus, &["--count", "3", "--format", "raw"]).await;
    assert_eq!((raw.stdout.as_str(), bus.committed(0).await), ("0\n1\n2\n", 3));
    let json = subscribed(&bus, &["--count", "2"]).await; // JSON where there is no terminal
    let objects: Vec<Value> = json.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((payloads(&objects), bus.committed(0).await), (numbers(3..5), 5));
    let names: Vec<&String> = objects[0].as_object().unwrap().keys().collect();
    let expected =
        ["encoding", "headers", "key", "key_encoding", "offset", "partition", "payload", "published_at"];
    assert_eq!(names, [&expected[..], &["topic", "trace_id"]].concat());
    assert_eq!((&objects[0]["key"], &objects[0]["offset"]), (&Value::Null, &3.into()));
    let pretty = subscribed(&bus, &["--count", "1", "--format", "pretty"]).await;
    assert!(pretty.stdout.starts_with("0/5  20") && pretty.stdout.ends_with("Z  5\n"), "{}", pretty.stdout);
    assert_eq!(bus.committed(0).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_base64_as_json_and_themselves_as_raw() {
    let bus = Bus::new(1).await;
    bus.run_with(&["publish", "orders"], b"\xff\xfe\n").await;
    let json = subscribed(&bus, &["--count", "1", "--no-ack", "--format", "json"]).await;
    let object: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&object["payload"], &object["encoding"]), (&"//4=".into(), &"base64".into()));
    let mut command = laneway();
    command.args(SUBSCRIBE).args(["--count", "1", "--format", "raw"]).env("LANEWAY_URL", bus.url());
    assert_eq!(command.output().await.unwrap().stdout, b"\xff\xfe\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_commits_exactly_what_was_printed_and_the_next_goes_on_there() {
    let bus = Bus::new(1).await;
    let mut first = 0;
    for (signal, many) in [(Signal::SIGINT, 7), (Signal::SIGTERM, 5)] {
        let mut running = start(&bus, &[]);
        bus.publish(0, numbers(first..first + many)).await;
        assert_eq!(payloads(&running.objects(many).await), numbers(first..first + many));
        running.signal(signal);
        assert_eq!(running.rest().await, [""; 0], "nothing more was there");
        assert_eq!((running.ended().await, running.said().as_str()), (0, ""));
        first += many;
        assert_eq!(bus.committed(0).await, first as i64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_in_the_middle_of_many_loses_none_and_repeats_none() {
    let bus = Bus::new(2).await;
    bus.publish(0, numbers(0..3_000)).await;
    bus.publish(1, numbers(0..3_000)).await;
    let mut printed: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut rounds = 0;
    while printed.values().map(Vec::len).sum::<usize>() < 6_000 {
        let mut running = start(&bus, &["--format", "json"]);
        let mut lines: Vec<String> = Vec::new();
        let left = 6_000 - printed.values().map(Vec::len).sum::<usize>();
        while lines.len() < left.min(1_500) {
            lines.push(running.line().await.unwrap());
        }
        running.signal(Signal::SIGINT);
        lines.extend(running.rest().await); // the pipe was full: it prints what it had begun, and no more
        assert_eq!((running.ended().await, running.said().as_str()), (0, ""));
        for line in &lines {
            let object: Value = serde_json::from_str(line).unwrap();
            let partition = object["partition"].as_u64().unwrap();
            printed.entry(partition).or_default().push(object["payload"].as_str().unwrap().to_owned());
        }
        for (partition, payloads) in &printed {
            assert_eq!(bus.committed(*partition as u32).await, payloads.len() as i64);
        }
        rounds += 1;
    }
    assert!(rounds > 1, "it was interrupted");
    assert!(printed.values().all(|payloads| *payloads == numbers(0..3_000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once() {
    let mut bus = Bus::new(1).await;
    bus.publish(0, numbers(0..1)).await;
    let mut running = start(&bus, &[]);
    running.objects(1).await;
    bus.server.signal(Signal::SIGSTOP); // so that nothing is confirmed
    running.signal(Signal::SIGINT);
    let since = std::time::Instant::now();
    running.signal(Signal::SIGTERM);
    let code = running.ended().await;
    let took = since.elapsed();
    bus.server.signal(Signal::SIGCONT);
    assert_eq!(bus.server.stop().await, 0);
    assert_eq!(code, 1);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_ends_it_with_what_was_written_committed() {
    let bus = Bus::new(1).await;
    bus.publish(0, numbers(0..2)).await;
    let mut running = start(&bus, &["--format", "raw"]);
    assert_eq!((running.line().await, running.line().await), (Some("0".into()), Some("1".into())));
    running.close_output();
    bus.publish(0, numbers(2..5)).await;
    assert_eq!((running.ended().await, running.said().as_str()), (0, ""));
    assert_eq!(bus.committed(0).await, 2, "what nobody could read is not acknowledged");
    assert_eq!(subscribed(&bus, &["--count", "3", "--format", "raw"]).await.stdout, "2\n3\n4\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_subscriber_says_what_its_group_is_like_and_the_next_must_agree() {
    let bus = Bus::new(1).await;
    bus.publish(0, numbers(0..2)).await;
    let settings =
        ["--ordering", "key", "--on-failure", "park", "--max-attempts", "3", "--ack-deadline", "10s"];
    assert_eq!(
        subscribed(&bus, &[&settings[..], &["--count", "1", "--format", "raw"]].concat()).await.stdout,
        "0\n"
    );
    let shown: Value =
        serde_json::from_str(&bus.run(&["group", "show", "orders", "billing", "--json"]).await.stdout)
            .unwrap();
    let has = |name: &str| shown["settings"][name].clone();
    assert_eq!((has("ordering"), has("on_failure")), ("key".into(), "park".into()), "{shown}");
    assert_eq!((has("max_attempts"), has("ack_deadline_ms")), (3.into(), 10_000.into()));
    let other = bus.run(&[&SUBSCRIBE[..], &["--ordering", "partition", "--count", "1"]].concat()).await;
    assert!(sentence(&other, 1).contains("(group_mismatch)"), "{}", other.stderr);
    assert_eq!(
        subscribed(&bus, &[&settings[..], &["--count", "1", "--format", "raw"]].concat()).await.stdout,
        "1\n"
    );
    wrong_usage(&bus.run(&[&SUBSCRIBE[..], &["--ordering", "size"]].concat()).await, "say partition or key");
}

/// An ack deadline that a test can wait for, and that a busy machine does not miss by accident.
const HASTY_MS: u64 = 1_000;

/// A group whose messages must be acknowledged soon.
async fn make_hasty_group(bus: &Bus) {
    let mut maker = Socket::connect(&bus.server.address, Subprotocol::Json).await;
    let settings = Some(WantedSettings { ack_deadline_ms: Some(HASTY_MS), ..WantedSettings::default() });
    let wanted = laneway_client::wire::Subscribe { settings, ..subscribe("billing", "orders") };
    maker.subscribe_with(wanted).await.unwrap();
    maker.close().await;
}

async fn no_deadline_is_missed(bus: &Bus) {
    tokio::time::sleep(3 * Duration::from_millis(HASTY_MS)).await; // that nothing happens is no event
    let metrics = reqwest::get(bus.server.url("/metrics")).await.unwrap().text().await.unwrap();
    let missed = metrics.lines().find(|line| line.starts_with("laneway_deadlines_missed_total")).unwrap();
    assert_eq!(missed, "laneway_deadlines_missed_total 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_slower_than_the_deadline_gets_everything_once() {
    const MANY: usize = 100;
    let bus = Bus::new(2).await;
    let texts: Vec<String> = (0..MANY).map(|number| format!("{number:04000}")).collect(); // more than a pipe holds
    bus.publish(0, texts.clone()).await;
    bus.publish(1, texts.clone()).await; // waits unread behind the other partition, and must not fail for that
    make_hasty_group(&bus).await;
    let mut running = start(&bus, &["--format", "raw", "--count", &(2 * MANY).to_string()]);
    let mut read = vec![running.line().await.unwrap()];
    no_deadline_is_missed(&bus).await;
    read.extend(running.rest().await);
    assert_eq!((running.ended().await, running.said().as_str()), (0, ""));
    read.sort_unstable();
    let mut all = [texts.clone(), texts].concat();
    all.sort_unstable();
    assert!(read == all, "{} lines", read.len());
    assert_eq!((bus.committed(0).await, bus.committed(1).await), (MANY as i64, MANY as i64));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_acks_nothing_is_committed_and_nothing_fails_however_long_it_takes() {
    let bus = Bus::new(1).await;
    bus.publish(0, numbers(0..4)).await;
    make_hasty_group(&bus).await;
    let mut running = start(&bus, &["--no-ack", "--format", "raw"]);
    assert_eq!((running.line().await.as_deref(), running.line().await.as_deref()), (Some("0"), Some("1")));
    no_deadline_is_missed(&bus).await;
    running.signal(Signal::SIGINT);
    assert_eq!(running.rest().await, ["2", "3"], "and nothing twice");
    assert_eq!(running.ended().await, 0);
    assert_eq!(bus.committed(0).await, 0);
    assert_eq!(subscribed(&bus, &["--count", "4", "--format", "raw"]).await.stdout, "0\n1\n2\n3\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_begins_where_it_is_told_and_an_old_one_goes_on_where_it_is() {
    let bus = Bus::new(1).await;
    bus.publish(0, numbers(0..5)).await;
    let from = async |group: &str, from: &str| {
        let args =
            ["subscribe", "orders", "--group", group, "--from", from, "--count", "1", "--format", "raw"];
        bus.run(&args).await
    };
    assert_eq!(from("a", "3").await.stdout, "3\n");
    assert_eq!(from("b", "earliest").await.stdout, "0\n");
    assert_eq!(from("c", "2000-01-01T00:00:00Z").await.stdout, "0\n");
    let again = from("a", "earliest").await;
    assert_eq!(again.stdout, "4\n");
    assert_eq!(
        again.stderr,
        "laneway: group a exists and goes on where it is: `laneway group seek` moves it\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_refused() {
    let bus = Bus::new(1).await;
    let asked = async |more: &[&str]| bus.run(&[&SUBSCRIBE, more].concat()).await;
    let places = "say earliest, latest, a time like 2026-11-16T06:00:00Z, or an offset";
    wrong_usage(&asked(&["--from", "yesterday"]).await, places);
    wrong_usage(&asked(&["--from", "-5"]).await, places);
    wrong_usage(&asked(&["--from", "2026-13-01T00:00:00Z"]).await, places);
    wrong_usage(&asked(&["--count", "0"]).await, "--count");
    wrong_usage(&asked(&["--format", "xml"]).await, "pretty, json, raw");
    wrong_usage(&bus.run(&["subscribe", "orders"]).await, "--group");
    let unknown = sentence(&bus.run(&["subscribe", "nowhere", "--group", "g"]).await, 1);
    assert_eq!(unknown, "there is no topic nowhere (unknown_topic)");
    let away = sentence(&run_command(laneway().args(SUBSCRIBE).args(["--url", NOBODY])).await, 1);
    assert!(away.contains(NOBODY) && away.ends_with("(is `laneway serve` running there?)"), "{away}");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_topics_patterns_and_labels_are_printed_and_topics_have_labels() {
    let bus = Bus::new(1).await;
    let ok = async |args: &[&str], input: &[u8]| {
        let said = bus.run_with(args, input).await;
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{args:?}: {}", said.stdout);
        said.stdout
    };
    ok(&["topic", "create", "orders.eu", "--label", "namespace=shop", "--label", "task=ship"], b"").await;
    ok(&["topic", "create", "orders.us", "--label", "namespace=shop"], b"").await;
    for topic in ["orders", "orders.eu", "orders.us"] {
        ok(&["publish", topic], topic.as_bytes()).await;
    }
    let printed = async |group: &str, args: &[&str], count: &str| {
        let args = [&["subscribe", "--group", group, "--format", "raw", "--count", count], args].concat();
        let mut lines: Vec<String> = ok(&args, b"").await.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(printed("a", &["orders", "orders.us"], "2").await, ["orders", "orders.us"]);
    assert_eq!(printed("b", &["--pattern", "orders.*"], "2").await, ["orders.eu", "orders.us"]);
    assert_eq!(printed("c", &["--label", "task=ship"], "1").await, ["orders.eu"]);
    let listed = ok(&["topic", "list", "--label", "namespace=shop"], b"").await;
    assert!(listed.contains("namespace=shop task=ship") && !listed.contains("orders \n"), "{listed}");
    let altered =
        ok(&["topic", "alter", "orders.eu", "--label", "task=pack", "--unlabel", "namespace"], b"").await;
    assert!(altered.contains("labels task=pack\n"), "{altered}");
    for (args, wrong) in [
        (&["subscribe", "--group", "g"][..], "required"),
        (&["subscribe", "orders", "--pattern", "o*", "--group", "g"], "cannot be used with"),
        (&["subscribe", "--label", "task", "--group", "g"], "name=value"),
        (&["topic", "create", "x", "--label", "task=a b"], "label task"),
    ] {
        let said = bus.run(args).await;
        assert!(said.code == 2 && said.stderr.contains(wrong), "{args:?}: {}", said.stderr);
    }
    let bad = bus.run(&["subscribe", "--pattern", "a**", "--group", "g"]).await;
    assert!(bad.code == 1 && bad.stderr.contains("pattern"), "{}", bad.stderr);
}
