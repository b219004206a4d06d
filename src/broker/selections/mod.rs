//! Subscriptions that select their topics: by names, by a pattern, by labels.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the way in: beginning a selection, and taking one up from another broker |
//! | `catalogue` | the names and labels of all topics, one task per broker |
//! | `task` | one selection: which topics take part, and under which numbers |
//!
//! A selection is a member of one group on each of its topics; what it receives and acknowledges there is no different from any
//! other member. What its topics share is credit, see `groups::purse`. Which topics it has is decided by the catalogue alone.

pub mod catalogue;
mod task;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use laneway_client::TopicName;
use laneway_client::selection::{InvalidSelection, SELECTION_TOPICS_MAX, Selection};
use laneway_client::wire::{
    self, BatchOptions, BrokerFrame, CreditGrant, ResumedLane, Select, TOPIC_NUMBERS_FROM, WantedSettings,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use self::catalogue::{Catalogue, Listed};
use self::task::{Request, SelectionTask};
use super::groups::{self, GroupHandle, Groups, InvalidCredit, Leaving, Purse, Reach, SubscribeError};
use super::lease::Lease;
use super::metrics::Metrics;
use super::outbox::Outbox;
use super::topics::TopicError;
use crate::ids::SessionId;
use crate::limits::{JOINS_AT_ONCE, LEASE_PATIENCE};
use crate::store::Store;
use crate::store::listen::Hints;
use crate::store::selections::ListedTopic;

/// Why a session does not select topics.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SelectError {
    #[error(transparent)]
    Selection(#[from] InvalidSelection),
    #[error("{count} topics match, and a subscription has at most {SELECTION_TOPICS_MAX}")]
    TooMany { count: usize },
    #[error("topic {topic}: {error}")]
    OnTopic { topic: String, error: Box<SubscribeError> },
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
}

/// What a session selects with. Stored as JSON, for a broker that it resumes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelectionTerms {
    pub number: u32,
    pub group: String,
    pub selection: Selection,
    pub credit: CreditGrant,
    pub batch: BatchOptions,
    pub settings: WantedSettings,
}

/// Whose selection it is.
#[derive(Debug, Clone)]
pub struct Owner {
    pub session_id: SessionId,
    /// SHA-256 of its resume token.
    pub resume_hash: Vec<u8>,
    pub outbox: Outbox,
    /// Numbers of topics that its selections have.
    pub numbers: Numbers,
}

/// Where the numbers of the topics of one session come from.
#[derive(Debug, Clone)]
pub struct Numbers(Arc<AtomicU32>);

impl Default for Numbers {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(TOPIC_NUMBERS_FROM)))
    }
}

impl Numbers {
    fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed).max(TOPIC_NUMBERS_FROM)
    }

    /// This one is used already.
    fn skip(&self, number: u32) {
        self.0.fetch_max(number.saturating_add(1), Ordering::Relaxed);
    }
}

/// A topic that takes part.
#[derive(Debug, Clone)]
pub struct Part {
    pub topic: String,
    pub handle: GroupHandle,
}

/// What a selection and its session share.
#[derive(Debug)]
struct Shared {
    terms: SelectionTerms,
    purse: Arc<Purse>,
    numbers: Numbers,
    /// Locks: for a few instructions, never across an await.
    parts: Mutex<HashMap<u32, Part>>,
}

/// The way to one selection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SelectionHandle {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
}

/// Requests that wait for a selection: a session asks one thing after the other.
const REQUESTS_MAX: usize = 8;

impl SelectionHandle {
    /// The topic of a number.
    pub fn part(&self, number: u32) -> Option<Part> {
        self.shared.parts.lock().get(&number).cloned()
    }

    pub fn group(&self) -> &str {
        &self.shared.terms.group
    }

    pub fn numbers(&self) -> &Numbers {
        &self.shared.numbers
    }

    /// More credit, for all topics together.
    pub fn credit(&self, messages: u32, bytes: u64) -> Result<(), InvalidCredit> {
        self.shared.purse.add(messages, bytes)
    }

    async fn send(&self, request: Request) {
        // It ends only when its session has left; then nobody can be asking.
        let _is_over = self.requests.send(request).await;
    }

    /// The connection is lost; lanes wait for it, and no topic joins meanwhile.
    pub async fn detach(&self) {
        self.send(Request::Detach).await;
    }

    /// Who gets what is decided anew, soon, in every group.
    pub async fn reassign(&self) {
        self.send(Request::Reassign).await;
    }

    /// The session came back on this broker.
    pub async fn attach(&self, outbox: Outbox) -> Vec<ResumedLane> {
        let (reply, lanes) = oneshot::channel();
        self.send(Request::Attach { outbox, reply }).await;
        lanes.await.unwrap_or_default()
    }

    /// Leaves every group; resolves when the session holds no lane of theirs any more.
    pub async fn leave(&self, leaving: Leaving) {
        let (reply, left) = oneshot::channel();
        self.send(Request::Leave { leaving, reply }).await;
        let _is_over = left.await;
    }
}

/// All selections of a broker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Selections {
    store: Store,
    groups: Groups,
    lease: Lease,
    catalogue: Catalogue,
    metrics: Arc<Metrics>,
}

/// The selections of a broker, and the task that lists topics for them.
pub(super) fn assemble(
    store: &Store,
    groups: &Groups,
    lease: &Lease,
    hints: &Hints,
    metrics: &Arc<Metrics>,
) -> (Selections, catalogue::Reading) {
    let (catalogue, listing) = catalogue::catalogue(store, hints);
    let (store, groups, lease) = (store.clone(), groups.clone(), lease.clone());
    (Selections { store, groups, lease, catalogue, metrics: metrics.clone() }, listing)
}

