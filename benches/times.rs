//! What delivery times cost, end to end: `cargo bench --bench times [-- --rounds N --messages N --ack-each]`.
//!
//! A broker process on a private PostgreSQL, two producers and one member of a group over sockets. Topics that keep delivery times and
//! topics that do not take turns, because the machine is not the same from minute to minute; a round ends when everything is committed.

#![allow(clippy::unwrap_used)]

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::time::{Duration, Instant};

use harness::Server;
use harness::process::directory;
use harness::socket::{Socket, ack, subscribe, text};
use laneway_client::wire::{BrokerFrame, ClientFrame, NewMessage, Publish, Subprotocol};
use serde_json::json;

const PARTITIONS: u32 = 8;
const PRODUCERS: usize = 2;
const FRAME_MESSAGES: usize = 100;
const FRAMES_IN_FLIGHT: usize = 8;
const PAYLOAD_BYTES: usize = 200;
/// Credit is given back in pieces of this size.
const CREDIT_PIECE: usize = 10_000;

#[tokio::main(flavor = "multi_thread")]
async fn main() {
    let (rounds, messages) = (argument("--rounds").unwrap_or(9), argument("--messages").unwrap_or(200_000));
    let directory = directory();
    let mut server = Server::on_directory(directory.path()).await;
    for topic in ["off", "on"] {
        make_topic(&server, topic).await;
        round(&server, topic, messages / 4).await; // connections, tables, plans, caches
    }
    let mut rates: [Vec<f64>; 2] = Default::default();
    for number in 0..rounds {
        // Whoever is first in one round is second in the next.
        let order = if number.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for which in order {
            let topic = ["off", "on"][which];
            let rate = messages as f64 / round(&server, topic, messages).await.as_secs_f64();
            println!("round {number}: {topic:3} {rate:9.0} messages/s");
            rates[which].push(rate);
        }
    }
    let ratios: Vec<f64> = rates[1].iter().zip(&rates[0]).map(|(on, off)| on / off).collect();
    println!("off   {}", figures(&rates[0], 0));
    println!("on    {}", figures(&rates[1], 0));
    println!("ratio {}", figures(&ratios, 3));
    assert_eq!(server.stop().await, 0);
}

fn argument(name: &str) -> Option<usize> {
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

async fn make_topic(server: &Server, topic: &str) {
    let body = json!({ "name": topic, "partitions": PARTITIONS, "delivery_times": topic == "on" });
    let answer = reqwest::Client::new().post(server.url("/v1/topics")).json(&body).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}

/// Publishes and consumes so many messages at once; returns how long it took until all of them were committed.
async fn round(server: &Server, topic: &'static str, messages: usize) -> Duration {
    let mut consumer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let subscribed = consumer.subscribe_with(subscribe("billing", topic)).await.unwrap();
    for _ in 0..PARTITIONS {
        consumer.granted().await;
    }
    let address = server.address.clone();
    let started = Instant::now();
    let producers = (0..PRODUCERS).map(|producer| {
        tokio::spawn(produce(address.clone(), topic, producer, messages / PRODUCERS / FRAME_MESSAGES))
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
async fn produce(address: String, topic: &'static str, producer: usize, frames: usize) {
    let mut socket = Socket::connect(&address, Subprotocol::MessagePack).await;
    let payload = "x".repeat(PAYLOAD_BYTES);
    let (mut sent, mut answered) = (0, 0);
    while answered < frames {
        while sent < frames && sent - answered < FRAMES_IN_FLIGHT {
            let partition = Some((sent * PRODUCERS + producer) as u32 % PARTITIONS);
            let message = || NewMessage { partition, ..text(payload.clone()) };
            let messages = (0..FRAME_MESSAGES).map(|_| message()).collect();
            let id = sent as u64 + 1_000;
            socket
                .send(ClientFrame::Publish(Publish {
                    id,
                    topic: topic.into(),
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

/// Acknowledges every batch; the last ack of each partition is waited for.
async fn consume(consumer: &mut Socket, subscription: u32, frames_per_producer: usize) {
    let messages = frames_per_producer * PRODUCERS * FRAME_MESSAGES;
    let each = std::env::args().any(|argument| argument == "--ack-each"); // the worst client
    let (mut seen, mut spent) = (0, 0);
    let mut last = Vec::from([const { None }; PARTITIONS as usize]);
    while seen < messages {
        let BrokerFrame::Batch(batch) = consumer.frame().await else { continue };
        seen += batch.messages.len();
        spent += batch.messages.len();
        let next = batch.messages.last().unwrap().offset + 1;
        if each {
            for message in &batch.messages[..batch.messages.len() - 1] {
                consumer.send(ClientFrame::Ack(ack(&batch, Some(message.offset + 1), &[]))).await;
            }
        }
        consumer.send(ClientFrame::Ack(ack(&batch, Some(next), &[]))).await;
        if spent >= CREDIT_PIECE {
            consumer.credit(subscription, spent as u32, (spent * PAYLOAD_BYTES) as u64).await;
            spent = 0;
        }
        let partition = batch.partition as usize;
        last[partition] = Some((batch, next));
    }
    for (batch, next) in last.into_iter().flatten() {
        consumer.ack_below(&batch, next).await.unwrap();
    }
}
