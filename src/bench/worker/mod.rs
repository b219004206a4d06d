//! A worker: one process of a measurement. It connects, says so, and works through each round that it is told of.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the loop: one JSON document per line in, one out |
//! | `session` | a connection that speaks the protocol |
//! | `numbered` | messages with keys, trace ids and numbers |
//! | `produce` | frames of many messages, several in flight |
//! | `singles` | many producers, each with one message at a time |
//! | `pace` | single messages at an offered rate, whatever the answers do |
//! | `consume` | members of groups that acknowledge what they are given, and count what is committed |
//! | `idle` | sessions that do nothing |
//!
//! Standard input ends: the worker ends. So nothing stays behind, however the measurement ends.

mod consume;
mod idle;
mod numbered;
mod pace;
mod produce;
mod session;
mod singles;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::messages::now_us;
use super::tally::Tally;

/// Why a worker cannot go on, as one sentence.
pub type WorkerError = Box<dyn std::error::Error + Send + Sync>;

/// What a worker is for, as its one argument says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Post {
    /// Brokers, by turns where there are several connections.
    pub brokers: Vec<SocketAddr>,
    pub topic: String,
    pub job: Job,
}

impl Post {
    /// The broker of a connection.
    fn broker(&self, connection: usize) -> SocketAddr {
        self.brokers[connection % self.brokers.len()]
    }
}

/// What it does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Job {
    /// Frames of many messages, several in flight, as fast as they are answered.
    Produce { partitions: u32, frame_messages: usize, frames_in_flight: usize },
    /// Producers that send one message and wait for its answer.
    Singles { partitions: u32, producers: usize },
    /// Single messages at a rate, on some connections, whether answers come or not.
    Pace { partitions: u32, connections: usize, rate: u32 },
    /// One member of each group; a new group begins with the oldest message, or with what is yet to come.
    Consume { groups: Vec<String>, speed: Speed, from: From },
    /// So many members in all, over the groups by turns, without any message.
    Idle { groups: Vec<String>, sessions: usize },
}

/// Where a new group begins.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum From {
    Oldest,
    Newest,
}

/// How fast a consumer works.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Speed {
    /// As fast as it goes.
    Full,
    /// At most so many messages a second.
    Slow { rate: u32 },
}

/// How long messages that are late may still come after the window, and count with their whole time.
pub const LATE: Duration = Duration::from_secs(10);

/// One round: what is counted is what happens in the window, after the warm-up.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Round {
    /// On the clock that all processes share: they have the same window.
    pub start_us: i64,
    pub warm_up_ms: u64,
    pub window_ms: u64,
    /// With it, a producer of frames stops after so many messages, although the window goes on.
    pub messages_max: Option<u64>,
    /// So many messages are due in the window, which a consumer waits for and times; none where nothing is paced.
    pub due: u64,
}

impl Round {
    /// One that begins now.
    pub fn beginning(warm_up: Duration, window: Duration) -> Self {
        let (warm_up_ms, window_ms) = (warm_up.as_millis() as u64, window.as_millis() as u64);
        Self { start_us: now_us(), warm_up_ms, window_ms, messages_max: None, due: 0 }
    }

    /// One that ends with so many messages of each producer.
    pub fn filling(messages: u64, window: Duration) -> Self {
        Self { messages_max: Some(messages), ..Self::beginning(Duration::ZERO, window) }
    }

    /// The beginning of its window.
    pub fn from_us(self) -> i64 {
        self.start_us + self.warm_up_ms as i64 * 1_000
    }

    /// The end of its window.
    pub fn to_us(self) -> i64 {
        self.from_us() + self.window_ms as i64 * 1_000
    }
}

/// The window of a round that has begun.
#[derive(Debug, Clone, Copy)]
struct Window {
    round: Round,
    from: Instant,
    to: Instant,
}

