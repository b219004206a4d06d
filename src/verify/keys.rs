//! Messages that keep the order of their keys: who publishes them, and who lets go of keys that are parked. Who consumes them stands in
//! `key_member`.
//!
//! The operator lists what is parked at any broker, leaves it alone for a while, and then replays it or drops what it failed at.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_client::parked::{ParkedKey, ParkedQuery, ParkedState};
use laneway_client::wire::{BrokerFrame, ClientFrame, NewMessage, Publish, Subprotocol};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio_util::sync::CancellationToken;

use super::history::{Event, Recorder, Term};
use super::later::admin_of;
use super::link::{Incoming, Link};
use super::scene::Scene;
use super::settings::{KEYED, KEYED_PARTITIONS};

/// Keys of the run: few enough that each has several messages under way.
const KEYS: u32 = 24;
/// Messages of a frame.
const FRAME_MESSAGES: usize = 4;
/// Between two frames, and between two looks at what is parked.
const PAUSE: Duration = Duration::from_millis(50);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a key stays parked, in milliseconds: long enough that messages come behind it.
const RESTS_MS: std::ops::Range<u64> = 200..5_000;
/// One parked key in so many loses the message that it failed at.
const DROP_EVERY: u32 = 4;

/// A message with a key, as its payload says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keyed {
    pub key: u32,
    /// Counts the messages of this key, from 0.
    pub number: i64,
}

impl Keyed {
    fn payload(self) -> String {
        format!("{}-{}", self.key, self.number)
    }

    /// Reads it back; `None`: nobody has published that.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (key, number) = std::str::from_utf8(payload).ok()?.split_once('-')?;
        Some(Self { key: key.parse().ok()?, number: number.parse().ok()? })
    }

    fn message(self) -> NewMessage {
        NewMessage {
            payload: self.payload().into(),
            key: Some(self.key.to_string().into()),
            partition: Some(self.key % KEYED_PARTITIONS),
            transaction_id: Some(format!("keyed-{}", self.payload())),
            ..NewMessage::default()
        }
    }
}

/// Something that was seen of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyEvent {
    /// A publish was answered: it is stored.
    Stored(Keyed),
    /// A batch came to a member.
    Delivered { partition: u32, term: Term, messages: Vec<(i64, Option<Keyed>)> },
    /// An ack is about to be sent.
    Asked { partition: u32, offsets: Vec<i64> },
    /// It was confirmed: it is durable.
    Confirmed { partition: u32, term: Term, offsets: Vec<i64> },
    /// A nack was confirmed: the message has failed, and what is behind it in its key is void.
    Failed { partition: u32, term: Term, offset: i64 },
    /// A parked key was replayed.
    Replayed { key: u32 },
    /// What a parked key has failed at is about to be dropped.
    DropAsked { key: u32 },
    /// That was confirmed.
    Dropped { key: u32 },
}

/// Publishes until it is enough, and until everything is answered.
pub(super) async fn publish(
    brokers: Arc<[SocketAddr]>,
    recorder: Arc<Recorder>,
    seed: u64,
    enough: CancellationToken,
) {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut next, mut id) = ([0_i64; KEYS as usize], 1);
    let mut open = None;
    while enough.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_some() {
        let mut one = || {
            let key = random.random_range(0..KEYS);
            next[key as usize] += 1;
            Keyed { key, number: next[key as usize] - 1 }
        };
        let frame: Vec<Keyed> = (0..FRAME_MESSAGES).map(|_| one()).collect();
        loop {
            id += 1;
            let address = brokers[random.random_range(0..brokers.len())];
            let answered = tokio::time::timeout(PATIENCE, try_publish(&mut open, address, id, &frame)).await;
            if answered == Ok(Some(())) {
                break;
            }
            open = None; // another broker, perhaps
            tokio::time::sleep(PAUSE).await;
        }
        frame.into_iter().for_each(|keyed| recorder.note(Event::Keyed(KeyEvent::Stored(keyed))));
    }
}

