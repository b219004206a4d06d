//! Where a measurement takes place: a database, broker processes on it, and the workers of the moment.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use laneway_client::topic::{AlterTopic, CreateTopic, Retention};
use parking_lot::Mutex;
use tempfile::TempDir;
use uuid::Uuid;

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
/// Enough to tell runs apart, and little beside a message.
const SUFFIX_CHARS: usize = 8;
/// How often it is looked whether consumers are at the end.
const LOOK_WINDOW: Duration = Duration::from_millis(50);
/// How long the tables of deleted topics may take to go; the next broker carries on.
const SWEEP_PATIENCE: Duration = Duration::from_secs(60);
const SWEEP_PAUSE: Duration = Duration::from_millis(200);
/// Before what is measured.
pub const WARM_UP: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub struct Stage {
    pub brokers: Vec<BrokerProcess>,
    pub witness: Witness,
    pub url: String,
    directory: TempDir,
    /// Goes behind the name of each topic: a database that was given may have those of another run.
    suffix: String,
    /// Topics to delete at the end, if the database stays.
    topics: Mutex<Vec<String>>,
    stays: bool,
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
        let suffix = Uuid::new_v4().simple().to_string()[..SUFFIX_CHARS].to_owned();
        let stays = matches!(database, Database::Given { .. });
        Ok(Self { brokers: started, witness, url, directory, suffix, topics: Mutex::default(), stays })
    }

    pub async fn topic(&self, name: &str, partitions: u32) -> Result<(), BenchError> {
        self.topic_as(&CreateTopic::new(name, partitions)).await
    }

    pub async fn topic_as(&self, topic: &CreateTopic) -> Result<(), BenchError> {
        let topic = CreateTopic { name: self.name(&topic.name), ..topic.clone() };
        self.brokers[0].admin()?.create_topic(&topic).await?;
        self.topics.lock().push(topic.name);
        Ok(())
    }

    /// What retention by bytes does to a topic from now on.
    pub async fn retain(&self, topic: &str, retention_bytes: Retention) -> Result<(), BenchError> {
        let changes = AlterTopic { retention_bytes, ..AlterTopic::default() };
        self.brokers[0].admin()?.alter_topic(&self.name(topic), &changes).await?;
        Ok(())
    }

    fn name(&self, topic: &str) -> String {
        format!("{topic}-{}", self.suffix)
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.brokers.iter().map(|broker| broker.address).collect()
    }

    fn post(&self, brokers: &[SocketAddr], topic: &str, job: Job) -> Post {
        Post { brokers: brokers.to_vec(), topic: self.name(topic), job }
    }

    /// Some worker on the first broker.
    pub async fn worker(&self, topic: &str, job: Job) -> Result<WorkerProcess, BenchError> {
        WorkerProcess::start(&self.post(&self.addresses()[..1], topic, job)).await
    }

    /// Two producers at full rate on the first broker.
    pub async fn producers(&self, topic: &str, partitions: u32) -> Result<Crew, BenchError> {
        self.producers_on(topic, partitions, &self.addresses()[..1], PRODUCERS).await
    }

    /// So many producers at full rate, by turns on these brokers.
    pub async fn producers_on(
        &self,
        topic: &str,
        partitions: u32,
        brokers: &[SocketAddr],
        producers: usize,
    ) -> Result<Crew, BenchError> {
        let job =
            Job::Produce { partitions, frame_messages: FRAME_MESSAGES, frames_in_flight: FRAMES_IN_FLIGHT };
        let mut workers = Vec::new();
        for number in 0..producers {
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

    /// Memory of the largest broker now, in megabytes.
    pub fn rss_mb(&self) -> Result<f64, BenchError> {
        self.largest(BrokerProcess::rss_bytes)
    }

    /// Most memory that a broker ever had, in megabytes.
    pub fn rss_peak_mb(&self) -> Result<f64, BenchError> {
        self.largest(BrokerProcess::rss_peak_bytes)
    }

    fn largest(&self, of: fn(&BrokerProcess) -> Result<u64, BenchError>) -> Result<f64, BenchError> {
        let bytes: Result<Vec<u64>, _> = self.brokers.iter().map(of).collect();
        Ok(bytes?.into_iter().max().unwrap_or(0) as f64 / f64::from(1 << 20))
    }

    /// Takes the topics out of a database that stays: the next measurement begins with what this one found.
    async fn clear(&self) -> Result<(), BenchError> {
        let (topics, admin) = (std::mem::take(&mut *self.topics.lock()), self.brokers[0].admin()?);
        for topic in &topics {
            admin.delete_topic(topic).await?;
        }
        let deadline = Instant::now() + SWEEP_PATIENCE;
        while self.witness.topics_leaving().await? > 0 && Instant::now() < deadline {
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
        Ok(())
    }

    /// Ends all brokers.
    pub async fn close(self) -> Result<(), BenchError> {
        if self.stays {
            self.clear().await?;
        }
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
            let tally = self.work(Round::beginning(Duration::ZERO, LOOK_WINDOW)).await?;
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