impl Selections {
    /// Begins a selection: its groups are there, and its topics join. Nothing is joined if anything is wrong.
    pub async fn begin(
        &self,
        number: u32,
        select: Select,
        owner: Owner,
    ) -> Result<SelectionHandle, SelectError> {
        let selection = select.selection();
        selection.check()?;
        let Select { id, group, start, credit, batch, settings, .. } = select;
        let (batch, settings) = (batch.unwrap_or_default(), settings.unwrap_or_default());
        groups::batch_limits(&batch)?;
        groups::start::check(start.as_ref())?;
        let made = groups::settings::checked(&settings).map_err(SubscribeError::from)?;
        let purse = Purse::new(credit, Reach::Selection).map_err(SubscribeError::from)?;
        let listed = self.catalogue.fresh().await.map_err(SubscribeError::from)?;
        let topics = selected(&selection, &listed.borrow())?;
        let count = topics.len() as u32;
        let terms = SelectionTerms { number, group, selection, credit, batch, settings };
        let found = self.make_groups(&terms, start.as_ref(), topics).await?;
        let shortest = found.into_iter().chain([made]).min_by_key(|settings| settings.ack_deadline);
        self.enter(&terms, &owner).await?;
        owner.outbox.push(BrokerFrame::Selected(Box::new(wire::Selected {
            id,
            subscription: number,
            group: terms.group.clone(),
            topics: count,
            settings: groups::settings::described(&shortest.unwrap_or(made)),
        })));
        Ok(self.start(terms, owner, purse, listed, HashMap::new()))
    }

    /// Takes a selection up that a session had at another broker. `known`: the topics that it had there, and their numbers.
    pub async fn adopt(
        &self,
        terms: SelectionTerms,
        owner: Owner,
        known: HashMap<String, u32>,
    ) -> Result<SelectionHandle, SelectError> {
        let purse = Purse::new(terms.credit, Reach::Selection).map_err(SubscribeError::from)?;
        let listed = self.catalogue.fresh().await.map_err(SubscribeError::from)?;
        known.values().for_each(|number| owner.numbers.skip(*number));
        self.enter(&terms, &owner).await?; // also if it was left here since
        Ok(self.start(terms, owner, purse, listed, known))
    }

    fn start(
        &self,
        terms: SelectionTerms,
        owner: Owner,
        purse: Arc<Purse>,
        listed: watch::Receiver<Listed>,
        known: HashMap<String, u32>,
    ) -> SelectionHandle {
        let numbers = owner.numbers.clone();
        let shared = Arc::new(Shared { terms, purse, numbers, parts: Mutex::default() });
        let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
        let task = SelectionTask::new(self.clone(), shared.clone(), owner, listed, known, inbox);
        tokio::spawn(task.run());
        SelectionHandle { shared, requests }
    }

    /// The groups of topics that are there already begin where they are told to. Returns the settings they have.
    async fn make_groups(
        &self,
        terms: &SelectionTerms,
        start: Option<&wire::Start>,
        topics: Vec<ListedTopic>,
    ) -> Result<Vec<crate::store::groups::GroupSettings>, SelectError> {
        let make = |topic: ListedTopic| async move {
            let found = self.groups.make(&topic.name, &terms.group, &terms.settings, start).await;
            match found {
                Ok(group) => Ok(Some(group.settings)),
                // It was deleted since it was listed, and nobody has named it.
                Err(SubscribeError::Topic(TopicError::Unknown { .. }))
                    if terms.selection.topics.is_empty() =>
                {
                    Ok(None)
                }
                Err(error @ SubscribeError::Topic(TopicError::Unknown { .. })) => Err(error.into()),
                Err(error) => Err(SelectError::OnTopic { topic: topic.name, error: Box::new(error) }),
            }
        };
        let found = stream::iter(topics).map(make).buffer_unordered(JOINS_AT_ONCE);
        let found: Vec<_> = found.try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Writes a selection down, so that it is known wherever its session resumes. Returns the broker it is known at.
    async fn enter(
        &self,
        terms: &SelectionTerms,
        owner: &Owner,
    ) -> Result<crate::ids::BrokerId, SubscribeError> {
        let mut lease = self.lease.clone();
        let held = tokio::time::timeout(LEASE_PATIENCE, lease.held()).await;
        let broker_id = held.map_err(|_| SubscribeError::NoLease)?;
        let text = serde_json::to_string(terms).expect("words and numbers are always JSON");
        let (session_id, hash) = (owner.session_id, &owner.resume_hash);
        match self.store.selections_enter(session_id, broker_id, hash, terms.number, &text).await? {
            true => Ok(broker_id),
            false => Err(SubscribeError::NoLease),
        }
    }
}

/// The topics of a selection. Those that are named must be there.
fn selected(selection: &Selection, listed: &Listed) -> Result<Vec<ListedTopic>, SelectError> {
    let is_selected = |topic: &&ListedTopic| selection.matches(&topic.name, &topic.labels);
    let topics: Vec<ListedTopic> = listed.values().filter(is_selected).cloned().collect();
    for name in &selection.topics {
        if !topics.iter().any(|topic| topic.name == *name) {
            TopicName::new(name.clone()).map_err(TopicError::from).map_err(SubscribeError::from)?;
            return Err(SubscribeError::from(TopicError::Unknown { name: name.clone() }).into());
        }
    }
    match topics.len() {
        count if count > SELECTION_TOPICS_MAX => Err(SelectError::TooMany { count }),
        _ => Ok(topics),
    }
}
