//! How late scheduled messages are: `cargo bench --bench schedules`. A private PostgreSQL, three broker processes, real sockets.
//!
//! 100,000 messages wait for a time that is far off, and 1,000 more are due every second, for a while: once alone, and once while
//! a foreign transaction holds an old snapshot, which keeps every row that was fired in the index. Lateness is told twice: up to the
//! flush, on the database clock, and up to the arrival at a consumer of one of the brokers, on the same machine.
//! `--seconds N` and `--pending N` make it shorter.

mod support;

use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use laneway::bench::database::Database;
use laneway::store::Target;
use laneway_client::topic::CreateTopic;
use laneway_client::wire::{BrokerFrame, ClientFrame, Credit, NewMessage, Publish, Subprotocol};
use support::{Broker, Failure, Session};
use tokio_tungstenite::tungstenite::Message;

const BROKERS: usize = 3;
const PARTITIONS: u32 = 8;
const PER_SECOND: usize = 1_000;
/// Messages of one publish.
const TOGETHER: usize = 1_000;
/// Until the first is due: everything is written down by then.
const LEAD: Duration = Duration::from_secs(10);
const FAR_MS: u64 = 24 * 3_600 * 1_000;
/// Nothing comes for so long: then something is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lateness in milliseconds: half of the messages, 99 of 100, the worst.
#[derive(Debug, Clone, Copy)]
struct Lateness {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Lateness {
    fn of(mut ms: Vec<f64>) -> Self {
        ms.sort_by(f64::total_cmp);
        let at = |share: f64| ms[((ms.len() - 1) as f64 * share) as usize];
        Self { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }

    fn row(&self, what: &str) {
        let bar = if what.contains("flush") { "≤ 100 ms" } else { "" };
        println!("| {what} | {:.1} ms | {:.1} ms | {:.1} ms | {bar} |", self.p50, self.p99, self.max);
    }
}

fn option(name: &str, default: usize) -> usize {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(()); // cargo test builds benches and runs them once
    }
    let (seconds, pending) = (option("--seconds", 20), option("--pending", 100_000));
    let database = Database::open(None).await?;
    let result = measure(&database.url(), seconds, pending).await;
    database.close().await?;
    println!(
        "| lateness, {pending} pending, {PER_SECOND} due per second, {BROKERS} brokers | p50 | p99 | max | bar for p99 |"
    );
    println!("|---|---|---|---|---|");
    for (what, lateness) in result? {
        lateness.row(&what);
    }
    Ok(())
}

async fn measure(url: &str, seconds: usize, pending: usize) -> Result<Vec<(String, Lateness)>, Failure> {
    let mut brokers = Vec::new();
    let (first, admin) = Broker::start(url).await?;
    brokers.push(first);
    while brokers.len() < BROKERS {
        brokers.push(Broker::start(url).await?.0);
    }
    admin.create_topic(&CreateTopic::new("far", PARTITIONS)).await?;
    let mut session = Session::open(brokers[0].address).await?;
    for first in (0..pending).step_by(TOGETHER) {
        let far = |number: usize| NewMessage { delay_ms: Some(FAR_MS), ..Session::message(number) };
        publish(&mut session, "far", (first..pending.min(first + TOGETHER)).map(far).collect()).await?;
    }
    let mut rows = Vec::new();
    for (topic, held) in [("alone", false), ("held", true)] {
        admin.create_topic(&CreateTopic::new(topic, PARTITIONS)).await?;
        let foreign = Target::parse(url)?.connect().await?;
        if held {
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM laneway.topic";
            foreign.batch_execute(begin).await?;
        }
        let (flushed, arrived) = round(url, &brokers, topic, seconds).await?;
        let name = if held { ", a foreign snapshot held" } else { "" };
        rows.push((format!("up to the flush{name}"), flushed));
        rows.push((format!("up to the arrival{name}"), arrived));
    }
    brokers.into_iter().try_for_each(Broker::stop)?;
    Ok(rows)
}

/// Schedules messages through all brokers in turn, takes them in as they come, and tells how late they are.
async fn round(
    url: &str,
    brokers: &[Broker],
    topic: &str,
    seconds: usize,
) -> Result<(Lateness, Lateness), Failure> {
    let messages = seconds * PER_SECOND;
    let mut consumer = Session::open(brokers[0].address).await?;
    consumer.subscribe(topic).await?;
    let credit = Credit { subscription: 1, messages: messages as u32, bytes: 64 << 20 };
    consumer.send(&ClientFrame::Credit(credit)).await?;
    let first_due = Timestamp::now() + LEAD;
    let mut producers = Vec::new();
    for broker in brokers {
        producers.push(Session::open(broker.address).await?);
    }
    let message = |number: usize| {
        let due = first_due + Duration::from_micros(number as u64 * 1_000_000 / PER_SECOND as u64);
        NewMessage {
            key: Some(due.as_microsecond().to_string().into()),
            partition: Some(number as u32 % PARTITIONS),
            deliver_at: Some(due.to_string()),
            ..Session::message(number)
        }
    };
    for (turn, first) in (0..messages).step_by(TOGETHER).enumerate() {
        let some = (first..first + TOGETHER).map(message).collect();
        publish(&mut producers[turn % brokers.len()], topic, some).await?;
    }
    if Timestamp::now() > first_due {
        return Err("the messages could not be written down in time".into());
    }
    let mut arrived = Vec::with_capacity(messages);
    while arrived.len() < messages {
        let next = tokio::time::timeout(PATIENCE, consumer.stream.next()).await;
        let next = next.map_err(|_| format!("{} of {messages} messages have come", arrived.len()))?;
        let Some(frame) = next else { return Err("the broker has gone".into()) };
        let Message::Binary(bytes) = frame? else { continue };
        let BrokerFrame::Batch(batch) = Subprotocol::MessagePack.decode_broker(&bytes)? else { continue };
        let now = Timestamp::now().as_microsecond();
        for message in &batch.messages {
            let key = message.key.as_deref().unwrap_or_default();
            let due: i64 = std::str::from_utf8(key)?.parse()?;
            arrived.push((now - due) as f64 / 1e3);
        }
    }
    Ok((flushed(url, topic).await?, Lateness::of(arrived)))
}

/// How late the messages of a topic were appended, as the database has it.
async fn flushed(url: &str, topic: &str) -> Result<Lateness, Failure> {
    let sql = "SELECT (extract(epoch FROM m.published_at) * 1000)::float8 - convert_from(m.key, 'UTF8')::float8 / 1000 \
        FROM laneway.message m JOIN laneway.partition USING (partition_id) JOIN laneway.topic t USING (topic_id) \
        WHERE t.name = $1";
    let rows = Target::parse(url)?.connect().await?.query(sql, &[&topic]).await?;
    Ok(Lateness::of(rows.iter().map(|row| row.get(0)).collect()))
}

async fn publish(session: &mut Session, topic: &str, messages: Vec<NewMessage>) -> Result<(), Failure> {
    let id = session.id();
    let publish = Publish { id, topic: topic.into(), producer_id: None, wait_ms: None, messages };
    session.send(&ClientFrame::Publish(publish)).await?;
    let wanted =
        |frame: &BrokerFrame| matches!(frame, BrokerFrame::Published(published) if published.id == id);
    match session.until(wanted).await? {
        BrokerFrame::Published(published) => match published.units.into_iter().find_map(|unit| unit.error) {
            Some(fault) => Err(fault.detail.into()),
            None => Ok(()),
        },
        other => Err(format!("no answer to a publish: {other:?}").into()),
    }
}
