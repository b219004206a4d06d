//! What a session may do when, and what follows from it. Pure: no input or output, time is an argument.
//!
//! The owner tells it every event and carries out the actions it returns, in order. It knows the subscriptions by number,
//! how many publishes are unanswered, when the client was last heard, and how the session ends.
//! Invariant: after an [`Action::End`] there is no further action.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use laneway_client::ErrorCode;
use laneway_client::wire::{
    BrokerFrame, ClientFrame, CloseCode, Credit, ErrorFrame, FrameError, Hello, Publish, ReadTrace, Select,
    Subscribe, TOPIC_NUMBERS_FROM, Tail, Transact, Unsubscribe, Unsubscribed, Watch, bounds,
};

use super::ending::{Ending, Verdict};
use super::refusals::{no_lease, refuse, too_many_publishes, unknown_subscription};
use crate::limits::{BAD_FRAMES_MAX, PUBLISHES_IN_FLIGHT_MAX, SESSIONS_DRAIN_TIMEOUT, SUBSCRIPTIONS_MAX};

/// Said to whoever asks for something new.
const DRAINING: &str = "this broker is draining and takes nothing new: connect again";

/// What the owner has to do.
#[derive(Debug, PartialEq)]
pub enum Action {
    Send(BrokerFrame),
    /// The first frame has come: answer it, and say `on_opened`.
    Open(Box<Hello>),
    Publish(Publish),
    /// Reserve and carry out a step, and say `on_published` when it is answered.
    Transact(Box<Transact>),
    Subscribe {
        number: u32,
        subscribe: Box<Subscribe>,
    },
    Select {
        number: u32,
        select: Box<Select>,
    },
    Tail {
        number: u32,
        tail: Box<Tail>,
    },
    Watch {
        number: u32,
        watch: Box<Watch>,
    },
    /// Read a trace, and say `on_published` when it is answered.
    Trace(ReadTrace),
    /// An ack, a nack, progress or credit: to the group or tail of that number.
    Forward {
        number: u32,
        frame: Box<ClientFrame>,
    },
    /// Leave the group of that number, letting it drain, and say `on_left`.
    Leave {
        number: u32,
        id: Option<u64>,
    },
    /// End the tail or watch of that number.
    Untail {
        number: u32,
    },
    /// The frame concerns a subscription that is still being made: give it again when that is known.
    Hold(Box<ClientFrame>),
    End(Ending),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitingHello {
        deadline: Instant,
    },
    Open,
    /// Nothing new is taken; what is under way may end until the deadline.
    Draining {
        deadline: Instant,
    },
    Closing,
}

/// How far a subscription is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Asked,
    Active,
    Leaving,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Without a topic: it selects some.
    Group {
        group: String,
        topic: Option<String>,
    },
    Tail,
    Watch,
}

/// A subscription of a session that has come back: its number, group, and topic if it has one.
type Resumed = (u32, String, Option<String>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: Kind,
    standing: Standing,
}

/// One session, as far as rules go.
#[derive(Debug)]
pub struct State {
    phase: Phase,
    heartbeat: Duration,
    heard_at: Instant,
    subscriptions: BTreeMap<u32, Entry>,
    next_number: u32,
    publishes: usize,
    bad_frames: u32,
}

impl State {
    pub fn new(now: Instant) -> Self {
        let deadline = now + Duration::from_millis(u64::from(bounds::HELLO_TIMEOUT_MS));
        Self {
            phase: Phase::AwaitingHello { deadline },
            heartbeat: Duration::from_millis(u64::from(bounds::HEARTBEAT_MS_DEFAULT)),
            heard_at: now,
            subscriptions: BTreeMap::new(),
            next_number: 1,
            publishes: 0,
            bad_frames: 0,
        }
    }

