//! What a group has done beside its loop, and what comes back. Each effect is a task of its own, bounded by what the store
//! has connections for.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::mpsc;

use super::credit::Room;
use super::evict::First;
use super::keyed::{self, Parks};
use super::times::Keeping;
use super::{Surroundings, assignment};
use crate::broker::appender::CommitError;
use crate::broker::keys::unopened;
use crate::broker::pulling;
use crate::broker::reader::ReadError;
use crate::ids::{BrokerId, Epoch, GroupId, Offset, PartitionId, SessionId};
use crate::limits::{
    CATCH_UP_BYTES, CATCH_UP_MESSAGES, EFFECT_RETRY_PAUSE, EFFECT_RETRY_PAUSE_MIN, READ_THROUGH_MAX,
};
use crate::store::groups::{GroupSettings, GroupView, Ordering};
use crate::store::lanes::{DeadLetter, Fence, LaneRow, ResumeAt, Settled, Settlement};
use crate::store::management::Running;
use crate::store::messages::{Message, ReadLimit};
use crate::store::parked::{Copies, Parking};
use crate::store::windows::Eviction;
use crate::store::{Error, Store};

/// What comes back to the loop.
#[derive(Debug)]
pub(super) enum Event {
    /// The group as it is; `None`: it is gone.
    Listed(Result<Option<Listed>, Error>),
    Acquired {
        broker_id: BrokerId,
        result: Result<Vec<ResumeAt>, Error>,
    },
    /// A commit of a lane was written, or its lease is lost.
    Committed {
        partition_id: PartitionId,
        epoch: Epoch,
        number: i64,
        result: Result<(), CommitError>,
    },
    /// Messages of a lane that is behind.
    Fetched {
        partition_id: PartitionId,
        epoch: Epoch,
        from: Offset,
        result: Result<Vec<Message>, ReadError>,
    },
    /// A failure was written down, a message given up, or a lane released.
    Settled {
        partition_id: PartitionId,
        epoch: Epoch,
        what: Settling,
        result: Settled,
    },
    /// Where the partition of a lane ends that waits for its window.
    Head {
        partition_id: PartitionId,
        epoch: Epoch,
        first: First,
        result: Result<Option<(Offset, Timestamp)>, Error>,
    },
    /// What of a lane has expired.
    Expired {
        partition_id: PartitionId,
        epoch: Epoch,
        result: Result<Eviction, ReadError>,
    },
    /// That was written down.
    Evicted {
        partition_id: PartitionId,
        epoch: Epoch,
        eviction: Eviction,
        result: Settled,
    },
    /// Copies of a parked key that is released.
    Copies {
        partition_id: PartitionId,
        epoch: Epoch,
        parked_offset: Offset,
        result: Result<Copies, Error>,
    },
    /// A member was entered into the tables again.
    Entered {
        session_id: SessionId,
    },
    /// A member is out of the tables.
    Left {
        session_id: SessionId,
    },
}

/// What a look finds.
#[derive(Debug)]
pub(super) struct Listed {
    pub settings: GroupSettings,
    pub keeping: Keeping,
    pub running: Running,
    /// Parked keys that are released, by partition and name.
    pub released: Vec<(PartitionId, Offset)>,
    pub lanes: Vec<LaneRow>,
}

/// What a settlement was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settling {
    /// The message is tried again after a while.
    Charge { id: Option<u64>, offset: Offset, attempts: u32, reason: String, delay: Duration },
    /// The message is given up.
    GiveUp { id: Option<u64>, offset: Offset },
    /// The message is copied aside, and its key with it.
    Park { id: Option<u64>, offset: Offset },
    /// What has come to parked keys.
    Parks(Parks),
    /// The lane is free, for this reason.
    Release { why: &'static str },
}

impl Settling {
    /// The request that waits for it, if there is one.
    pub fn id(&self) -> Option<u64> {
        match self {
            Settling::Charge { id, .. } | Settling::GiveUp { id, .. } | Settling::Park { id, .. } => *id,
            Settling::Parks(_) | Settling::Release { .. } => None,
        }
    }
}

