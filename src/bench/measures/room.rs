//! What takes room: sessions that do nothing, a consumer that is slow, and a topic that has grown.

use std::time::{Duration, Instant};

use super::singles::{Paced, RATE_DEFAULT, p99};
use super::{Course, warm_up, work};
use crate::bench::report::{Bar, Environment, Figures, Findings, Report};
use crate::bench::stage::{Crew, PARTITIONS, Stage, WARM_UP};
use crate::bench::worker::{From, Job, Round, Speed};
use crate::bench::{BenchError, Database, Schedule};

/// How many sessions come before all of them: what they cost the database must not depend on it.
const FEW_SESSIONS: usize = 1_000;
const SESSION_GROUPS: usize = 100;
/// Beyond this share of the consumers' rate the slow one counts as slow.
const SLOWNESS: f64 = 10.0;
const SAMPLE_PAUSE: Duration = Duration::from_secs(1);
const FILL_WINDOW: Duration = Duration::from_secs(900);

/// Idle sessions in 100 groups of one topic: memory after they have rested, time of a core, and commits with few and with many.
pub async fn idle(
    database: &Database,
    sessions: usize,
    rest: Duration,
    mut course: Course<'_>,
) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("idle", PARTITIONS).await?;
    let groups: Vec<String> = (0..SESSION_GROUPS).map(|number| format!("group{number}")).collect();
    let mut findings = Findings::new("idle", "commits per second with 1,000 idle sessions");
    course.steps(4);
    course.step("opening the first sessions");
    let empty = stage.brokers[0].rss_bytes()?;
    let few = FEW_SESSIONS.min(sessions / 2).max(1);
    let first = stage.worker("idle", Job::Idle { groups: groups.clone(), sessions: few }).await?;
    tokio::time::sleep(rest / 2).await;
    course.step("resting");
    let few_commits = quiet(&stage, course.window()).await?.0;
    course.step("opening all sessions");
    let others = stage.worker("idle", Job::Idle { groups, sessions: sessions - few }).await?;
    course.step("resting");
    tokio::time::sleep(rest).await;
    let full = stage.brokers[0].rss_bytes()?;
    let (all_commits, busy) = quiet(&stage, course.window()).await?;
    findings.saw_rss(stage.rss_mb()?);
    findings.limits.push(few_commits);
    findings.rates.push(all_commits);
    Crew(vec![first, others]).stop().await?;
    stage.close().await?;
    let each = full.saturating_sub(empty) as f64 / sessions as f64 / 1e3;
    findings.judge("memory of an idle session after its rest", Some(each), "KB", Bar::AtMost(20.0));
    findings.judge("idle sessions: time of a core", Some(busy * 100.0), "%", Bar::AtMost(5.0));
    let more = all_commits - few_commits;
    findings.judge(
        "idle sessions: commits that many cause over few",
        Some(more),
        "per second",
        Bar::AtMost(1.0),
    );
    Ok(findings.report(environment))
}

/// Commits per second and the share of a core that the broker takes, while nothing happens.
async fn quiet(stage: &Stage, window: Duration) -> Result<(f64, f64), BenchError> {
    let (commits, cpu, started) =
        (stage.witness.commits().await?, stage.brokers[0].cpu_seconds()?, Instant::now());
    tokio::time::sleep(window).await;
    let took = started.elapsed().as_secs_f64();
    let commits = (stage.witness.commits().await? - commits) as f64 / took;
    Ok((commits, (stage.brokers[0].cpu_seconds()? - cpu) / took))
}

