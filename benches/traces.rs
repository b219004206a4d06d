//! What it takes to read a trace: `cargo bench --bench traces [-- MESSAGES]`. A private PostgreSQL and a broker process; 10 million
//! messages by default in 5 topics of 16 partitions, and 1,000 further partitions; traces of 10 hops over the 5 topics among them. Each
//! topic has a group that has done some of its messages, by plain acks and by steps, with gaps; so every hop is shown as that group sees it.
//!
//! Traces are read over HTTP, each on a connection of its own, some of them as the very first thing that a broker does, whose
//! connections to the database are new too.

mod support;

use std::time::{Duration, Instant};

use laneway::bench::database::Database;
use laneway_client::topic::CreateTopic;
use laneway_client::wire::{
    Ack, BrokerFrame, ClientFrame, Credit, NewMessage, OffsetRange, Publish, Transact,
};
use laneway_client::{Admin, Cause};
use support::{Broker, Delivered, Failure, PAYLOAD_BYTES, Session};
use uuid::Uuid;

const TOPICS: usize = 5;
const PARTITIONS: u32 = 16;
const FURTHER_PARTITIONS: u32 = 1_000;
const HOPS: usize = 10;
const MESSAGES_DEFAULT: usize = 10_000_000;
const FRAME: usize = 1_000;
const FRAMES_IN_FLIGHT: usize = 16;
/// A trace begins every so many frames.
const TRACE_EVERY: usize = 20;
/// Messages of each partition that the group of its topic works on, as far as there are so many.
const WORKED_ON: i64 = 1_200;
const LOOKS: usize = 1_000;
const COLD_STARTS: usize = 20;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--test") {
        return Ok(()); // cargo test builds benches and runs them once
    }
    let messages = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(MESSAGES_DEFAULT);
    let database = Database::open(None).await?;
    let result = measure(&database.url(), messages).await;
    database.close().await?;
    result
}

