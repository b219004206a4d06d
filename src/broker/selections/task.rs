//! One selection: joins the topics that it selects, leaves those that it does not, for as long as its session lasts.
//!
//! Each look starts from the catalogue alone: a topic that is selected and has not joined is joined, and the other way round.
//! So nothing depends on having heard of every change. A group that is made here begins at the earliest message, because its
//! topic came after the selection: its first messages are part of it.
//! A topic that is being left does not join before it is out of the tables: else the one row would be taken for the other.
//! While the connection of the session is lost, nothing joins; what came meanwhile joins when it is back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, stream};
use laneway_client::ErrorCode;
use laneway_client::selection::SELECTION_TOPICS_MAX;
use laneway_client::wire::{self, BrokerFrame, Fault, ResumedLane, Start, TopicJoined, TopicLeft};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

use super::catalogue::Listed;
use super::{Owner, Part, Selections, Shared};
use crate::broker::groups::{Leaving, Selected, SubscribeError, Subscribed, Subscription, settings};
use crate::broker::outbox::Outbox;
use crate::ids::{BrokerId, TopicId};
use crate::limits::{CATALOGUE_INTERVAL, EFFECT_RETRY_PAUSE, JOINS_AT_ONCE, RECONCILE_INTERVAL};
use crate::store::selections::ListedTopic;

/// What a session asks of its selection.
#[derive(Debug)]
pub(super) enum Request {
    Detach,
    Reassign,
    Attach { outbox: Outbox, reply: oneshot::Sender<Vec<ResumedLane>> },
    Leave { leaving: Leaving, reply: oneshot::Sender<()> },
}

/// A topic that has joined.
#[derive(Debug)]
struct Joined {
    number: u32,
    name: String,
    partitions: u32,
    settings: wire::GroupSettings,
}

/// A topic that is out of the tables again, and why.
struct Left {
    topic_id: TopicId,
    number: u32,
    name: String,
    why: &'static str,
}

type Departure = Pin<Box<dyn Future<Output = Left> + Send>>;

pub(super) struct SelectionTask {
    selections: Selections,
    shared: Arc<Shared>,
    owner: Owner,
    /// Absent while the connection is lost and may come back.
    outbox: Option<Outbox>,
    /// The broker that the selection is known at.
    broker_id: Option<BrokerId>,
    listed: watch::Receiver<Listed>,
    joined: BTreeMap<TopicId, Joined>,
    leaving: FuturesUnordered<Departure>,
    /// Topics that are being left.
    parting: HashSet<TopicId>,
    /// Left while the connection was lost: told when it is back.
    untold: Vec<TopicLeft>,
    /// Topics that it had at another broker, with their numbers there. They join whatever they match by now, because a session that
    /// is in the tables has to be a member before it can leave.
    known: HashMap<String, u32>,
    /// Numbers of topics that did not get to join: they keep them for the next try, if they are still selected then.
    tried: HashMap<TopicId, u32>,
    /// Topics whose group an operator has deleted: it is not made again.
    given_up: HashSet<TopicId>,
    /// Topics that could not join, and what was told of it.
    refused: HashMap<TopicId, ErrorCode>,
    retry_at: Option<Instant>,
    requests: mpsc::Receiver<Request>,
    gone: (mpsc::Sender<TopicId>, mpsc::Receiver<TopicId>),
}

/// Groups that have gone and are not dealt with yet; beyond, the next look finds their topics gone.
const GONE_MAX: usize = 64;

impl SelectionTask {
    pub fn new(
        selections: Selections,
        shared: Arc<Shared>,
        owner: Owner,
        listed: watch::Receiver<Listed>,
        known: HashMap<String, u32>,
        requests: mpsc::Receiver<Request>,
    ) -> Self {
        selections.metrics.selections.inc();
        Self {
            outbox: Some(owner.outbox.clone()),
            broker_id: selections.lease.broker_id(),
            selections,
            shared,
            owner,
            listed,
            joined: BTreeMap::new(),
            leaving: FuturesUnordered::new(),
            parting: HashSet::new(),
            untold: Vec::new(),
            known,
            tried: HashMap::new(),
            given_up: HashSet::new(),
            refused: HashMap::new(),
            retry_at: Some(Instant::now()),
            requests,
            gone: mpsc::channel(GONE_MAX),
        }
    }

