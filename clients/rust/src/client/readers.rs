//! The subscriptions and tails of a client: asked for, numbered by the broker, asked for again when a session is lost.
//!
//! Owned by the owner task. Knows nothing of sockets: frames go in, frames come out. What a reader has received lives in
//! its inbox; this file knows which number stands for which reader, and who waits for which answer.
//! Invariant: `numbers` holds the numbers of this session only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::book::Tally;
use super::confirmations::{Asked, Confirmations};
use super::delivery::{Confirm, Shared, refuse};
use super::error::Error;
use super::inbox::{Outgoing, Place, Urgency};
use super::pause::Pause;
pub(super) use super::reader::{NewReader, Opened, Wanted};
use super::reader::{Phase, Reader};
use crate::error_code::{Class, ErrorCode};
use crate::wire::{
    Ack, ClientFrame, Credit, CreditGrant, ErrorFrame, Limits, Nack, Progress, ResumeOutcome, ResumeReport,
    Subscribed, Tailing, Unsubscribe, Untail,
};

/// Pause before a refused subscribe is tried again, if it may be.
const ASK_PAUSE: Duration = Duration::from_millis(500);

/// What an error frame was about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    NotOurs,
    Settled,
    /// The session is in a state that we do not know: begin a new one.
    NewSession,
}

/// How a lane of a reader is called in this session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Numbered {
    /// The number of the subscription, and the partition.
    As((u32, u32)),
    /// It is being asked for.
    NotYet,
    /// It has ended.
    Never,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Readers {
    readers: HashMap<u64, Reader>,
    next_key: u64,
    numbers: HashMap<u32, u64>,
    /// Requests without an answer: the reader, and the credit that was asked with.
    asked: HashMap<u64, (u64, CreditGrant)>,
    confirmations: Confirmations,
    acks_refused: usize,
    flush_at: Option<Instant>,
}

impl Readers {
    pub fn open(&mut self, new: NewReader, now: Instant) {
        self.next_key += 1;
        let NewReader { shared, wanted, reply } = new;
        let reader = Reader {
            shared,
            wanted,
            reply: Some(reply),
            numbers: vec![],
            phase: Phase::Wanted(now),
            asked_before: false,
        };
        self.readers.insert(self.next_key, reader);
    }

    /// Whether nobody waits for an answer to an ack.
    pub fn is_answered(&self) -> bool {
        self.confirmations.is_empty()
    }

    /// Lanes with something acknowledged that is not known to be durable.
    pub fn lanes_unconfirmed(&self) -> usize {
        let of = |reader: &Reader| reader.shared.with(|inbox| inbox.lanes_unconfirmed());
        self.readers.values().map(of).sum()
    }

    /// Those of readers that stay.
    fn lanes_at_stake(&self) -> usize {
        let staying = self.readers.values().filter(|reader| reader.phase != Phase::Leaving);
        staying.map(|reader| reader.shared.with(|inbox| inbox.lanes_unconfirmed())).sum()
    }

    /// Acks that were refused so far: their lanes had moved.
    pub fn acks_refused(&self) -> usize {
        self.acks_refused
    }

    /// Asks for what is wanted.
    pub fn ask(&mut self, now: Instant, next_id: &mut u64, limits: &Limits, out: &mut VecDeque<ClientFrame>) {
        for (key, reader) in &mut self.readers {
            if !matches!(reader.phase, Phase::Wanted(not_before) if not_before <= now) {
                continue;
            }
            reader.phase = Phase::Asked;
            for mut wanted in reader.questions() {
                *next_id += 1;
                let (id, credit) = match &mut wanted {
                    Wanted::Group(subscribe) => (&mut subscribe.id, &mut subscribe.credit),
                    Wanted::Select(select) => (&mut select.id, &mut select.credit),
                    Wanted::Tail(tail) => (&mut tail.id, &mut tail.credit),
                };
                *id = *next_id;
                credit.messages = credit.messages.min(limits.credit_messages_max);
                credit.bytes = credit.bytes.min(limits.credit_bytes_max);
                self.asked.insert(*next_id, (*key, *credit));
                out.push_back(match wanted {
                    Wanted::Group(subscribe) => ClientFrame::Subscribe(subscribe),
                    Wanted::Select(select) => ClientFrame::Select(Box::new(select)),
                    Wanted::Tail(tail) => ClientFrame::Tail(tail),
                });
            }
        }
    }