impl Window {
    fn of(round: Round) -> Self {
        let (now, now_us) = (Instant::now(), now_us());
        let from = now + Duration::from_micros((round.from_us() - now_us).max(0) as u64);
        let to = now + Duration::from_micros((round.to_us() - now_us).max(0) as u64);
        Self { round, from, to }
    }

    fn contains(self, at: Instant) -> bool {
        self.from <= at && at < self.to
    }

    /// Whether a moment of the shared clock is in it.
    fn contains_us(self, moment_us: i64) -> bool {
        self.round.from_us() <= moment_us && moment_us < self.round.to_us()
    }

    /// When nobody waits any longer.
    fn too_late(self) -> Instant {
        self.to + LATE
    }
}

/// Rounds as they come in.
struct Rounds(mpsc::Receiver<std::io::Result<String>>);

impl Rounds {
    /// Reads standard input on a thread of its own, which ends with the process.
    fn read() -> Self {
        let (sender, lines) = mpsc::channel(1);
        std::thread::spawn(move || {
            let lines = std::io::stdin().lines();
            lines.map(|line| sender.blocking_send(line)).take_while(Result::is_ok).for_each(drop);
        });
        Self(lines)
    }

    /// The next round; `None`: that was all. Cancel safety: safe, no round is lost.
    async fn next(&mut self) -> Result<Option<Round>, WorkerError> {
        match self.0.recv().await {
            Some(line) => Ok(Some(serde_json::from_str(&line?)?)),
            None => Ok(None),
        }
    }
}

/// Says something to whoever measures.
fn say(what: &impl Serialize) -> Result<(), WorkerError> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, what)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Works until there are no more rounds.
pub async fn run(post: Post) -> Result<(), WorkerError> {
    let mut rounds = Rounds::read();
    match &post.job {
        Job::Produce { .. } | Job::Singles { .. } | Job::Pace { .. } => {
            let mut load = Load::open(&post).await?;
            say(&Tally::default())?; // it is ready
            let mut beat = tokio::time::interval(BEAT);
            loop {
                tokio::select! {
                    round = rounds.next() => match round? {
                        Some(round) => say(&load.work(round).await?)?,
                        None => return Ok(()),
                    },
                    // Between rounds others may take minutes, to catch up for one.
                    _ = beat.tick() => load.beat().await?,
                }
            }
        }
        Job::Consume { .. } => consume::run(&post, rounds).await,
        Job::Idle { groups, sessions } => idle::run(&post, groups, *sessions, rounds).await,
    }
}

/// How often those that publish say that they are there while they wait for a round.
const BEAT: Duration = Duration::from_secs(20);

/// What publishes.
enum Load {
    Produce(Box<produce::Producer>),
    Singles(singles::Singles),
    Pace(pace::Pace),
}

impl Load {
    async fn open(post: &Post) -> Result<Self, WorkerError> {
        Ok(match post.job {
            Job::Produce { partitions, frame_messages, frames_in_flight } => Self::Produce(Box::new(
                produce::Producer::open(post, partitions, frame_messages, frames_in_flight).await?,
            )),
            Job::Singles { partitions, producers } => {
                Self::Singles(singles::Singles::open(post, partitions, producers).await?)
            }
            Job::Pace { partitions, connections, rate } => {
                Self::Pace(pace::Pace::open(post, partitions, connections, rate).await?)
            }
            Job::Consume { .. } | Job::Idle { .. } => return Err("this job publishes nothing".into()),
        })
    }

    /// Says that it is there.
    async fn beat(&mut self) -> Result<(), WorkerError> {
        match self {
            Self::Produce(producer) => session::beat([producer.sender()]).await,
            Self::Singles(singles) => session::beat(singles.senders()).await,
            Self::Pace(pace) => session::beat(pace.senders()).await,
        }
    }

    async fn work(&mut self, round: Round) -> Result<Tally, WorkerError> {
        match self {
            Self::Produce(producer) => producer.work(round).await,
            Self::Singles(singles) => singles.work(round).await,
            Self::Pace(pace) => pace.work(round).await,
        }
    }
}