    /// Runs until its session leaves. Cancel safety: none. Spawned once and polled to completion.
    pub async fn run(mut self) {
        let mut lease = self.selections.lease.clone();
        loop {
            let is_here = self.outbox.is_some();
            let retry_at = self.retry_at.filter(|_| is_here);
            let retry = tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now).into());
            tokio::select! {
                biased; // who waits for an answer comes first
                request = self.requests.recv() => match request {
                    Some(Request::Leave { leaving, reply }) => {
                        self.leave(leaving).await;
                        let _session_is_gone = reply.send(());
                        break;
                    }
                    Some(request) => self.on_request(request).await,
                    None => break, // the broker is going
                },
                Some(topic_id) = self.gone.1.recv() => self.on_gone(topic_id),
                Some(left) = self.leaving.next(), if !self.leaving.is_empty() => self.on_left(left),
                () = lease.changed() => self.enter_if_moved().await,
                changed = self.listed.changed(), if is_here => match changed {
                    Ok(()) => self.look().await,
                    Err(_) => break, // the broker is going
                },
                () = retry, if retry_at.is_some() => self.look().await,
            }
        }
        self.selections.metrics.selections.dec();
        self.selections.metrics.selection_topics.dec_by(self.joined.len() as i64);
    }

    fn push(&self, frame: BrokerFrame) {
        if let Some(outbox) = &self.outbox {
            outbox.push(frame);
        }
    }

    async fn on_request(&mut self, request: Request) {
        match request {
            Request::Detach => {
                self.outbox = None;
                let session_id = self.owner.session_id;
                join_all(self.parts().iter().map(|part| part.handle.detach(session_id))).await;
            }
            Request::Reassign => {
                join_all(self.parts().iter().map(|part| part.handle.reassign())).await;
            }
            Request::Attach { outbox, reply } => {
                let lanes = self.attach(outbox).await;
                let _session_is_gone = reply.send(lanes);
            }
            Request::Leave { .. } => debug_assert!(false, "leaving ends the loop"),
        }
    }

    fn parts(&self) -> Vec<Part> {
        self.shared.parts.lock().values().cloned().collect()
    }

    /// Order: a client that did not hear of a topic before learns of it before its lanes.
    async fn attach(&mut self, outbox: Outbox) -> Vec<ResumedLane> {
        self.shared.purse.reset(self.shared.terms.credit);
        for left in self.untold.drain(..) {
            outbox.push(BrokerFrame::TopicLeft(Box::new(left)));
        }
        self.joined.values().for_each(|topic| outbox.push(self.announcement(topic)));
        (self.outbox, self.retry_at) = (Some(outbox.clone()), Some(Instant::now()));
        let session_id = self.owner.session_id;
        let parts = self.parts();
        let lanes = join_all(parts.iter().map(|part| part.handle.attach(session_id, outbox.clone()))).await;
        lanes.into_iter().flatten().collect()
    }

    fn announcement(&self, topic: &Joined) -> BrokerFrame {
        BrokerFrame::TopicJoined(Box::new(TopicJoined {
            selection: self.shared.terms.number,
            subscription: topic.number,
            group: self.shared.terms.group.clone(),
            topic: topic.name.clone(),
            partitions: topic.partitions,
            settings: topic.settings,
        }))
    }

    async fn leave(&mut self, leaving: Leaving) {
        let session_id = self.owner.session_id;
        let parts = self.parts();
        join_all(parts.iter().map(|part| part.handle.leave(session_id, leaving))).await;
        self.shared.parts.lock().clear();
        if let Some(broker_id) = self.broker_id {
            let left =
                self.selections.store.selections_leave(session_id, broker_id, self.shared.terms.number);
            if let Err(error) = left.await {
                tracing::debug!(%error, "a selection goes with its session");
            }
        }
    }

    /// The broker may have got a new id since the selection was written down.
    async fn enter_if_moved(&mut self) {
        let broker_id = self.selections.lease.broker_id();
        if broker_id.is_none() || broker_id == self.broker_id {
            return;
        }
        match self.selections.enter(&self.shared.terms, &self.owner).await {
            Ok(broker_id) => self.broker_id = Some(broker_id),
            Err(error) => tracing::debug!(%error, "a selection is written down with the next heartbeat"),
        }
    }

    /// Joins what is selected, and leaves what is not.
    async fn look(&mut self) {
        self.retry_at = None;
        let listed = self.listed.borrow_and_update().clone();
        let selection = &self.shared.terms.selection;
        let is_wanted = |topic: &ListedTopic| {
            selection.matches(&topic.name, &topic.labels) || self.known.contains_key(&topic.name)
        };
        let wanted: BTreeMap<TopicId, &ListedTopic> =
            listed.iter().filter(|(_, topic)| is_wanted(topic)).map(|(id, topic)| (*id, topic)).collect();
        let unwanted: Vec<TopicId> =
            self.joined.keys().filter(|topic_id| !wanted.contains_key(topic_id)).copied().collect();
        self.refused.retain(|topic_id, _| wanted.contains_key(topic_id));
        self.given_up.retain(|topic_id| wanted.contains_key(topic_id));
        self.tried.retain(|topic_id, _| wanted.contains_key(topic_id));
        for topic_id in unwanted {
            match listed.contains_key(&topic_id) {
                true => self.part_from(topic_id, Leaving::Drain, "unselected"),
                false => self.part_from(topic_id, Leaving::Closed, "deleted"),
            }
        }
        let missing = wanted.into_iter().filter(|(topic_id, _)| {
            !self.joined.contains_key(topic_id)
                && !self.parting.contains(topic_id) // once it has left
                && !self.given_up.contains(topic_id)
        });
        let missing: Vec<ListedTopic> = missing.map(|(_, topic)| topic.clone()).collect();
        self.join(missing).await;
    }

    async fn join(&mut self, mut missing: Vec<ListedTopic>) {
        let room = SELECTION_TOPICS_MAX.saturating_sub(self.joined.len());
        for topic in missing.drain(missing.len().min(room)..).collect::<Vec<_>>() {
            let detail = format!("a subscription has at most {SELECTION_TOPICS_MAX} topics");
            self.refuse(&topic, Fault::new(ErrorCode::TooManyTopics, detail));
        }
        let joins: Vec<(ListedTopic, u32, Subscription)> = missing
            .into_iter()
            .filter_map(|topic| {
                let outbox = self.outbox.clone()?;
                let number = self.known.get(&topic.name).copied();
                let number = number.or_else(|| self.tried.remove(&topic.topic_id));
                let number = number.unwrap_or_else(|| self.shared.numbers.next());
                let subscription = self.subscription(&topic, number, outbox);
                Some((topic, number, subscription))
            })
            .collect();
        let (groups, shared) = (&self.selections.groups, &self.shared);
        let join = |(topic, number, subscription): (ListedTopic, u32, Subscription)| async move {
            let result = groups.subscribe(subscription).await;
            if let Ok(subscribed) = &result {
                let part = Part { topic: topic.name.clone(), handle: subscribed.group.clone() };
                shared.parts.lock().insert(number, part);
            }
            (topic, number, result)
        };
        let results: Vec<_> = stream::iter(joins).map(join).buffer_unordered(JOINS_AT_ONCE).collect().await;
        for (topic, number, result) in results {
            self.on_joined(topic, number, result);
        }
    }

    fn subscription(&self, topic: &ListedTopic, number: u32, outbox: Outbox) -> Subscription {
        let terms = &self.shared.terms;
        let selected =
            Selected { selection: terms.number, purse: self.shared.purse.clone(), gone: self.gone.0.clone() };
        Subscription {
            id: None,
            session_id: self.owner.session_id,
            resume_hash: self.owner.resume_hash.clone(),
            number,
            group: terms.group.clone(),
            topic: topic.name.clone(),
            selected: Some(Box::new(selected)),
            start: Some(Start::Earliest),
            credit: terms.credit,
            batch: terms.batch,
            settings: terms.settings,
            outbox,
        }
    }

    fn on_joined(&mut self, topic: ListedTopic, number: u32, result: Result<Subscribed, SubscribeError>) {
        let error = match result {
            Ok(Subscribed { partitions, settings, .. }) => {
                let (topic_id, name) = (topic.topic_id, topic.name);
                tracing::info!(group.name = self.shared.terms.group, topic.name = name, "topic selected");
                self.refused.remove(&topic_id);
                self.selections.metrics.selection_topics.inc();
                let settings = settings::described(&settings);
                self.known.remove(&name);
                if !self.shared.terms.selection.matches(&name, &topic.labels) {
                    self.retry_within(CATALOGUE_INTERVAL); // it was selected elsewhere, and is not any more
                }
                self.joined.insert(topic_id, Joined { number, name, partitions, settings });
                return;
            }
            Err(error) => error,
        };
        match fault(&error) {
            Some(fault) => {
                self.known.remove(&topic.name);
                self.refuse(&topic, fault);
            }
            None => {
                tracing::debug!(%error, topic.name = topic.name, "a topic joins in a moment");
                self.tried.insert(topic.topic_id, number);
                self.retry_within(EFFECT_RETRY_PAUSE);
            }
        }
    }

    fn retry_within(&mut self, pause: Duration) {
        let at = Instant::now() + pause;
        self.retry_at = Some(self.retry_at.map_or(at, |before| before.min(at)));
    }

    /// A topic cannot join. Its client is told once; it is tried again now and then.
    fn refuse(&mut self, topic: &ListedTopic, fault: Fault) {
        self.retry_within(RECONCILE_INTERVAL);
        if self.refused.insert(topic.topic_id, fault.code) == Some(fault.code) {
            return;
        }
        self.selections.metrics.selection_refusals.inc();
        tracing::warn!(
            group.name = self.shared.terms.group,
            topic.name = topic.name,
            reason = fault.detail,
            "a topic that is selected cannot join"
        );
        self.push(BrokerFrame::TopicLeft(Box::new(TopicLeft {
            selection: self.shared.terms.number,
            subscription: None,
            topic: topic.name.clone(),
            reason: "refused".to_owned(),
            error: Some(fault),
        })));
    }

    /// The group of a topic is gone. If its topic is, too, the catalogue says so.
    fn on_gone(&mut self, topic_id: TopicId) {
        self.given_up.insert(topic_id);
        self.part_from(topic_id, Leaving::Closed, "group_deleted");
    }

    /// Leaves a topic beside the loop: its acks count while it drains.
    fn part_from(&mut self, topic_id: TopicId, leaving: Leaving, why: &'static str) {
        let Some(Joined { number, name, .. }) = self.joined.remove(&topic_id) else { return };
        self.selections.metrics.selection_topics.dec();
        let part = self.shared.parts.lock().get(&number).cloned();
        let session_id = self.owner.session_id;
        self.parting.insert(topic_id);
        self.leaving.push(Box::pin(async move {
            if let Some(part) = part {
                part.handle.leave(session_id, leaving).await;
            }
            Left { topic_id, number, name, why }
        }));
    }

    /// It may join again by now: what was selected anew while it was being left has waited for this.
    fn on_left(&mut self, Left { topic_id, number, name, why }: Left) {
        self.shared.parts.lock().remove(&number);
        self.parting.remove(&topic_id);
        self.retry_within(Duration::ZERO);
        tracing::info!(group.name = self.shared.terms.group, topic.name = name, why, "topic left");
        let left = TopicLeft {
            selection: self.shared.terms.number,
            subscription: Some(number),
            topic: name,
            reason: why.to_owned(),
            error: None,
        };
        match &self.outbox {
            Some(outbox) => outbox.push(BrokerFrame::TopicLeft(Box::new(left))),
            None => self.untold.push(left),
        }
    }
}

/// What a client is told of a topic that cannot join; `None`: nothing yet, because it may in a moment.
fn fault(error: &SubscribeError) -> Option<Fault> {
    let code = match error {
        SubscribeError::Mismatch(_) => ErrorCode::GroupMismatch,
        SubscribeError::Setting(_) => ErrorCode::InvalidSetting,
        SubscribeError::Topic(_)
        | SubscribeError::Start { .. }
        | SubscribeError::Batch { .. }
        | SubscribeError::Credit(_)
        | SubscribeError::AlreadySubscribed
        | SubscribeError::Read(_)
        | SubscribeError::Store(_)
        | SubscribeError::NoLease => return None,
    };
    Some(Fault::new(code, error.to_string()))
}
