//! Where a measurement takes place: a database, broker processes on it, and the workers of the moment.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use laneway_client::topic::CreateTopic;
use tempfile::TempDir;

use super::process::{BrokerProcess, WorkerProcess};
use super::rows::Witness;
use super::tally::Tally;
use super::worker::{From, Job, Post, Round, Speed};
use super::{BenchError, Database};

/// Partitions of a topic unless a measurement is about them.
pub const PARTITIONS: u32 = 8;
const PRODUCERS: usize = 2;
const FRAME_MESSAGES: usize = 100;
const FRAMES_IN_FLIGHT: usize = 32;
/// How long consumers may take to come to the end of what was published.
const DRAIN_PATIENCE: Duration = Duration::from_secs(120);
/// Lanes find their members in this time, while nothing is in flight.
const SETTLING: Duration = Duration::from_millis(500);
/// Before what is measured.
pub const WARM_UP: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Stage {
    pub brokers: Vec<BrokerProcess>,
    pub witness: Witness,
    pub url: String,
    directory: TempDir,
}

impl Stage {
    pub async fn build(database: &Database, brokers: usize) -> Result<Self, BenchError> {
        let url = database.url();
        let directory = tempfile::Builder::new().prefix("laneway-bench-logs-").tempdir()?;
        let mut started = Vec::new();
        for number in 0..brokers {
            started.push(BrokerProcess::start(&url, directory.path(), number).await?);
        }
        let witness = Witness::open(&url).await?;
        Ok(Self { brokers: started, witness, url, directory })
    }

    pub async fn topic(&self, name: &str, partitions: u32) -> Result<(), BenchError> {
        self.topic_as(&CreateTopic::new(name, partitions)).await
    }

    pub async fn topic_as(&self, topic: &CreateTopic) -> Result<(), BenchError> {
        self.brokers[0].admin()?.create_topic(topic).await?;
        Ok(())
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.brokers.iter().map(|broker| broker.address).collect()
    }

    fn post(&self, brokers: &[SocketAddr], topic: &str, job: Job) -> Post {
        Post { brokers: brokers.to_vec(), topic: topic.to_owned(), job }
    }

    /// Some worker on the first broker.
    pub async fn worker(&self, topic: &str, job: Job) -> Result<WorkerProcess, BenchError> {
        WorkerProcess::start(&self.post(&self.addresses()[..1], topic, job)).await
    }

    /// Producers at full rate: two on each of these brokers.
    pub async fn producers(
        &self,
        topic: &str,
        partitions: u32,
        brokers: &[SocketAddr],
    ) -> Result<Crew, BenchError> {
        let job =
            Job::Produce { partitions, frame_messages: FRAME_MESSAGES, frames_in_flight: FRAMES_IN_FLIGHT };
        let mut workers = Vec::new();
        for number in 0..PRODUCERS.max(brokers.len()) {
            let broker = brokers[number % brokers.len()];
            workers.push(WorkerProcess::start(&self.post(&[broker], topic, job.clone())).await?);
        }
        Ok(Crew(workers))
    }

    /// Two consumer processes that share the groups: with one group both are members, with several each has its part.
    pub async fn consumers(&self, topic: &str, groups: &[String]) -> Result<Crew, BenchError> {
        let mut workers = Vec::new();
        for number in 0..2 {
            let mine: Vec<String> = match groups {
                [one] => vec![one.clone()],
                several => several.iter().skip(number).step_by(2).cloned().collect(),
            };
            workers.push(
                self.worker(topic, Job::Consume { groups: mine, speed: Speed::Full, from: From::Oldest })
                    .await?,
            );
        }
        tokio::time::sleep(SETTLING).await;
        Ok(Crew(workers))
    }

    /// Memory of the first broker, in megabytes.
    pub fn rss_mb(&self) -> Result<f64, BenchError> {
        Ok(self.brokers[0].rss_bytes()? as f64 / f64::from(1 << 20))
    }

    /// Ends all brokers.
    pub async fn close(self) -> Result<(), BenchError> {
        for broker in self.brokers {
            broker.stop().await?;
        }
        Ok(self.directory.close()?)
    }
}

/// Workers that do the same.
#[derive(Debug)]
pub struct Crew(pub Vec<WorkerProcess>);

impl Crew {
    pub async fn begin(&mut self, round: Round) -> Result<(), BenchError> {
        for worker in &mut self.0 {
            worker.begin(round).await?;
        }
        Ok(())
    }

    /// What they have counted together.
    pub async fn tally(&mut self, round: Round) -> Result<Tally, BenchError> {
        let mut tallies = Vec::new();
        for worker in &mut self.0 {
            tallies.push(worker.tally(Duration::from_millis(round.warm_up_ms + round.window_ms)).await?);
        }
        Ok(Tally::sum(&tallies))
    }

    /// One round from begin to end.
    pub async fn work(&mut self, round: Round) -> Result<Tally, BenchError> {
        self.begin(round).await?;
        self.tally(round).await
    }

    /// Waits until consumers have committed so many messages since they began.
    pub async fn drained(&mut self, messages: u64) -> Result<(), BenchError> {
        let deadline = Instant::now() + DRAIN_PATIENCE;
        loop {
            let tally = self.work(Round { warm_up_ms: 0, window_ms: 50, messages_max: None }).await?;
            if tally.ever >= messages {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(BenchError::Undrained { missing: messages - tally.ever });
            }
        }
    }

    pub async fn stop(self) -> Result<(), BenchError> {
        for worker in self.0 {
            worker.stop().await?;
        }
        Ok(())
    }
}
