//! What programs share that compare two ways of working, end to end: a broker process on a private PostgreSQL, two producers and one
//! member of a group over sockets. Two topics take turns, because the machine is not the same from minute to minute; a round ends when
//! everything is committed.

#[path = "../../tests/harness/mod.rs"]
mod harness;

use std::time::{Duration, Instant};

use harness::Server;
use harness::process::directory;
pub use harness::socket::subscribe;
use harness::socket::{Socket, ack, text};
use laneway_client::wire::{Batch, BrokerFrame, ClientFrame, NewMessage, Publish, Subprotocol, Subscribe};
use serde_json::{Value, json};

const PARTITIONS: u32 = 8;
const PRODUCERS: usize = 2;
const FRAME_MESSAGES: usize = 100;
const FRAMES_IN_FLIGHT: usize = 8;
const PAYLOAD_BYTES: usize = 200;
/// Credit is given back in pieces of this size.
const CREDIT_PIECE: usize = 10_000;

/// A way of working: the name of its topic, and what is set there.
#[derive(Clone)]
pub struct Way {
    pub name: &'static str,
    /// Of the topic, beside its name and partitions.
    pub settings: Value,
    /// How its group subscribes.
    pub subscribe: Subscribe,
    /// The keys that messages have, drawn in turn; 0: none has a key.
    pub keys: usize,
}

/// Lets the two take turns and prints the rates and their ratios, second to first.
pub async fn compare(ways: [Way; 2], messages_default: usize) {
    let rounds = argument("--rounds").unwrap_or(9);
    let messages = argument("--messages").unwrap_or(messages_default);
    let directory = directory();
    let mut server = Server::on_directory(directory.path()).await;
    for way in &ways {
        make_topic(&server, way).await;
        round(&server, way, messages / 4).await; // connections, tables, plans, caches
    }
    let mut rates: [Vec<f64>; 2] = Default::default();
    for number in 0..rounds {
        // Whoever is first in one round is second in the next.
        let order = if number.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for which in order {
            let way = &ways[which];
            let rate = messages as f64 / round(&server, way, messages).await.as_secs_f64();
            println!("round {number}: {:9} {rate:9.0} messages/s", way.name);
            rates[which].push(rate);
        }
    }
    let ratios: Vec<f64> = rates[1].iter().zip(&rates[0]).map(|(second, first)| second / first).collect();
    for (way, rates) in ways.iter().zip(&rates) {
        println!("{:9} {}", way.name, figures(rates, 0));
    }
    println!("{:9} {}", "ratio", figures(&ratios, 3));
    assert_eq!(server.stop().await, 0);
}

pub fn argument(name: &str) -> Option<usize> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).map(|value| value.parse().unwrap())
}

/// Median, least and most.
fn figures(of: &[f64], digits: usize) -> String {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (middle, last) = (sorted.len() / 2, sorted.len() - 1);
    let median = if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    };
    format!("{median:.digits$} ({:.digits$} to {:.digits$})", sorted[0], sorted[last])
}

async fn make_topic(server: &Server, way: &Way) {
    let mut body = json!({ "name": way.name, "partitions": PARTITIONS });
    let settings = way.settings.as_object().into_iter().flatten();
    body.as_object_mut().unwrap().extend(settings.map(|(name, value)| (name.clone(), value.clone())));
    let answer = reqwest::Client::new().post(server.url("/v1/topics")).json(&body).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}

/// Publishes and consumes so many messages at once; returns how long it took until all of them were committed.
async fn round(server: &Server, way: &Way, messages: usize) -> Duration {
    let mut consumer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let subscribed = consumer.subscribe_with(way.subscribe.clone()).await.unwrap();
    for _ in 0..PARTITIONS {
        consumer.granted().await;
    }
    let address = server.address.clone();
    let started = Instant::now();
    let producers = (0..PRODUCERS).map(|producer| {
        tokio::spawn(produce(address.clone(), way.clone(), producer, messages / PRODUCERS / FRAME_MESSAGES))
    });
    let producers: Vec<_> = producers.collect();
    consume(&mut consumer, subscribed.subscription, messages / PRODUCERS / FRAME_MESSAGES).await;
    let took = started.elapsed();
    for producer in producers {
        producer.await.unwrap();
    }
    consumer.close().await;
    took
}

/// Each frame is for one partition, in turn.
async fn produce(address: String, way: Way, producer: usize, frames: usize) {
    let mut socket = Socket::connect(&address, Subprotocol::MessagePack).await;
    let payload = "x".repeat(PAYLOAD_BYTES);
    let (mut sent, mut answered) = (0, 0);
    while answered < frames {
        while sent < frames && sent - answered < FRAMES_IN_FLIGHT {
            let partition = Some((sent * PRODUCERS + producer) as u32 % PARTITIONS);
            let key = |place: usize| {
                let number = (sent * PRODUCERS + producer) * FRAME_MESSAGES + place;
                (way.keys > 0).then(|| format!("key-{}", number % way.keys).into())
            };
            let message = |place| NewMessage { partition, key: key(place), ..text(payload.clone()) };
            let messages = (0..FRAME_MESSAGES).map(message).collect();
            let id = sent as u64 + 1_000;
            socket
                .send(ClientFrame::Publish(Publish {
                    id,
                    topic: way.name.into(),
                    producer_id: None,
                    wait_ms: None,
                    messages,
                }))
                .await;
            sent += 1;
        }
        match socket.frame().await {
            BrokerFrame::Published(_) => answered += 1,
            other => panic!("{other:?}"),
        }
    }
    socket.close().await;
}

/// Acknowledges every batch when the next one of its partition is there; the last ack of each partition is waited for.
async fn consume(consumer: &mut Socket, subscription: u32, frames_per_producer: usize) {
    let messages = frames_per_producer * PRODUCERS * FRAME_MESSAGES;
    let each = std::env::args().any(|argument| argument == "--ack-each"); // the worst client
    let (mut seen, mut spent) = (0, 0);
    let mut last: Vec<Option<Batch>> = Vec::from([const { None }; PARTITIONS as usize]);
    while seen < messages {
        let batch = match consumer.frame().await {
            BrokerFrame::Batch(batch) => batch,
            BrokerFrame::Error(error) => panic!("{error:?}"),
            _ => continue,
        };
        seen += batch.messages.len();
        spent += batch.messages.len();
        if each {
            for message in &batch.messages[..batch.messages.len() - 1] {
                consumer.send(ClientFrame::Ack(ack(&batch, Some(message.offset + 1), &[]))).await;
            }
        }
        if spent >= CREDIT_PIECE {
            consumer.credit(subscription, spent as u32, (spent * PAYLOAD_BYTES) as u64).await;
            spent = 0;
        }
        if let Some(before) = last[batch.partition as usize].replace(batch) {
            consumer.send(ClientFrame::Ack(ack(&before, Some(end(&before)), &[]))).await;
        }
    }
    for batch in last.into_iter().flatten() {
        consumer.ack_below(&batch, end(&batch)).await.unwrap();
    }
}

fn end(batch: &Batch) -> i64 {
    batch.messages.last().unwrap().offset + 1
}
