//! Prometheus' own tool reads the rules, tests them, and reads what a broker tells.
//!
//! `script/test` says where it is in `LANEWAY_PROMTOOL`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::broker::Experienced;
use crate::{deployed, read};

fn promtool() -> Command {
    let path = std::env::var_os("LANEWAY_PROMTOOL")
        .expect("LANEWAY_PROMTOOL does not say where promtool is: run script/test, which unpacks it");
    Command::new(path)
}

fn assert_satisfied(output: &Output) {
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
}

fn in_directory(directory: &Path, args: &[&str]) -> Output {
    promtool().args(args).current_dir(directory).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_rules_are_rules_and_pass_their_tests() {
    let directory = deployed("prometheus");
    assert_satisfied(&in_directory(&directory, &["check", "rules", "laneway.rules.yml"]));
    assert_satisfied(&in_directory(&directory, &["test", "rules", "laneway.rules.test.yml"]));
}

#[test]
fn every_rule_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() {
    let (rules, tests) = (read("prometheus/laneway.rules.yml"), read("prometheus/laneway.rules.test.yml"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 10, "{alerts:?}");
    for alert in alerts {
        assert!(
            tests.contains(&format!("\n        alertname: {alert}\n        exp_alerts:\n")),
            "{alert} fires"
        );
        assert!(
            tests.contains(&format!("{{alertname: {alert}, eval_time: 15m, exp_alerts: []}}")),
            "{alert} is silent"
        );
    }
}

/// A rule that never fires would pass a check, but not its test.
#[test]
fn a_rule_that_does_not_fire_fails_its_test() {
    let directory = tempfile::tempdir().unwrap();
    let rules = read("prometheus/laneway.rules.yml").replace("state=\"blocked\"", "state=\"blocke\"");
    std::fs::write(directory.path().join("laneway.rules.yml"), rules).unwrap();
    let tests = read("prometheus/laneway.rules.test.yml");
    std::fs::write(directory.path().join("laneway.rules.test.yml"), tests).unwrap();
    let output = in_directory(directory.path(), &["test", "rules", "laneway.rules.test.yml"]);
    assert!(!output.status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_broker_tells_is_as_prometheus_wants_it() {
    let broker = Experienced::start().await;
    let metrics = broker.metrics("text/plain").await;
    let mut child = promtool()
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    assert_satisfied(&child.wait_with_output().unwrap());
    let open_metrics = broker.metrics("application/openmetrics-text").await;
    assert!(open_metrics.ends_with("# EOF\n"));
    let names = |text: &str| -> Vec<String> {
        let mut names: Vec<String> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split(['{', ' ']).next().unwrap().to_owned())
            .collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!(names(&metrics), names(&open_metrics), "the same samples in both formats");
}
