//! Publishes at full rate: frames of 100 messages, up to 32 in flight, answered after commit.

use super::{Course, FRAME, LIMIT, warm_up, work};
use crate::bench::report::{Bar, Environment, Findings, Report};
use crate::bench::stage::{Crew, PARTITIONS, Stage};
use crate::bench::{BenchError, Database};

const MANY_PARTITIONS: u32 = 1_000;
const BROKERS: usize = 3;

/// Publishes to 8 partitions.
pub async fn publish(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("publish", PARTITIONS).await?;
    let mut producers = stage.producers("publish", PARTITIONS).await?;
    warm_up(&stage, &mut producers, None).await?;
    let mut findings = Findings::new("publish", LIMIT);
    findings.latency_of = Some(FRAME);
    course.steps(2);
    for _ in 0..course.schedule.rounds {
        findings.limits.push(course.limit(&stage.url).await?);
        course.step("publish");
        let worked = work(&stage, &mut producers, None, course.round()).await?;
        findings.rates.push(worked.published.rate());
        findings.latencies.add(&worked.published.latencies);
        findings.saw_commits(worked.commits, worked.published.messages);
        findings.saw_rss(stage.rss_peak_mb()?);
    }
    producers.stop().await?;
    stage.close().await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("publish", ratio, "× limit", Bar::AtLeast(0.55));
    Ok(findings.report(environment))
}

/// Two ways of publishing, in turn: how fast the second is, against the first.
struct Pair {
    plain: Crew,
    other: Crew,
}

impl Pair {
    async fn measure(
        &mut self,
        stage: &Stage,
        course: &mut Course<'_>,
        findings: &mut Findings,
        names: [&str; 2],
    ) -> Result<(), BenchError> {
        findings.latency_of = Some(FRAME);
        warm_up(stage, &mut self.plain, None).await?;
        warm_up(stage, &mut self.other, None).await?;
        warm_up(stage, &mut self.other, None).await?; // the first may have ended while its tables were made
        course.steps(2);
        for _ in 0..course.schedule.rounds {
            course.step(names[0]);
            findings.limits.push(work(stage, &mut self.plain, None, course.round()).await?.published.rate());
            course.step(names[1]);
            let worked = work(stage, &mut self.other, None, course.round()).await?;
            findings.rates.push(worked.published.rate());
            findings.latencies.add(&worked.published.latencies);
            findings.saw_commits(worked.commits, worked.published.messages);
            findings.saw_rss(stage.rss_peak_mb()?);
        }
        Ok(())
    }

    async fn stop(self) -> Result<(), BenchError> {
        self.plain.stop().await?;
        self.other.stop().await
    }
}

/// The same with uniform traffic over 1,000 partitions, against 8.
pub async fn partitions(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("few", PARTITIONS).await?;
    stage.topic("many", MANY_PARTITIONS).await?;
    let plain = stage.producers("few", PARTITIONS).await?;
    let other = stage.producers("many", MANY_PARTITIONS).await?;
    let mut pair = Pair { plain, other };
    let mut findings = Findings::new("partitions", "publishes to 8 partitions, per second");
    pair.measure(&stage, &mut course, &mut findings, ["8 partitions", "1,000 partitions"]).await?;
    pair.stop().await?;
    stage.close().await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("1,000 partitions against 8 (publish)", ratio, "×", Bar::AtLeast(0.5));
    Ok(findings.report(environment))
}

/// The same by three brokers to the same 8 partitions, against one. Both have three producers, so that what differs is the brokers.
pub async fn brokers(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, BROKERS).await?;
    stage.topic("shared", PARTITIONS).await?;
    let brokers = stage.addresses();
    let plain = stage.producers_on("shared", PARTITIONS, &brokers[..1], BROKERS).await?;
    let other = stage.producers_on("shared", PARTITIONS, &brokers, BROKERS).await?;
    let mut pair = Pair { plain, other };
    let mut findings = Findings::new("brokers", "publishes by one broker, per second");
    findings
        .notes
        .push(format!("{BROKERS} producers on both sides: on one broker, and one on each of {BROKERS}"));
    pair.measure(&stage, &mut course, &mut findings, ["1 broker", "3 brokers"]).await?;
    pair.stop().await?;
    stage.close().await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("3 brokers against 1 (publish)", ratio, "×", Bar::AtLeast(0.8));
    Ok(findings.report(environment))
}
