//! schemathesis against a real broker: every check of it, every operation of the document, a fixed seed.
//!
//! It is a Python program; `script/test` installs it and says where it is in `LANEWAY_SCHEMATHESIS`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::harness::{Server, TestDatabase, process};
use crate::report::{Tallies, tallies};
use crate::routes::{Operation, document, operations};
use crate::seed::seed;

/// Requests per operation, at least, that schemathesis makes up.
const EXAMPLES_MIN: usize = 50;
/// What it is asked for: it leaves out what it has sent before.
const EXAMPLES_ASKED: &str = "60";
/// The same every time, so that a failure can be repeated.
const SEED: &str = "7420";

fn schemathesis() -> PathBuf {
    let path = std::env::var_os("LANEWAY_SCHEMATHESIS").expect(
        "LANEWAY_SCHEMATHESIS does not say where schemathesis is: run script/test, which installs it",
    );
    PathBuf::from(path)
}

async fn run(server: &Server, document: &Value, directory: &Path) -> Tallies {
    let report = directory.join("events.ndjson");
    // Both are looked for where it runs, and it leaves files of its own there.
    std::fs::write(directory.join("schemathesis.toml"), include_str!("schemathesis.toml")).unwrap();
    std::fs::write(directory.join("hooks.py"), include_str!("hooks.py")).unwrap();
    // From a file: where it is told to fetch the document, it leaves that route out.
    std::fs::write(directory.join("openapi.json"), document.to_string()).unwrap();
    let output = Command::new(schemathesis())
        .args(["run", "openapi.json", "--url", &server.url(""), "--checks", "all", "--mode", "all"])
        .args(["--seed", SEED, "--max-examples", EXAMPLES_ASKED])
        .args(["--generation-database", "none", "--workers", "1", "--continue-on-failure", "--no-color"])
        .args(["--request-timeout", "30", "--report", "ndjson", "--report-ndjson-path"])
        .arg(&report)
        .current_dir(directory)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap_or_else(|error| panic!("{} does not run: {error}", schemathesis().display()));
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "schemathesis has found something:\n{said}\n{complained}");
    tallies(&report)
}

/// An operation without parameters and body can be asked in one way only; the others in many.
fn wanted(operation: &Operation) -> usize {
    if operation.takes_nothing { 1 } else { EXAMPLES_MIN }
}

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_nothing_and_reaches_every_operation() {
    let database = TestDatabase::new().await;
    // It makes and alters encrypted topics, too, and publishes to them.
    let ring = format!("a:{}01", "ab".repeat(31));
    let mut command = process::laneway();
    command.env("LANEWAY_KEY_RING", ring).args([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--database-url",
        &database.url,
    ]);
    let mut server = Server::spawn_command(&mut command).listening().await;
    let seeded = seed(&server).await;
    let directory = process::directory();
    let document = document(&server).await;
    let tallies = run(&server, &document, directory.path()).await;
    let operations = operations(&document);
    let mut neglected = Vec::new();
    assert!(operations.len() >= 20, "{operations:?}");
    for operation in &operations {
        let key = (operation.method.clone(), operation.path.clone());
        let tally = tallies.get(&key).unwrap_or_else(|| panic!("{key:?} was not reached"));
        println!("{:6} {:70} {:5} requests {:5} successes", key.0, key.1, tally.requests, tally.successes);
        let is_enough = tally.requests >= wanted(operation) && tally.successes > 0;
        neglected.extend((!is_enough).then(|| format!("{key:?}: {tally:?}")));
    }
    assert!(neglected.is_empty(), "too few requests, or none that succeeded: {neglected:#?}");
    drop(seeded);
    assert_eq!(server.stop().await, 0);
}
