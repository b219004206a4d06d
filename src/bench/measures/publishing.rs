//! Publishes at full rate: frames of 100 messages, up to 32 in flight, answered after commit.

use std::time::Instant;

use laneway_client::topic::CreateTopic;

use super::{Course, LIMIT, warm_up, work};
use crate::bench::report::{Bar, Environment, Findings, Report};
use crate::bench::stage::{Crew, PARTITIONS, Stage, WARM_UP};
use crate::bench::{BenchError, Database};

const MANY_PARTITIONS: u32 = 1_000;
const BROKERS: usize = 3;
/// Small segments and little room, so that retention always has something to drop.
const SMALL_SEGMENT_MESSAGES: u32 = 100_000;
const SMALL_RETENTION_BYTES: u64 = 64 << 20;

/// Publishes to 8 partitions.
pub async fn publish(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("publish", PARTITIONS).await?;
    let mut producers = stage.producers("publish", PARTITIONS, &stage.addresses()).await?;
    warm_up(&stage, &mut producers, None).await?;
    let mut findings = Findings::new("publish", LIMIT);
    findings.latency_of = Some("a frame of 100 messages, from sending to its answer");
    course.steps(2);
    for _ in 0..course.schedule.rounds {
        findings.limits.push(course.limit(&stage.url).await?);
        course.step("publish");
        let worked = work(&stage, &mut producers, None, course.round()).await?;
        findings.rates.push(worked.published.rate());
        findings.latencies.add(&worked.published.latencies);
        findings.saw_commits(worked.commits, worked.published.messages);
        findings.saw_rss(stage.rss_mb()?);
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
        warm_up(stage, &mut self.plain, None).await?;
        warm_up(stage, &mut self.other, None).await?;
        course.steps(2);
        for _ in 0..course.schedule.rounds {
            course.step(names[0]);
            findings.limits.push(work(stage, &mut self.plain, None, course.round()).await?.published.rate());
            course.step(names[1]);
            let worked = work(stage, &mut self.other, None, course.round()).await?;
            findings.rates.push(worked.published.rate());
            findings.latencies.add(&worked.published.latencies);
            findings.saw_commits(worked.commits, worked.published.messages);
            findings.saw_rss(stage.rss_mb()?);
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
    let brokers = stage.addresses();
    let plain = stage.producers("few", PARTITIONS, &brokers).await?;
    let other = stage.producers("many", MANY_PARTITIONS, &brokers).await?;
    let mut pair = Pair { plain, other };
    let mut findings = Findings::new("partitions", "publishes to 8 partitions, per second");
    pair.measure(&stage, &mut course, &mut findings, ["8 partitions", "1,000 partitions"]).await?;
    pair.stop().await?;
    stage.close().await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("1,000 partitions against 8 (publish)", ratio, "×", Bar::AtLeast(0.5));
    Ok(findings.report(environment))
}

/// The same by three brokers to the same 8 partitions, against one.
pub async fn brokers(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, BROKERS).await?;
    stage.topic("shared", PARTITIONS).await?;
    let brokers = stage.addresses();
    let plain = stage.producers("shared", PARTITIONS, &brokers[..1]).await?;
    let other = stage.producers("shared", PARTITIONS, &brokers).await?;
    let mut pair = Pair { plain, other };
    let mut findings = Findings::new("brokers", "publishes by one broker, per second");
    pair.measure(&stage, &mut course, &mut findings, ["1 broker", "3 brokers"]).await?;
    pair.stop().await?;
    stage.close().await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("3 brokers against 1 (publish)", ratio, "×", Bar::AtLeast(0.8));
    Ok(findings.report(environment))
}

/// The same while retention drops segments and everything is vacuumed, against neither.
pub async fn retention(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("kept", PARTITIONS).await?;
    stage
        .topic_as(&CreateTopic {
            segment_messages: Some(SMALL_SEGMENT_MESSAGES),
            retention_bytes: Some(SMALL_RETENTION_BYTES),
            ..CreateTopic::new("dropped", PARTITIONS)
        })
        .await?;
    let brokers = stage.addresses();
    let mut plain = stage.producers("kept", PARTITIONS, &brokers).await?;
    let mut other = stage.producers("dropped", PARTITIONS, &brokers).await?;
    warm_up(&stage, &mut plain, None).await?;
    warm_up(&stage, &mut other, None).await?;
    let mut findings = Findings::new("retention", "publishes without retention and vacuum, per second");
    course.steps(2);
    for _ in 0..course.schedule.rounds {
        course.step("without");
        findings.limits.push(work(&stage, &mut plain, None, course.round()).await?.published.rate());
        course.step("retention and vacuum");
        let end = Instant::now() + WARM_UP + course.window();
        let (worked, _) = tokio::try_join!(
            work(&stage, &mut other, None, course.round()),
            stage.witness.vacuum_until(end)
        )?;
        findings.rates.push(worked.published.rate());
    }
    plain.stop().await?;
    other.stop().await?;
    stage.close().await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("retention and vacuum running", ratio, "× of without", Bar::AtLeast(0.9));
    Ok(findings.report(environment))
}
