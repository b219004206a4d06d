//! Order by key against a model that knows only messages: what was sent, what counts, what is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use proptest::prelude::*;

use super::keys::{Key, Reach, Stop};
use super::*;
use crate::broker::groups::deliver::without_done;
use crate::broker::groups::held::Held;
use crate::broker::groups::keyed::{Picked, keys_of};
use crate::broker::slab::{Piece, Slab};
use crate::ids::{Epoch, GroupId, PartitionId, SessionId, TraceId};
use crate::store::lanes::{Failed, Fence};
use crate::store::messages::Message;
use crate::store::parked::{Copy, KnownKey};

pub(super) fn resume_at() -> ResumeAt {
    ResumeAt {
        parked: Vec::new(),
        partition_id: PartitionId(1),
        epoch: Epoch(1),
        session_id: None,
        committed: Offset(0),
        acked: Vec::new(),
        start_offset: Offset(0),
        suspect_until: Offset(0),
        failed: Vec::new(),
    }
}

pub(super) fn lane_at(at: &ResumeAt, now: Instant) -> Lane {
    let mut lane = Lane::new(at, now);
    lane.order_by_key(keys_of(at));
    lane
}

pub(super) fn lane() -> Lane {
    lane_at(&resume_at(), Instant::now())
}

pub(super) fn held(lane: Lane) -> Held {
    let fence = Fence {
        group_id: GroupId(1),
        partition_id: PartitionId(1),
        epoch: Epoch(1),
        session_id: SessionId(uuid::Uuid::nil()),
    };
    Held::new(fence, 0, lane, &Gauge::default())
}

pub(super) fn message(offset: i64) -> Message {
    Message {
        offset: Offset(offset),
        published_at: Timestamp::UNIX_EPOCH,
        trace_id: TraceId(uuid::Uuid::nil()),
        cause: None,
        origin: None,
        key: Some(Bytes::copy_from_slice(&[KEYS[offset as usize]])),
        transaction_id: None,
        headers: None,
        content_type: None,
        payload: Bytes::new(),
        producer: None,
        ttl: None,
        data_key_id: None,
    }
}

/// The stream: offset by offset the number of its key.
pub(super) const KEYS: [u8; 24] = [0, 1, 0, 2, 1, 0, 3, 0, 1, 2, 0, 0, 3, 1, 2, 0, 4, 0, 1, 2, 3, 4, 0, 1];

pub(super) fn key(offset: i64) -> Key {
    Key::Named(Bytes::copy_from_slice(&[KEYS[offset as usize]]))
}

#[derive(Debug, Clone)]
enum Event {
    Send(usize),
    /// Acknowledges something that was sent at some time, in the round of that time.
    Ack(prop::sample::Index),
    Below(prop::sample::Index),
    Retry(prop::sample::Index),
    GiveUp(prop::sample::Index),
    Park(prop::sample::Index),
    Wait(u64),
    Restart,
    Release(prop::sample::Index),
    CopyBehind,
    /// A read of copies sees the tables as they are now, and is here with the next `EndRead`.
    BeginRead,
    EndRead,
    /// Another holder goes on from the tables.
    Takeover,
    Seek(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    let pick = || any::<prop::sample::Index>();
    prop_oneof![
        8 => (1..6_usize).prop_map(Event::Send),
        8 => pick().prop_map(Event::Ack),
        1 => pick().prop_map(Event::Below),
        3 => pick().prop_map(Event::Retry),
        1 => pick().prop_map(Event::GiveUp),
        2 => pick().prop_map(Event::Park),
        4 => (1..20_u64).prop_map(Event::Wait),
        1 => Just(Event::Restart),
        2 => pick().prop_map(Event::Release),
        3 => Just(Event::CopyBehind),
        3 => Just(Event::BeginRead),
        3 => Just(Event::EndRead),
        1 => Just(Event::Takeover),
        1 => pick().prop_map(Event::Seek),
    ]
}

/// What is true, told by messages alone.
struct World {
    held: Held,
    stream: Arc<Slab>,
    now: Instant,
    /// Every delivery of this holder: round and offset.
    sent: Vec<(u32, i64)>,
    /// Which rounds of a message still count.
    counts: BTreeMap<i64, BTreeSet<u32>>,
    done: BTreeSet<i64>,
    /// Parked keys, by the message that parked them, with their copies.
    parked: BTreeMap<u8, (i64, BTreeSet<i64>)>,
    released: BTreeSet<u8>,
    last_in_round: BTreeMap<u32, i64>,
    /// A read under way: whose copies, and what it has seen of them.
    reading: Option<(Offset, Vec<i64>)>,
}

impl World {
    fn new() -> Self {
        let (sent, counts, done, parked) = Default::default();
        let (released, last_in_round) = Default::default();
        let stream = Slab::new((0..KEYS.len() as i64).map(message).collect()).unwrap();
        Self {
            held: held(lane()),
            stream: Arc::new(stream),
            now: Instant::now(),
            sent,
            counts,
            done,
            parked,
            released,
            last_in_round,
            reading: None,
        }
    }

