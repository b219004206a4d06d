//! What a subscription has received and not yet given back: its lanes, its queue, its acks, its credit. Pure.
//!
//! The owner feeds it with frames and collects what is to be sent; deliveries settle themselves in it. A mutex around it
//! is the only thing that both share. Its size is bounded by the credit: nothing enters that was not granted before.
//! Invariant: the queue holds messages of lanes that are held, under their epoch, of the newest round.
//! Invariant: an ack that a broker would not count is counted here as ignored, and not sent.
//! Invariant: what a step acknowledges is settled by its answer, and by nothing else; see [`stepping`].

mod accounts;
mod by_key;
mod stepping;
mod tailing;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;

use super::book::{Book, Tally};
use super::pause::Pause;
use super::unconfirmed::Unconfirmed;
use crate::wire::{Batch, CreditGrant, GroupOrdering, Record};
pub(super) use accounts::Charge;
use accounts::{Accounts, Due};
use by_key::Keyed;
pub(super) use stepping::Unreserved;

/// Rounds of a lane whose late acks still count; a broker remembers no more.
const ROUNDS_REMEMBERED: usize = 16;
/// Which delivery a settlement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub partition: u32,
    pub epoch: i64,
    pub round: u32,
    pub offset: i64,
}

/// A message that waits for its reader.
#[derive(Debug)]
pub(super) struct Queued {
    pub place: Place,
    pub record: Record,
    pub attempts: u32,
    pub charge: Charge,
}

/// What is to be sent for a lane; `C` waits for the answer.
#[derive(Debug)]
pub(super) enum Outgoing<C> {
    Ack { partition: u32, epoch: i64, round: u32, tally: Tally, waiting: Vec<C> },
    Nack { place: Place, reason: Option<String>, pause: Option<Pause> },
    Progress { partition: u32, epoch: i64, round: u32 },
}

impl<C> Outgoing<C> {
    /// The lane it is about.
    pub fn lane(&self) -> u32 {
        match self {
            Self::Ack { partition, .. } | Self::Progress { partition, .. } => *partition,
            Self::Nack { place, .. } => place.partition,
        }
    }

    /// Who waits for its answer.
    pub fn into_waiting(self) -> Vec<C> {
        match self {
            Self::Ack { waiting, .. } => waiting,
            Self::Nack { .. } | Self::Progress { .. } => Vec::new(),
        }
    }
}

/// Whether the owner should look, and how soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    Nothing,
    Soon,
    Now,
}

#[derive(Debug)]
struct Lane<C> {
    epoch: i64,
    round: u32,
    draining: bool,
    books: BTreeMap<u32, Book>,
    /// Rounds that ended with a nack, and where.
    void_from: BTreeMap<u32, i64>,
    waiting: Vec<(u32, C)>,
    /// What was told and is not known to be durable.
    unconfirmed: Unconfirmed,
    /// What steps acknowledge that are under way.
    stepping: BTreeSet<i64>,
    /// Present if order is kept by key.
    keyed: Option<Keyed>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Inbox<C> {
    ordering: GroupOrdering,
    lanes: HashMap<u32, Lane<C>>,
    queue: VecDeque<Queued>,
    accounts: Accounts,
    out: VecDeque<Outgoing<C>>,
    urgency: Urgency,
    ignored: u64,
    /// Messages that steps under way acknowledge, also those of lanes that are lost.
    reserved: usize,
    /// In a tail: where each partition goes on.
    positions: HashMap<u32, i64>,
}

impl<C> Inbox<C> {
    pub fn new() -> Self {
        Self {
            ordering: GroupOrdering::Partition,
            lanes: HashMap::new(),
            queue: VecDeque::new(),
            accounts: Accounts::default(),
            out: VecDeque::new(),
            urgency: Urgency::Nothing,
            ignored: 0,
            reserved: 0,
            positions: HashMap::new(),
        }
    }

    /// What keeps its order in the group.
    pub fn order_by(&mut self, ordering: GroupOrdering) {
        self.ordering = ordering;
    }

    /// Messages that wait for their reader.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Acks that did not count, because their lane had moved or their round was over.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// The lanes that are held: partition and epoch.
    pub fn lanes(&self) -> Vec<(u32, i64)> {
        self.lanes.iter().map(|(partition, lane)| (*partition, lane.epoch)).collect()
    }