/// Pauses between tries: short at first, because most failures are one lost connection.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(EFFECT_RETRY_PAUSE_MIN)
    }
}

impl Pauses {
    pub fn next(&mut self) -> Duration {
        let longer = (self.0 * 2).min(EFFECT_RETRY_PAUSE);
        std::mem::replace(&mut self.0, longer)
    }
}

/// Sends effects off, and collects what comes back.
#[derive(Debug, Clone)]
pub(super) struct Effects {
    pub surroundings: Surroundings,
    pub group_id: GroupId,
    pub events: mpsc::Sender<Event>,
}

impl Effects {
    pub(super) fn spawn(&self, effect: impl Future<Output = Event> + Send + 'static) {
        let events = self.events.clone();
        tokio::spawn(async move {
            let event = effect.await;
            let _group_has_ended = events.send(event).await;
        });
    }

    /// Decides anew who gets which lane.
    pub fn assign(&self) {
        let Surroundings { store, drain, metrics, .. } = self.surroundings.clone();
        let group_id = self.group_id;
        self.spawn(async move {
            let decide = |view: &GroupView| {
                let wants = assignment::assign(view);
                metrics.rebalances.inc_by(u64::from(!wants.is_empty()));
                wants
            };
            let lanes = store.groups_assign(group_id, drain, decide).await;
            Event::Listed(listed(&store, group_id, lanes).await)
        });
    }

    /// Frees lanes that pullers had for longer than they might.
    pub fn expire_pops(&self, settings: GroupSettings) {
        let Surroundings { store, reader, metrics, settling, .. } = self.surroundings.clone();
        let group_id = self.group_id;
        tokio::spawn(async move {
            let _turn = settling.acquire().await;
            if let Err(error) = pulling::expire(&store, &reader, &metrics, group_id, &settings).await {
                tracing::debug!(%error, "pops that are over are freed with the next look");
            }
        });
    }

    /// Looks at the lanes as they are.
    pub fn list(&self) {
        let (store, group_id) = (self.surroundings.store.clone(), self.group_id);
        self.spawn(async move {
            let lanes = store.lanes_list(group_id).await.map(Some);
            Event::Listed(listed(&store, group_id, lanes).await)
        });
    }

    /// Acquires free lanes for our sessions; `held` are lanes that they hold already, and only have to be read.
    pub fn acquire(
        &self,
        broker_id: BrokerId,
        free: Vec<LaneRow>,
        held: Vec<PartitionId>,
        ordering: Ordering,
    ) {
        let (store, group_id) = (self.surroundings.store.clone(), self.group_id);
        self.spawn(async move {
            let acquired = async {
                let mut lanes = match free.is_empty() {
                    true => Vec::new(),
                    false => store.lanes_acquire(group_id, broker_id, &free, ordering).await?,
                };
                if !held.is_empty() {
                    lanes.extend(store.lanes_resume_at(group_id, broker_id, &held, ordering).await?);
                }
                Ok(lanes)
            };
            Event::Acquired { broker_id, result: acquired.await }
        });
    }

    /// Reads messages of a lane that is behind the hot tail: no more than its session accepts.
    pub fn fetch(&self, partition_id: PartitionId, epoch: Epoch, from: Offset, room: Room) {
        let (reader, catch_up) = (self.surroundings.reader.clone(), self.surroundings.catch_up.clone());
        self.spawn(async move {
            let _permit = catch_up.acquire().await;
            let messages = u32::try_from(room.messages).unwrap_or(u32::MAX).min(CATCH_UP_MESSAGES);
            let limit = ReadLimit { messages, bytes: room.bytes.min(CATCH_UP_BYTES) };
            let result = reader.read(partition_id, from, limit).await;
            Event::Fetched { partition_id, epoch, from, result }
        });
    }

