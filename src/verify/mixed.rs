//! A group that sessions and pullers share: members that come for a while and leave, and pullers that take what is theirs meanwhile.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_client::pull_api::{Pop, PopAck, PopRequest};
use laneway_client::wire::{
    Ack, Batch, BatchOptions, BrokerFrame, ClientFrame, Credit, CreditGrant, Start, Subprotocol, Subscribe,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::history::Event;
use super::later::admin_of;
use super::link::{Incoming, Link};
use super::scene::Scene;
use super::settings::{HEARTBEAT, LATER, SHARED};

/// How long a member stays, and how long it is away, in milliseconds.
const STAYS_MS: std::ops::Range<u64> = 2_000..6_000;
const AWAY_MS: std::ops::Range<u64> = 200..2_000;
/// Credit, and messages of a batch: small, so that batches are many.
const CREDIT: CreditGrant = CreditGrant { messages: 100, bytes: 4 << 20 };
const BATCH_MESSAGES: u32 = 10;
/// How long a pop waits, and how long its messages may take.
const WAIT_MS: u32 = 400;
const DEADLINE_MS: u64 = 2_000;
/// How long an answer may take; without a sign of life from a broker its connection is given up.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Who has a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Session,
    Puller,
}

/// Something that was seen of a lane that both share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shared {
    /// Messages were given out.
    Given { side: Side, partition: u32, epoch: i64, offsets: Vec<i64> },
    /// An ack is about to be sent.
    Asked { partition: u32, epoch: i64 },
    /// It was confirmed: these are done.
    Done { side: Side, partition: u32, epoch: i64, offsets: Vec<i64> },
}

fn broker(scene: &Scene, random: &mut StdRng) -> SocketAddr {
    scene.brokers[random.random_range(0..scene.brokers.len())]
}

/// Pulls until the run ends, and acknowledges everything.
pub(super) async fn pull(scene: Arc<Scene>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    while !scene.stop.is_cancelled() {
        match scene.stop.run_until_cancelled(pop(&scene, &mut random)).await {
            Some(Some(pop)) => settle(&scene, &mut random, &pop).await,
            Some(None) => tokio::time::sleep(RETRY_PAUSE).await,
            None => return,
        }
    }
}

async fn pop(scene: &Scene, random: &mut StdRng) -> Option<Pop> {
    let admin = admin_of(broker(scene, random))?;
    let wish = PopRequest {
        max_messages: Some(BATCH_MESSAGES),
        wait_ms: Some(WAIT_MS),
        ack_deadline_ms: Some(DEADLINE_MS),
        ..PopRequest::default()
    };
    let pop = tokio::time::timeout(PATIENCE, admin.pop(LATER, SHARED, &wish)).await.ok()?.ok()??;
    let (side, partition, epoch) = (Side::Puller, pop.partition, pop.epoch);
    let offsets = pop.messages.iter().map(|message| message.offset).collect();
    scene.recorder.note(Event::Shared(Shared::Given { side, partition, epoch, offsets }));
    Some(pop)
}

/// One try: what is not known to be done comes again.
async fn settle(scene: &Scene, random: &mut StdRng, pop: &Pop) {
    let Some(admin) = admin_of(broker(scene, random)) else { return };
    let (partition, epoch) = (pop.partition, pop.epoch);
    scene.recorder.note(Event::Shared(Shared::Asked { partition, epoch }));
    let all = PopAck::all(pop);
    if let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, admin.ack(LATER, SHARED, &all)).await {
        let offsets = pop.messages.iter().map(|message| message.offset).collect();
        let side = Side::Puller;
        scene.recorder.note(Event::Shared(Shared::Done { side, partition, epoch, offsets }));
    }
}

/// A member that comes and goes.
pub(super) struct Member {
    scene: Arc<Scene>,
    random: StdRng,
    /// What is to be noted when an ack is confirmed.
    waiting: HashMap<u64, Shared>,
    next_id: u64,
}