    pub fn holds(&self, partition: u32, epoch: i64) -> bool {
        self.lanes.get(&partition).is_some_and(|lane| lane.epoch == epoch)
    }

    /// Whether a message is of the newest round of a lane that is held, and not void.
    pub fn counts(&self, place: Place) -> bool {
        let lane = self.lanes.get(&place.partition).filter(|lane| lane.epoch == place.epoch);
        lane.is_some_and(|lane| {
            let by_key = lane.counts_by_key(place);
            by_key.unwrap_or_else(|| place.round == lane.round && !lane.is_void(place))
        })
    }

    /// A subscription number with the credit it began with.
    pub fn open(&mut self, number: u32, granted: CreditGrant) {
        self.accounts.open(number, granted);
    }

    /// A new connection took the session up: credit is as at the start.
    pub fn reopen(&mut self) {
        self.accounts.reopen();
    }

    /// A new session: nothing of the old one counts.
    pub fn reset(&mut self) -> Vec<C> {
        self.accounts.close();
        self.queue.clear();
        let mut waiting = Vec::new();
        for (_, mut lane) in self.lanes.drain() {
            waiting.extend(lane.waiting.drain(..).map(|(_, ticket)| ticket));
        }
        waiting.extend(self.out.drain(..).flat_map(Outgoing::into_waiting));
        waiting
    }

    pub fn on_granted(&mut self, partition: u32, epoch: i64, round: u32) -> Vec<C> {
        let lost = self.on_revoked(partition, i64::MAX);
        let lane = Lane {
            epoch,
            round,
            draining: false,
            books: BTreeMap::new(),
            void_from: BTreeMap::new(),
            waiting: Vec::new(),
            unconfirmed: Unconfirmed::default(),
            stepping: BTreeSet::new(),
            keyed: (self.ordering == GroupOrdering::Key).then(|| Keyed::new(round)),
        };
        self.lanes.insert(partition, lane);
        lost
    }

    pub fn on_draining(&mut self, partition: u32, epoch: i64) {
        if let Some(lane) = self.lanes.get_mut(&partition).filter(|lane| lane.epoch == epoch) {
            lane.draining = true;
            self.urgency = Urgency::Now;
        }
    }

    /// The lane is gone, if it is of this epoch or an older one. Returns who waited for its acks.
    pub fn on_revoked(&mut self, partition: u32, epoch: i64) -> Vec<C> {
        if self.lanes.get(&partition).is_none_or(|lane| lane.epoch > epoch) {
            return Vec::new();
        }
        self.drop_queued(|queued| queued.place.partition == partition);
        let lane = self.lanes.remove(&partition);
        lane.into_iter().flat_map(|lane| lane.waiting).map(|(_, ticket)| ticket).collect()
    }

    /// The lane continues under its epoch, in another round.
    pub fn on_resumed(&mut self, partition: u32, epoch: i64, round: u32) {
        if let Some(lane) = self.lanes.get_mut(&partition).filter(|lane| lane.epoch == epoch) {
            (lane.round, lane.draining) = (round, false);
            lane.on_key_round(round);
            self.drop_queued(|queued| queued.place.partition == partition);
        }
    }

    /// Takes a batch in. What is of an old epoch, an old round or void does not enter.
    pub fn on_batch(&mut self, batch: Batch) {
        let Batch { subscription: number, partition, epoch, round, attempts, messages } = batch;
        let is_over = |lane: &Lane<C>| lane.epoch == epoch && lane.round < round && lane.keyed.is_none();
        if self.lanes.get(&partition).is_some_and(is_over) {
            self.drop_queued(|queued| queued.place.partition == partition && queued.place.round < round);
        }
        for record in messages {
            let place = Place { partition, epoch, round, offset: record.offset };
            let charge = self.accounts.charge(number, &record);
            self.replace(place, &record);
            if !self.enter(place, record.key.as_ref()) {
                self.give_back(charge);
                continue;
            }
            let attempts =
                attempts.iter().find(|(offset, _)| *offset == place.offset).map_or(0, |(_, many)| *many);
            self.queue.push_back(Queued { place, record, attempts, charge });
        }
    }