    pub fn on_subscribed(&mut self, subscribed: &Subscribed) {
        let Some((key, credit)) = self.asked.remove(&subscribed.id) else { return };
        if let Some(reader) = self.readers.get(&key) {
            reader.shared.with(|inbox| inbox.order_by(subscribed.settings.ordering));
        }
        let opened = Opened::Group { settings: subscribed.settings, partitions: subscribed.partitions };
        self.on_open(key, subscribed.subscription, credit, opened);
    }

    pub fn on_tailing(&mut self, tailing: &Tailing) {
        let Some((key, credit)) = self.asked.remove(&tailing.id) else { return };
        if let Some(reader) = self.readers.get(&key) {
            reader.shared.with(|inbox| {
                tailing.lanes.iter().for_each(|lane| inbox.on_tailing(lane.partition, lane.next_offset));
            });
        }
        self.on_open(key, tailing.subscription, credit, Opened::Tail);
    }

    pub(super) fn take_asked(&mut self, id: u64) -> Option<(u64, CreditGrant)> {
        self.asked.remove(&id)
    }

    pub(super) fn wanted(&mut self, key: u64) -> Option<&mut Wanted> {
        self.readers.get_mut(&key).map(|reader| &mut reader.wanted)
    }

    /// A topic of a selection has a number of its own.
    pub(super) fn name(&mut self, number: u32, selection: u32) {
        if let Some(key) = self.numbers.get(&selection).copied() {
            self.numbers.insert(number, key);
        }
    }

    pub(super) fn unname(&mut self, number: u32) {
        self.numbers.remove(&number);
    }

    /// The number of the whole subscription that a number belongs to.
    pub(super) fn first_number(&self, number: u32) -> Option<u32> {
        let reader = self.numbers.get(&number).and_then(|key| self.readers.get(key))?;
        if reader.shared.selects() { reader.numbers.first().copied() } else { Some(number) }
    }

    /// The number of a reader, for who knows its inbox; `None`: it has ended. Inside: it is being asked for.
    pub(super) fn number_of(&self, shared: &Arc<Shared>) -> Option<Option<u32>> {
        let reader = self.readers.values().find(|reader| Arc::ptr_eq(&reader.shared, shared))?;
        Some(reader.numbers.first().copied())
    }

    pub(super) fn on_open(&mut self, key: u64, number: u32, credit: CreditGrant, opened: Opened) {
        let Some(reader) = self.readers.get_mut(&key) else { return };
        reader.phase = Phase::Open;
        reader.numbers.push(number);
        reader.shared.with(|inbox| inbox.open(number, credit));
        self.numbers.insert(number, key);
        if let Some(reply) = reader.reply.take() {
            reply.send(Ok(opened)).ok(); // a reader that nobody waits for is abandoned, and leaves
        }
    }

    /// The inbox of a number.
    pub fn shared(&self, number: u32) -> Option<&Arc<Shared>> {
        self.numbers.get(&number).and_then(|key| self.readers.get(key)).map(|reader| &reader.shared)
    }

