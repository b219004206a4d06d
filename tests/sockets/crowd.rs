//! A crowd: sessions that join and leave a group while messages flow. Order by epoch and round, none lost, no confirmed ack
//! delivered again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use laneway_client::wire::{Batch, BrokerFrame, ClientFrame, Subprotocol};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::Bus;
use crate::harness::socket::{BOTH, Seen, Socket, ack, subscribe};
use crate::harness::wait::until_within;

const PARTITIONS: u32 = 64;
const SESSIONS: usize = 100;
const MESSAGES: usize = 50_000;

/// What all sessions have seen.
#[derive(Default)]
struct Witness {
    /// Deliveries per lane and (epoch, round), in the order in which their session read them.
    runs: HashMap<(u32, i64, u32), Vec<i64>>,
    /// Confirmed acks: partition, offset, and under which epoch and round.
    confirmed: HashMap<(u32, i64), (i64, u32)>,
    delivered: HashSet<(u32, i64)>,
    violations: Vec<String>,
}

impl Witness {
    fn on_batch(&mut self, batch: &Batch) {
        let lane = (batch.partition, batch.epoch, batch.round);
        for message in &batch.messages {
            let run = self.runs.entry(lane).or_default();
            if run.last().is_some_and(|last| *last >= message.offset) {
                self.violations.push(format!("{lane:?}: {} after {:?}", message.offset, run.last()));
            }
            run.push(message.offset);
            self.delivered.insert((batch.partition, message.offset));
            if let Some(acked) = self.confirmed.get(&(batch.partition, message.offset))
                && (batch.epoch, batch.round) > *acked
            {
                self.violations.push(format!("{lane:?}: {} was confirmed under {acked:?}", message.offset));
            }
        }
    }

    fn on_confirmed(&mut self, batch: &Batch, below: i64) {
        for message in batch.messages.iter().filter(|message| message.offset < below) {
            self.confirmed.insert((batch.partition, message.offset), (batch.epoch, batch.round));
        }
    }
}

/// One life of a consumer: joins, works for a while, leaves in one of several ways.
async fn live(address: &str, seed: u64, witness: &Mutex<Witness>, done: &AtomicUsize) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut socket = Socket::connect(address, BOTH[random.random_range(0..2)]).await;
    while let Err(error) = socket.subscribe_with(subscribe("crowd", "orders")).await {
        assert_eq!(error.class, laneway_client::Class::Retry, "{error:?}"); // a busy machine
    }
    let until = Instant::now() + Duration::from_millis(random.random_range(200..3_000));
    let mut waiting: HashMap<u64, (Batch, i64)> = HashMap::new();
    while Instant::now() < until && done.load(Ordering::Relaxed) < MESSAGES {
        let Some(seen) = socket.seen_within(Duration::from_millis(50)).await else { continue };
        let Seen::Frame(frame) = seen else { panic!("closed: {seen:?}") };
        match frame {
            BrokerFrame::Batch(batch) => {
                witness.lock().on_batch(&batch);
                let last = batch.messages.last().unwrap().offset + 1;
                let first = batch.messages[0].offset;
                // Some keep a part of the batch to themselves.
                let next = if random.random_bool(0.9) { last } else { random.random_range(first..=last) };
                let id = socket.id();
                let mut frame = ack(&batch, Some(next), &[]);
                frame.id = Some(id);
                socket.send(ClientFrame::Ack(frame)).await;
                waiting.insert(id, (batch, next));
            }
            BrokerFrame::Acked(acked) => {
                let (batch, next) = waiting.remove(&acked.id).unwrap();
                witness.lock().on_confirmed(&batch, next);
            }
            BrokerFrame::Error(error) => {
                assert_eq!(error.code, laneway_client::ErrorCode::LeaseLost, "{error:?}");
            }
            _ => {}
        }
    }
    match random.random_range(0..3) {
        0 => socket.cut(),
        _ => socket.close().await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_hundred_sessions_come_and_go_while_messages_flow() {
    let seed: u64 =
        std::env::var("LANEWAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("LANEWAY_SEED={seed}");
    let bus = Arc::new(Bus::with_topic("orders", PARTITIONS).await);
    let (witness, done) = (Arc::new(Mutex::new(Witness::default())), Arc::new(AtomicUsize::new(0)));
    let producing = tokio::spawn({
        let bus = bus.clone();
        async move {
            let mut producer = bus.connect(Subprotocol::MessagePack).await;
            for first in (0..MESSAGES).step_by(250) {
                let messages =
                    (first..first + 250).map(|n| crate::to_partition(n as u32 % PARTITIONS, format!("{n}")));
                producer.publish("orders", messages.collect()).await;
            }
        }
    });
    let sessions = (0..SESSIONS).map(|number| {
        let (bus, witness, done) = (bus.clone(), witness.clone(), done.clone());
        tokio::spawn(async move {
            let mut life = 0;
            while done.load(Ordering::Relaxed) < MESSAGES {
                live(&bus.server.address, seed ^ (number as u64) << 32 ^ life, &witness, &done).await;
                life += 1;
            }
        })
    });
    let sessions: Vec<_> = sessions.collect();
    // What was committed when its session was cut is confirmed to nobody: only the database knows when all is done.
    let committed = "SELECT coalesce(sum(committed_offset), 0)::bigint FROM (
        SELECT DISTINCT ON (partition_id) committed_offset FROM laneway.lane_commit
        ORDER BY partition_id, epoch DESC, number DESC) newest";
    let started = Instant::now();
    until_within(Duration::from_secs(200), "every message is committed", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        done.store(bus.database.number(committed).await as usize, Ordering::Relaxed);
        done.load(Ordering::Relaxed) == MESSAGES
    })
    .await;
    println!("drained after {:?}", started.elapsed());
    producing.await.unwrap();
    for session in sessions {
        session.await.unwrap();
    }
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.dead_letter").await, 0);
    let witness = witness.lock();
    assert!(
        witness.violations.is_empty(),
        "seed {seed}: {:#?}",
        &witness.violations[..witness.violations.len().min(20)]
    );
    assert_eq!(witness.delivered.len(), MESSAGES, "seed {seed}");
}
