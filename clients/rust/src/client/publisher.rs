//! The publishes of a client: which line a message stands in, which lines the next frame takes from, what an answer means.
//!
//! All that waits for one topic goes into the next frame, up to the bounds of a frame; several frames are under way.
//! Owned by the owner task. Knows nothing of sockets: it is asked for frames and told answers.
//! Invariant: a line that is ready stands in `ready`, once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use super::error::Error;
use super::line::{Gap, Line};
use super::options::{Options, backoff};
use super::reroute::{Astray, Found};
use crate::capacity::OnFull;
use crate::error_code::{Class, ErrorCode};
use crate::wire::{ErrorFrame, Fault, Limits, NewMessage, Publish, Published, PublishedUnit};

/// First pause after a publish that may be tried again.
const RETRY_MIN: Duration = Duration::from_millis(50);
/// Longest pause after a publish that may be tried again.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// How long a broker is asked to keep a publish for a topic that was full: it knows best when there is room.
const FULL_WAIT: Duration = Duration::from_secs(2);

/// How often a message gets another home: once is right, more is for a topic that changes meanwhile.
const REROUTES_MAX: u32 = 3;

/// Where a message went.
///
/// ```
/// let receipt = laneway_client::Receipt { partition: 3, offset: Some(41), duplicate: false, schedule: None };
/// assert_eq!(receipt.to_string(), "partition 3, offset 41");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Its partition.
    pub partition: u32,
    /// Where it stands. Absent for a message that waits for its time, and for a duplicate whose first copy is no longer remembered.
    pub offset: Option<i64>,
    /// An earlier copy was found, so that no second one was stored.
    pub duplicate: bool,
    /// The id under which it waits for its time, or did so before it was appended.
    pub schedule: Option<i64>,
}

impl std::fmt::Display for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "partition {}", self.partition)?;
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset}")?;
        }
        if let Some(schedule) = self.schedule {
            write!(f, ", schedule {schedule}")?;
        }
        if self.duplicate {
            write!(f, " (stored before)")?;
        }
        Ok(())
    }
}

/// Who waits for a receipt, and the room that the message takes.
#[derive(Debug)]
pub(super) struct Ticket {
    pub reply: Option<oneshot::Sender<Result<Receipt, Error>>>,
    /// How often it got another home.
    pub reroutes: u32,
    pub _room: [OwnedSemaphorePermit; 2],
}

impl Ticket {
    fn answer(&mut self, result: Result<Receipt, Error>) {
        if let Some(reply) = self.reply.take() {
            reply.send(result).ok(); // nobody may be waiting any more
        }
    }
}

/// A message that was let in.
#[derive(Debug)]
pub(super) struct Admitted {
    pub topic: Arc<str>,
    pub partition: u32,
    pub message: NewMessage,
    pub bytes: usize,
    pub ticket: Ticket,
}

/// What is numbered together: a broker counts what waits for its time apart from what is appended at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Timing {
    Now,
    Later,
}

impl Timing {
    fn of(message: &NewMessage) -> Self {
        if message.is_scheduled() { Timing::Later } else { Timing::Now }
    }
}

type LineKey = (Arc<str>, u32, Timing);

/// Line and number of a message that is under way.
#[derive(Debug, Clone, Copy)]
struct Place {
    partition: u32,
    timing: Timing,
    sequence: i64,
}

impl Place {
    fn of(message: &NewMessage) -> Self {
        let (partition, sequence) = (message.partition.unwrap_or(0), message.sequence.unwrap_or(0));
        Self { partition, timing: Timing::of(message), sequence }
    }
}

/// A publish under way: which line and number stands at which position.
#[derive(Debug)]
struct UnderWay {
    topic: Arc<str>,
    places: Vec<Place>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Publisher {
    producer_id: Uuid,
    timeout: Duration,
    on_full: OnFull,
    /// Topics that were full when something was last sent to them. Only a broker that knows limits says so, and only such a
    /// broker is asked to let a publish wait.
    full: HashSet<Arc<str>>,
    lines: HashMap<LineKey, Line<Ticket>>,
    /// Lines that may have something to send.
    ready: VecDeque<LineKey>,
    under_way: HashMap<u64, UnderWay>,
    /// Failures in a row, for the pause.
    failures: u32,
    /// Messages that are not settled.
    waiting: usize,
    /// Messages whose partition is gone, to be taken away.
    astray: Vec<Astray>,
    /// Messages that were taken away and have not come back.
    away: usize,
    next_check: Instant,
}

impl Publisher {
    pub fn new(options: &Options) -> Self {
        Self {
            producer_id: Uuid::new_v4(),
            timeout: options.publish_timeout,
            on_full: options.on_full,
            full: HashSet::new(),
            lines: HashMap::new(),
            ready: VecDeque::new(),
            under_way: HashMap::new(),
            failures: 0,
            waiting: 0,
            astray: Vec::new(),
            away: 0,
            next_check: Instant::now(),
        }
    }