    fn enter(&mut self, place: Place, key: Option<&Bytes>) -> bool {
        if place.epoch == 0 {
            let next = self.positions.entry(place.partition).or_insert(0);
            let is_new = place.offset >= *next;
            *next = (*next).max(place.offset + 1);
            return is_new;
        }
        let Some(lane) = self.lanes.get_mut(&place.partition).filter(|lane| lane.epoch == place.epoch) else {
            return false;
        };
        if place.round < lane.round || lane.is_void(place) {
            return false;
        }
        lane.round = place.round;
        let is_keyed = lane.keyed.is_some();
        let book = lane.books.entry(place.round).or_insert_with(|| Book::new(self.ordering));
        book.deliver(place.offset, key.filter(|_| is_keyed));
        // Why: its ack was lost, or crossed the batch. The user is done with it, and is not asked twice.
        let is_new = !lane.unconfirmed.covers(place.offset);
        if !is_new {
            book.ack(place.offset);
            self.urgency = self.urgency.max(Urgency::Soon);
        }
        // By key, a message may be in work for many rounds: only what is done is forgotten.
        while lane.books.len() > ROUNDS_REMEMBERED && !is_keyed {
            lane.books.pop_first();
        }
        is_new
    }

    /// A message is done. Gives the ticket back if that does not count.
    pub fn ack(&mut self, place: Place, ticket: Option<C>) -> Result<(), Option<C>> {
        let Some(lane) = self.lanes.get_mut(&place.partition).filter(|lane| lane.epoch == place.epoch) else {
            self.ignored += 1;
            return Err(ticket);
        };
        if lane.is_void(place)
            || lane.stepping.contains(&place.offset)
            || !lane.books.get_mut(&place.round).is_some_and(|book| book.ack(place.offset))
        {
            self.ignored += 1;
            return Err(ticket);
        }
        let urgency = if lane.draining || ticket.is_some() { Urgency::Now } else { Urgency::Soon };
        lane.waiting.extend(ticket.map(|ticket| (place.round, ticket)));
        self.urgency = self.urgency.max(urgency);
        Ok(())
    }

    /// A message failed: what was acked before is told first, what is behind it in its round is void.
    pub fn nack(
        &mut self,
        place: Place,
        key: Option<Bytes>,
        reason: Option<String>,
        pause: Option<Pause>,
    ) -> bool {
        let Some(lane) = self.lanes.get_mut(&place.partition).filter(|lane| lane.epoch == place.epoch) else {
            self.ignored += 1;
            return false;
        };
        // Why: a broker ends no round for a message that is done, and a step that is under way may have done it.
        let is_open = lane.books.get(&place.round).is_some_and(|book| book.is_open(place.offset));
        if lane.is_void(place) || lane.stepping.contains(&place.offset) || !is_open {
            self.ignored += 1;
            return false;
        }
        Self::tell(place.partition, lane, &mut self.out);
        // Why: another copy of it was acknowledged. The broker would not end the round for a message that is done.
        if lane.unconfirmed.covers(place.offset) {
            if let Some(book) = lane.books.get_mut(&place.round) {
                book.ack(place.offset);
            }
            self.urgency = self.urgency.max(Urgency::Soon);
            return true;
        }
        if lane.keyed.is_some() {
            self.out.push_back(Outgoing::Nack { place, reason, pause });
            self.urgency = Urgency::Now;
            self.void_key(place, key);
            return true;
        }
        lane.void_from.insert(place.round, place.offset);
        while lane.void_from.len() > ROUNDS_REMEMBERED {
            lane.void_from.pop_first();
        }
        self.out.push_back(Outgoing::Nack { place, reason, pause });
        self.urgency = Urgency::Now;
        self.drop_queued(|queued| {
            queued.place.partition == place.partition
                && queued.place.round == place.round
                && queued.place.offset >= place.offset
        });
        true
    }

    /// The oldest message of the lane is still worked on.
    pub fn progress(&mut self, place: Place) {
        let is_same = |out: &Outgoing<C>| matches!(out, Outgoing::Progress { partition, .. } if *partition == place.partition);
        if self.holds(place.partition, place.epoch) && !self.out.iter().any(is_same) {
            let Place { partition, epoch, round, offset: _ } = place;
            self.out.push_back(Outgoing::Progress { partition, epoch, round });
            self.urgency = Urgency::Now;
        }
    }

