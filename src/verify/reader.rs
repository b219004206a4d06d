//! A reader without a group: sees every message of the topic, in order, through any broker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_client::wire::{Batch, BrokerFrame, ClientFrame, Credit, CreditGrant, Start, Subprotocol, Tail};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::consumer::sight;
use super::history::Event;
use super::link::{Incoming, Link};
use super::scene::Scene;
use super::settings::{HEARTBEAT, PARTITIONS, TOPIC};

/// Messages and bytes that it accepts, per partition.
const CREDIT: CreditGrant = CreditGrant { messages: 1_000, bytes: 4 << 20 };
/// Between two tries to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Without a sign of life from the broker the connection is given up.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// See the module.
pub(super) struct Reader {
    number: usize,
    scene: Arc<Scene>,
    random: StdRng,
    next: [i64; PARTITIONS as usize],
}

impl Reader {
    pub fn new(number: usize, seed: u64, scene: Arc<Scene>) -> Self {
        Self { number, scene, random: StdRng::seed_from_u64(seed), next: [0; PARTITIONS as usize] }
    }

    /// Reads until the run ends.
    pub async fn run(mut self) {
        let stop = self.scene.stop.clone();
        while !stop.is_cancelled() {
            let address = self.scene.brokers[self.random.random_range(0..self.scene.brokers.len())];
            let Some((link, _)) = Link::open(address, Subprotocol::MessagePack, None).await else {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            };
            tokio::select! {
                _ = self.read(link) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Reads one connection to its end, which is the end of hope for it.
    async fn read(&mut self, mut link: Link) -> Option<()> {
        for partition in 0..PARTITIONS {
            let tail = Tail {
                id: u64::from(partition) + 100,
                topic: TOPIC.into(),
                partitions: Some(vec![partition]),
                start: Some(Start::Offset(self.next[partition as usize])),
                credit: CREDIT,
                batch: None,
            };
            link.send(&ClientFrame::Tail(tail)).await?;
        }
        let mut pace = tokio::time::interval(HEARTBEAT / 2);
        let mut heard_at = Instant::now();
        let mut credits: HashMap<u32, (u32, u64)> = HashMap::new();
        while heard_at.elapsed() < SILENCE_MAX {
            tokio::select! {
                incoming = link.next() => {
                    heard_at = Instant::now();
                    let Incoming::Frame(frame) = incoming else { return None };
                    match *frame {
                        BrokerFrame::Batch(batch) => self.on_batch(&batch, &mut credits),
                        BrokerFrame::Error(_) | BrokerFrame::GoAway(_) => return None,
                        _ => {}
                    }
                }
                _ = pace.tick() => link.send(&ClientFrame::Heartbeat).await?,
            }
            for (subscription, (messages, bytes)) in credits.drain() {
                link.send(&ClientFrame::Credit(Credit { subscription, messages, bytes })).await?;
            }
        }
        None
    }

    fn on_batch(&mut self, batch: &Batch, credits: &mut HashMap<u32, (u32, u64)>) {
        let messages: Vec<_> = batch.messages.iter().map(sight).collect();
        if let Some(last) = messages.last() {
            self.next[batch.partition as usize] = last.offset + 1;
        }
        let credit = credits.entry(batch.subscription).or_default();
        credit.0 += batch.messages.len() as u32;
        credit.1 += batch.messages.iter().map(|message| message.payload.len() as u64).sum::<u64>();
        self.scene.recorder.note(Event::Tailed { partition: batch.partition, reader: self.number, messages });
    }
}
