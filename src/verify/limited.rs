//! A topic with a limit: producers that push against it at all brokers, with messages for now and some that wait for a moment,
//! somebody who pulls what they have pushed, and a look at its depth in the database all the time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use laneway_client::ErrorCode;
use laneway_client::pull_api::PopRequest;
use laneway_client::wire::{BrokerFrame, ClientFrame, NewMessage, Publish, Subprotocol};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio_util::sync::CancellationToken;

use super::history::{Event, Recorder};
use super::later::admin_of;
use super::link::{Incoming, Link};
use super::scene::Scene;
use super::settings::{LIMIT, LIMITED, PULLERS};
use crate::limits::FLUSH_MESSAGES_MAX;
use crate::store::Store;

/// Messages of a frame: a second without a limit would take the topic past every allowance.
const FRAME_MESSAGES: usize = 500;
/// Those of them that wait for a time: fewer than are pulled out, so that they do not pile up.
const FRAME_LATER: usize = 50;
/// How long they wait at most.
const LATER_MS: u64 = 500;
/// Between two frames.
const FRAME_PAUSE: Duration = Duration::from_millis(20);
/// After a connection that did not come about, and after a pop.
const PAUSE: Duration = Duration::from_millis(100);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks at the depth.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// How deep the topic may be: its limit, and one flush for each connection that appends. Brokers have as many as the store here.
fn bound(store: &Store, brokers: usize) -> i64 {
    LIMIT as i64 + (FLUSH_MESSAGES_MAX * store.settings().appenders * brokers) as i64
}

/// Pushes until it is enough.
pub(super) async fn push(
    brokers: Arc<[SocketAddr]>,
    recorder: Arc<Recorder>,
    seed: u64,
    enough: CancellationToken,
) {
    let mut random = StdRng::seed_from_u64(seed);
    while !enough.is_cancelled() {
        let address = brokers[random.random_range(0..brokers.len())];
        let Some((link, _)) = Link::open(address, Subprotocol::MessagePack, None).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        push_on(link, &recorder, &mut random, &enough).await;
    }
}

/// Until the connection is lost.
async fn push_on(mut link: Link, recorder: &Recorder, random: &mut StdRng, enough: &CancellationToken) {
    for id in 2.. {
        if enough.run_until_cancelled(tokio::time::sleep(FRAME_PAUSE)).await.is_none() {
            return link.close().await;
        }
        let message = |number: usize| NewMessage {
            payload: number.to_string().into(),
            delay_ms: (number < FRAME_LATER).then(|| random.random_range(0..LATER_MS)),
            ..NewMessage::default()
        };
        let messages = (0..FRAME_MESSAGES).map(message).collect();
        let publish = Publish { id, topic: LIMITED.into(), producer_id: None, wait_ms: None, messages };
        let answered = async {
            link.send(&ClientFrame::Publish(publish)).await?;
            loop {
                match link.next().await {
                    Incoming::Frame(frame) => match *frame {
                        BrokerFrame::Published(published) if published.id == id => return Some(None),
                        BrokerFrame::Error(error) if error.id == Some(id) => return Some(Some(error.code)),
                        _ => {}
                    },
                    Incoming::Ended(_) => return None,
                }
            }
        };
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Some(Some(ErrorCode::TopicFull))) => recorder.note(Event::Full),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return, // another broker, perhaps
        }
    }
}

/// Takes out what is there, slower than it comes.
pub(super) async fn pull(scene: Arc<Scene>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let wish = PopRequest { max_messages: Some(200), auto_ack: true, ..PopRequest::default() };
    while scene.stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_some() {
        let address = scene.brokers[random.random_range(0..scene.brokers.len())];
        if let Some(admin) = admin_of(address) {
            // Whatever becomes of it: what counts is what the database holds.
            drop(tokio::time::timeout(PATIENCE, admin.pop(LIMITED, PULLERS, &wish)).await);
        }
    }
}

/// Looks at the depth until stopped, and notes what it has not seen before.
pub(super) async fn watch_depth(
    store: Store,
    recorder: Arc<Recorder>,
    brokers: usize,
    stop: CancellationToken,
) {
    let (mut deepest, bound) = (-1, bound(&store, brokers));
    while stop.run_until_cancelled(tokio::time::sleep(LOOK_PAUSE)).await.is_some() {
        let Ok(messages) = store.witness_depth(LIMITED).await else { continue };
        if messages > deepest {
            deepest = messages;
            recorder.note(Event::Depth { messages, bound });
        }
    }
}
