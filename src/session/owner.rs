//! The owner of an open session: tells the state every event, and carries out what it decides.
//!
//! Never waits for the database: subscribes, leaves and publishes are futures beside the loop. What it does wait for are
//! the inboxes of groups, which are always emptied soon.
//! Order of events: what ends or settles something comes before what begins something.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use laneway_client::wire::{
    BrokerFrame, ClientFrame, CloseCode, ReadTrace, Select, Subscribe, TOPIC_NUMBERS_FROM, Tail, Traced,
    Transact, Watch,
};
use laneway_client::{ErrorCode, GroupName};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::activity::Activity;
use super::ending::{Ending, Verdict};
use super::fault::{Refusal, unknown_trace};
use super::handshake::Opened;
use super::members::{GroupMember, Member, Way, to_group};
use super::publishing::Publishing;
use super::reader::Incoming;
use super::refusals::unknown_subscription;
use super::registry::{Known, Tenure};
use super::remains::Remains;
use super::state::{Action, State};
use super::writer::WriteEnd;
use super::{Sessions, selecting, transacting};
use crate::broker::groups::{GroupHandle, Leaving, Subscribed, Subscription};
use crate::broker::outbox::Outbox;
use crate::broker::selections::{self, Part};
use crate::broker::tailing::TailHandle;
use crate::broker::watching::WatchHandle;
use crate::ids::{StepId, TraceId};

/// The task that writes.
pub(super) type Writing = AbortOnDropHandle<Result<(), WriteEnd>>;

/// What became of something that was begun beside the loop.
enum Outcome {
    Subscribed {
        number: u32,
        id: u64,
        result: Result<GroupMember, Refusal>,
    },
    Tailing {
        number: u32,
        id: u64,
        result: Result<TailHandle, Refusal>,
    },
    Watching {
        number: u32,
        id: u64,
        result: Result<WatchHandle, Refusal>,
    },
    Left {
        number: u32,
        id: Option<u64>,
    },
    /// A step or a look at a trace.
    Answered(Box<BrokerFrame>),
}

type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

pub(super) struct Owner {
    sessions: Sessions,
    state: State,
    known: Arc<Known>,
    tenure: Tenure,
    grace: Duration,
    outbox: Outbox,
    overflow: CancellationToken,
    activity: Arc<Activity>,
    members: BTreeMap<u32, Member>,
    /// Groups that are being left.
    leaving: BTreeSet<u32>,
    work: FuturesUnordered<Work>,
    publishing: Publishing,
    /// A frame that concerns a subscription which is still being made; nothing is read before it is dealt with.
    held: Option<Box<ClientFrame>>,
    told_to_drain: bool,
}

impl Owner {
    pub fn new(sessions: Sessions, state: State, opened: Opened, activity: Arc<Activity>) -> Self {
        let members = opened.members.into_iter().map(|member| (member.number, Member::Group(member)));
        Self {
            publishing: Publishing::new(sessions.broker().publisher.clone()),
            sessions,
            state,
            known: opened.known,
            tenure: opened.tenure,
            grace: Duration::from_millis(u64::from(opened.welcome.resume_grace_ms)),
            outbox: opened.outbox,
            overflow: opened.overflow,
            activity,
            members: members.collect(),
            leaving: BTreeSet::new(),
            work: FuturesUnordered::new(),
            held: None,
            told_to_drain: false,
        }
    }

    /// Runs until the session has to end. Cancel safety: none; [`Owner::into_remains`] must follow.
    pub async fn run(&mut self, mut inbox: mpsc::Receiver<Incoming>, writing: &mut Writing) -> Ending {
        loop {
            for action in self.next(&mut inbox, writing).await {
                if let Some(ending) = self.act(action).await {
                    return ending;
                }
            }
        }
    }

