//! Growth of partitions, told and heard: what this broker flushes joins its hot tails and is announced to the others; what
//! others announce is read into the tails.
//!
//! A notification is a hint, sent outside the flush and coalesced; inside, it would make all commits of the database wait
//! for each other. The truth is a bounded poll of the heads of the partitions that somebody follows here.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::Rng as _;
use tokio::sync::{Notify, broadcast, mpsc};

use super::hot_tail::{Gap, HotTails};
use super::lease::Lease;
use super::reader::Reader;
use crate::ids::{Offset, PartitionId};
use crate::limits::{ANNOUNCE_PAUSE, CATCH_UP_BYTES, CATCH_UP_MESSAGES, GAPS_MAX, HEADS_POLL_INTERVAL};
use crate::store::Store;
use crate::store::listen::{Hint, Hints};
use crate::store::messages::{Message, ReadLimit};
use crate::store::partitions::Extent;
use crate::store::timeline::Era;

/// Where flushes report growth. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Announcer {
    tails: HotTails,
    grown: Arc<Grown>,
    gaps: mpsc::Sender<Gap>,
}

/// Partitions that have grown here since the last announcement.
#[derive(Debug, Default)]
struct Grown {
    partitions: Mutex<HashSet<PartitionId>>,
    notify: Notify,
}

/// The work behind an announcer.
#[derive(Debug)]
pub struct Announcing {
    announcer: Announcer,
    gaps: mpsc::Receiver<Gap>,
}

/// An announcer for some tails, and its work.
pub fn announcer(tails: HotTails) -> (Announcer, Announcing) {
    let (sender, gaps) = mpsc::channel(GAPS_MAX);
    let announcer = Announcer { tails, grown: Arc::default(), gaps: sender };
    (announcer.clone(), Announcing { announcer, gaps })
}

impl Announcer {
    pub fn is_followed(&self, partition_id: PartitionId) -> bool {
        self.tails.is_followed(partition_id)
    }

    /// A flush of this broker was committed; `messages` are empty if nobody follows the partition here.
    pub fn on_flushed(&self, partition_id: PartitionId, messages: Vec<Message>, era: Era) {
        if let Some(gap) = self.tails.on_flushed(partition_id, messages, era) {
            self.fill(gap);
        }
        self.grown.partitions.lock().insert(partition_id);
        self.grown.notify.notify_one();
    }

    /// Something else of this broker has appended to a partition, up to this end: those who follow it here read it.
    pub fn on_appended(&self, partition_id: PartitionId, next: Offset) {
        if let Some(gap) = self.tails.on_grown(partition_id, next) {
            self.fill(gap);
        }
        self.grown.partitions.lock().insert(partition_id);
        self.grown.notify.notify_one();
    }

    fn fill(&self, gap: Gap) {
        if self.gaps.try_send(gap).is_err() {
            self.tails.on_filled(gap, Vec::new()); // too many at once: those who follow read for themselves
        }
    }
}

/// Tells the other brokers what has grown, while there are any.
pub async fn announce(store: Store, announcer: Announcer, lease: Lease) {
    loop {
        announcer.grown.notify.notified().await;
        tokio::time::sleep(ANNOUNCE_PAUSE).await; // what grows together is told together
        let grown = std::mem::take(&mut *announcer.grown.partitions.lock());
        let Some(broker_id) = lease.broker_id().filter(|_| lease.has_others()) else { continue };
        let partitions: Vec<PartitionId> = grown.into_iter().collect();
        if let Err(error) = store.hint(&Hint::Heads { broker_id, partitions }).await {
            tracing::debug!(%error, "the others will notice by themselves");
        }
    }
}

/// Hears what has grown elsewhere, and looks for itself because hints can be lost; reads what is missing in the tails.
pub async fn follow(store: Store, reader: Reader, announcing: Announcing, lease: Lease, hints: Hints) {
    let Announcing { announcer, mut gaps } = announcing;
    let mut heard = hints.subscribe();
    let mut pause = HEADS_POLL_INTERVAL;
    loop {
        tokio::select! {
            Some(gap) = gaps.recv() => {
                tokio::spawn(fill(reader.clone(), announcer.clone(), gap));
                continue;
            }
            hint = heard.recv() => match hint {
                Ok(Hint::Heads { broker_id, .. }) if Some(broker_id) == lease.broker_id() => continue,
                Ok(Hint::Heads { partitions, .. }) => {
                    look(&store, &reader, &announcer, partitions).await;
                    continue;
                }
                Ok(Hint::Topics | Hint::Group(_)) => continue,
                Ok(Hint::Everything) | Err(broadcast::error::RecvError::Lagged(_)) => reader.forget_all(),
                Err(broadcast::error::RecvError::Closed) => return,
            },
            () = tokio::time::sleep(pause) => {}
        }
        pause = HEADS_POLL_INTERVAL.mul_f64(rand::rng().random_range(0.75..1.25));
        let followed = announcer.tails.followed();
        look(&store, &reader, &announcer, followed).await;
    }
}

async fn look(store: &Store, reader: &Reader, announcer: &Announcer, mut partitions: Vec<PartitionId>) {
    partitions.retain(|partition_id| announcer.tails.is_followed(*partition_id));
    if partitions.is_empty() {
        return;
    }
    let ends = announcer.tails.ends(&partitions); // before the look, so that it must find at least as much
    match store.heads_newest(&partitions).await {
        Ok(heads) if heads.iter().any(|head| ends.get(&head.partition_id) > Some(&head.next)) => {
            tracing::warn!(
                "committed messages are not in the database any more: what this broker remembers is dropped"
            );
            store.timelines().distrust();
        }
        Ok(heads) => {
            for Extent { partition_id, start, next } in heads {
                reader.on_start(partition_id, start);
                announcer.tails.on_start(partition_id, start);
                if let Some(gap) = announcer.tails.on_grown(partition_id, next) {
                    announcer.fill(gap);
                }
            }
        }
        Err(error) => tracing::debug!(%error, "heads are looked at again in a moment"),
    }
}

async fn fill(reader: Reader, announcer: Announcer, gap: Gap) {
    let mut gap = gap;
    loop {
        let wanted = u32::try_from(gap.to.0 - gap.from.0).unwrap_or(u32::MAX).min(CATCH_UP_MESSAGES);
        let limit = ReadLimit { messages: wanted, bytes: CATCH_UP_BYTES };
        let messages = match reader.read(gap.partition_id, gap.from, limit).await {
            Ok(messages) => messages,
            Err(error) => {
                tracing::debug!(%error, "a gap cannot be read");
                Vec::new()
            }
        };
        match announcer.tails.on_filled(gap, messages) {
            Some(rest) => gap = rest,
            None => return,
        }
    }
}