    /// As a lane sends: copies, what waits, or what is new.
    fn send(&mut self, most: usize) {
        let Some(Sendable { from, messages }) = self.held.lane.sendable(self.now) else { return };
        let most = messages.min(most);
        let picked = match self.held.copies(from, most, u64::MAX) {
            Some(copies) => Picked::all(copies),
            None if from >= self.stream.end() => return,
            None => {
                let pieces = vec![Slab::piece(&self.stream, from, most, u64::MAX)];
                self.held.pick(without_done(pieces, self.held.lane.acked()), self.now)
            }
        };
        if picked.is_all_held() {
            return self.held.on_all_held(picked, self.now);
        }
        if picked.pieces.is_empty() {
            return;
        }
        self.held.turn_back(&picked.pieces);
        let goes: Vec<i64> =
            picked.pieces.iter().flat_map(Piece::messages).map(|message| message.offset.0).collect();
        goes.iter().for_each(|offset| self.check(*offset, &goes));
        self.held.on_sent(picked, self.now);
    }

    /// A message may go now.
    fn check(&mut self, offset: i64, goes: &[i64]) {
        let round = self.held.lane.round;
        let last = self.last_in_round.insert(round, offset);
        assert!(last.is_none_or(|last| last < offset), "offsets rise within a round");
        assert!(!self.done.contains(&offset), "{offset} is done");
        // Nothing of its key that lies before it is neither done nor in flight.
        let name = KEYS[offset as usize];
        for earlier in (0..offset).filter(|earlier| KEYS[*earlier as usize] == name) {
            let flies = self.held.lane.keys().unwrap().is_flying(Offset(earlier));
            assert!(
                self.done.contains(&earlier) || flies || goes.contains(&earlier),
                "{offset} overtakes {earlier}, which is {}parked",
                if self.is_aside(earlier) { "" } else { "not " }
            );
        }
        self.sent.push((round, offset));
        self.counts.entry(offset).or_default().insert(round);
    }

    /// Somebody else takes the lane, with everything that was written down.
    fn take_over(&mut self, committed: Offset, acked: Vec<(Offset, Offset)>) {
        let known = |(name, (parked_offset, _)): (&u8, &(i64, BTreeSet<i64>))| KnownKey {
            partition_id: PartitionId(1),
            parked_offset: Offset(*parked_offset),
            key: Some(Bytes::copy_from_slice(&[*name])),
            released: self.released.contains(name),
        };
        let failed = |offset: &i64| Failed {
            offset: Offset(*offset),
            attempts: 1,
            reason: String::new(),
            retry_in: Duration::from_millis(5),
        };
        let at = ResumeAt {
            parked: self.parked.iter().map(known).collect(),
            failed: self.counts.keys().take(2).map(failed).collect(),
            committed,
            acked,
            ..resume_at()
        };
        self.held = held(lane_at(&at, self.now));
        self.reading = None;
        self.sent.clear();
        self.counts.clear();
        self.last_in_round.clear();
    }

    fn seek(&mut self, to: i64) {
        self.done.retain(|offset| *offset < to);
        self.take_over(Offset(to), Vec::new());
        // What lies between the place and where it was before counts as done for the group.
        (0..to).for_each(|offset| {
            if !self.is_aside(offset) {
                self.done.insert(offset);
            }
        });
    }

    fn ack(&mut self, round: u32, offset: i64) {
        let counts = self.counts.get(&offset).is_some_and(|rounds| rounds.contains(&round));
        let was_done = self.done.contains(&offset);
        let result = self.held.lane.on_ack(round, None, &[(Offset(offset), Offset(offset + 1))], self.now);
        if counts && !was_done {
            assert_eq!(result, Ok(()), "{offset} in round {round}");
            self.finish(offset);
        } else if !was_done {
            assert!(result.is_err(), "{offset} in round {round} does not count");
        }
    }

