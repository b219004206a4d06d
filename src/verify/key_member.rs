//! A member of the group that keeps order by key: refuses some messages until their keys are parked, and acknowledges all others, key by
//! key. Now and then it vanishes; it always comes back as another session.
//!
//! Invariant: what it refuses it refuses before it has acknowledged it anywhere, and so often only that everything is done in the end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_client::wire::{
    Ack, Batch, BatchOptions, BrokerFrame, ClientFrame, Credit, CreditGrant, GroupOrdering, Nack,
    OffsetRange, OnFailure, Start, Subprotocol, Subscribe, WantedSettings,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::history::Event;
use super::keys::{KeyEvent, Keyed};
use super::link::{Incoming, Link};
use super::scene::Scene;
use super::settings::{ACK_DEADLINE, HEARTBEAT, KEYED, KEYED_GROUP};

/// Attempts before a key is parked.
const ATTEMPTS_MAX: u32 = 2;
/// Between two attempts.
const BACKOFF_MS: u64 = 20;
/// One message in so many parks its key, and one in so many of these parks it again when it is replayed.
const POISON_EVERY: i64 = 19;
const TWICE_EVERY: i64 = 3;
/// One batch in so many is the last that a session sees.
const DIES_EVERY: u32 = 150;
/// Credit, and messages of a batch: small, so that batches are many.
const CREDIT: CreditGrant = CreditGrant { messages: 100, bytes: 4 << 20 };
const BATCH_MESSAGES: u32 = 10;
/// Between two tries to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Without a sign of life from the broker the connection is given up.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How often each message was refused, by any member.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<Keyed, u32>>);

impl Refusals {
    /// Whether it is to be refused once more.
    fn refuse(&self, keyed: Keyed) -> bool {
        let dice = i64::from(keyed.key) * 7 + keyed.number;
        let times = match (dice % POISON_EVERY, dice / POISON_EVERY % TWICE_EVERY) {
            (0, 0) => 2 * ATTEMPTS_MAX,
            (0, _) => ATTEMPTS_MAX,
            (_, _) => return false,
        };
        let mut refusals = self.0.lock();
        let so_far = refusals.entry(keyed).or_default();
        *so_far += 1;
        *so_far <= times
    }
}

/// See the module.
pub(super) struct KeyMember {
    scene: Arc<Scene>,
    refusals: Arc<Refusals>,
    random: StdRng,
    /// What is to be noted when an ack or a nack is confirmed.
    waiting: HashMap<u64, KeyEvent>,
    /// Of each key: the epoch and offset of what was refused and has not come again. What is behind it is void.
    refused: HashMap<u32, (i64, i64)>,
    next_id: u64,
}

impl KeyMember {
    pub fn new(seed: u64, scene: Arc<Scene>, refusals: Arc<Refusals>) -> Self {
        let (waiting, refused) = (HashMap::new(), HashMap::new());
        Self { scene, refusals, random: StdRng::seed_from_u64(seed), waiting, refused, next_id: 100 }
    }

    /// Consumes until the run ends.
    pub async fn run(mut self) {
        let stop = self.scene.stop.clone();
        while !stop.is_cancelled() {
            let address = self.scene.brokers[self.random.random_range(0..self.scene.brokers.len())];
            let subprotocol = match self.random.random_bool(0.5) {
                true => Subprotocol::MessagePack,
                false => Subprotocol::Json,
            };
            let Some((link, _)) = Link::open(address, subprotocol, None).await else {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            };
            self.waiting.clear(); // another session: nobody will answer
            self.refused.clear();
            stop.run_until_cancelled(self.work(link)).await;
        }
    }