    /// Whether everything has its receipt.
    pub fn is_idle(&self) -> bool {
        self.away == 0 && self.astray.is_empty() && self.lines.values().all(Line::is_empty)
    }

    /// The messages that need another home.
    pub fn take_astray(&mut self) -> Vec<Astray> {
        self.away += self.astray.len();
        std::mem::take(&mut self.astray)
    }

    /// A message has another home, or none.
    pub fn on_found(&mut self, found: Found, now: Instant) {
        self.away = self.away.saturating_sub(1);
        self.waiting = self.waiting.saturating_sub(1);
        match found {
            Ok(admitted) => self.admit(admitted, now),
            Err((mut ticket, error)) => ticket.answer(Err(error)),
        }
    }

    /// Messages without a receipt.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn admit(&mut self, admitted: Admitted, now: Instant) {
        let Admitted { topic, partition, message, bytes, ticket } = admitted;
        let key = (topic, partition, Timing::of(&message));
        let producer_id = self.producer_id;
        let line = self.lines.entry(key.clone()).or_insert_with(|| Line::new(producer_id));
        line.push(message, bytes, now + self.timeout, ticket);
        self.waiting += 1;
        self.enqueue(key);
    }

    /// The next frame to send, if one may be sent now.
    pub fn next_frame(
        &mut self,
        id: u64,
        now: Instant,
        options: &Options,
        limits: &Limits,
    ) -> Option<Publish> {
        let most = options.publishes_in_flight_max.min(limits.publishes_in_flight_max as usize).max(1);
        if self.under_way.len() >= most {
            return None;
        }
        let first = self.first_ready(now)?;
        let topic = first.0.clone();
        let producer_id = self.lines.get(&first)?.producer_id();
        let messages_max = options.batch_messages_max.min(limits.publish_messages_max as usize).max(1);
        let bytes_max = options.batch_bytes_max.min(limits.frame_bytes_max as usize / 8);
        let (mut messages, mut bytes, mut later) = (Vec::new(), 0_usize, VecDeque::new());
        while let Some(key) = self.ready.pop_front() {
            let Some(line) = self.lines.get_mut(&key) else { continue };
            let fits = messages.is_empty() || line.next_bytes().is_some_and(|next| bytes + next <= bytes_max);
            if key.0 != topic || line.producer_id() != producer_id || messages.len() >= messages_max || !fits
            {
                later.push_back(key);
                continue;
            }
            line.queued = false;
            if !line.is_ready(now) {
                continue; // it comes back when it is answered, or when its pause is over
            }
            let (taken, size) =
                line.take(messages_max - messages.len(), bytes_max.saturating_sub(bytes), key.1);
            messages.extend(taken);
            bytes += size;
            if line.is_ready(now) {
                line.queued = true;
                later.push_back(key);
            }
        }
        self.ready = later;
        let places = messages.iter().map(Place::of).collect();
        self.under_way.insert(id, UnderWay { topic: topic.clone(), places });
        let wait_ms = self.full.contains(&topic).then_some(FULL_WAIT.as_millis() as u64);
        Some(Publish { id, topic: topic.to_string(), producer_id: Some(producer_id), wait_ms, messages })
    }

    /// Drops from `ready` what is not, and returns the first that is.
    fn first_ready(&mut self, now: Instant) -> Option<LineKey> {
        while let Some(key) = self.ready.front() {
            match self.lines.get_mut(key) {
                Some(line) if line.is_ready(now) => return Some(key.clone()),
                Some(line) => line.queued = false,
                None => {}
            }
            self.ready.pop_front();
        }
        None
    }

    fn enqueue(&mut self, key: LineKey) {
        if let Some(line) = self.lines.get_mut(&key).filter(|line| !line.queued) {
            line.queued = true;
            self.ready.push_back(key);
        }
    }