    fn is_aside(&self, offset: i64) -> bool {
        self.parked.get(&KEYS[offset as usize]).is_some_and(|(_, copies)| copies.contains(&offset))
    }

    fn finish(&mut self, offset: i64) {
        self.done.insert(offset);
        self.counts.remove(&offset);
        if let Some((_, copies)) = self.parked.get_mut(&KEYS[offset as usize]) {
            copies.remove(&offset);
        }
    }

    /// A failure: what is in flight of the key from there on does not count any more.
    fn fail(&mut self, round: u32, offset: i64) -> bool {
        let counts = self.counts.get(&offset).is_some_and(|rounds| rounds.contains(&round));
        let is_taken = self.held.lane.check_nack(round, Offset(offset)).is_ok();
        assert_eq!(is_taken, counts && !self.done.contains(&offset), "{offset} in round {round}");
        if is_taken {
            self.held.lane.on_failing(Offset(offset), self.now);
            let name = KEYS[offset as usize];
            self.counts.retain(|other, _| *other < offset || KEYS[*other as usize] != name);
        }
        is_taken
    }

    fn retry(&mut self, offset: i64) {
        let retry_at = self.now + Duration::from_millis(10);
        let failure = Failure { attempts: 1, reason: String::new(), retry_at };
        self.held.lane.on_key_charged(Offset(offset), failure, Stop::Until(retry_at));
    }

    fn park(&mut self, offset: i64) {
        let name = KEYS[offset as usize];
        let parked_offset = self.held.parked_offset(Offset(offset));
        self.held.overtake_read([parked_offset]);
        self.held.on_parked(Offset(offset), self.now);
        self.parked.entry(name).or_insert((offset, BTreeSet::new())).1.insert(offset);
        self.released.remove(&name);
    }

    fn copy_behind(&mut self) {
        let behind = self.held.lane.keys().unwrap().next_behind(3, Reach::Parked, |_| true);
        let offsets: Vec<Offset> = behind.iter().map(|(offset, _)| *offset).collect();
        self.held.overtake_read(behind.iter().map(|(_, parked_offset)| *parked_offset));
        for (offset, parked_offset) in behind {
            let (name, copies) = self.parked.get_mut(&KEYS[offset.0 as usize]).unwrap();
            assert_eq!(*name, parked_offset.0);
            copies.insert(offset.0);
        }
        self.held.lane.on_behind_parked(&offsets, self.now);
        self.held.look_behind(self.now);
    }

    /// Whether what stands behind parked keys has a moment at which it is copied aside.
    fn is_copied_in_time(&self) -> bool {
        let behind = self.held.lane.keys().unwrap().next_behind(1, Reach::Parked, |_| true);
        behind.is_empty() || self.held.park_at().is_some()
    }

    /// An operator releases a key; its holder reads what is left of it, and lets it go when nothing is.
    fn release(&mut self, pick: &prop::sample::Index) {
        if self.parked.is_empty() {
            return;
        }
        let name = *self.parked.keys().nth(pick.index(self.parked.len())).unwrap();
        let parked_offset = Offset(self.parked[&name].0);
        if self.released.insert(name) {
            assert!(self.held.lane.keys_mut().unwrap().on_released(parked_offset));
        }
    }

    fn begin_read(&mut self) {
        if let Some(((parked_offset, from), _)) = self.held.begin_read(self.now) {
            let (_, copies) = self.parked.values().find(|parked| parked.0 == parked_offset.0).unwrap();
            self.reading = Some((parked_offset, copies.range(from.0..).take(2).copied().collect()));
        }
    }

    fn end_read(&mut self) {
        let Some((parked_offset, found)) = self.reading.take() else { return };
        if self.held.end_read().is_none() {
            return;
        }
        if found.is_empty() {
            let keys = self.held.lane.keys_mut().unwrap();
            let done = keys.done_copies();
            keys.on_copies_removed(&done);
            keys.on_freed(parked_offset);
            let name = *self.parked.iter().find(|(_, parked)| parked.0 == parked_offset.0).unwrap().0;
            let (_, left) = self.parked.remove(&name).unwrap();
            assert!(left.is_empty(), "{left:?} are parked under nobody's name");
            self.released.remove(&name);
            return;
        }
        let copy = |offset: &i64| Copy { message: message(*offset), attempts: 0, retry_in: Duration::ZERO };
        self.held.take_copies(parked_offset, found.iter().map(copy).collect(), self.now);
    }