/// Full rate for so long, with a second group whose consumer is ten times slower: memory stays small, and flat.
pub async fn memory(
    database: &Database,
    length: Duration,
    mut course: Course<'_>,
) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("memory", PARTITIONS).await?;
    let mut consumers = stage.consumers("memory", &["fast".to_owned()]).await?;
    let mut producers = stage.producers("memory", PARTITIONS, &stage.addresses()).await?;
    let worked = work(&stage, &mut producers, Some(&mut consumers), super::round(course.window())).await?;
    let rate = worked.consumed.unwrap_or_default().rate();
    let speed = Speed::Slow { rate: (rate / SLOWNESS).max(1.0) as u32 };
    let slow = stage
        .worker("memory", Job::Consume { groups: vec!["slow".into()], speed, from: From::Oldest })
        .await?;
    course.steps(1);
    course.step("full rate with a slow consumer");
    let round = super::round(length);
    let (worked, samples) =
        tokio::try_join!(work(&stage, &mut producers, Some(&mut consumers), round), sampled(&stage, length))?;
    let mut findings = Findings::new("memory", "full rate without a slow consumer, messages per second");
    findings.limits.push(rate);
    findings.rates.push(worked.consumed.unwrap_or_default().rate());
    samples.iter().for_each(|mb| findings.saw_rss(*mb));
    let third = samples.len().div_ceil(3);
    let median = |part: &[f64]| Figures::of(part.to_vec()).map_or(0.0, |figures| figures.median);
    let growth = median(&samples[samples.len() - third..]) - median(&samples[third..samples.len() - third]);
    Crew(vec![slow]).stop().await?;
    producers.stop().await?;
    consumers.stop().await?;
    stage.close().await?;
    let most = findings.rss_mb;
    findings.judge(
        "broker memory at full rate, one consumer ten times slower",
        most,
        "MB",
        Bar::AtMost(256.0),
    );
    findings.judge(
        "growth of that memory, last third over middle third",
        Some(growth),
        "MB",
        Bar::AtMost(16.0),
    );
    Ok(findings.report(environment))
}

async fn sampled(stage: &Stage, length: Duration) -> Result<Vec<f64>, BenchError> {
    let (deadline, mut samples) = (Instant::now() + WARM_UP + length, Vec::new());
    while Instant::now() < deadline {
        tokio::time::sleep(SAMPLE_PAUSE).await;
        samples.push(stage.rss_mb()?);
    }
    Ok(samples)
}

/// A topic that stores many messages, against one that stores none: publishes at full rate, and latency.
pub async fn growth(
    database: &Database,
    messages: u64,
    mut course: Course<'_>,
) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    stage.topic("grown", PARTITIONS).await?;
    let brokers = stage.addresses();
    let mut grown = stage.producers("grown", PARTITIONS, &brokers).await?;
    warm_up(&stage, &mut grown, None).await?;
    course.steps(4);
    course.progress.step("filling", 0, course.of);
    let share = Some(messages / grown.0.len() as u64);
    let fill = Round { warm_up_ms: 0, window_ms: FILL_WINDOW.as_millis() as u64, messages_max: share };
    grown.work(fill).await?;
    let mut findings = Findings::new("growth", "publishes to a topic that stored nothing, per second");
    findings.latency_of = Some("a message to the grown topic, from the moment it was due to its delivery");
    let mut latencies = Vec::new();
    for number in 0..course.schedule.rounds {
        let fresh = format!("fresh{number}");
        stage.topic(&fresh, PARTITIONS).await?;
        let mut plain = stage.producers(&fresh, PARTITIONS, &brokers).await?;
        work(&stage, &mut plain, None, super::round(WARM_UP)).await?; // its tables
        course.step("publish, nothing stored");
        findings.limits.push(work(&stage, &mut plain, None, course.round()).await?.published.rate());
        plain.stop().await?;
        course.step("publish, much stored");
        findings.rates.push(work(&stage, &mut grown, None, course.round()).await?.published.rate());
        findings.saw_rss(stage.rss_mb()?);
        course.step("latency, nothing stored");
        let plain = paced(&stage, &format!("{fresh}-latency"), &mut course).await?.0;
        course.step("latency, much stored");
        let (figure, delivered) = paced(&stage, "grown", &mut course).await?;
        findings.latencies.add(&delivered.latencies);
        latencies.push(figure / plain);
    }
    grown.stop().await?;
    stage.close().await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("much stored in the topic against none (publish)", ratio, "×", Bar::AtLeast(0.9));
    let slower = Figures::of(latencies).map(|figures| figures.median);
    findings.judge("much stored in the topic against none (p99 latency)", slower, "×", Bar::AtMost(1.2));
    Ok(findings.report(environment))
}

/// The p99 of publish to delivery at the usual rate, in half a window, on a topic that is made if it is not there.
async fn paced(
    stage: &Stage,
    topic: &str,
    course: &mut Course<'_>,
) -> Result<(f64, crate::bench::tally::Tally), BenchError> {
    if topic != "grown" {
        stage.topic(topic, PARTITIONS).await?;
    }
    let half = Schedule { seconds: course.schedule.seconds.div_ceil(2), ..course.schedule };
    let mut paced = Paced::open(stage, topic, RATE_DEFAULT).await?;
    let mut silent = crate::bench::Silent;
    let mut course = Course::new(half, &mut silent);
    let (delivered, _) = paced.work(stage, &mut course).await?;
    paced.stop().await?;
    Ok((p99(&delivered).unwrap_or(f64::NAN), delivered))
}
