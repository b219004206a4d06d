//! `laneway verify` through the real binary: what it says of a sound cluster, of bad input, and what it leaves behind.

#![allow(clippy::unwrap_used)]

#[path = "../harness/mod.rs"]
mod harness;

use std::process::Stdio;

use harness::process::{Said, laneway, run, run_command, said};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::Command;

/// Promises that are about rates.
const RATES: [&str; 2] = ["6", "20"];

/// `laneway verify`, with the binaries of PostgreSQL that are under test.
fn verify(args: &[&str]) -> Command {
    let mut command = laneway();
    command.arg("verify").args(args);
    if let Some(bin_dir) = harness::source::bin_dir() {
        command.arg("--postgres-bin-dir").arg(bin_dir);
    }
    command
}

async fn verified(args: &[&str]) -> Said {
    let output = tokio::time::timeout(std::time::Duration::from_secs(240), verify(args).output()).await;
    said(output.expect("it ends").unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_sound_cluster_under_faults_violates_nothing_and_says_what_it_did() {
    let faults = "kill_broker,freeze_broker,stop_broker,cut_clients,truncate_database,terminate_backends,churn_consumers";
    let said =
        verified(&["--brokers", "3", "--seconds", "20", "--faults", faults, "--seed", "7", "--json"]).await;
    let report: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{}", said.stderr));
    // Rates are figures, for a quiet machine; everything else must hold on any.
    let violated: Vec<&String> = report["violations"].as_object().unwrap().keys().collect();
    assert!(violated.iter().all(|promise| RATES.contains(&promise.as_str())), "{report:#}");
    assert_eq!(said.code, i32::from(!violated.is_empty()), "{}", said.stderr);
    assert_eq!(report["seed"], 7);
    for figure in ["lost", "duplicated_after_ack", "order_violations", "overlaps"] {
        assert_eq!(report[figure], 0, "{figure}: {report:#}");
    }
    let number = |pointer: &str| {
        report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {report:#}"))
    };
    assert!(number("/published") > 2_000, "{report:#}");
    assert!(number("/delivered") >= 3 * number("/acknowledged"), "three groups get everything: {report:#}");
    assert!(number("/takeovers") > 0 && number("/takeover_ms/max") > 0, "{report:#}");
    for fault in faults.split(',') {
        assert!(number(&format!("/faults/{fault}")) > 0, "{report:#}");
    }
    for queue in ["schedules", "reschedules", "pops", "shared", "capacity", "keys"] {
        assert_eq!(report["queues"][queue], "held", "{queue}: {report:#}");
    }
    assert_eq!(report["queue_violations"], serde_json::json!({}));
    let promises = report["promises"].as_object().unwrap();
    assert_eq!(promises.len(), 25);
    // Nothing here holds up the database or steps on clocks.
    for (promise, verdict) in promises.iter().filter(|(promise, _)| !RATES.contains(&promise.as_str())) {
        let expected = if ["4", "14"].contains(&promise.as_str()) { "not_tried" } else { "held" };
        assert_eq!(verdict, expected, "promise {promise}: {report:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_an_interrupted_run_leaves_nothing_behind() {
    let directory = harness::process::directory();
    let mut command = verify(&["--brokers", "2", "--seconds", "600", "--faults", "none"]);
    command.env("TMPDIR", directory.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id().unwrap() as i32);
    harness::wait::until("both brokers to run", async || count(directory.path(), "broker-1.log")).await;
    kill(pid, Signal::SIGINT).unwrap();
    let said = said(
        tokio::time::timeout(std::time::Duration::from_secs(60), child.wait_with_output())
            .await
            .unwrap()
            .unwrap(),
    );
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(said.stderr.contains("interrupted"), "{}", said.stderr);
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Whether a file of that name lies in one of the directories.
fn count(directory: &std::path::Path, name: &str) -> bool {
    let inside =
        |entry: std::io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.path().join(name).exists());
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.any(inside))
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_before_anything_starts() {
    for (args, words) in [
        (&["verify", "--faults", "kill_everybody"][..], "\"kill_everybody\" is no fault"),
        (&["verify", "--faults", ""], "no fault is named"),
        (&["verify", "--brokers", "0"], "--brokers"),
        (&["verify", "--seconds", "never"], "--seconds"),
    ] {
        let said = run(args).await;
        assert_eq!(said.code, 2, "{args:?}: {}", said.stderr);
        assert!(said.stderr.contains(words), "{args:?}: {}", said.stderr);
    }
    let said =
        run_command(laneway().args(["verify", "--postgres-bin-dir", "/nowhere", "--seconds", "1"])).await;
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("/nowhere"), "{}", said.stderr);
}