    fn take(&mut self, event: &Event) {
        let picked = |world: &World, pick: &prop::sample::Index| {
            (!world.sent.is_empty()).then(|| world.sent[pick.index(world.sent.len())])
        };
        match event {
            Event::Send(most) => self.send(*most),
            Event::Wait(ms) => self.now += Duration::from_millis(*ms),
            Event::Ack(pick) => {
                if let Some((round, offset)) = picked(self, pick) {
                    self.ack(round, offset);
                }
            }
            Event::Below(pick) => {
                if let Some((round, offset)) = picked(self, pick) {
                    self.below(round, offset);
                }
            }
            Event::Retry(pick) => {
                if let Some((_, offset)) =
                    picked(self, pick).filter(|(round, offset)| self.fail(*round, *offset))
                {
                    self.retry(offset);
                }
            }
            Event::GiveUp(pick) => {
                if let Some((_, offset)) =
                    picked(self, pick).filter(|(round, offset)| self.fail(*round, *offset))
                {
                    self.held.lane.on_given_up(Offset(offset), self.now);
                    self.finish(offset);
                }
            }
            Event::Park(pick) => {
                if let Some((_, offset)) =
                    picked(self, pick).filter(|(round, offset)| self.fail(*round, *offset))
                {
                    self.park(offset);
                }
            }
            Event::Restart => {
                self.held.lane.restart();
                self.held.log = Arc::default();
            }
            Event::Release(pick) => self.release(pick),
            Event::CopyBehind => self.copy_behind(),
            Event::BeginRead => self.begin_read(),
            Event::EndRead => self.end_read(),
            Event::Takeover => {
                let (committed, acked) = self.held.lane.position();
                let acked = acked.pairs().into_iter().map(|(from, to)| (Offset(from), Offset(to)));
                self.take_over(committed, acked.collect());
            }
            Event::Seek(pick) => self.seek(pick.index(KEYS.len()) as i64),
        }
    }

    /// A cumulative ack stands for what was sent in its round.
    fn below(&mut self, round: u32, offset: i64) {
        let before: BTreeSet<i64> = self.done.clone();
        let result = self.held.lane.on_ack(round, Some(Offset(offset + 1)), &[], self.now);
        let sent = self.sent.iter().filter(|(of, at)| *of == round && *at <= offset);
        let covered: BTreeSet<i64> = sent.map(|(_, at)| *at).collect();
        let is_void =
            |at: &i64| !before.contains(at) && !self.counts.get(at).is_some_and(|c| c.contains(&round));
        assert!(result.is_ok() || covered.iter().any(is_void), "{result:?}");
        let flying: Vec<i64> = self.counts.keys().copied().collect();
        for at in flying {
            let is_gone = self.held.lane.keys().unwrap().entry(Offset(at)).is_none();
            assert!(
                !is_gone || covered.contains(&at) || before.contains(&at),
                "{at} was not sent in {round}"
            );
            if is_gone {
                self.finish(at);
            }
        }
    }

    /// Everything heals: all keys are released, and what is sent is acknowledged.
    fn drain(&mut self) {
        for _ in 0..400 {
            self.now += Duration::from_millis(20);
            self.copy_behind();
            for name in self.parked.keys().copied().collect::<Vec<_>>() {
                let parked_offset = Offset(self.parked[&name].0);
                if self.released.insert(name) {
                    self.held.lane.keys_mut().unwrap().on_released(parked_offset);
                }
            }
            for _ in 0..KEYS.len() {
                self.end_read();
                self.begin_read();
            }
            self.send(5);
            let flying: Vec<(i64, u32)> =
                self.counts.iter().filter_map(|(offset, rounds)| Some((*offset, *rounds.last()?))).collect();
            flying.into_iter().for_each(|(offset, round)| self.ack(round, offset));
        }
    }
}

proptest! {
    #[test]
    fn keys_keep_their_order_and_nothing_is_lost(events in prop::collection::vec(event(), 1..160)) {
        let mut world = World::new();
        for event in &events {
            world.take(event);
            prop_assert!(world.held.lane.committed() <= world.held.lane.cursor());
            prop_assert!(world.is_copied_in_time());
        }
        world.drain();
        prop_assert_eq!(world.done.len(), KEYS.len(), "everything is done in the end");
        prop_assert_eq!(world.held.lane.committed(), Offset(KEYS.len() as i64));
        prop_assert!(world.held.lane.keys().is_some_and(|keys| keys.is_free() && keys.undone() == 0));
    }
}