    async fn next(&mut self, inbox: &mut mpsc::Receiver<Incoming>, writing: &mut Writing) -> Vec<Action> {
        let deadline = self.state.next_deadline().unwrap_or_else(Instant::now);
        let reads = self.held.is_none() && !self.publishing.is_full();
        tokio::select! {
            biased; // see the order of events above
            written = writing => self.on_writer_ended(written),
            () = self.tenure.wanted.cancelled() => {
                self.state.on_ended(Ending::of(CloseCode::TakenOver, Verdict::TakenOver))
            }
            () = self.overflow.cancelled() => self.state.on_overflow(),
            () = self.sessions.draining(), if !self.told_to_drain => {
                self.told_to_drain = true;
                self.state.on_drain(self.sessions.go_away(), Instant::now())
            }
            Some(outcome) = self.work.next(), if !self.work.is_empty() => self.on_outcome(outcome),
            answer = self.publishing.answer() => {
                self.outbox.push(answer);
                self.state.on_published()
            }
            incoming = inbox.recv(), if reads => self.on_incoming(incoming),
            () = tokio::time::sleep_until(deadline.into()) => self.on_deadline(inbox),
        }
    }

    fn on_incoming(&mut self, incoming: Option<Incoming>) -> Vec<Action> {
        match incoming {
            Some(Incoming::Frame(frame)) => self.state.on_frame(frame),
            Some(Incoming::Bad(error)) => self.state.on_bad_frame(*error),
            Some(Incoming::Ended(ending)) => self.state.on_ended(*ending),
            None => self.state.on_ended(Ending::lost()),
        }
    }

    /// A client whose frames wait for us is not silent.
    fn on_deadline(&mut self, inbox: &mpsc::Receiver<Incoming>) -> Vec<Action> {
        let now = Instant::now();
        let waits_for_us = !inbox.is_empty() || self.held.is_some() || self.publishing.is_full();
        self.state.on_heard(if waits_for_us { now } else { self.activity.read_at() });
        self.state.on_tick(now)
    }

    fn on_writer_ended(
        &mut self,
        written: Result<Result<(), WriteEnd>, tokio::task::JoinError>,
    ) -> Vec<Action> {
        if let Ok(Err(WriteEnd::Stalled)) = written {
            tracing::info!(session = %self.known.session_id, "the client has read nothing for too long");
        }
        self.state.on_ended(Ending::lost())
    }

    fn on_outcome(&mut self, outcome: Outcome) -> Vec<Action> {
        let mut actions = match outcome {
            Outcome::Subscribed { number, id, result } => match result {
                Ok(member) => self.on_made(number, Member::Group(member)),
                Err(refusal) => self.on_unmade(number, id, refusal),
            },
            Outcome::Tailing { number, id, result } => match result {
                Ok(tail) => self.on_made(number, Member::Tail(tail)),
                Err(refusal) => self.on_unmade(number, id, refusal),
            },
            Outcome::Watching { number, id, result } => match result {
                Ok(watch) => self.on_made(number, Member::Watch(watch)),
                Err(refusal) => self.on_unmade(number, id, refusal),
            },
            Outcome::Left { number, id } => {
                self.members.remove(&number);
                self.leaving.remove(&number);
                self.state.on_left(number, id)
            }
            Outcome::Answered(answer) => {
                self.outbox.push(*answer);
                self.state.on_published()
            }
        };
        if let Some(frame) = self.held.take() {
            actions.extend(self.state.on_frame(frame));
        }
        actions
    }

    fn on_made(&mut self, number: u32, member: Member) -> Vec<Action> {
        self.members.insert(number, member);
        self.state.on_made(number)
    }

    fn on_unmade(&mut self, number: u32, id: u64, refusal: Refusal) -> Vec<Action> {
        self.outbox.push(BrokerFrame::Error(Box::new(refusal.into_frame(Some(id)))));
        self.state.on_unmade(number)
    }