    /// What became of a publish, unit by unit.
    pub fn on_published(&mut self, published: Published, now: Instant) {
        let Some(under_way) = self.under_way.remove(&published.id) else { return };
        for unit in &published.units {
            let positions = unit.positions.iter();
            let places: Vec<Place> =
                positions.filter_map(|position| under_way.places.get(*position as usize).copied()).collect();
            let Some(first) = places.first() else { continue };
            let key = (under_way.topic.clone(), unit.partition, first.timing);
            let sequences: Vec<i64> = places.iter().map(|place| place.sequence).collect();
            match &unit.error {
                None => {
                    self.failures = 0;
                    self.full.remove(&key.0);
                    self.on_stored(&key, unit, &sequences);
                }
                Some(fault) => {
                    let guilty = fault.field.as_deref().and_then(position);
                    let guilty = guilty.and_then(|at| under_way.places.get(at)).map(|place| place.sequence);
                    self.on_fault(&key, fault, &sequences, guilty, now);
                }
            }
            self.answered(key);
        }
    }

    fn on_stored(&mut self, key: &LineKey, unit: &PublishedUnit, sequences: &[i64]) {
        let Some(line) = self.lines.get_mut(key) else { return };
        let mut next = unit.first_offset;
        for (position, sequence) in unit.positions.iter().zip(sequences) {
            let copy = unit.duplicates.iter().find(|duplicate| duplicate.position == *position);
            let scheduled = unit.scheduled.iter().find(|scheduled| scheduled.position == *position);
            let offset = match (copy, scheduled) {
                (Some(copy), _) => copy.offset,
                (None, Some(_)) => None,
                (None, None) => {
                    let offset = next;
                    next = next.map(|next| next + 1);
                    offset
                }
            };
            if let Some(ticket) = line.on_stored(*sequence) {
                self.waiting = self.waiting.saturating_sub(1);
                let (partition, duplicate) = (unit.partition, copy.is_some());
                let schedule = scheduled.map(|scheduled| scheduled.schedule);
                ticket.answer(Ok(Receipt { partition, offset, duplicate, schedule }));
            }
        }
    }

    /// `guilty`: the one message at fault, if it is one; the others are not refused with it.
    fn on_fault(
        &mut self,
        key: &LineKey,
        fault: &Fault,
        sequences: &[i64],
        guilty: Option<i64>,
        now: Instant,
    ) {
        let resume_at = now + self.pause(fault.class);
        let Some(line) = self.lines.get_mut(key) else { return };
        match (fault.code, fault.class) {
            (ErrorCode::SequenceGap, _) => {
                let expected = fault.expected.unwrap_or(0);
                match line.on_gap(expected, now) {
                    Gap::Resend | Gap::Restarted => {}
                    Gap::Lost(tickets) => {
                        for mut ticket in tickets {
                            self.waiting = self.waiting.saturating_sub(1);
                            ticket.answer(Err(fault.into()));
                        }
                    }
                }
            }
            (_, Class::Retry) => line.on_failed(sequences, resume_at, false),
            (_, Class::Unknown | Class::Fatal) => line.on_failed(sequences, resume_at, true),
            (_, Class::Refused) => {
                let (refused, others): (Vec<i64>, Vec<i64>) =
                    sequences.iter().partition(|one| guilty.is_none_or(|guilty| guilty == **one));
                if !others.is_empty() {
                    line.on_failed(&others, now, false);
                }
                let refused: Vec<_> = refused.iter().filter_map(|one| line.on_refused(*one)).collect();
                for (message, ticket) in refused {
                    self.on_refused(key, message, ticket, fault.into());
                }
            }
        }
    }

    /// A message is not stored. If that is only because of a partition that the client has chosen, it gets another one.
    fn on_refused(&mut self, key: &LineKey, message: NewMessage, mut ticket: Ticket, error: Error) {
        let is_homeless = error.code() == Some(ErrorCode::PartitionOutOfRange) && message.partition.is_none();
        if is_homeless && ticket.reply.is_some() && ticket.reroutes < REROUTES_MAX {
            ticket.reroutes += 1;
            let (topic, partition, _) = key.clone();
            return self.astray.push(Astray { topic, partition, message, ticket });
        }
        self.waiting = self.waiting.saturating_sub(1);
        ticket.answer(Err(error));
    }

