//! What steps cost: `cargo bench --bench steps`. A private PostgreSQL, a broker process, one session over a real socket.
//!
//! Rounds alternate between one connection that commits single rows and 64 steps at a time, each of which acknowledges one message
//! and publishes one; then single publishes and single steps, one after the other. Medians of the rounds, and ratios within a round.

mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use laneway::bench::database::Database;
use laneway::store::Target;
use laneway_client::Admin;
use laneway_client::topic::CreateTopic;
use laneway_client::wire::{
    Ack, BrokerFrame, ClientFrame, Credit, OffsetRange, Publish, StepPublish, Transact,
};
use support::{Broker, Delivered, Failure, PAYLOAD_BYTES, Session, median};
use tokio_postgres::types::Type;
use uuid::Uuid;

const ROUNDS: usize = 5;
const WINDOW: Duration = Duration::from_secs(3);
/// Steps before the window: the tables of a topic are made with its first messages.
const WARM_UP: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 64;
const PARTITIONS: u32 = 8;
/// More than any machine does in a window.
const ORDERS: usize = 200_000;
const SINGLES: usize = 300;

/// One round.
#[derive(Debug, Clone, Copy)]
struct Round {
    row_commits: f64,
    steps: f64,
    commits_per_step: f64,
    publish_p50_us: f64,
    step_p50_us: f64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(()); // cargo test builds benches and runs them once
    }
    let database = Database::open(None).await?;
    let result = measure(&database.url()).await;
    database.close().await?;
    let rounds = result?;
    let median = |of: fn(&Round) -> f64| median(rounds.iter().map(of).collect());
    println!("| what | median of {ROUNDS} rounds | bar |\n|---|---|---|");
    println!("| one connection committing single rows | {:.0}/s | |", median(|round| round.row_commits));
    println!("| {AT_ONCE} steps at a time | {:.0}/s | |", median(|round| round.steps));
    println!("| ratio | {:.1} | ≥ 4 |", median(|round| round.steps / round.row_commits));
    println!("| commits per step | {:.3} | ≤ 0.2 |", median(|round| round.commits_per_step));
    println!("| p50 of a publish alone | {:.0} µs | |", median(|round| round.publish_p50_us));
    println!("| p50 of a step alone | {:.0} µs | |", median(|round| round.step_p50_us));
    println!("| ratio | {:.2} | ≤ 2.5 |", median(|round| round.step_p50_us / round.publish_p50_us));
    Ok(())
}

async fn measure(url: &str) -> Result<Vec<Round>, Failure> {
    let (broker, admin) = Broker::start(url).await?;
    let rows = Rows::open(url).await?;
    let mut rounds = Vec::new();
    for number in 0..=ROUNDS {
        let round = round(&admin, broker.address, &rows, number).await?;
        eprintln!("round {number}{}: {round:?}", if number == 0 { " (warm-up)" } else { "" });
        rounds.extend((number > 0).then_some(round));
    }
    broker.stop()?;
    Ok(rounds)
}

async fn round(admin: &Admin, address: SocketAddr, rows: &Rows, number: usize) -> Result<Round, Failure> {
    let (orders, results) = (format!("orders{number}"), format!("results{number}"));
    for topic in [&orders, &results] {
        admin.create_topic(&CreateTopic::new(topic, PARTITIONS)).await?;
    }
    let mut session = Session::open(address).await?;
    session.fill(&orders, ORDERS).await?;
    let row_commits = rows.rate().await?;
    session.subscribe(&orders).await?;
    let mut worker = Worker { session, answers: 0 };
    worker.take_steps(&results, WARM_UP).await?;
    let (steps, commits_per_step) = worker.steps_at_once(&results, rows).await?;
    let (publish_p50_us, step_p50_us) = worker.singles(&results).await?;
    worker.session.stream.close(None).await?;
    admin.delete_topic(&orders).await?;
    Ok(Round { row_commits, steps, commits_per_step, publish_p50_us, step_p50_us })
}

/// One connection that commits single rows, and asks how many transactions there were.
struct Rows {
    client: tokio_postgres::Client,
    insert: tokio_postgres::Statement,
}

impl Rows {
    async fn open(url: &str) -> Result<Self, Failure> {
        let client = Target::parse(url)?.connect().await?;
        client.batch_execute(&include_str!("limit/table.sql").replace("{number}", "9")).await?;
        let types = [Type::INT8_ARRAY, Type::UUID_ARRAY, Type::BYTEA_ARRAY, Type::BYTEA_ARRAY];
        let sql = include_str!("limit/insert.sql").replace("{number}", "9");
        let insert = client.prepare_typed(&sql, &types).await?;
        Ok(Self { client, insert })
    }

