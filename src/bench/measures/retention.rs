//! Publishes while retention drops segments and everything is vacuumed, against neither.
//!
//! One topic with small segments takes both turns: first it keeps everything, then retention lets nearly all of it go while more comes.
//! Retention looks every [`RETENTION_INTERVAL`]; windows are longer than that, so that each has its pass, and a turn without begins when
//! nothing is on its way out. Whether segments really went, and did not, is counted and held to a bar like the rate.
//!
//! Autovacuum is left as PostgreSQL has it, on both sides.

use std::time::{Duration, Instant};

use laneway_client::topic::{CreateTopic, Retention};

use super::{Course, FRAME, Worked, round, warm_up, work};
use crate::bench::report::{Bar, Environment, Findings, Report};
use crate::bench::rows::{VacuumPace, Witness};
use crate::bench::stage::{Crew, PARTITIONS, Stage, WARM_UP};
use crate::bench::{BenchError, Database};
use crate::limits::RETENTION_INTERVAL;

const TOPIC: &str = "retention";
/// Small segments and little room, so that retention has something to drop.
const SMALL_SEGMENT_MESSAGES: u32 = 100_000;
const SMALL_RETENTION_BYTES: u64 = 64 << 20;
/// A window that certainly has a pass of retention, with time to do its work.
const WINDOW_MIN: Duration = RETENTION_INTERVAL.saturating_add(Duration::from_secs(2));
/// How long segments may take to go when nothing is dropped any more.
const LEAVING_PATIENCE: Duration = Duration::from_secs(60);
const LEAVING_PAUSE: Duration = Duration::from_millis(100);

/// What has happened beside the publishes.
#[derive(Debug, Default)]
struct Beside {
    dropped_without: i64,
    dropped: i64,
    vacuums: u32,
    pace: Option<VacuumPace>,
}

/// See the module.
pub async fn retention(database: &Database, mut course: Course<'_>) -> Result<Report, BenchError> {
    let environment = Environment::of(&database.url(), course.schedule).await?;
    let stage = Stage::build(database, 1).await?;
    let small = Some(SMALL_SEGMENT_MESSAGES);
    stage.topic_as(&CreateTopic { segment_messages: small, ..CreateTopic::new(TOPIC, PARTITIONS) }).await?;
    let mut producers = stage.producers(TOPIC, PARTITIONS).await?;
    warm_up(&stage, &mut producers, None).await?;
    let mut findings = Findings::new("retention", "publishes without retention and vacuum, per second");
    findings.latency_of = Some(FRAME);
    let (window, mut beside) = (course.window().max(WINDOW_MIN), Beside::default());
    course.steps(2);
    for _ in 0..course.schedule.rounds {
        course.step("without");
        let before = stage.witness.segments_gone().await?.dropped;
        findings.limits.push(work(&stage, &mut producers, None, round(window)).await?.published.rate());
        let between = stage.witness.segments_gone().await?.dropped;
        course.step("retention and vacuum");
        let worked = cleaned(&stage, &mut producers, window, &mut beside).await?;
        findings.rates.push(worked.published.rate());
        findings.latencies.add(&worked.published.latencies);
        findings.saw_commits(worked.commits, worked.published.messages);
        beside.dropped_without += between - before;
        beside.dropped += stage.witness.segments_gone().await?.dropped - between;
        findings.saw_rss(stage.rss_peak_mb()?);
        settled(&stage).await?;
    }
    producers.stop().await?;
    stage.close().await?;
    judge(&mut findings, &beside, window);
    Ok(findings.report(environment))
}

/// Publishes while retention is on and everything is vacuumed again and again; afterwards neither goes on.
async fn cleaned(
    stage: &Stage,
    producers: &mut Crew,
    window: Duration,
    beside: &mut Beside,
) -> Result<Worked, BenchError> {
    stage.retain(TOPIC, Retention::Bound(SMALL_RETENTION_BYTES)).await?;
    let vacuum = Witness::open(&stage.url).await?; // its own connection: nobody waits behind a vacuum
    beside.pace = Some(vacuum.pace_vacuum().await?);
    let end = Instant::now() + WARM_UP + window;
    let (worked, vacuums) =
        tokio::try_join!(work(stage, producers, None, round(window)), vacuum.vacuum_until(end))?;
    stage.retain(TOPIC, Retention::None).await?;
    beside.vacuums += vacuums;
    Ok(worked)
}

/// Waits until no segment is on its way out.
async fn settled(stage: &Stage) -> Result<(), BenchError> {
    let deadline = Instant::now() + LEAVING_PATIENCE;
    while stage.witness.segments_gone().await?.leaving > 0 && Instant::now() < deadline {
        tokio::time::sleep(LEAVING_PAUSE).await;
    }
    Ok(())
}

fn judge(findings: &mut Findings, beside: &Beside, window: Duration) {
    let Beside { dropped_without, dropped, vacuums, pace } = beside;
    let seconds = window.as_secs();
    findings.notes.push(format!(
        "windows of {seconds} s, each longer than the time between two passes of retention; {dropped} segments were dropped with it, \
         {dropped_without} without"
    ));
    findings.notes.extend(pace.as_ref().map(|VacuumPace { delay, limit }| {
        format!(
            "{vacuums} vacuums of everything, one after the other without a rest, at the pace of the server's autovacuum (a rest of \
             {delay} for each {limit} of cost); autovacuum itself is on, on both sides"
        )
    }));
    let ratio = findings.ratios().map(|ratios| ratios.median);
    findings.judge("retention and vacuum running", ratio, "× of without", Bar::AtLeast(0.9));
    let dropped = Some(*dropped as f64);
    findings.judge("segments that retention dropped meanwhile", dropped, "segments", Bar::AtLeast(1.0));
    let dropped = Some(*dropped_without as f64);
    findings.judge("segments dropped without retention", dropped, "segments", Bar::AtMost(0.0));
    findings.judge("vacuums that ran meanwhile", Some(f64::from(*vacuums)), "vacuums", Bar::AtLeast(1.0));
}