    /// A publish of which nothing was tried. False: it is none of ours.
    pub fn on_error(&mut self, error: &ErrorFrame, now: Instant) -> bool {
        let Some(under_way) = error.id.and_then(|id| self.under_way.remove(&id)) else { return false };
        let guilty = error.field.as_deref().and_then(position).filter(|at| *at < under_way.places.len());
        let is_gone = error.code == ErrorCode::PartitionOutOfRange; // and so for all that go there
        let is_full = error.code == ErrorCode::TopicFull;
        let fails = is_full && self.on_full == OnFull::Fail;
        if is_full && !fails {
            self.full.insert(under_way.topic.clone());
        }
        let mut pause = self.pause(error.class);
        if let Some(retry_after_ms) = error.retry_after_ms {
            pause = pause.max(Duration::from_millis(retry_after_ms));
        }
        let mut lines: HashSet<LineKey> = HashSet::new();
        for (index, Place { partition, timing, sequence }) in under_way.places.iter().enumerate() {
            let key = (under_way.topic.clone(), *partition, *timing);
            lines.insert(key.clone());
            let Some(line) = self.lines.get_mut(&key) else { continue };
            let is_guilty = |guilty: usize| {
                guilty == index || (is_gone && under_way.places[guilty].partition == *partition)
            };
            let is_given_back =
                if is_full { fails && !line.is_doubtful(*sequence) } else { error.class == Class::Refused };
            if !is_given_back || guilty.is_some_and(|guilty| !is_guilty(guilty)) {
                let doubtful = matches!(error.class, Class::Unknown | Class::Fatal);
                line.on_failed(&[*sequence], now + pause, doubtful);
            } else if let Some((message, ticket)) = line.on_refused(*sequence) {
                self.on_refused(&key, message, ticket, error.into());
            }
        }
        lines.into_iter().for_each(|key| self.answered(key));
        true
    }

    fn answered(&mut self, key: LineKey) {
        if let Some(line) = self.lines.get_mut(&key) {
            line.on_answered();
            self.enqueue(key);
        }
    }

    fn pause(&mut self, class: Class) -> Duration {
        match class {
            Class::Refused => Duration::ZERO,
            Class::Retry | Class::Unknown | Class::Fatal => {
                self.failures = self.failures.saturating_add(1);
                backoff(self.failures - 1, RETRY_MIN, RETRY_MAX, rand::random())
            }
        }
    }

    /// The connection is lost: everything that is not settled is sent again on the next one.
    pub fn on_disconnected(&mut self) {
        self.under_way.clear();
        self.full.clear();
        self.ready.clear();
        for (key, line) in &mut self.lines {
            line.on_disconnected();
            line.queued = !line.is_empty();
            if line.queued {
                self.ready.push_back(key.clone());
            }
        }
    }

    /// Tells what has waited too long, and wakes what has paused. Returns when to be called again.
    pub fn on_time(&mut self, now: Instant) -> Option<Instant> {
        if self.waiting == 0 {
            return None;
        }
        if now < self.next_check {
            return Some(self.next_check);
        }
        let mut wake: Option<Instant> = None;
        let mut expired = 0;
        let mut awake = Vec::new();
        for (key, line) in self.lines.iter_mut().filter(|(_, line)| !line.is_empty()) {
            if line.deadline().is_some_and(|deadline| deadline <= now) {
                line.on_time(now, |ticket, doubtful| {
                    ticket.answer(Err(Error::TimedOut { doubtful }));
                    expired += usize::from(!doubtful);
                });
            }
            match line.paused_until() {
                Some(until) if until <= now => awake.push(key.clone()),
                paused_until => wake = [wake, paused_until].into_iter().flatten().min(),
            }
            wake = [wake, line.deadline()].into_iter().flatten().min();
        }
        self.waiting = self.waiting.saturating_sub(expired);
        awake.into_iter().for_each(|key| self.enqueue(key));
        // Why: lines are looked at as a whole, which must not happen at every frame.
        self.next_check = now + Duration::from_millis(20);
        Some(wake.map_or(self.next_check, |wake| wake.max(self.next_check)))
    }

    /// Nothing will be tried any more.
    pub fn end(&mut self, error: &Error) {
        for line in self.lines.values_mut() {
            for (mut ticket, was_sent) in line.drain() {
                let error = if was_sent { Error::TimedOut { doubtful: true } } else { error.clone() };
                ticket.answer(Err(error));
            }
        }
        for mut astray in self.astray.drain(..) {
            astray.ticket.answer(Err(error.clone()));
        }
        self.waiting = 0;
    }
}

/// The position in `messages[3].payload`.
fn position(field: &str) -> Option<usize> {
    field.strip_prefix("messages[")?.split(']').next()?.parse().ok()
}