    /// A number is not used any more.
    pub fn on_left(&mut self, number: u32) {
        let Some(key) = self.numbers.remove(&number) else { return };
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.numbers.retain(|one| *one != number);
            if reader.numbers.is_empty() && reader.phase == Phase::Leaving {
                reader.shared.end(Error::Closed);
                self.readers.remove(&key);
            }
        }
    }

    pub fn on_acked(&mut self, id: u64) {
        let Some(Asked { reader, ack, .. }) = self.confirmations.on_acked(id) else { return };
        if let Some(reader) = self.readers.get(&reader) {
            let Some(lane) = reader.shared.lane(ack.subscription, ack.partition) else { return };
            let (epoch, tally) = (ack.epoch, tally_of(ack));
            reader.shared.with(|inbox| inbox.on_confirmed(lane, epoch, &tally));
        }
    }

    pub fn on_error(&mut self, error: &ErrorFrame, now: Instant) -> Verdict {
        let Some(id) = error.id else { return self.on_error_without_id(error, now) };
        if let Some(refused) = self.confirmations.on_error(error, now) {
            if let Some(asked) = refused {
                self.on_ack_refused(&asked);
            }
            return Verdict::Settled;
        }
        let Some((key, _)) = self.asked.remove(&id) else { return Verdict::NotOurs };
        let Some(reader) = self.readers.get_mut(&key) else { return Verdict::Settled };
        let first_time = reader.reply.is_some();
        match (error.code, error.class) {
            // Its first subscribe had arrived, and the answer was lost with the connection.
            (ErrorCode::AlreadySubscribed, _) if !first_time || reader.asked_before => {
                return Verdict::NewSession;
            }
            (_, Class::Retry | Class::Unknown) => {
                let pause = error.retry_after_ms.map_or(ASK_PAUSE, Duration::from_millis);
                reader.phase = Phase::Wanted(now + pause);
            }
            (_, Class::Refused | Class::Fatal) => self.refuse_reader(key, error.into()),
        }
        Verdict::Settled
    }

    /// The broker has ended a whole subscription by itself: its group or topic is gone, or it could not be taken over.
    fn on_error_without_id(&mut self, error: &ErrorFrame, now: Instant) -> Verdict {
        let whole = error.subscription.filter(|_| error.partition.is_none());
        let Some(key) = whole.and_then(|number| self.numbers.get(&number).copied()) else {
            return Verdict::NotOurs;
        };
        match error.class {
            Class::Refused | Class::Fatal => self.refuse_reader(key, error.into()),
            Class::Retry | Class::Unknown => {
                self.numbers.retain(|_, of| *of != key);
                if let Some(reader) = self.readers.get_mut(&key) {
                    reader.on_reset(now + error.retry_after_ms.map_or(ASK_PAUSE, Duration::from_millis));
                }
            }
        }
        Verdict::Settled
    }

    /// A tail goes on elsewhere in a partition.
    pub fn on_moved(&mut self, error: &ErrorFrame) {
        let (Some(number), Some(partition), Some(start)) = (error.subscription, error.partition, error.start)
        else {
            return;
        };
        if let Some(shared) = self.shared(number) {
            shared.with(|inbox| inbox.on_moved(partition, start));
        }
    }

    fn refuse_reader(&mut self, key: u64, error: Error) {
        let Some(mut reader) = self.readers.remove(&key) else { return };
        self.numbers.retain(|_, of| *of != key);
        reader.shared.end(error.clone());
        if let Some(reply) = reader.reply.take() {
            reply.send(Err(error)).ok(); // nobody may be waiting any more
        }
    }

    /// A connection is open. `report` is what became of the session before it, if there was one.
    pub fn on_welcome(
        &mut self,
        report: Option<&ResumeReport>,
        now: Instant,
        next_id: &mut u64,
        out: &mut VecDeque<ClientFrame>,
    ) {
        self.asked.clear();
        let resumed = report.filter(|report| report.outcome == ResumeOutcome::Resumed);
        let unconfirmed_before = self.lanes_at_stake();
        for reader in self.readers.values_mut() {
            reader.asked_before = resumed.is_some() && (reader.asked_before || reader.phase == Phase::Asked);
            let is_group = matches!(reader.wanted, Wanted::Group(_) | Wanted::Select(_));
            match (resumed, is_group && !reader.numbers.is_empty()) {
                (Some(report), true) => reader.on_resumed(report),
                (Some(_), false) | (None, _) => reader.on_reset(now),
            }
        }
        self.readers.retain(|_, reader| reader.phase != Phase::Leaving || !reader.numbers.is_empty());
        let known = self.readers.iter().flat_map(|(key, reader)| {
            let parts = reader.shared.with_parts(|parts| parts.numbers().collect::<Vec<u32>>());
            reader.numbers.iter().copied().chain(parts).map(|one| (one, *key))
        });
        self.numbers = known.collect();
        // Acks that went with their lanes are refused, whether somebody had asked for their confirmation or not.
        let refused = self.acks_refused + unconfirmed_before.saturating_sub(self.lanes_at_stake());
        let asked = self.confirmations.take_all();
        self.ask_again(asked, next_id, out);
        self.acks_refused = refused;
        self.confirm_told(next_id, out);
        for reader in self.readers.values().filter(|reader| reader.phase == Phase::Leaving) {
            out.extend(reader.numbers.iter().map(|number| leave(&reader.wanted, *number, next_id)));
        }
    }

    /// Acks that want an answer and have none, if their lanes are still held.
    fn ask_again(&mut self, asked: Vec<Asked>, next_id: &mut u64, out: &mut VecDeque<ClientFrame>) {
        for one in asked {
            let Ack { subscription, partition, epoch, .. } = one.ack;
            let holds = |reader: &Reader| {
                let lane = reader.shared.lane(subscription, partition);
                lane.is_some_and(|lane| reader.shared.with(|inbox| inbox.holds(lane, epoch)))
            };
            match self.readers.get(&one.reader).is_some_and(holds) {
                true => self.confirmations.ask(one, next_id, out),
                false => {
                    self.on_ack_refused(&one);
                    refuse(one.waiting);
                }
            }
        }
    }

    /// A reader that leaves has its acks committed with the release of its lanes; any other one gets the messages again.
    fn on_ack_refused(&mut self, asked: &Asked) {
        let Ack { subscription, partition, epoch, round, .. } = asked.ack;
        let Some(reader) = self.readers.get(&asked.reader) else { return };
        if let Some(lane) = reader.shared.lane(subscription, partition) {
            reader.shared.with(|inbox| inbox.on_ack_refused(lane, epoch, round));
        }
        self.acks_refused += usize::from(reader.phase != Phase::Leaving);
    }

    /// What is due to be sent: acks, nacks, progress, credit, goodbyes.
    pub fn collect(
        &mut self,
        now: Instant,
        ack_pause: Duration,
        next_id: &mut u64,
        out: &mut VecDeque<ClientFrame>,
    ) {
        let urgency = self.readers.values().map(|reader| reader.shared.urgency()).max();
        let is_leaving = |reader: &Reader| reader.phase == Phase::Open && reader.shared.may_leave();
        let leaving = self.readers.values().any(is_leaving);
        let is_due = match urgency {
            None | Some(Urgency::Nothing) => false,
            Some(Urgency::Soon) => *self.flush_at.get_or_insert(now + ack_pause) <= now,
            Some(Urgency::Now) => true,
        };
        let again = self.confirmations.take_due(now);
        self.ask_again(again, next_id, out);
        if is_due || leaving {
            self.flush_at = None;
            self.flush(next_id, out);
        }
        // Order: what was acknowledged is told before the goodbye, and may be told after it while the lanes drain.
        for reader in self.readers.values_mut().filter(|reader| is_leaving(reader)) {
            reader.phase = Phase::Leaving;
            out.extend(reader.numbers.iter().map(|number| leave(&reader.wanted, *number, next_id)));
        }
    }

    /// Everything that is to be sent, due or not.
    pub fn flush(&mut self, next_id: &mut u64, out: &mut VecDeque<ClientFrame>) {
        for (key, reader) in &self.readers {
            let Some(number) = reader.numbers.first().copied() else { continue };
            let (outgoing, credit) = reader.shared.with(|inbox| (inbox.collect(), inbox.collect_credit()));
            for one in outgoing {
                match reader.shared.wire(Some(number), one.lane()) {
                    Some(name) => send(*key, name, one, next_id, &mut self.confirmations, out),
                    None => refuse(one.into_waiting()), // its topic has left
                }
            }
            if reader.phase == Phase::Open {
                out.extend(credit.into_iter().map(|(subscription, grant)| {
                    let CreditGrant { messages, bytes } = grant;
                    ClientFrame::Credit(Credit { subscription, messages, bytes })
                }));
            }
        }
    }

    /// Asks for the confirmation of everything that was acknowledged.
    pub fn confirm_all(&mut self, next_id: &mut u64, out: &mut VecDeque<ClientFrame>) {
        self.flush(next_id, out);
        self.confirm_told(next_id, out);
    }

    /// Says once more what was told and is not known to be durable, and wants an answer.
    fn confirm_told(&mut self, next_id: &mut u64, out: &mut VecDeque<ClientFrame>) {
        for (key, reader) in &self.readers {
            let number = reader.numbers.first().copied();
            for (lane, epoch, round, tally) in reader.shared.with(|inbox| inbox.unconfirmed()) {
                let Some((subscription, partition)) = reader.shared.wire(number, lane) else { continue };
                let Tally { next, ranges } = tally;
                let ack = Ack { id: None, subscription, partition, epoch, round, next, ranges };
                let asked = Asked { reader: *key, ack, waiting: Vec::new() };
                self.confirmations.ask(asked, next_id, out);
            }
        }
    }

    /// When to be called again, at the latest.
    pub fn wake_at(&self, may_ask: bool) -> Option<Instant> {
        let wanted = self.readers.values().filter_map(|reader| match reader.phase {
            Phase::Wanted(not_before) => Some(not_before).filter(|_| may_ask),
            Phase::Asked | Phase::Open | Phase::Leaving => None,
        });
        wanted.chain(self.flush_at).chain(self.confirmations.wake_at()).min()
    }

    /// Nothing comes any more.
    pub fn end(&mut self, error: &Error) {
        for asked in self.confirmations.take_all() {
            refuse(asked.waiting);
        }
        for key in self.readers.keys().copied().collect::<Vec<_>>() {
            self.refuse_reader(key, error.clone());
        }
    }
}