    async fn rate(&self) -> Result<f64, Failure> {
        self.client.batch_execute("TRUNCATE laneway_limit_9").await?;
        let started = Instant::now();
        let (mut rows, payload) = (0_i64, [7_u8; PAYLOAD_BYTES]);
        while started.elapsed() < WINDOW {
            let (offset, id) = (vec![rows], vec![Uuid::now_v7()]);
            let (key, payload): (Vec<&[u8]>, Vec<&[u8]>) = (vec![b"customer"], vec![&payload]);
            self.client.execute(&self.insert, &[&offset, &id, &key, &payload]).await?;
            rows += 1;
        }
        Ok(rows as f64 / started.elapsed().as_secs_f64())
    }

    /// Transactions of the whole database, once all connections have told of theirs.
    async fn commits(&self) -> Result<i64, Failure> {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        self.client.batch_execute("SELECT pg_stat_clear_snapshot()").await?;
        let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
        Ok(self.client.query_one(sql, &[]).await?.get(0))
    }
}

/// A session that takes steps.
struct Worker {
    session: Session,
    /// Answers that came while something else was waited for.
    answers: usize,
}

impl Worker {
    /// Acknowledges the next delivered message and publishes another.
    async fn step(&mut self, topic: &str) -> Result<u64, Failure> {
        self.supplied().await?;
        let Some(Delivered { subscription, partition, epoch, round, offset }) =
            self.session.delivered.pop_front()
        else {
            return Err("there is nothing to do".into());
        };
        let id = self.session.id();
        let ranges = vec![OffsetRange { from: offset, to: offset + 1 }];
        let acks = vec![Ack { id: None, subscription, partition, epoch, round, next: None, ranges }];
        let publishes =
            vec![StepPublish { topic: topic.into(), messages: vec![Session::message(id as usize)] }];
        self.session
            .feed(&ClientFrame::Transact(Transact { id, step_id: Uuid::now_v7(), acks, publishes }))
            .await?;
        let credit = Credit { subscription, messages: 1, bytes: PAYLOAD_BYTES as u64 + 20 };
        self.session.feed(&ClientFrame::Credit(credit)).await?;
        Ok(id)
    }

    async fn answered(&mut self) -> Result<(), Failure> {
        match self.answers.checked_sub(1) {
            Some(left) => self.answers = left,
            None => drop(self.session.until(|frame| matches!(frame, BrokerFrame::Transacted(_))).await?),
        }
        Ok(())
    }

    /// Waits until there is something to do.
    async fn supplied(&mut self) -> Result<(), Failure> {
        while self.session.delivered.is_empty() {
            let frame = self.session.next().await?;
            self.answers += usize::from(matches!(frame, Some(BrokerFrame::Transacted(_))));
        }
        Ok(())
    }

    /// Steps per second with so many in flight, and commits per step.
    async fn steps_at_once(&mut self, topic: &str, rows: &Rows) -> Result<(f64, f64), Failure> {
        let before = rows.commits().await?;
        let (steps, took) = self.take_steps(topic, WINDOW).await?;
        let commits = rows.commits().await? - before;
        let all = f64::from(steps) + AT_ONCE as f64;
        Ok((f64::from(steps) / took.as_secs_f64(), commits as f64 / all))
    }

    /// Takes steps for a while, so many in flight, and waits for all answers. Returns how many were answered in that time.
    async fn take_steps(&mut self, topic: &str, length: Duration) -> Result<(u32, Duration), Failure> {
        let started = Instant::now();
        for _ in 0..AT_ONCE {
            self.step(topic).await?;
        }
        let mut steps = 0_u32;
        while started.elapsed() < length {
            self.answered().await?;
            self.step(topic).await?;
            steps += 1;
        }
        let took = started.elapsed();
        for _ in 0..AT_ONCE {
            self.answered().await?;
        }
        Ok((steps, took))
    }

    /// The medians of single publishes and single steps, in turn.
    async fn singles(&mut self, topic: &str) -> Result<(f64, f64), Failure> {
        let (mut publishes, mut steps) = (Vec::new(), Vec::new());
        for number in 0..SINGLES {
            let started = Instant::now();
            let id = self.session.id();
            let messages = vec![Session::message(number)];
            let publish = Publish { id, topic: topic.into(), producer_id: None, wait_ms: None, messages };
            self.session.send(&ClientFrame::Publish(publish)).await?;
            self.session
                .until(|frame| matches!(frame, BrokerFrame::Published(published) if published.id == id))
                .await?;
            publishes.push(started.elapsed().as_secs_f64() * 1e6);
            self.supplied().await?;
            let started = Instant::now();
            self.step(topic).await?;
            self.answered().await?;
            steps.push(started.elapsed().as_secs_f64() * 1e6);
        }
        Ok((median(publishes), median(steps)))
    }
}