    async fn act(&mut self, action: Action) -> Option<Ending> {
        match action {
            Action::Send(frame) => self.outbox.push(frame),
            Action::Publish(publish) => self.publishing.push(publish),
            // Boxed, because its room would be part of every session, and most sessions never take a step.
            Action::Transact(transact) => Box::pin(self.transact(transact)).await,
            Action::Subscribe { number, subscribe } => self.subscribe(number, *subscribe),
            Action::Select { number, select } => self.select(number, *select),
            Action::Tail { number, tail } => self.tail(number, *tail),
            Action::Watch { number, watch } => self.watch(number, *watch),
            Action::Trace(trace) => self.trace(trace),
            // Boxed for the same reason.
            Action::Forward { number, frame } if number >= TOPIC_NUMBERS_FROM => {
                Box::pin(self.forward_selected(number, *frame)).await;
            }
            Action::Forward { number, frame } => {
                if let Some(member) = self.members.get(&number) {
                    member.forward(self.known.session_id, *frame, &self.outbox).await;
                }
            }
            Action::Leave { number, id } => self.leave(number, id),
            // Boxed for the same reason.
            Action::Untail { number } => Box::pin(self.untail(number)).await,
            Action::Hold(frame) => self.held = Some(frame),
            Action::Open(_) => debug_assert!(false, "a session is opened once"),
            Action::End(ending) => return Some(ending),
        }
        None
    }

    /// Asks the groups in the order of frames; the rest is done beside the loop.
    async fn transact(&mut self, transact: Box<Transact>) {
        let mut lanes = Vec::with_capacity(transact.acks.len());
        for ack in &transact.acks {
            let Some(way) = self.group_of(ack.subscription) else {
                let refused = unknown_subscription(Some(transact.id), ack.subscription);
                return self.refuse_step(refused);
            };
            lanes.push((way, ack));
        }
        let sessions = self.sessions.clone();
        let coming = sessions.broker().steps.coming();
        let mut asked = Vec::with_capacity(lanes.len());
        for (way, ack) in lanes {
            let step_id = StepId(transact.step_id);
            asked.push(transacting::ask(way, self.known.session_id, step_id, ack).await);
        }
        self.work.push(Box::pin(async move {
            Outcome::Answered(Box::new(transacting::transact(sessions, *transact, asked, coming).await))
        }));
    }

    /// A step that names a topic which no selection has is answered beside the loop, like any other.
    fn refuse_step(&mut self, refused: Vec<Action>) {
        for action in refused {
            if let Action::Send(frame) = action {
                self.work.push(Box::pin(async move { Outcome::Answered(Box::new(frame)) }));
            }
        }
    }

    /// The topic and the group that a number stands for.
    fn group_of(&self, number: u32) -> Option<(String, GroupHandle)> {
        if number >= TOPIC_NUMBERS_FROM {
            let mut selections = self.members.values().filter_map(Member::selection);
            let Part { topic, handle } = selections.find_map(|selection| selection.part(number))?;
            return Some((topic, handle));
        }
        match self.members.get(&number)? {
            Member::Group(GroupMember { way: Way::Group { topic, handle }, .. }) => {
                Some((topic.clone(), handle.clone()))
            }
            Member::Group(_) | Member::Tail(_) | Member::Watch(_) => None,
        }
    }

    /// A frame about a lane of a topic that was selected.
    async fn forward_selected(&mut self, number: u32, frame: ClientFrame) {
        match self.group_of(number) {
            Some((_, handle)) => to_group(&handle, self.known.session_id, frame).await,
            None => {
                for action in unknown_subscription(frame.id(), number) {
                    if let Action::Send(frame) = action {
                        self.outbox.push(frame);
                    }
                }
            }
        }
    }

    fn select(&mut self, number: u32, select: Select) {
        self.known.on_joined();
        let groups = self.members.values().filter_map(|member| match member {
            Member::Group(member) => Some(member),
            Member::Tail(_) | Member::Watch(_) => None,
        });
        let owner = selections::Owner {
            session_id: self.known.session_id,
            resume_hash: self.known.token_hash.to_vec(),
            outbox: self.outbox.clone(),
            numbers: selecting::numbers(groups),
        };
        let (broker, id) = (self.sessions.broker().clone(), select.id);
        self.work.push(Box::pin(async move {
            let result = selecting::begin(broker, number, select, owner).await;
            Outcome::Subscribed { number, id, result }
        }));
    }