    /// Works on one connection to its end.
    async fn work(&mut self, mut link: Link) -> Option<()> {
        let (subscribe_id, mut heard_at) = (self.id(), Instant::now());
        link.send(&subscribe(subscribe_id)).await?;
        let mut pace = tokio::time::interval(HEARTBEAT / 2);
        while heard_at.elapsed() < SILENCE_MAX {
            let frames = tokio::select! {
                incoming = link.next() => {
                    heard_at = Instant::now();
                    let Incoming::Frame(frame) = incoming else { return None };
                    match *frame {
                        BrokerFrame::Batch(_) if self.random.random_ratio(1, DIES_EVERY) => return None,
                        BrokerFrame::Batch(batch) => self.on_batch(&batch),
                        BrokerFrame::Acked(acked) => self.on_answer(acked.id, true),
                        BrokerFrame::Error(error) if error.id == Some(subscribe_id) => return None,
                        BrokerFrame::Error(error) => {
                            error.id.map_or(Vec::new(), |id| self.on_answer(id, false))
                        }
                        BrokerFrame::GoAway(_) => {
                            link.close().await;
                            return None;
                        }
                        _ => Vec::new(),
                    }
                }
                _ = pace.tick() => vec![ClientFrame::Heartbeat],
            };
            for frame in frames {
                tokio::time::timeout(SILENCE_MAX, link.send(&frame)).await.ok()??;
            }
        }
        None
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn note(&self, event: KeyEvent) {
        self.scene.recorder.note(Event::Keyed(event));
    }

    fn on_answer(&mut self, id: u64, is_confirmed: bool) -> Vec<ClientFrame> {
        match self.waiting.remove(&id) {
            Some(event) if is_confirmed => self.note(event),
            // It has not counted: what is behind it is as good as before.
            Some(KeyEvent::Failed { offset, .. }) => self.refused.retain(|_, (_, other)| *other != offset),
            Some(_) | None => {}
        }
        Vec::new()
    }

    fn on_batch(&mut self, batch: &Batch) -> Vec<ClientFrame> {
        let (partition, term) = (batch.partition, (batch.epoch, batch.round));
        let found = batch.messages.iter().map(|record| (record.offset, Keyed::parse(&record.payload)));
        let messages: Vec<(i64, Option<Keyed>)> = found.collect();
        self.note(KeyEvent::Delivered { partition, term, messages: messages.clone() });
        let mut frames = Vec::new();
        let mut done: HashMap<u32, Vec<i64>> = HashMap::new();
        for (offset, keyed) in messages {
            let Some(keyed) = keyed else { continue };
            let refused = self.refused.get(&keyed.key).copied();
            if refused.is_some_and(|(epoch, before)| epoch == batch.epoch && offset > before) {
                continue;
            }
            self.refused.remove(&keyed.key);
            if self.refusals.refuse(keyed) {
                self.refused.insert(keyed.key, (batch.epoch, offset));
                frames.push(self.nack(batch, offset));
            } else {
                done.entry(keyed.key).or_default().push(offset);
            }
        }
        frames.extend(done.into_values().map(|offsets| self.ack(batch, offsets)));
        frames.push(ClientFrame::Credit(Credit {
            subscription: batch.subscription,
            messages: batch.messages.len() as u32,
            bytes: batch.messages.iter().map(|message| message.payload.len() as u64).sum(),
        }));
        frames
    }

    /// Messages of one key, so that no other key has to come again if one of them does not count.
    fn ack(&mut self, batch: &Batch, offsets: Vec<i64>) -> ClientFrame {
        let (id, partition, term) = (self.id(), batch.partition, (batch.epoch, batch.round));
        let ranges = offsets.iter().map(|offset| OffsetRange { from: *offset, to: offset + 1 }).collect();
        self.note(KeyEvent::Asked { partition, offsets: offsets.clone() });
        self.waiting.insert(id, KeyEvent::Confirmed { partition, term, offsets });
        ClientFrame::Ack(Ack {
            id: Some(id),
            subscription: batch.subscription,
            partition,
            epoch: batch.epoch,
            round: batch.round,
            next: None,
            ranges,
        })
    }

    fn nack(&mut self, batch: &Batch, offset: i64) -> ClientFrame {
        let (id, partition, term) = (self.id(), batch.partition, (batch.epoch, batch.round));
        self.waiting.insert(id, KeyEvent::Failed { partition, term, offset });
        ClientFrame::Nack(Nack {
            id: Some(id),
            subscription: batch.subscription,
            partition,
            epoch: batch.epoch,
            round: batch.round,
            offset,
            reason: Some("verify refuses it".into()),
            delay_ms: None,
            until: None,
        })
    }
}

fn subscribe(id: u64) -> ClientFrame {
    ClientFrame::Subscribe(Subscribe {
        id,
        group: KEYED_GROUP.into(),
        topic: KEYED.into(),
        start: Some(Start::Earliest),
        credit: CREDIT,
        batch: Some(BatchOptions { max_messages: Some(BATCH_MESSAGES), ..BatchOptions::default() }),
        settings: Some(WantedSettings {
            ack_deadline_ms: Some(ACK_DEADLINE.as_millis() as u64),
            max_attempts: Some(ATTEMPTS_MAX),
            backoff_base_ms: Some(BACKOFF_MS),
            backoff_factor: Some(1.0),
            backoff_cap_ms: Some(BACKOFF_MS),
            ordering: Some(GroupOrdering::Key),
            on_failure: Some(OnFailure::Park),
            ..WantedSettings::default()
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_is_refused_until_its_key_is_parked_and_some_of_it_once_more() {
        let refusals = Refusals::default();
        let times = |number| (0..9).filter(|_| refusals.refuse(Keyed { key: 0, number })).count() as u32;
        assert_eq!(times(0), 2 * ATTEMPTS_MAX);
        assert_eq!(times(POISON_EVERY), ATTEMPTS_MAX);
        assert_eq!(times(1), 0);
    }
}
