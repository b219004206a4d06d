//! `laneway bench`: one document, and nothing left behind, however it ends.

use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::Command;

use crate::harness::process::{directory, laneway, run, run_command, said};
use crate::harness::{TestDatabase, source, wait};
use crate::home::processes_of;

const SHORT: [&str; 5] = ["--rounds", "1", "--seconds", "1", "--json"];

fn positive(document: &Value, name: &str) -> f64 {
    let value = document[name].as_f64().unwrap_or_else(|| panic!("{name} in {document}"));
    assert!(value > 0.0, "{name} is {value}");
    value
}

#[tokio::test]
async fn heavy_append_is_measured_against_the_limit_of_a_given_database() {
    let database = TestDatabase::empty().await;
    let said = run(&[["bench", "append", "--url", &database.url].as_slice(), &SHORT].concat()).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let document: Value = serde_json::from_str(&said.stdout).expect("one document");
    let (limit, rate, ratio) =
        (positive(&document, "limit"), positive(&document, "rate"), positive(&document, "ratio"));
    assert!((rate / limit - ratio).abs() < 0.001, "one round: {rate} / {limit} is {ratio}");
    let left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'laneway_limit%'";
    assert_eq!(database.number(left).await, 0, "the tables of the limit are gone");
}

#[tokio::test]
async fn heavy_a_given_database_can_be_measured_twice_and_keeps_no_topics() {
    let database = TestDatabase::empty().await;
    for _ in 0..2 {
        let said = run(&[["bench", "publish", "--url", &database.url].as_slice(), &SHORT].concat()).await;
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
        let topics = "SELECT count(*) FROM laneway.topic WHERE deleted_at IS NULL";
        assert_eq!(database.number(topics).await, 0, "the topics of the measurement are gone");
    }
}

#[tokio::test]
async fn heavy_all_goes_on_after_a_failure_names_it_and_ends_with_the_table() {
    let database = TestDatabase::empty().await;
    // The limit cannot make its table: what is measured against it fails, and the rest does not.
    database.raw().await.batch_execute("CREATE SEQUENCE laneway_limit_0").await.unwrap();
    let args = ["bench", "all", "--only", "publish,singles", "--url", &database.url];
    let said = run(&[args.as_slice(), &SHORT].concat()).await;
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("publish could not be measured: "), "{}", said.stderr);
    assert!(said.stderr.contains("not measured: publish"), "{}", said.stderr);
    let document: Value = serde_json::from_str(&said.stdout).expect("one document");
    assert_eq!(document["failures"][0]["bench"], "publish");
    assert_eq!(document["benches"].as_array().unwrap().len(), 1);
    assert_eq!(document["verdicts"][0]["what"], "singles: 64 producers");
}

/// One short round of a measurement that starts everything itself: brokers, producers and consumers as processes.
async fn measured(what: &[&str]) -> Value {
    let temp = directory();
    let said = run_command(&mut private(temp.path(), &[what, SHORT.as_slice()].concat())).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{what:?}");
    assert_nothing_left(temp.path());
    serde_json::from_str(&said.stdout).expect("one document")
}

#[tokio::test]
async fn heavy_publishes_deliveries_and_steps_of_a_flood_are_counted_when_they_are_committed() {
    for what in ["publish", "e2e", "fanout"] {
        let document = measured(&[what]).await;
        let (limit, rate, ratio) =
            (positive(&document, "limit"), positive(&document, "rate"), positive(&document, "ratio"));
        assert!((rate / limit - ratio).abs() < 0.001, "{what}: one round: {rate} / {limit} is {ratio}");
        assert!(positive(&document, "commits_per_message") < 0.5, "{what}: many messages share a commit");
        positive(&document, "rss_mb");
        let verdict = &document["verdicts"][0];
        assert_eq!(verdict["met"].as_bool(), Some(ratio >= verdict["bar"]["at_least"].as_f64().unwrap()));
    }
}

#[tokio::test]
async fn heavy_single_messages_have_times_and_an_offered_rate_is_kept() {
    let singles = measured(&["singles"]).await;
    assert!(positive(&singles, "p50_us") <= positive(&singles, "p999_us"));
    let latency = measured(&["latency", "--rate", "200"]).await;
    assert_eq!(latency["missing"], 0);
    let rate = positive(&latency, "rate");
    assert!((150.0..=250.0).contains(&rate), "200 a second were offered, {rate} came");
    assert!(positive(&latency, "p50_us") <= positive(&latency, "p99_us"));
}

