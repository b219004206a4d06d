//! What takes room: sessions that do nothing, a consumer that is slow, and a topic that has grown.

use std::time::{Duration, Instant};

use laneway_client::topic::CreateTopic;

use super::singles::{Paced, RATE_DEFAULT, p99};
use super::{Course, warm_up, work};
use crate::bench::report::{Bar, Environment, Figures, Findings, Report};
use crate::bench::stage::{Crew, PARTITIONS, Stage, WARM_UP};
use crate::bench::tally::Tally;
use crate::bench::worker::{From, Job, Round, Speed};
use crate::bench::{BenchError, Database};

/// What the bars of memory and of growth are for. By themselves those measurements are shorter: nobody waits for more than three minutes.
pub const MEMORY_LENGTH: Duration = Duration::from_secs(600);
pub const GROWTH_MESSAGES: u64 = 10_000_000;
/// How many sessions come before all of them: what they cost the database must not depend on it.
const FEW_SESSIONS: usize = 1_000;
const SESSION_GROUPS: usize = 100;
/// How many times faster the rest is.
const SLOWNESS: f64 = 10.0;
/// A slow consumer that takes less than this is not slow but stuck.
const SLOW_SHARE_MIN: f64 = 0.05;
/// What ten minutes at full rate may leave on the disk: hundred million messages need more than most machines have to spare.
const KEPT_BYTES: u64 = 4 << 30;
const GROWN: &str = "grown";
/// What the bars of idle sessions are for.
const SESSIONS: usize = 10_000;
const REST: Duration = Duration::from_secs(60);
/// Commits of chores come one by one, so they are counted for longer than a round has, unless the whole is only a trial.
const QUIET_MIN: Duration = Duration::from_secs(20);
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
    course.steps_in_all(4);
    course.step("opening the first sessions");
    let empty = stage.brokers[0].rss_bytes()?;
    let few = FEW_SESSIONS.min(sessions / 2).max(1);
    let first = stage.worker("idle", Job::Idle { groups: groups.clone(), sessions: few }).await?;
    tokio::time::sleep(rest / 2).await;
    course.step("resting");
    let window = if rest < REST { course.window() } else { course.window().max(QUIET_MIN) };
    let few_commits = quiet(&stage, window).await?.0;
    course.step("opening all sessions");
    let others = stage.worker("idle", Job::Idle { groups, sessions: sessions - few }).await?;
    course.step("resting");
    tokio::time::sleep(rest).await;
    let full = stage.brokers[0].rss_bytes()?;
    let (all_commits, busy) = quiet(&stage, window).await?;
    findings.saw_rss(stage.rss_peak_mb()?);
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
    findings.notes.push(format!("one turn, without rounds; commits were counted for {} s", window.as_secs()));
    if sessions < SESSIONS || rest < REST {
        let rest = rest.as_secs();
        findings.notes.push(format!(
            "{sessions} sessions that rested {rest} s; the bars are for {SESSIONS} and a minute"
        ));
    }
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
    let kept = Some(KEPT_BYTES);
    stage.topic_as(&CreateTopic { retention_bytes: kept, ..CreateTopic::new("memory", PARTITIONS) }).await?;
    let mut consumers = stage.consumers("memory", &["fast".to_owned()]).await?;
    let mut producers = stage.producers("memory", PARTITIONS).await?;
    let worked = work(&stage, &mut producers, Some(&mut consumers), super::round(course.window())).await?;
    let rate = worked.consumed.unwrap_or_default().rate();
    let speed = Speed::Slow { rate: (rate / SLOWNESS).max(1.0) as u32 };
    let job = Job::Consume { groups: vec!["slow".into()], speed, from: From::Oldest };
    let mut slow = Crew(vec![stage.worker("memory", job).await?]);
    course.steps_in_all(1);
    course.step("full rate with a slow consumer");
    let round = super::round(length);
    slow.begin(round).await?; // without a round it would take nothing
    let (worked, samples) =
        tokio::try_join!(work(&stage, &mut producers, Some(&mut consumers), round), sampled(&stage, length))?;
    let slow_rate = slow.tally(round).await?.rate();
    let mut findings = Findings::new("memory", "full rate without a slow consumer, messages per second");
    findings.limits.push(rate);
    let consumed = worked.consumed.unwrap_or_default();
    findings.rates.push(consumed.rate());
    findings.saw_commits(worked.commits, consumed.messages);
    findings.notes.push("one turn, without rounds".into());
    findings.saw_rss(stage.rss_peak_mb()?);
    slow.stop().await?;
    producers.stop().await?;
    consumers.stop().await?;
    stage.close().await?;
    judge_memory(&mut findings, &samples, slow_rate);
    if length < MEMORY_LENGTH {
        findings.notes.push(format!("{} s at full rate; the bars are for ten minutes", length.as_secs()));
    }
    Ok(findings.report(environment))
}

