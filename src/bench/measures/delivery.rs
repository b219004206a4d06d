//! Delivery: published, delivered, and the ack committed.

use std::time::{Duration, Instant};

use super::{Course, LIMIT, round, warm_up, work};
use crate::bench::report::{Bar, Environment, Findings, Report};
use crate::bench::stage::{PARTITIONS, Stage, WARM_UP};
use crate::bench::worker::Round;
use crate::bench::{BenchError, Database, limit};

const FAN_OUT: usize = 10;
/// So many messages the group is behind where it is held to its bar.
pub const BACKLOG_DEFAULT: u64 = 1_000_000;
/// Long enough for any backlog: what ends such a round is its messages.
const FILL_WINDOW: Duration = Duration::from_secs(600);

/// One group of two consumers.
pub async fn end_to_end(database: &Database, course: Course<'_>) -> Result<Report, BenchError> {
    let (environment, mut findings) = flow(database, course, "e2e", 1).await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("end to end", ratio, "× limit", Bar::AtLeast(0.45));
    let commits = findings.commits_per_message();
    findings.judge("commits per delivered message at full rate", commits, "", Bar::AtMost(0.02));
    Ok(findings.report(environment))
}

/// Ten groups; a delivery counts when its ack is committed.
pub async fn fan_out(database: &Database, course: Course<'_>) -> Result<Report, BenchError> {
    let (environment, mut findings) = flow(database, course, "fanout", FAN_OUT).await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("fan-out to 10 groups", ratio, "× limit", Bar::AtLeast(2.0));
    Ok(findings.report(environment))
}

async fn flow(
    database: &Database,
    mut course: Course<'_>,
    bench: &'static str,
    groups: usize,
) -> Result<(Environment, Findings), BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic(bench, PARTITIONS).await?;
    let groups: Vec<String> = (0..groups).map(|number| format!("group{number}")).collect();
    let mut consumers = stage.consumers(bench, &groups).await?;
    let mut producers = stage.producers(bench, PARTITIONS).await?;
    let members = groups.len() as u64;
    limit::measure(&stage.url, WARM_UP).await?;
    let warmed = work(&stage, &mut producers, Some(&mut consumers), round(WARM_UP)).await?;
    consumers.drained(warmed.published.ever * members).await?;
    let mut findings = Findings::new(bench, LIMIT);
    findings.latency_of =
        Some("the first message of a frame of 100, from being sent to its delivery (a closed loop)");
    course.steps(2);
    for _ in 0..course.schedule.rounds {
        findings.limits.push(course.limit(&stage.url).await?);
        course.step(bench);
        let worked = work(&stage, &mut producers, Some(&mut consumers), course.round()).await?;
        let consumed = worked.consumed.unwrap_or_default();
        // Not more than was published meanwhile: what the warm-up has left is none of this window.
        findings.rates.push(consumed.rate().min(worked.published.rate() * members as f64));
        findings.latencies.add(&consumed.latencies);
        findings.saw_commits(worked.commits, consumed.messages);
        findings.saw_rss(stage.rss_peak_mb()?);
        consumers.drained(worked.published.ever * members).await?; // so that the limit has the machine for itself
    }
    producers.stop().await?;
    consumers.stop().await?;
    stage.close().await?;
    Ok((environment, findings))
}

/// A new group so many messages behind, with two consumers; nobody publishes meanwhile.
pub async fn catch_up(
    database: &Database,
    backlog: u64,
    mut course: Course<'_>,
) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("catchup", PARTITIONS).await?;
    let mut producers = stage.producers("catchup", PARTITIONS).await?;
    warm_up(&stage, &mut producers, None).await?;
    course.step("filling");
    let half = backlog.div_ceil(producers.0.len() as u64);
    let stored = producers.work(Round::filling(half, FILL_WINDOW)).await?.ever;
    producers.stop().await?;
    let mut findings = Findings::new("catchup", LIMIT);
    course.steps(2);
    for number in 0..course.schedule.rounds {
        findings.limits.push(course.limit(&stage.url).await?);
        course.step("catching up");
        let before = stage.witness.commits().await?;
        let mut consumers = stage.consumers("catchup", &[format!("late{number}")]).await?;
        let started = Instant::now();
        consumers.drained(stored).await?;
        findings.rates.push(stored as f64 / started.elapsed().as_secs_f64());
        findings.saw_commits(stage.witness.commits().await? - before, stored);
        findings.saw_rss(stage.rss_peak_mb()?);
        consumers.stop().await?;
    }
    stage.close().await?;
    findings.notes.push(format!("the group was {stored} messages behind"));
    let ratio = findings.ratios().map(|ratios| ratios.median).filter(|_| backlog == BACKLOG_DEFAULT);
    findings.judge("catch-up of a group 1 million messages behind", ratio, "× limit", Bar::AtLeast(0.6));
    Ok(findings.report(environment))
}
