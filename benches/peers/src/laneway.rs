//! Laneway, which measures itself: its command starts everything and prints one JSON document.

use std::path::Path;
use std::process::Stdio;

use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::error::Error;
use crate::measure::Sample;
use crate::process::{Ending, Process};
use crate::server::tail;
use crate::work::{Load, Work};
use crate::worker::parsed;

/// What we take from the document.
#[derive(Debug, Deserialize)]
struct Document {
    rate: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    /// Messages that were due and came too late to be waited for, where messages are timed.
    missing: Option<u64>,
}

/// Measures one window of a work.
pub async fn measure(program: Option<&Path>, load: Load, seconds: u32) -> Result<Sample, Error> {
    let program = program.ok_or(Error::LanewayMissing)?;
    let arguments = arguments(load.work, load.rate, seconds);
    let shown = format!("laneway {}", arguments.join(" "));
    let mut command = Command::new(program);
    command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command, Ending::Terminate)?;
    let (mut out, mut log) = (Vec::new(), Vec::new());
    if let (Some(mut stdout), Some(mut stderr)) = (process.child.stdout.take(), process.child.stderr.take()) {
        let read = tokio::try_join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut log));
        read.map_err(Error::io("listening to laneway"))?;
    }
    let status = process.child.wait().await.map_err(Error::io("waiting for laneway"))?;
    if !status.success() {
        return Err(Error::Laneway { command: shown, status, log: tail(&String::from_utf8_lossy(&log)) });
    }
    sample(&String::from_utf8_lossy(&out), shown)
}

fn arguments(work: Work, rate: u32, seconds: u32) -> Vec<String> {
    let mut arguments = vec!["bench".to_owned(), work.name().to_owned()];
    if work == Work::Latency {
        arguments.extend(["--rate".to_owned(), rate.to_string()]);
    }
    arguments.extend(["--rounds", "1", "--seconds"].map(str::to_owned));
    arguments.extend([seconds.to_string(), "--json".to_owned()]);
    arguments
}

fn sample(text: &str, command: String) -> Result<Sample, Error> {
    let document: Document = parsed(text)?;
    let Document { rate, p50_us, p99_us, p999_us, missing } = document;
    let rate = rate.ok_or(Error::LanewayRate { command })?;
    Ok(Sample { rate, p50_us, p99_us, p999_us, missing: missing.unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_of_a_benchmark_is_understood() {
        let text = r#"{"limit": 100362.1, "rate": 5000.5, "ratio": null, "p50_us": 900, "p99_us": 2100.0,
            "p999_us": null, "missing": 3, "commits_per_message": null, "rss_mb": 61.5, "environment": {"cores": 2}}"#;
        let sample = sample(text, String::new()).unwrap();
        assert_eq!(
            (sample.rate, sample.p50_us, sample.p99_us, sample.p999_us, sample.missing),
            (5000.5, Some(900.0), Some(2100.0), None, 3)
        );
    }

    #[test]
    fn a_document_without_a_rate_names_the_command() {
        let error = sample(r#"{"rate": null}"#, "laneway bench e2e".to_owned()).unwrap_err();
        assert_eq!(error.to_string(), "'laneway bench e2e' printed no rate");
        assert!(sample("not JSON", String::new()).unwrap_err().to_string().contains("not JSON"));
    }

    #[test]
    fn only_latency_is_given_a_rate() {
        let joined = |work| arguments(work, 5_000, 8).join(" ");
        assert_eq!(joined(Work::E2e), "bench e2e --rounds 1 --seconds 8 --json");
        assert_eq!(joined(Work::Latency), "bench latency --rate 5000 --rounds 1 --seconds 8 --json");
    }
}
