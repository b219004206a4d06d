//! One message at a time: many producers that wait for their answers, and an offered rate that waits for nobody.

use std::time::Duration;

use super::{Course, round, work};
use crate::bench::pacing::Schedule;
use crate::bench::report::{Bar, Environment, Findings, Report};
use crate::bench::stage::{Crew, PARTITIONS, Stage, WARM_UP};
use crate::bench::tally::{Latencies, Tally};
use crate::bench::worker::{From, Job, Round, Speed};
use crate::bench::{BenchError, Database, rows};

const PRODUCERS: usize = 64;
/// At which the latency is held to its bar.
pub const RATE_DEFAULT: u32 = 2_400;
/// Connections of the paced producers, as many as raw commits have and as the producers of `benches/peers`.
const CONNECTIONS: usize = 4;

/// 64 producers, each waiting for its answer, against one connection that commits single rows.
pub async fn singles(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("singles", PARTITIONS).await?;
    let mut producers = Crew(vec![
        stage.worker("singles", Job::Singles { partitions: PARTITIONS, producers: PRODUCERS }).await?,
    ]);
    rows::one_by_one(&stage.url, WARM_UP).await?;
    work(&stage, &mut producers, None, round(WARM_UP)).await?;
    let mut findings = Findings::new("singles", "one connection committing single rows, per second");
    findings.latency_of = Some("a message, from sending to its answer (a closed loop)");
    course.steps(2);
    for _ in 0..course.schedule.rounds {
        course.step("single rows");
        findings.limits.push(rows::one_by_one(&stage.url, course.window()).await?);
        course.step("singles");
        let worked = work(&stage, &mut producers, None, course.round()).await?;
        findings.rates.push(worked.published.rate());
        findings.latencies.add(&worked.published.latencies);
        findings.saw_commits(worked.commits, worked.published.messages);
        findings.saw_rss(stage.rss_peak_mb()?);
    }
    producers.stop().await?;
    stage.close().await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("singles: 64 producers", ratio, "× single rows", Bar::AtLeast(5.0));
    Ok(findings.report(environment))
}

/// Publish to delivery at an offered rate, against raw commits of single rows at the same rate. The ratio is that of the p99s.
pub async fn latency(database: &Database, rate: u32, mut course: Course<'_>) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("latency", PARTITIONS).await?;
    let mut paced = Paced::open(&stage, "latency", "followers", rate).await?;
    rows::at_rate(&stage.url, rate, WARM_UP).await?;
    paced.work(&stage, WARM_UP).await?;
    let mut findings =
        Findings::new("latency", "p99 of raw commits of single rows at the same rate, in microseconds");
    findings.latency_of = Some("a message, from the moment it was due to its delivery");
    course.steps(2);
    let mut p99s = Vec::new();
    for _ in 0..course.schedule.rounds {
        course.step("single rows");
        let raw = rows::at_rate(&stage.url, rate, course.window()).await?;
        findings.limits.push(p99(&raw).unwrap_or(f64::NAN));
        course.step("latency");
        let (delivered, commits) = paced.work(&stage, course.window()).await?;
        findings.rates.push(delivered.rate());
        findings.saw_delivered(&delivered);
        findings.saw_commits(commits, delivered.messages);
        findings.saw_rss(stage.rss_peak_mb()?);
        p99s.push(p99(&delivered).unwrap_or(f64::NAN));
    }
    paced.stop().await?;
    stage.close().await?;
    let rates = std::mem::replace(&mut findings.rates, p99s);
    let ratios = findings.ratios();
    findings.rates = rates;
    let ratio = ratios.as_ref().map(|ratios| ratios.median);
    if rate == RATE_DEFAULT {
        // The bars are for this rate only.
        findings.judge("latency: p99 of publish to delivery", ratio, "× raw commits", Bar::AtMost(5.0));
        let commits = findings.commits_per_message();
        findings.judge("commits per delivered message at 2,400 singles/s", commits, "", Bar::AtMost(1.0));
    }
    let mut report = findings.report(environment);
    (report.ratio, report.ratios) = (ratio, ratios);
    Ok(report)
}

pub(super) fn p99(tally: &Tally) -> Option<f64> {
    let mut latencies = Latencies::new();
    latencies.add(&tally.latencies);
    latencies.at(0.99).map(|us| us as f64)
}

/// A paced producer and a consumer of one topic.
pub(super) struct Paced {
    rate: u32,
    producer: Crew,
    consumer: Crew,
}

impl Paced {
    /// The group begins with what is yet to come, if it is new.
    pub async fn open(stage: &Stage, topic: &str, group: &str, rate: u32) -> Result<Self, BenchError> {
        let groups = vec![group.to_owned()];
        let speed = Speed::Full;
        let consumer =
            Crew(vec![stage.worker(topic, Job::Consume { groups, speed, from: From::Newest }).await?]);
        let connections = CONNECTIONS;
        let producer =
            Crew(vec![stage.worker(topic, Job::Pace { partitions: PARTITIONS, connections, rate }).await?]);
        Ok(Self { rate, producer, consumer })
    }

    /// One round: what was committed in the window, with the times of what was due in it, and the commits.
    pub async fn work(&mut self, stage: &Stage, window: Duration) -> Result<(Tally, i64), BenchError> {
        let round = round(window);
        let round = Round { due: Schedule::new(round, self.rate).in_window(), ..round };
        let worked = work(stage, &mut self.producer, Some(&mut self.consumer), round).await?;
        let consumed = worked.consumed.unwrap_or_default();
        self.consumer.drained(worked.published.ever).await?;
        Ok((consumed, worked.commits))
    }

    pub async fn stop(self) -> Result<(), BenchError> {
        self.producer.stop().await?;
        self.consumer.stop().await
    }
}