/// `None`: not everything is known to be stored. Named by transaction ids, it may be sent again.
async fn try_publish(open: &mut Option<Link>, address: SocketAddr, id: u64, frame: &[Keyed]) -> Option<()> {
    let link = match open {
        Some(link) => link,
        None => open.insert(Link::open(address, Subprotocol::MessagePack, None).await?.0),
    };
    let messages = frame.iter().map(|keyed| keyed.message()).collect();
    let publish = Publish { id, topic: KEYED.into(), producer_id: None, wait_ms: None, messages };
    link.send(&ClientFrame::Publish(publish)).await?;
    loop {
        let Incoming::Frame(frame) = link.next().await else { return None };
        match *frame {
            BrokerFrame::Published(published) if published.id == id => {
                return published.units.iter().all(|unit| unit.error.is_none()).then_some(());
            }
            BrokerFrame::Error(error) if error.id == Some(id) => return None,
            _ => {}
        }
    }
}

/// Lets go of what is parked, until the run ends.
pub(super) async fn operate(scene: Arc<Scene>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut rests: HashMap<i64, Instant> = HashMap::new();
    while scene.stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_some() {
        let Some(parked) = list(&scene, &mut random).await else { continue };
        rests.retain(|id, _| parked.iter().any(|key| key.id == *id));
        for key in parked {
            let rest = Duration::from_millis(random.random_range(RESTS_MS));
            let until = *rests.entry(key.id).or_insert_with(|| Instant::now() + rest);
            if until <= Instant::now() {
                rests.remove(&key.id);
                let_go(&scene, &mut random, &key).await;
            }
        }
    }
}

fn broker(scene: &Scene, random: &mut StdRng) -> SocketAddr {
    scene.brokers[random.random_range(0..scene.brokers.len())]
}

/// Keys that are parked, and not released yet.
async fn list(scene: &Scene, random: &mut StdRng) -> Option<Vec<ParkedKey>> {
    let admin = admin_of(broker(scene, random))?;
    let all = ParkedQuery { topic: Some(KEYED.to_owned()), ..ParkedQuery::default() };
    let mut list = tokio::time::timeout(PATIENCE, admin.list_parked(&all)).await.ok()?.ok()?;
    list.parked.retain(|key| key.state == ParkedState::Parked);
    Some(list.parked)
}

/// Replays a parked key, or drops what it failed at. What becomes of a request without an answer is seen at the next look.
async fn let_go(scene: &Scene, random: &mut StdRng, parked: &ParkedKey) {
    let Some(admin) = admin_of(broker(scene, random)) else { return };
    let name = parked.key.as_ref().and_then(|key| serde_json::from_str::<String>(key.get()).ok());
    let Some(key) = name.and_then(|name| name.parse().ok()) else { return };
    let event = if random.random_ratio(1, DROP_EVERY) {
        scene.recorder.note(Event::Keyed(KeyEvent::DropAsked { key }));
        let dropped = tokio::time::timeout(PATIENCE, admin.drop_parked(parked.id)).await;
        matches!(dropped, Ok(Ok(_))).then_some(KeyEvent::Dropped { key })
    } else {
        let replayed = tokio::time::timeout(PATIENCE, admin.replay_parked(parked.id)).await;
        matches!(replayed, Ok(Ok(_))).then_some(KeyEvent::Replayed { key })
    };
    event.into_iter().for_each(|event| scene.recorder.note(Event::Keyed(event)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_key_is_read_back_from_its_payload_and_from_no_other() {
        let keyed = Keyed { key: 7, number: 41 };
        assert_eq!(Keyed::parse(keyed.payload().as_bytes()), Some(keyed));
        for broken in ["", "7", "7-", "x-7", "7-x"] {
            assert_eq!(Keyed::parse(broken.as_bytes()), None, "{broken:?}");
        }
    }
}