#[tokio::test]
async fn heavy_idle_sessions_and_brokers_beside_each_other_are_measured_too() {
    let idle = measured(&["idle", "--sessions", "200", "--rest", "1"]).await;
    let names: Vec<&str> = idle["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|verdict| verdict["what"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "memory, time of a core, commits: {names:?}");
    let brokers = measured(&["brokers"]).await;
    positive(&brokers, "ratio");
}

fn figure(document: &Value, what: &str) -> f64 {
    let verdicts = document["verdicts"].as_array().unwrap();
    let verdict = verdicts.iter().find(|verdict| verdict["what"] == what);
    verdict.unwrap_or_else(|| panic!("{what} in {document}"))["figure"].as_f64().expect("a figure")
}

#[tokio::test]
async fn heavy_what_a_session_may_not_have_unanswered_is_held_back_and_ends_no_measurement() {
    // More than a debug build carries: it falls behind by more than its sessions may have unanswered.
    let latency = measured(&["latency", "--rate", "12000"]).await;
    assert!(positive(&latency, "p50_us") <= positive(&latency, "p99_us"));
    assert!(latency["missing"].is_u64(), "{latency}");
}

#[tokio::test]
async fn heavy_a_slow_consumer_takes_its_share_while_memory_is_measured() {
    let memory = measured(&["memory", "--length", "2s"]).await;
    assert!(figure(&memory, "broker memory at full rate, one consumer ten times slower") > 0.0);
    assert!(figure(&memory, "share of the slow consumer in the rate of the rest") > 0.0);
}

#[tokio::test]
async fn heavy_a_backlog_and_a_topic_that_has_grown_are_measured() {
    let catch_up = measured(&["catchup", "--messages", "20000"]).await;
    positive(&catch_up, "ratio");
    let growth = measured(&["growth", "--messages", "20000"]).await;
    positive(&growth, "ratio");
    let slower = figure(&growth, "much stored in the topic against none (p99 latency)");
    assert!(slower > 0.0, "{growth}");
}

#[tokio::test]
async fn heavy_retention_drops_segments_only_where_it_is_measured() {
    let retention = measured(&["retention"]).await;
    positive(&retention, "ratio");
    assert_eq!(figure(&retention, "segments dropped without retention"), 0.0);
    assert!(figure(&retention, "vacuums that ran meanwhile") >= 1.0);
}

#[tokio::test]
async fn a_database_that_is_away_fails_the_measurement_with_a_sentence() {
    let said = run(&["bench", "limit", "--url", "postgresql://u:s3cret@127.0.0.1:port/x", "--json"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.starts_with("laneway: the database URL cannot be read"), "{}", said.stderr);
    assert!(!said.stderr.contains("s3cret"));
}

/// A bench on a PostgreSQL of its own, below a directory.
fn private(temp: &Path, args: &[&str]) -> Command {
    let mut command = laneway();
    command.arg("bench").args(args).env("TMPDIR", temp);
    if let Some(bin_dir) = source::bin_dir() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(bin_dir).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(paths).unwrap());
    }
    command
}

fn assert_nothing_left(temp: &Path) {
    let left: Vec<_> = std::fs::read_dir(temp).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(processes_of(temp).is_empty(), "{:?}", processes_of(temp));
}

#[tokio::test]
async fn heavy_the_limit_is_measured_on_a_postgres_of_its_own_that_leaves_nothing() {
    let temp = directory();
    let said = run_command(&mut private(temp.path(), &[&["limit"], SHORT.as_slice()].concat())).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let document: Value = serde_json::from_str(&said.stdout).expect("one document");
    positive(&document, "limit");
    for name in ["postgres", "fsync", "synchronous_commit", "kernel"] {
        assert!(document["environment"][name].is_string(), "{name} in {document}");
    }
    assert_nothing_left(temp.path());
}

#[tokio::test]
async fn heavy_a_measurement_that_is_interrupted_leaves_nothing() {
    let temp = directory();
    let mut bench = private(temp.path(), &["e2e", "--seconds", "600"]);
    let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait::until("its broker to run", async || {
        let entries = std::fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|entry| entry.join("broker-0.log")).any(|log| log.exists())
    })
    .await;
    kill(Pid::from_raw(bench.id().unwrap() as i32), Signal::SIGINT).unwrap();
    let said = said(bench.wait_with_output().await.unwrap());
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.contains("interrupted"), "{}", said.stderr);
    assert_nothing_left(temp.path());
}