    /// When [`State::on_tick`] has something to say, unless the client is heard until then.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::AwaitingHello { deadline } => Some(deadline),
            Phase::Open => Some(self.silent_at()),
            Phase::Draining { deadline } => Some(deadline.min(self.silent_at())),
            Phase::Closing => None,
        }
    }

    fn silent_at(&self) -> Instant {
        self.heard_at + self.heartbeat * bounds::HEARTBEATS_MISSED_MAX
    }

    /// Something came from the client.
    pub fn on_heard(&mut self, at: Instant) {
        self.heard_at = self.heard_at.max(at);
    }

    pub fn on_tick(&mut self, now: Instant) -> Vec<Action> {
        match self.phase {
            Phase::AwaitingHello { deadline } if now >= deadline => {
                self.end(Ending::of(CloseCode::HelloTimeout, Verdict::Gone))
            }
            Phase::Open | Phase::Draining { .. } if now >= self.silent_at() => {
                let detail = "nothing was heard from this client for two heartbeats";
                let error = ErrorFrame::new(ErrorCode::HeartbeatMissed, detail);
                self.end_with(error, CloseCode::HeartbeatMissed, Verdict::Lost)
            }
            Phase::Draining { deadline } if now >= deadline => self.drained(),
            Phase::AwaitingHello { .. } | Phase::Open | Phase::Draining { .. } | Phase::Closing => Vec::new(),
        }
    }

    /// `hello` was answered with `welcome`; a resumed session has subscriptions (number, group, topic) already.
    pub fn on_opened(&mut self, heartbeat: Duration, resumed: Vec<Resumed>, now: Instant) {
        if let Phase::AwaitingHello { .. } = self.phase {
            self.phase = Phase::Open;
            self.heartbeat = heartbeat;
            self.heard_at = now;
            for (number, group, topic) in resumed {
                self.next_number = self.next_number.max(number.saturating_add(1));
                let entry = Entry { kind: Kind::Group { group, topic }, standing: Standing::Active };
                self.subscriptions.insert(number, entry);
            }
        }
    }

    /// A frame that could not be read. Before `welcome` it ends the connection.
    pub fn on_bad_frame(&mut self, error: FrameError) -> Vec<Action> {
        match self.phase {
            Phase::Closing => return Vec::new(),
            Phase::AwaitingHello { .. } => {
                return self.end_with(error.into(), CloseCode::HelloRefused, Verdict::Gone);
            }
            Phase::Open | Phase::Draining { .. } => {}
        }
        self.bad_frames += 1;
        let mut actions = vec![Action::Send(BrokerFrame::Error(Box::new(error.into())))];
        if self.bad_frames >= BAD_FRAMES_MAX {
            actions.extend(self.end(Ending::of(CloseCode::Policy, Verdict::Lost)));
        }
        actions
    }

    pub fn on_frame(&mut self, frame: Box<ClientFrame>) -> Vec<Action> {
        self.bad_frames = 0;
        match self.phase {
            Phase::Closing => Vec::new(),
            Phase::AwaitingHello { .. } => self.on_first_frame(*frame),
            Phase::Open => self.on_open_frame(frame),
            Phase::Draining { .. } => self.on_late_frame(frame),
        }
    }

    fn on_first_frame(&mut self, frame: ClientFrame) -> Vec<Action> {
        match frame {
            ClientFrame::Hello(hello) if hello.token.is_some() => {
                let detail = "this broker has no authentication yet: leave token out";
                let error = ErrorFrame {
                    field: Some("token".to_owned()),
                    id: Some(hello.id),
                    ..ErrorFrame::new(ErrorCode::Unsupported, detail)
                };
                self.end_with(error, CloseCode::HelloRefused, Verdict::Gone)
            }
            ClientFrame::Hello(hello) => vec![Action::Open(Box::new(hello))],
            ClientFrame::Publish(_)
            | ClientFrame::Transact(_)
            | ClientFrame::Subscribe(_)
            | ClientFrame::Select(_)
            | ClientFrame::Ack(_)
            | ClientFrame::Nack(_)
            | ClientFrame::Progress(_)
            | ClientFrame::Credit(_)
            | ClientFrame::Unsubscribe(_)
            | ClientFrame::Tail(_)
            | ClientFrame::Untail(_)
            | ClientFrame::Trace(_)
            | ClientFrame::Watch(_)
            | ClientFrame::Heartbeat => {
                let detail = format!("the first frame must be hello, not {}", frame.kind());
                let error = ErrorFrame { id: frame.id(), ..ErrorFrame::new(ErrorCode::OutOfTurn, detail) };
                self.end_with(error, CloseCode::HelloRefused, Verdict::Gone)
            }
        }
    }

    fn on_open_frame(&mut self, frame: Box<ClientFrame>) -> Vec<Action> {
        let (number, partition) = match *frame {
            ClientFrame::Hello(Hello { id, .. }) => {
                let detail = "hello opens a session, and this one is open already";
                let error = ErrorFrame { id: Some(id), ..ErrorFrame::new(ErrorCode::OutOfTurn, detail) };
                return self.end_with(error, CloseCode::HelloRefused, Verdict::Lost);
            }
            ClientFrame::Publish(publish) => return self.on_publish(publish),
            ClientFrame::Transact(transact) => return self.on_transact(transact),
            ClientFrame::Subscribe(subscribe) => return self.on_subscribe(subscribe),
            ClientFrame::Select(select) => return self.on_select(select),
            ClientFrame::Tail(tail) => return self.on_tail(tail),
            ClientFrame::Trace(trace) => return self.on_trace(trace),
            ClientFrame::Watch(watch) => return self.on_watch(watch),
            ClientFrame::Unsubscribe(unsubscribe) => return self.on_unsubscribe(unsubscribe),
            ClientFrame::Untail(untail) => return self.on_untail(untail),
            ClientFrame::Credit(credit) => return self.on_credit(credit),
            ClientFrame::Heartbeat => return Vec::new(),
            ClientFrame::Ack(ref ack) => (ack.subscription, ack.partition),
            ClientFrame::Nack(ref nack) => (nack.subscription, nack.partition),
            ClientFrame::Progress(ref progress) => (progress.subscription, progress.partition),
        };
        self.on_lane_frame(number, partition, frame)
    }

    /// While the session drains, what is in flight may still be acknowledged; nothing new is taken.
    fn on_late_frame(&mut self, frame: Box<ClientFrame>) -> Vec<Action> {
        match *frame {
            ClientFrame::Publish(_)
            | ClientFrame::Subscribe(_)
            | ClientFrame::Select(_)
            | ClientFrame::Tail(_)
            | ClientFrame::Trace(_)
            | ClientFrame::Watch(_)
            | ClientFrame::Unsubscribe(_)
            | ClientFrame::Untail(_) => refuse(ErrorCode::GoingAway, frame.id(), "type", DRAINING),
            ClientFrame::Hello(_)
            | ClientFrame::Transact(_) // it finishes what is in flight
            | ClientFrame::Ack(_)
            | ClientFrame::Nack(_)
            | ClientFrame::Progress(_)
            | ClientFrame::Credit(_)
            | ClientFrame::Heartbeat => self.on_open_frame(frame),
        }
    }

    fn on_publish(&mut self, publish: Publish) -> Vec<Action> {
        if self.publishes >= PUBLISHES_IN_FLIGHT_MAX {
            return too_many_publishes(publish.id);
        }
        self.publishes += 1;
        vec![Action::Publish(publish)]
    }

    /// A step counts as a publish. It needs all its subscriptions.
    fn on_transact(&mut self, transact: Transact) -> Vec<Action> {
        if self.publishes >= PUBLISHES_IN_FLIGHT_MAX {
            return too_many_publishes(transact.id);
        }
        let entries =
            transact.acks.iter().map(|ack| (ack.subscription, self.subscriptions.get(&ack.subscription)));
        let (mut missing, mut asked) = (None, false);
        for (number, entry) in entries {
            match entry {
                Some(Entry { standing: Standing::Asked, .. }) => asked = true,
                Some(Entry { kind: Kind::Group { topic: Some(_), .. }, .. }) => {}
                None if number >= TOPIC_NUMBERS_FROM => {} // whoever reserves it knows
                Some(Entry { kind: Kind::Group { topic: None, .. } | Kind::Tail | Kind::Watch, .. })
                | None => {
                    missing = Some(number);
                }
            }
        }
        match (missing, asked) {
            (Some(number), _) => unknown_subscription(Some(transact.id), number),
            (None, true) => vec![Action::Hold(Box::new(ClientFrame::Transact(transact)))],
            (None, false) => {
                self.publishes += 1;
                vec![Action::Transact(Box::new(transact))]
            }
        }
    }

    /// A publish was answered.
    pub fn on_published(&mut self) -> Vec<Action> {
        self.publishes = self.publishes.saturating_sub(1);
        self.end_if_drained()
    }

    /// A number for a new subscription; `None`: there are as many as there may be.
    fn number(&mut self, kind: Kind) -> Option<u32> {
        if self.subscriptions.len() >= SUBSCRIPTIONS_MAX || self.next_number >= TOPIC_NUMBERS_FROM {
            return None;
        }
        let number = self.next_number;
        self.next_number = self.next_number.checked_add(1)?;
        self.subscriptions.insert(number, Entry { kind, standing: Standing::Asked });
        Some(number)
    }

    /// A subscription, tail or watch was made.
    pub fn on_made(&mut self, number: u32) -> Vec<Action> {
        let Some(entry) = self.subscriptions.get_mut(&number) else { return Vec::new() };
        entry.standing = Standing::Active;
        match (self.phase, &entry.kind) {
            (Phase::Draining { .. }, Kind::Group { .. }) => {
                entry.standing = Standing::Leaving;
                vec![Action::Leave { number, id: None }]
            }
            (Phase::Draining { .. }, Kind::Tail | Kind::Watch) => {
                self.subscriptions.remove(&number);
                let mut actions = vec![Action::Untail { number }];
                actions.extend(self.end_if_drained());
                actions
            }
            (Phase::AwaitingHello { .. } | Phase::Open | Phase::Closing, _) => Vec::new(),
        }
    }

    /// A subscription, tail or watch could not be made.
    pub fn on_unmade(&mut self, number: u32) -> Vec<Action> {
        self.subscriptions.remove(&number);
        self.end_if_drained()
    }

    /// A group was left; `id`: the client has asked for it.
    pub fn on_left(&mut self, number: u32, id: Option<u64>) -> Vec<Action> {
        self.subscriptions.remove(&number);
        let mut actions = Vec::new();
        if let (Some(id), Phase::Open | Phase::Draining { .. }) = (id, self.phase) {
            let unsubscribed = Unsubscribed { id, subscription: number };
            actions.push(Action::Send(BrokerFrame::Unsubscribed(unsubscribed)));
        }
        actions.extend(self.end_if_drained());
        actions
    }

    fn on_lane_frame(&mut self, number: u32, partition: u32, frame: Box<ClientFrame>) -> Vec<Action> {
        match self.subscriptions.get(&number) {
            Some(Entry { standing: Standing::Asked, .. }) => vec![Action::Hold(frame)],
            Some(Entry { kind: Kind::Group { topic: Some(_), .. }, .. }) => {
                vec![Action::Forward { number, frame }]
            }
            None if number >= TOPIC_NUMBERS_FROM => vec![Action::Forward { number, frame }],
            Some(Entry { kind: Kind::Tail | Kind::Watch, .. }) => no_lease(frame.id(), number, partition),
            Some(Entry { kind: Kind::Group { topic: None, .. }, .. }) | None => {
                unknown_subscription(frame.id(), number)
            }
        }
    }

    fn on_credit(&mut self, credit: Credit) -> Vec<Action> {
        let number = credit.subscription;
        let frame = Box::new(ClientFrame::Credit(credit));
        match self.subscriptions.get(&number) {
            Some(Entry { kind: Kind::Watch, .. }) | None => unknown_subscription(None, number), // it has no credit
            Some(Entry { standing: Standing::Asked, .. }) => vec![Action::Hold(frame)],
            Some(Entry { standing: Standing::Active | Standing::Leaving, .. }) => {
                vec![Action::Forward { number, frame }]
            }
        }
    }

    fn on_unsubscribe(&mut self, unsubscribe: Unsubscribe) -> Vec<Action> {
        let Unsubscribe { id, subscription: number } = unsubscribe;
        match self.subscriptions.get_mut(&number) {
            Some(Entry { standing: Standing::Asked, .. }) => {
                vec![Action::Hold(Box::new(ClientFrame::Unsubscribe(unsubscribe)))]
            }
            Some(Entry { kind: Kind::Group { .. }, standing: standing @ Standing::Active }) => {
                *standing = Standing::Leaving;
                vec![Action::Leave { number, id: Some(id) }]
            }
            Some(Entry { .. }) | None => unknown_subscription(Some(id), number),
        }
    }

    /// The broker drains: lanes are handed over, then the connection closes.
    pub fn on_drain(&mut self, go_away: BrokerFrame, now: Instant) -> Vec<Action> {
        match self.phase {
            Phase::AwaitingHello { .. } => {
                let error = ErrorFrame::new(ErrorCode::GoingAway, DRAINING);
                return self.end_with(error, CloseCode::Restart, Verdict::Gone);
            }
            Phase::Draining { .. } | Phase::Closing => return Vec::new(),
            Phase::Open => self.phase = Phase::Draining { deadline: now + SESSIONS_DRAIN_TIMEOUT },
        }
        let mut actions = vec![Action::Send(go_away)];
        for (number, entry) in &mut self.subscriptions {
            match (&entry.kind, entry.standing) {
                (_, Standing::Asked | Standing::Leaving) => {} // as soon as it is made; already
                (Kind::Group { .. }, Standing::Active) => {
                    entry.standing = Standing::Leaving;
                    actions.push(Action::Leave { number: *number, id: None });
                }
                (Kind::Tail | Kind::Watch, Standing::Active) => {
                    actions.push(Action::Untail { number: *number })
                }
            }
        }
        let stays =
            |entry: &Entry| matches!(entry.kind, Kind::Group { .. }) || entry.standing == Standing::Asked;
        self.subscriptions.retain(|_, entry| stays(entry));
        actions.extend(self.end_if_drained());
        actions
    }

    fn end_if_drained(&mut self) -> Vec<Action> {
        match self.phase {
            Phase::Draining { .. } if self.subscriptions.is_empty() && self.publishes == 0 => self.drained(),
            Phase::AwaitingHello { .. } | Phase::Open | Phase::Draining { .. } | Phase::Closing => Vec::new(),
        }
    }

    fn drained(&mut self) -> Vec<Action> {
        self.end(Ending::of(CloseCode::Restart, Verdict::Gone))
    }

    /// The client does not read what it is sent.
    pub fn on_overflow(&mut self) -> Vec<Action> {
        let detail = "this client reads more slowly than the broker is willing to buffer";
        self.end_with(ErrorFrame::new(ErrorCode::TooSlow, detail), CloseCode::TooSlow, Verdict::Lost)
    }

    /// The connection ended, or has to, for a reason outside these rules.
    pub fn on_ended(&mut self, ending: Ending) -> Vec<Action> {
        self.end(ending)
    }

    fn end_with(&mut self, error: ErrorFrame, close: CloseCode, verdict: Verdict) -> Vec<Action> {
        self.end(Ending { error: Some(Box::new(error)), ..Ending::of(close, verdict) })
    }

    fn end(&mut self, ending: Ending) -> Vec<Action> {
        match std::mem::replace(&mut self.phase, Phase::Closing) {
            Phase::Closing => Vec::new(),
            Phase::AwaitingHello { .. } | Phase::Open | Phase::Draining { .. } => vec![Action::End(ending)],
        }
    }
}

#[path = "state_reading.rs"]
mod reading;
#[path = "state_selecting.rs"]
mod selecting;

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