    /// Commits what is done of a lane, with the next flush of its partition.
    pub fn commit(
        &self,
        fence: Fence,
        commit: crate::store::lanes::Commit,
        urgency: crate::broker::appender::Urgency,
    ) {
        let Fence { partition_id, epoch, .. } = fence;
        let number = commit.number;
        let answer = self.surroundings.appender.commit(fence, commit, urgency);
        self.spawn(async move {
            let result = match answer {
                Ok(answer) => answer.await.unwrap_or(Err(CommitError::Stopping)),
                Err(error) => Err(error),
            };
            Event::Committed { partition_id, epoch, number, result }
        });
    }

    /// Settles a lane, for as long as it takes: only its fence can end it.
    pub fn settle(&self, fence: Fence, settlement: Settlement, give_up: Vec<GiveUp>, what: Settling) {
        let surroundings = self.surroundings.clone();
        self.spawn(async move {
            let result = settle(&surroundings, &fence, settlement, &give_up).await;
            Event::Settled { partition_id: fence.partition_id, epoch: fence.epoch, what, result }
        });
    }

    /// Forgets commits that newer ones have replaced.
    pub fn thin(&self, fence: Fence, since: i64, before: i64) {
        let store = self.surroundings.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.lane_commits_thin(&fence, since, before).await {
                tracing::debug!(%error, "old commits stay for now");
            }
        });
    }

    /// Enters a member again, after the broker was buried and has a new id.
    pub fn enter(&self, broker_id: BrokerId, session_id: SessionId, resume_hash: Vec<u8>, terms: String) {
        let Surroundings { store, settling, .. } = self.surroundings.clone();
        let group_id = self.group_id;
        self.spawn(async move {
            let _turn = settling.acquire().await;
            let mut pauses = Pauses::default();
            // `false`: this id was buried too, and the next one enters it.
            while let Err(error) =
                store.members_join(group_id, session_id, broker_id, &resume_hash, &terms).await
            {
                tracing::debug!(%error, "a member is entered again in a moment");
                tokio::time::sleep(pauses.next()).await;
            }
            Event::Entered { session_id }
        });
    }

    /// Takes a member out of the tables, for as long as it takes: others wait for its share of the lanes.
    pub fn leave(&self, session_id: SessionId, broker_id: BrokerId) {
        let Surroundings { store, settling, .. } = self.surroundings.clone();
        let group_id = self.group_id;
        self.spawn(async move {
            let _turn = settling.acquire().await;
            let mut pauses = Pauses::default();
            while let Err(error) = store.members_leave(group_id, session_id, broker_id).await {
                tracing::debug!(%error, "a member leaves in a moment");
                tokio::time::sleep(pauses.next()).await;
            }
            Event::Left { session_id }
        });
    }
}

/// The settings beside the lanes, of the group and of its topic: an operator may have changed them.
async fn listed(
    store: &Store,
    group_id: GroupId,
    lanes: Result<Option<Vec<LaneRow>>, Error>,
) -> Result<Option<Listed>, Error> {
    let Some(lanes) = lanes? else { return Ok(None) };
    let found = store.groups_settings(group_id).await?;
    let is_by_key = found.is_some_and(|now| now.settings.ordering == Ordering::Key);
    let released = if is_by_key { store.parked_keys_released(group_id).await? } else { Vec::new() };
    Ok(found.map(|now| Listed {
        released,
        settings: now.settings,
        keeping: Keeping::of(now.delivery_times),
        running: now.running,
        lanes,
    }))
}

/// A message that the group gives up or parks, to be read before it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GiveUp {
    pub offset: Offset,
    pub attempts: u32,
    pub reason: String,
    /// If it is at hand already.
    pub message: Option<Message>,
    pub how: How,
}

/// What becomes of a message that is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    DeadLetter,
    /// It is copied aside and parks its key, under this name.
    Park {
        parked_offset: Offset,
        key: Option<bytes::Bytes>,
    },
    /// It is copied aside behind others of a key of this name.
    Behind {
        parked_offset: Offset,
    },
}

