//! What `deploy/` holds, against a real broker: rules and dashboard use names and labels that exist, and promtool agrees.
//!
//! | file | shows |
//! |---|---|
//! | `names` | every metric and label of rules and dashboard is one that a broker tells |
//! | `promtool` | Prometheus' own tool reads the rules, tests them, and reads `/metrics` |
//! | `dashboard` | the dashboard can be imported: a data source to choose, panels that do not overlap |
//! | `broker` | a broker in which everything has happened once |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod broker;
mod dashboard;
mod names;
mod promtool;

use std::path::PathBuf;

/// A file below `deploy/`.
fn deployed(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deployed(path)).unwrap()
}
