//! The measurements, one function each. They alternate between what is measured and what it is measured against.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | what rounds share: the limit, producers and consumers at work, the count of commits |
//! | `raw` | the limit alone; the appender in process |
//! | `publishing` | publishes at full rate: alone, over 1,000 partitions, by three brokers |
//! | `retention` | publishes while retention and vacuum run |
//! | `delivery` | end to end, fan-out, catch-up |
//! | `singles` | one message at a time: many producers, and an offered rate |
//! | `room` | idle sessions, memory at full rate, growth |

pub mod delivery;
pub mod publishing;
pub mod raw;
pub mod retention;
pub mod room;
pub mod singles;

use std::time::Duration;

use super::stage::{Crew, Stage, WARM_UP};
use super::tally::Tally;
use super::worker::Round;
use super::{BenchError, Progress, Schedule, limit};

/// The name of the usual denominator.
const LIMIT: &str = "plain inserts of 500 rows from two connections, per second";
/// What times of publishes at full rate are of.
const FRAME: &str = "a frame of 100 messages, from sending to its answer (a closed loop)";

/// What is measured, and how it is told.
#[derive(Debug)]
pub struct Course<'a> {
    pub schedule: Schedule,
    pub progress: &'a mut dyn Progress,
    done: u32,
    of: u32,
}

impl<'a> Course<'a> {
    pub fn new(schedule: Schedule, progress: &'a mut dyn Progress) -> Self {
        Self { schedule, progress, done: 0, of: schedule.rounds }
    }

    /// How many steps a round has.
    fn steps(&mut self, per_round: u32) {
        (self.done, self.of) = (0, self.schedule.rounds * per_round);
    }

    /// How many steps a measurement has that is one long turn, without rounds.
    fn steps_in_all(&mut self, steps: u32) {
        (self.done, self.of) = (0, steps);
    }

    fn step(&mut self, name: &str) {
        self.progress.step(name, self.done, self.of);
        self.done += 1;
    }

    fn window(&self) -> Duration {
        self.schedule.window()
    }

    fn round(&self) -> Round {
        round(self.window())
    }

    async fn limit(&mut self, url: &str) -> Result<f64, BenchError> {
        self.step("limit");
        limit::measure(url, self.window()).await
    }
}

fn round(window: Duration) -> Round {
    Round::beginning(WARM_UP, window)
}

/// What happened in one window.
struct Worked {
    published: Tally,
    consumed: Option<Tally>,
    commits: i64,
}

/// Producers and consumers at work for one round, which begins now; commits are counted in the window.
async fn work(
    stage: &Stage,
    producers: &mut Crew,
    mut consumers: Option<&mut Crew>,
    round: Round,
) -> Result<Worked, BenchError> {
    if let Some(consumers) = &mut consumers {
        consumers.begin(round).await?;
    }
    producers.begin(round).await?;
    tokio::time::sleep(Duration::from_millis(round.warm_up_ms)).await;
    let before = stage.witness.commits().await?;
    tokio::time::sleep(Duration::from_millis(round.window_ms)).await;
    let commits = stage.witness.commits().await? - before;
    let published = producers.tally(round).await?;
    let consumed = match consumers {
        Some(consumers) => Some(consumers.tally(round).await?),
        None => None,
    };
    Ok(Worked { published, consumed, commits })
}

/// Connections, tables, plans and caches, before the first round.
async fn warm_up(
    stage: &Stage,
    producers: &mut Crew,
    mut consumers: Option<&mut Crew>,
) -> Result<(), BenchError> {
    limit::measure(&stage.url, WARM_UP).await?;
    let worked = work(stage, producers, consumers.as_deref_mut(), round(WARM_UP)).await?;
    match consumers {
        Some(consumers) => consumers.drained(worked.published.ever).await,
        None => Ok(()),
    }
}