    /// Everything that is here is still worked on, queued or not.
    pub fn progress_all(&mut self) {
        let is_in_work = |lane: &Lane<C>| {
            let counts = |round: u32| round == lane.round || lane.keyed.is_some();
            lane.books.iter().any(|(round, book)| counts(*round) && !book.is_empty())
        };
        let lanes = self.lanes.iter().filter(|(_, lane)| is_in_work(lane));
        let places: Vec<Place> = lanes
            .map(|(partition, lane)| {
                let (partition, epoch, round) = (*partition, lane.epoch, lane.round);
                Place { partition, epoch, round, offset: 0 }
            })
            .collect();
        places.into_iter().for_each(|place| self.progress(place));
    }

    /// A message has left the client's hands.
    pub fn give_back(&mut self, charge: Charge) {
        if self.accounts.give_back(charge) == Due::Now {
            self.urgency = Urgency::Now;
        }
    }

    pub fn urgency(&self) -> Urgency {
        self.urgency
    }

    /// What is to be sent for the lanes, all of it.
    pub fn collect(&mut self) -> VecDeque<Outgoing<C>> {
        self.urgency = Urgency::Nothing;
        for (partition, lane) in &mut self.lanes {
            Self::tell(*partition, lane, &mut self.out);
        }
        std::mem::take(&mut self.out)
    }

    /// Credit that is due: the number, messages and bytes.
    pub fn collect_credit(&mut self) -> Vec<(u32, CreditGrant)> {
        self.accounts.collect()
    }

    /// Everything that was acknowledged and is not known to be durable: partition, epoch, round and what was said.
    pub fn unconfirmed(&self) -> Vec<(u32, i64, u32, Tally)> {
        let of = |(partition, lane): (&u32, &Lane<C>)| {
            let (partition, epoch) = (*partition, lane.epoch);
            let acks: Vec<_> = lane.unconfirmed.acks().collect();
            acks.into_iter().map(move |(round, tally)| (partition, epoch, round, tally))
        };
        self.lanes.iter().flat_map(of).collect()
    }

    /// Lanes with something acknowledged that is not known to be durable, or not even told.
    pub fn lanes_unconfirmed(&self) -> usize {
        let is_open = |lane: &&Lane<C>| {
            !lane.unconfirmed.is_empty() || lane.books.values().any(|book| book.fresh() > 0)
        };
        self.lanes.values().filter(is_open).count()
    }

    /// What an ack has said is durable.
    pub fn on_confirmed(&mut self, partition: u32, epoch: i64, tally: &Tally) {
        if let Some(lane) = self.lanes.get_mut(&partition).filter(|lane| lane.epoch == epoch) {
            lane.unconfirmed.confirm(tally);
        }
    }

    /// What was told in a round does not count any more.
    pub fn on_ack_refused(&mut self, partition: u32, epoch: i64, round: u32) {
        if let Some(lane) = self.lanes.get_mut(&partition).filter(|lane| lane.epoch == epoch) {
            lane.unconfirmed.give_up(round);
        }
    }

    fn tell(partition: u32, lane: &mut Lane<C>, out: &mut VecDeque<Outgoing<C>>) {
        for (round, book) in &mut lane.books {
            let round = *round;
            debug_assert!(book.fresh() > 0 || !lane.waiting.iter().any(|(of, _)| *of == round));
            let Some(tally) = book.tally() else { continue };
            let (these, others) =
                std::mem::take(&mut lane.waiting).into_iter().partition(|(of, _)| *of == round);
            lane.waiting = others;
            let these: Vec<(u32, C)> = these;
            lane.unconfirmed.tell(round, &tally);
            let waiting = these.into_iter().map(|(_, ticket)| ticket).collect();
            out.push_back(Outgoing::Ack { partition, epoch: lane.epoch, round, tally, waiting });
        }
    }

    fn drop_queued(&mut self, is_dropped: impl Fn(&Queued) -> bool) {
        let (dropped, kept) = std::mem::take(&mut self.queue).into_iter().partition(is_dropped);
        self.queue = kept;
        let dropped: VecDeque<Queued> = dropped;
        for queued in dropped {
            self.give_back(queued.charge);
        }
    }
}

impl<C> Lane<C> {
    /// Whether the round of a message has ended before it.
    fn is_void(&self, place: Place) -> bool {
        self.void_from.get(&place.round).is_some_and(|from| *from <= place.offset)
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
