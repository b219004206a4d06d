//! Every metric and label of rules and dashboard is one that a broker tells.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::broker::Experienced;
use crate::read;

/// Labels by sample name.
type Told = BTreeMap<String, BTreeSet<String>>;

/// Labels that Prometheus itself adds to every sample.
const ADDED: [&str; 2] = ["instance", "job"];

fn told(metrics: &str) -> Told {
    let mut told = Told::new();
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap(), ""));
        let labels = labels.split("\",").filter_map(|label| Some(label.split_once("=\"")?.0.to_owned()));
        told.entry(name.to_owned()).or_default().extend(labels);
    }
    told
}

/// Names of metrics in an expression, each with the labels that it is asked for by.
fn asked(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices("laneway_") {
        let rest = &expression[at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let matchers =
            rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |m| m.0);
        found.push((rest[..end].to_owned(), labels_of(matchers)));
    }
    found
}

/// The names before each operator of `a="x",b=~"y|z"`; no value of ours holds a comma.
fn labels_of(matchers: &str) -> Vec<String> {
    let names = matchers.split(',').filter(|matcher| !matcher.is_empty());
    names.map(|matcher| matcher.split(['=', '!']).next().unwrap().trim().to_owned()).collect()
}

/// The labels of every `by (…)` in an expression.
fn grouped_by(expression: &str) -> Vec<String> {
    let lists = expression.split("by (").skip(1).map(|rest| rest.split(')').next().unwrap());
    lists.flat_map(|list| list.split(',')).map(|label| label.trim().to_owned()).collect()
}

fn of_rules() -> Vec<String> {
    let rules = read("prometheus/laneway.rules.yml");
    rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned).collect()
}

fn of_dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("grafana/laneway.json")).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array());
    let panels = targets.flatten().map(|target| target["expr"].as_str().unwrap().to_owned());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    panels
        .chain(variables.filter_map(|variable| variable["definition"].as_str().map(str::to_owned)))
        .collect()
}

/// What is wrong with an expression.
fn faults(expression: &str, told: &Told) -> Vec<String> {
    let mut faults = Vec::new();
    let known: BTreeSet<&String> = told.values().flatten().collect();
    for (name, labels) in asked(expression) {
        match told.get(&name) {
            None => faults.push(format!("no broker tells {name}: {expression}")),
            Some(has) => {
                let missing =
                    labels.iter().filter(|label| !has.contains(*label) && !ADDED.contains(&label.as_str()));
                faults.extend(missing.map(|label| format!("{name} has no label {label}: {expression}")));
            }
        }
    }
    let strange = grouped_by(expression).into_iter();
    let strange = strange.filter(|label| !known.contains(label) && !ADDED.contains(&label.as_str()));
    faults.extend(strange.map(|label| format!("nothing has a label {label}: {expression}")));
    faults
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_dashboard_use_only_what_a_broker_tells() {
    let broker = Experienced::start().await;
    let told = told(&broker.metrics("*/*").await);
    let (rules, dashboard) = (of_rules(), of_dashboard());
    assert!(
        rules.len() >= 10 && dashboard.len() >= 30,
        "{} rules, {} expressions",
        rules.len(),
        dashboard.len()
    );
    for expression in rules.iter().chain(&dashboard) {
        assert!(!asked(expression).is_empty(), "an expression without a metric of ours: {expression}");
    }
    let faults: Vec<String> =
        rules.iter().chain(&dashboard).flat_map(|expression| faults(expression, &told)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The comparison sees what it is for.
#[test]
fn a_name_or_label_that_does_not_exist_is_seen() {
    let told = told(
        "# TYPE laneway_lanes gauge\nlaneway_lanes{state=\"held\",broker=\"a,b\"} 1\nlaneway_sessions 0\n# EOF",
    );
    assert_eq!(faults("sum by (state) (laneway_lanes{state=~\"held|free\",instance=\"a\"})", &told), [""; 0]);
    assert_eq!(faults("laneway_session", &told).len(), 1);
    assert_eq!(faults("rate(laneway_lanes{topic=\"x\"}[5m]) / laneway_sessions", &told).len(), 1);
    assert_eq!(faults("sum by (group) (laneway_sessions)", &told).len(), 1);
}