impl Member {
    pub fn new(seed: u64, scene: Arc<Scene>) -> Self {
        Self { scene, random: StdRng::seed_from_u64(seed), waiting: HashMap::new(), next_id: 100 }
    }

    /// Consumes until the run ends. Once everybody else has nothing more to do it is there or not: pullers do what is left.
    pub async fn run(mut self) {
        let stop = self.scene.stop.clone();
        while !stop.is_cancelled() {
            let address = broker(&self.scene, &mut self.random);
            let stays = Duration::from_millis(self.random.random_range(STAYS_MS));
            if let Some((link, _)) = Link::open(address, Subprotocol::MessagePack, None).await {
                self.waiting.clear(); // another session: nobody will answer
                let work = tokio::time::timeout(stays, self.work(link));
                // Time is up, or the connection is lost: either way it is away for a while.
                stop.run_until_cancelled(work).await;
            }
            let away = Duration::from_millis(self.random.random_range(AWAY_MS));
            stop.run_until_cancelled(tokio::time::sleep(away)).await;
        }
    }

    /// Works on one connection to its end.
    async fn work(&mut self, mut link: Link) -> Option<()> {
        let (subscribe_id, mut heard_at) = (self.id(), Instant::now());
        link.send(&subscribe(subscribe_id)).await?;
        let mut pace = tokio::time::interval(HEARTBEAT / 2);
        while heard_at.elapsed() < PATIENCE {
            let frames = tokio::select! {
                incoming = link.next() => {
                    heard_at = Instant::now();
                    let Incoming::Frame(frame) = incoming else { return None };
                    match *frame {
                        BrokerFrame::Batch(batch) => self.on_batch(&batch),
                        BrokerFrame::Acked(acked) => {
                            let done = self.waiting.remove(&acked.id).map(Event::Shared);
                            done.into_iter().for_each(|done| self.scene.recorder.note(done));
                            Vec::new()
                        }
                        BrokerFrame::Error(error) if error.id == Some(subscribe_id) => return None,
                        BrokerFrame::GoAway(_) => return None,
                        _ => Vec::new(),
                    }
                }
                _ = pace.tick() => vec![ClientFrame::Heartbeat],
            };
            for frame in frames {
                tokio::time::timeout(PATIENCE, link.send(&frame)).await.ok()??;
            }
        }
        None
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn on_batch(&mut self, batch: &Batch) -> Vec<ClientFrame> {
        let (side, partition, epoch) = (Side::Session, batch.partition, batch.epoch);
        let offsets: Vec<i64> = batch.messages.iter().map(|record| record.offset).collect();
        let Some(next) = offsets.last().map(|last| last + 1) else { return Vec::new() };
        let (id, recorder) = (self.id(), &self.scene.recorder);
        recorder.note(Event::Shared(Shared::Given { side, partition, epoch, offsets: offsets.clone() }));
        recorder.note(Event::Shared(Shared::Asked { partition, epoch }));
        self.waiting.insert(id, Shared::Done { side, partition, epoch, offsets });
        let ack = Ack {
            id: Some(id),
            subscription: batch.subscription,
            partition,
            epoch,
            round: batch.round,
            next: Some(next),
            ranges: Vec::new(),
        };
        let credit = Credit {
            subscription: batch.subscription,
            messages: batch.messages.len() as u32,
            bytes: batch.messages.iter().map(|message| message.payload.len() as u64).sum(),
        };
        vec![ClientFrame::Ack(ack), ClientFrame::Credit(credit)]
    }
}

fn subscribe(id: u64) -> ClientFrame {
    ClientFrame::Subscribe(Subscribe {
        id,
        group: SHARED.into(),
        topic: LATER.into(),
        start: Some(Start::Earliest),
        credit: CREDIT,
        batch: Some(BatchOptions { max_messages: Some(BATCH_MESSAGES), ..BatchOptions::default() }),
        settings: None,
    })
}