pub(super) async fn settle(
    surroundings: &Surroundings,
    fence: &Fence,
    mut settlement: Settlement,
    give_up: &[GiveUp],
) -> Settled {
    let _turn = surroundings.settling.acquire().await;
    let started = Instant::now();
    let mut pauses = Pauses::default();
    loop {
        let done = async {
            add_messages(surroundings, fence, &mut settlement, give_up).await?;
            surroundings.store.lane_settle(fence, &settlement).await
        };
        match done.await {
            Ok(settled) => return settled,
            Err(error) => {
                tracing::warn!(%error, partition = %fence.partition_id, waited = ?started.elapsed(), "a lane is settled later");
                tokio::time::sleep(pauses.next()).await;
            }
        }
    }
}

/// Reads what is to be written down of messages, and adds it.
async fn add_messages(
    surroundings: &Surroundings,
    fence: &Fence,
    settlement: &mut Settlement,
    give_up: &[GiveUp],
) -> Result<(), Error> {
    let mut parking = settlement.parking.take().unwrap_or_default();
    (parking.messages, parking.lost) = (Vec::new(), Vec::new()); // of a try before this one
    let missing = give_up.iter().filter(|one| one.message.is_none()).map(|one| one.offset);
    let mut found = read_messages(surroundings, fence, missing).await?;
    for one in give_up {
        let message = one.message.clone().or_else(|| found.remove(&one.offset));
        let GiveUp { attempts, reason, .. } = one.clone();
        if one.how == How::DeadLetter {
            settlement.dead_letter = message.map(|message| DeadLetter { message, attempts, reason });
            continue;
        }
        let (key, message) = keyed::parked(one, message);
        parking.key = key.or(parking.key);
        match message {
            Some(message) => parking.messages.push(message),
            None => parking.lost.push(one.offset),
        }
    }
    settlement.parking = (*parking != Parking::default()).then_some(parking);
    Ok(())
}

/// Messages by their offsets, which rise. One that is missing: retention was faster, and there is nothing left to keep.
/// Those that lie close together are read together: the lane waits for it.
async fn read_messages(
    surroundings: &Surroundings,
    fence: &Fence,
    offsets: impl Iterator<Item = Offset>,
) -> Result<BTreeMap<Offset, Message>, Error> {
    let mut wanted: VecDeque<Offset> = offsets.collect();
    let mut found = BTreeMap::new();
    while let Some(from) = wanted.pop_front() {
        let read = |messages: u32| {
            let limit = ReadLimit { messages, bytes: CATCH_UP_BYTES };
            surroundings.reader.read(fence.partition_id, from, limit)
        };
        let mut result = read(run(from, &wanted)).await;
        if matches!(&result, Err(ReadError::Store(error)) if unopened(error).is_some()) {
            result = read(1).await; // what lies between may be what does not open
        }
        // What is read was looked at, and so was the first, whatever became of it.
        let end = match result {
            Ok(messages) => {
                let end = messages.last().map(|last| last.offset.plus(1));
                let is_wanted = |message: &Message| {
                    message.offset == from || wanted.binary_search(&message.offset).is_ok()
                };
                let kept = messages.into_iter().filter(is_wanted);
                found.extend(kept.map(|message| (message.offset, message)));
                end
            }
            Err(ReadError::Store(error)) => return Err(error),
            Err(ReadError::OutOfRange { start }) => Some(start),
            Err(ReadError::UnknownPartition) => return Ok(found),
        };
        wanted.drain(..wanted.partition_point(|offset| end.is_some_and(|end| *offset < end)));
    }
    Ok(found)
}

/// How many messages to read from one that is wanted, so that those wanted next come with it, as far as they lie close.
fn run(from: Offset, next: &VecDeque<Offset>) -> u32 {
    let mut last = from;
    for offset in next {
        if offset.0 - last.0 > READ_THROUGH_MAX || offset.0 - from.0 >= i64::from(CATCH_UP_MESSAGES) {
            break;
        }
        last = *offset;
    }
    (last.0 - from.0 + 1) as u32
}
