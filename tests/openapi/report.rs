//! What schemathesis has sent, and what came back: its report of events, one per line.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// What one operation has seen.
#[derive(Debug, Default)]
pub struct Tally {
    /// Requests of any kind, in any phase.
    pub requests: usize,
    /// Those that were answered with a status of 2xx.
    pub successes: usize,
}

/// By method and path, as the document writes them.
pub type Tallies = BTreeMap<(String, String), Tally>;

/// Counts all requests of a run. A request of a method that the path does not have counts for nobody.
pub fn tallies(report: &Path) -> Tallies {
    let mut tallies = Tallies::new();
    for line in std::fs::read_to_string(report).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let recorder = &event["ScenarioFinished"]["recorder"];
        for (id, case) in recorder["cases"].as_object().into_iter().flatten() {
            let text = |name: &str| case["value"][name].as_str().unwrap().to_owned();
            let tally = tallies.entry((text("method").to_lowercase(), text("path"))).or_default();
            let status = recorder["interactions"][id]["response"]["status_code"].as_u64();
            tally.requests += 1;
            tally.successes += usize::from(status.is_some_and(|status| (200..300).contains(&status)));
        }
    }
    tallies
}