async fn measure(url: &str, messages: usize) -> Result<(), Failure> {
    let (broker, admin) = Broker::start(url).await?;
    for topic in 0..TOPICS {
        admin.create_topic(&CreateTopic::new(name(topic), PARTITIONS)).await?;
    }
    admin.create_topic(&CreateTopic::new("further", FURTHER_PARTITIONS)).await?;
    let started = Instant::now();
    let traces = fill(&broker, messages).await?;
    eprintln!("{messages} messages and {} traces in {:?}", traces.len(), started.elapsed());
    // Keys do not spread quite evenly.
    let worked_on = WORKED_ON.min((messages / TOPICS / PARTITIONS as usize / 2) as i64);
    for topic in 0..TOPICS {
        work(&broker, &name(topic), worked_on).await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await; // the index merges what is pending
    let warm = look(&broker.url(), &traces, LOOKS).await?;
    broker.stop()?;
    let mut cold = Vec::new();
    for _ in 0..COLD_STARTS {
        let (broker, _) = Broker::start(url).await?;
        cold.extend(look(&broker.url(), &traces, 1).await?);
        broker.stop()?;
    }
    let all: Vec<f64> = warm.iter().chain(&cold).copied().collect();
    println!("| reads | p50 | p99 | max |\n|---|---|---|---|");
    for (what, figures) in [("warm", warm), ("first of a broker", cold), ("all", all)] {
        let at = |share: f64| percentile(&figures, share);
        println!(
            "| {what} ({}) | {:.1} ms | {:.1} ms | {:.1} ms |",
            figures.len(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    Ok(())
}

fn name(topic: usize) -> String {
    format!("step{topic}")
}

fn percentile(figures: &[f64], share: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Publishes messages of traces of their own, and now and then a hop of a trace that goes on. Returns those that are complete.
async fn fill(broker: &Broker, messages: usize) -> Result<Vec<Uuid>, Failure> {
    let mut session = Session::open(broker.address).await?;
    let mut further: Vec<NewMessage> = (0..FURTHER_PARTITIONS)
        .map(|partition| NewMessage { partition: Some(partition), ..Session::message(0) })
        .collect();
    publish(&mut session, "further", std::mem::take(&mut further)).await?;
    let mut open: Vec<(Uuid, usize, Option<Cause>)> = Vec::new();
    let mut done = Vec::new();
    let mut in_flight = 0;
    for frame in 0..messages / FRAME {
        let topic = frame % TOPICS;
        let batch = (0..FRAME).map(|number| Session::message(frame * FRAME + number)).collect();
        send(&mut session, &name(topic), batch).await?;
        in_flight += 1;
        if in_flight >= FRAMES_IN_FLIGHT {
            answered(&mut session).await?;
            in_flight -= 1;
        }
        if frame % TRACE_EVERY == 0 {
            open.push((Uuid::now_v7(), 0, None));
            while in_flight > 0 {
                answered(&mut session).await?; // so that the next answer is that of the hop
                in_flight -= 1;
            }
            for (trace_id, hop, cause) in &mut open {
                let topic = name(*hop % TOPICS);
                let message = NewMessage {
                    trace_id: Some(*trace_id),
                    cause: cause.take(),
                    ..Session::message(*hop * 7919)
                };
                let (partition, offset) = publish(&mut session, &topic, vec![message]).await?;
                *cause = Some(Cause { topic, partition, offset });
                *hop += 1;
            }
            done.extend(open.extract_if(.., |(_, hop, _)| *hop == HOPS).map(|(trace_id, ..)| trace_id));
        }
        if frame % 1_000 == 999 {
            eprintln!("{} of {messages}", (frame + 1) * FRAME);
        }
    }
    while in_flight > 0 {
        answered(&mut session).await?;
        in_flight -= 1;
    }
    Ok(done)
}

/// Lets a group work on the first messages of every partition of a topic: two thirds in order, so that lanes have commits; of the rest
/// one in eight by a plain ack and one in eight by a step, so that they have gaps of both kinds.
async fn work(broker: &Broker, topic: &str, messages: i64) -> Result<(), Failure> {
    let mut session = Session::open(broker.address).await?;
    session.subscribe(topic).await?;
    let in_order = messages * 2 / 3;
    let mut lanes_done = 0;
    while lanes_done < PARTITIONS {
        session.next().await?;
        while let Some(delivered) = session.delivered.pop_front() {
            let Delivered { subscription, offset, .. } = delivered;
            match offset % 8 {
                _ if offset + 1 == in_order => acknowledge(&mut session, delivered, Some(in_order)).await?,
                3 if (in_order..messages).contains(&offset) => {
                    acknowledge(&mut session, delivered, None).await?;
                }
                5 if (in_order..messages).contains(&offset) => step(&mut session, delivered).await?,
                _ => {}
            }
            lanes_done += u32::from(offset + 1 == messages);
            let credit = Credit { subscription, messages: 1, bytes: PAYLOAD_BYTES as u64 + 20 };
            session.feed(&ClientFrame::Credit(credit)).await?;
        }
    }
    Ok(session.stream.close(None).await?)
}

fn ack(id: Option<u64>, delivered: Delivered, next: Option<i64>) -> Ack {
    let Delivered { subscription, partition, epoch, round, offset } = delivered;
    let single = OffsetRange { from: offset, to: offset + 1 };
    let ranges = if next.is_none() { vec![single] } else { Vec::new() };
    Ack { id, subscription, partition, epoch, round, next, ranges }
}

/// Acknowledges a message, or everything below an offset, and waits for the commit.
async fn acknowledge(session: &mut Session, delivered: Delivered, next: Option<i64>) -> Result<(), Failure> {
    let id = session.id();
    session.send(&ClientFrame::Ack(ack(Some(id), delivered, next))).await?;
    session.until(|frame| matches!(frame, BrokerFrame::Acked(acked) if acked.id == id)).await.map(drop)
}

/// Acknowledges a message by a step of its own.
async fn step(session: &mut Session, delivered: Delivered) -> Result<(), Failure> {
    let (id, step_id) = (session.id(), Uuid::now_v7());
    let acks = vec![ack(None, delivered, None)];
    let step = Transact { id, step_id, acks, publishes: Vec::new() };
    session.send(&ClientFrame::Transact(step)).await?;
    session.until(|frame| matches!(frame, BrokerFrame::Transacted(done) if done.id == id)).await.map(drop)
}

async fn send(session: &mut Session, topic: &str, messages: Vec<NewMessage>) -> Result<u64, Failure> {
    let id = session.id();
    let publish = Publish { id, topic: topic.to_owned(), producer_id: None, wait_ms: None, messages };
    session.send(&ClientFrame::Publish(publish)).await?;
    Ok(id)
}

async fn answered(session: &mut Session) -> Result<(), Failure> {
    session.until(|frame| matches!(frame, BrokerFrame::Published(_))).await.map(drop)
}

/// Publishes and waits; returns where the first message stands.
async fn publish(
    session: &mut Session,
    topic: &str,
    messages: Vec<NewMessage>,
) -> Result<(u32, i64), Failure> {
    let id = send(session, topic, messages).await?;
    let answer =
        session.until(|frame| matches!(frame, BrokerFrame::Published(done) if done.id == id)).await?;
    let BrokerFrame::Published(published) = answer else { return Err("no answer".into()) };
    let unit = published.units.first().ok_or("no unit")?;
    Ok((unit.partition, unit.first_offset.ok_or("not stored")?))
}

/// Reads traces, each on a new connection. Returns the milliseconds.
async fn look(url: &str, traces: &[Uuid], looks: usize) -> Result<Vec<f64>, Failure> {
    let mut took = Vec::new();
    for number in 0..looks {
        let trace_id = traces[(number * 7_919 + looks) % traces.len()];
        let started = Instant::now();
        let trace = Admin::new(url)?.show_trace(trace_id).await?;
        took.push(started.elapsed().as_secs_f64() * 1e3);
        if trace.hops.len() != HOPS || trace.hops.last().map(|hop| hop.depth as usize) != Some(HOPS - 1) {
            return Err(format!("trace {trace_id} has {} hops", trace.hops.len()).into());
        }
        if trace.hops.iter().any(|hop| hop.groups.len() != 1) {
            return Err(format!("trace {trace_id} has hops without their group").into());
        }
    }
    Ok(took)
}