fn judge_memory(findings: &mut Findings, samples: &[f64], slow_rate: f64) {
    let most = findings.rss_mb;
    findings.judge(
        "broker memory at full rate, one consumer ten times slower",
        most,
        "MB",
        Bar::AtMost(256.0),
    );
    let (first, last) = thirds(samples);
    findings.judge(
        "growth of that memory, last third over first",
        Some(last - first),
        "MB",
        Bar::AtMost(16.0),
    );
    findings
        .notes
        .push(format!("{first:.0} MB in the first third of the time and {last:.0} MB in the last (medians)"));
    let share = findings.rates.first().filter(|rate| **rate > 0.0).map(|rate| slow_rate / rate);
    let kept = KEPT_BYTES >> 30;
    findings.notes.push(format!("the topic keeps {kept} GiB: beyond that retention takes the oldest, and the slow consumer goes on after it"));
    findings.notes.push(format!("the slow consumer acknowledged {slow_rate:.0} messages per second"));
    findings.judge(
        "share of the slow consumer in the rate of the rest",
        share,
        "×",
        Bar::AtLeast(SLOW_SHARE_MIN),
    );
}

/// The medians of the first and of the last third.
fn thirds(samples: &[f64]) -> (f64, f64) {
    let third = samples.len().div_ceil(3);
    let median = |part: &[f64]| Figures::of(part.to_vec()).map_or(0.0, |figures| figures.median);
    (median(&samples[..third]), median(&samples[samples.len() - third..]))
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
    stage.topic(GROWN, PARTITIONS).await?;
    let mut grown = stage.producers(GROWN, PARTITIONS).await?;
    warm_up(&stage, &mut grown, None).await?;
    course.steps(4);
    course.progress.step("filling", 0, course.of);
    let share = messages.div_ceil(grown.0.len() as u64);
    grown.work(Round::filling(share, FILL_WINDOW)).await?;
    let mut findings = Findings::new("growth", "publishes to a topic that stored nothing, per second");
    findings.latency_of = Some("a message to the grown topic, from the moment it was due to its delivery");
    let mut latencies = Vec::new();
    for number in 0..course.schedule.rounds {
        let fresh = format!("fresh{number}");
        stage.topic(&fresh, PARTITIONS).await?;
        let mut plain = stage.producers(&fresh, PARTITIONS).await?;
        work(&stage, &mut plain, None, super::round(WARM_UP)).await?; // its tables
        course.step("publish, nothing stored");
        findings.limits.push(work(&stage, &mut plain, None, course.round()).await?.published.rate());
        plain.stop().await?;
        course.step("publish, much stored");
        let worked = work(&stage, &mut grown, None, course.round()).await?;
        findings.rates.push(worked.published.rate());
        findings.saw_commits(worked.commits, worked.published.messages);
        findings.saw_rss(stage.rss_peak_mb()?);
        // A group of its own each time, which begins with what is yet to come: nothing of the rounds above is before it.
        let (fresh, group) = (format!("{fresh}-latency"), format!("followers{number}"));
        stage.topic(&fresh, PARTITIONS).await?;
        course.step("latency, nothing stored");
        let plain = paced(&stage, &fresh, &group, course.window()).await?;
        course.step("latency, much stored");
        let delivered = paced(&stage, GROWN, &group, course.window()).await?;
        findings.saw_delivered(&delivered);
        latencies.push(p99(&delivered).unwrap_or(f64::NAN) / p99(&plain).unwrap_or(f64::NAN));
    }
    grown.stop().await?;
    stage.close().await?;
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("much stored in the topic against none (publish)", ratio, "×", Bar::AtLeast(0.9));
    if messages < GROWTH_MESSAGES {
        findings.notes.push(format!("{messages} messages were stored first; the bars are for ten million"));
    }
    let slower = Figures::of(latencies).map(|figures| figures.median);
    findings.judge("much stored in the topic against none (p99 latency)", slower, "×", Bar::AtMost(1.2));
    Ok(findings.report(environment))
}

/// Publish to delivery at the usual rate, to a new group, after a warm-up.
async fn paced(stage: &Stage, topic: &str, group: &str, window: Duration) -> Result<Tally, BenchError> {
    let mut paced = Paced::open(stage, topic, group, RATE_DEFAULT).await?;
    paced.work(stage, WARM_UP).await?;
    let (delivered, _) = paced.work(stage, window).await?;
    paced.stop().await?;
    Ok(delivered)
}