    fn subscribe(&mut self, number: u32, subscribe: Subscribe) {
        self.known.on_joined();
        let groups = self.sessions.broker().groups.clone();
        let Subscribe { id, group, topic, start, credit, batch, settings } = subscribe;
        let subscription = Subscription {
            id: Some(id),
            session_id: self.known.session_id,
            resume_hash: self.known.token_hash.to_vec(),
            number,
            group: group.clone(),
            topic: topic.clone(),
            selected: None,
            start,
            credit,
            batch: batch.unwrap_or_default(),
            settings: settings.unwrap_or_default(),
            outbox: self.outbox.clone(),
        };
        self.work.push(Box::pin(async move {
            let result = match GroupName::new(group.clone()) {
                Ok(_) => groups.subscribe(subscription).await.map_err(Refusal::from),
                Err(error) => {
                    Err(Refusal::new(ErrorCode::InvalidGroupName, error.to_string()).with_field("group"))
                }
            };
            let way = |made: Subscribed| Way::Group { topic, handle: made.group };
            let result = result.map(|made| GroupMember { number, group, way: way(made) });
            Outcome::Subscribed { number, id, result }
        }));
    }

    fn tail(&mut self, number: u32, tail: Tail) {
        let (tailing, outbox, id) = (self.sessions.tailing().clone(), self.outbox.clone(), tail.id);
        self.work.push(Box::pin(async move {
            let result = tailing.start(number, tail, outbox).await.map_err(Refusal::from);
            Outcome::Tailing { number, id, result }
        }));
    }

    async fn untail(&mut self, number: u32) {
        match self.members.remove(&number) {
            Some(Member::Tail(tail)) => tail.end().await,
            Some(Member::Watch(watch)) => watch.end().await,
            Some(Member::Group(_)) | None => {}
        }
    }

    fn watch(&mut self, number: u32, watch: Watch) {
        let (watcher, outbox, id) = (self.sessions.watcher().clone(), self.outbox.clone(), watch.id);
        self.work.push(Box::pin(async move {
            let result = watcher.start(number, watch, outbox).await.map_err(Refusal::from);
            Outcome::Watching { number, id, result }
        }));
    }

    fn trace(&mut self, ReadTrace { id, trace_id }: ReadTrace) {
        let traces = self.sessions.broker().traces.clone();
        self.work.push(Box::pin(async move {
            let answer = match traces.read(TraceId(trace_id)).await.map_err(Refusal::from) {
                Ok(Some(trace)) => BrokerFrame::Traced(Box::new(Traced { id, trace })),
                Ok(None) => BrokerFrame::Error(Box::new(unknown_trace(trace_id).into_frame(Some(id)))),
                Err(refusal) => BrokerFrame::Error(Box::new(refusal.into_frame(Some(id)))),
            };
            Outcome::Answered(Box::new(answer))
        }));
    }

    fn leave(&mut self, number: u32, id: Option<u64>) {
        let Some(Member::Group(member)) = self.members.get(&number) else { return };
        let (member, session_id) = (member.clone(), self.known.session_id);
        self.leaving.insert(number);
        self.work.push(Box::pin(async move {
            member.leave(session_id, Leaving::Drain).await;
            Outcome::Left { number, id }
        }));
    }

    /// Takes it apart: what remains has to be settled with its groups. Tails end by being dropped.
    pub fn into_remains(self) -> Remains {
        let group = |member| match member {
            Member::Group(member) => Some(member),
            Member::Tail(_) | Member::Watch(_) => None,
        };
        let groups = self.members.into_values().filter_map(group);
        let (leaving, members) = groups.partition(|member| self.leaving.contains(&member.number));
        let late = Box::pin(finish(self.work));
        let (sessions, known, tenure, grace) = (self.sessions, self.known, self.tenure, self.grace);
        Remains { sessions, known, tenure, grace, members, leaving, late }
    }
}

/// Lets everything end that was begun; returns the groups that were joined by it.
async fn finish(mut work: FuturesUnordered<Work>) -> Vec<GroupMember> {
    let mut joined = Vec::new();
    while let Some(outcome) = work.next().await {
        match outcome {
            Outcome::Subscribed { result: Ok(member), .. } => joined.push(member),
            Outcome::Subscribed { result: Err(_), .. }
            | Outcome::Tailing { .. }
            | Outcome::Watching { .. }
            | Outcome::Left { .. }
            | Outcome::Answered(_) => {}
        }
    }
    joined
}