fn tally_of(ack: Ack) -> Tally {
    Tally { next: ack.next, ranges: ack.ranges }
}

fn leave(wanted: &Wanted, subscription: u32, next_id: &mut u64) -> ClientFrame {
    *next_id += 1;
    match wanted {
        Wanted::Group(_) | Wanted::Select(_) => {
            ClientFrame::Unsubscribe(Unsubscribe { id: *next_id, subscription })
        }
        Wanted::Tail(_) => ClientFrame::Untail(Untail { id: *next_id, subscription }),
    }
}

fn send(
    reader: u64,
    (subscription, partition): (u32, u32),
    outgoing: Outgoing<Confirm>,
    next_id: &mut u64,
    confirmations: &mut Confirmations,
    out: &mut VecDeque<ClientFrame>,
) {
    match outgoing {
        Outgoing::Ack { epoch, round, tally, waiting, .. } => {
            let (next, ranges) = (tally.next, tally.ranges);
            let ack = Ack { id: None, subscription, partition, epoch, round, next, ranges };
            match waiting.is_empty() {
                true => out.push_back(ClientFrame::Ack(ack)),
                false => confirmations.ask(Asked { reader, ack, waiting }, next_id, out),
            }
        }
        Outgoing::Nack { place, reason, pause } => {
            let Place { epoch, round, offset, .. } = place;
            let (delay_ms, until) = Pause::members(pause, Timestamp::now());
            let nack =
                Nack { id: None, subscription, partition, epoch, round, offset, reason, delay_ms, until };
            out.push_back(ClientFrame::Nack(nack));
        }
        Outgoing::Progress { epoch, round, .. } => {
            out.push_back(ClientFrame::Progress(Progress {
                id: None,
                subscription,
                partition,
                epoch,
                round,
            }));
        }
    }
}
