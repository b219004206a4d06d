//! One group on this broker: its members, its lanes, and the loop that owns them.
//!
//! Lives while the group has a member here or a lane that is not released yet. Everything that changes a lane passes through
//! this loop, so there is nothing to lock; everything slow is an effect, so nobody waits for anybody.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Instant;

use laneway_client::wire::CreditGrant;
use parking_lot::Mutex;
use rand::Rng as _;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::effects::{Effects, Event, Pauses};
use super::held::Held;
use super::times::Keeping;
use super::{BatchLimits, GroupHandle, Leaving, Purse, Request, Selected, Subscription, Surroundings};
use crate::broker::hot_tail::Wake;
use crate::broker::outbox::Outbox;
use crate::ids::{BrokerId, GroupId, PartitionId, SessionId};
use crate::limits::{ASSIGN_PAUSE, GROUP_EVENTS_MAX, GROUP_TURN_REQUESTS, RECONCILE_INTERVAL};
use crate::store::groups::Group;
use crate::store::listen::Hint;
use crate::store::management::Running;
use crate::store::topics::Topic;

/// A session that takes part.
#[derive(Debug)]
pub struct Member {
    pub session_id: SessionId,
    pub resume_hash: Vec<u8>,
    pub terms: String,
    pub subscription: u32,
    /// Absent while its connection is lost and may come back.
    pub outbox: Option<Outbox>,
    pub purse: Arc<Purse>,
    /// Present if it came by a selection of topics.
    pub selected: Option<Box<Selected>>,
    pub first_credit: CreditGrant,
    pub batch: BatchLimits,
    pub lanes: BTreeSet<PartitionId>,
    /// Under which id of the broker it was entered.
    pub broker_id: BrokerId,
    /// It is being entered into the tables, again; until then it must not be taken out.
    pub entering: bool,
    /// Present once it leaves: whom to tell when it holds no lane any more and is out of the tables.
    pub left: Option<oneshot::Sender<()>>,
    /// It is out of the tables.
    pub out: bool,
}

impl Member {
    pub fn new(
        subscription: &Subscription,
        purse: Arc<Purse>,
        batch: BatchLimits,
        terms: String,
        broker_id: BrokerId,
    ) -> Self {
        Self {
            session_id: subscription.session_id,
            resume_hash: subscription.resume_hash.clone(),
            terms,
            subscription: subscription.number,
            outbox: Some(subscription.outbox.clone()),
            purse,
            selected: subscription.selected.clone(),
            first_credit: subscription.credit,
            batch,
            lanes: BTreeSet::new(),
            broker_id,
            entering: false,
            left: None,
            out: false,
        }
    }

    pub fn is_leaving(&self) -> bool {
        self.left.is_some()
    }
}

/// What the group wants from the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// Nothing.
    None,
    /// See what others have changed.
    List,
    /// Decide anew.
    Assign,
}

pub(super) struct GroupTask {
    pub surroundings: Surroundings,
    pub name: String,
    pub topic: Arc<Topic>,
    pub group: Group,
    pub effects: Effects,
    pub members: HashMap<SessionId, Member>,
    pub lanes: BTreeMap<PartitionId, Held>,
    pub timers: BTreeSet<(Instant, PartitionId)>,
    pub wake: Arc<Wake>,
    /// What to look for next in the tables, and from when on.
    pub look: Look,
    pub look_at: Instant,
    /// A look or an acquisition is under way.
    pub looking: bool,
    /// What the last look was for.
    pub looked_for: Look,
    looks: u32,
    /// Before the next look, while looks fail.
    pub look_pauses: Pauses,
    /// Sessions whose outbox was full at the last try.
    pub stalled: BTreeSet<SessionId>,
    /// Something was not sent because the broker did not trust its lease.
    pub distrusted: bool,
    /// Whether the topic keeps delivery times.
    pub keeping: Keeping,
    /// Whether anything is delivered: an operator may have paused the group or its topic.
    pub running: Running,
    /// Partitions by the numbers that people see.
    pub numbers: HashMap<u32, PartitionId>,
    pub broker_id: Option<BrokerId>,
    inbox: mpsc::Receiver<Request>,
    events: mpsc::Receiver<Event>,
    hints: broadcast::Receiver<Hint>,
}

/// What is due now, is due; the least step beyond is later.
const NEXT_INSTANT: std::time::Duration = std::time::Duration::from_nanos(1);
/// Looks without a hint between two that decide anew: what no hint has told, such as a topic that has grown.
const LOOKS_PER_ASSIGNMENT: u32 = 6;
/// How soon a full outbox is tried again.
const STALLED_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

impl GroupTask {
    pub fn new(
        surroundings: Surroundings,
        name: String,
        topic: Arc<Topic>,
        group: Group,
        inbox: mpsc::Receiver<Request>,
    ) -> Self {
        let (sender, events) = mpsc::channel(GROUP_EVENTS_MAX);
        let hints = surroundings.hints.subscribe();
        let effects =
            Effects { surroundings: surroundings.clone(), group_id: group.group_id, events: sender };
        Self {
            broker_id: surroundings.lease.broker_id(),
            keeping: Keeping::of(topic.settings.delivery_times),
            surroundings,
            name,
            topic,
            group,
            effects,
            members: HashMap::new(),
            lanes: BTreeMap::new(),
            timers: BTreeSet::new(),
            wake: Arc::default(),
            look: Look::None,
            look_at: Instant::now(),
            looking: false,
            looked_for: Look::None,
            looks: 0,
            look_pauses: Pauses::default(),
            stalled: BTreeSet::new(),
            distrusted: false,
            running: Running::Resumed, // what counts is read before the first lane comes
            numbers: HashMap::new(),
            inbox,
            events,
            hints,
        }
    }

    /// Runs until nobody is left. Cancel safety: none. Spawned once and polled to completion.
    pub async fn run(mut self, registry: Weak<Mutex<HashMap<GroupId, GroupHandle>>>) {
        let mut lease = self.surroundings.lease.clone();
        loop {
            let moment = self.next_moment();
            tokio::select! {
                biased; // what has happened before what is asked for
                Some(event) = self.events.recv() => self.on_event(event),
                () = lease.changed() => self.on_lease(),
                request = self.inbox.recv() => match request {
                    Some(request) => self.on_request(request),
                    None => self.on_abandoned(),
                },
                () = self.wake.woken() => {}
                hint = self.hints.recv() => self.on_hint(hint),
                () = tokio::time::sleep_until(moment.into()) => {}
            }
            self.catch_up_with_requests();
            let now = Instant::now();
            self.on_grown();
            self.on_timers(now);
            self.pump_stalled();
            self.look_if_due(now);
            if self.is_over() && self.end(&registry) {
                break;
            }
        }
        self.lanes
            .keys()
            .for_each(|partition_id| self.surroundings.tails.unfollow(*partition_id, &self.wake));
    }

    /// Requests that wait already are taken together, so that many acks make one commit.
    fn catch_up_with_requests(&mut self) {
        for _ in 0..GROUP_TURN_REQUESTS {
            match self.inbox.try_recv() {
                Ok(request) => self.on_request(request),
                Err(_) => break,
            }
        }
        while let Ok(event) = self.events.try_recv() {
            self.on_event(event);
        }
    }

    fn next_moment(&self) -> Instant {
        let look = match self.looking {
            true => Instant::now() + RECONCILE_INTERVAL, // it comes back as an event
            false => self.look_at,
        };
        let timer = self.timers.first().map(|(moment, _)| *moment);
        let stalled = (!self.stalled.is_empty()).then(|| Instant::now() + STALLED_PAUSE);
        [Some(look), timer, stalled].into_iter().flatten().min().unwrap_or(look)
    }

    fn is_over(&self) -> bool {
        self.members.is_empty() && self.lanes.is_empty() && !self.looking && self.look == Look::None
    }

    /// Takes itself off the list, unless somebody has just asked for something.
    fn end(&mut self, registry: &Weak<Mutex<HashMap<GroupId, GroupHandle>>>) -> bool {
        let Some(registry) = registry.upgrade() else { return true };
        let mut running = registry.lock();
        if !self.inbox.is_empty() {
            return false;
        }
        self.inbox.close();
        let mine = |handle: &mut GroupHandle| handle.requests.is_closed();
        if running.get_mut(&self.group.group_id).is_some_and(mine) {
            running.remove(&self.group.group_id);
        }
        self.inbox.is_empty()
    }

    /// The broker is going: there is nobody left who could ask.
    fn on_abandoned(&mut self) {
        let sessions: Vec<SessionId> = self.members.keys().copied().collect();
        sessions.into_iter().for_each(|session_id| self.release_all(session_id, Leaving::Closed));
        self.members.clear();
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Join { member } => self.on_join(*member),
            Request::Detach { session_id } => self.on_detach(session_id),
            Request::Reassign => self.want(Look::Assign),
            Request::Attach { session_id, outbox, reply } => self.on_attach(session_id, outbox, reply),
            Request::Leave { session_id, leaving, reply } => self.on_leave(session_id, leaving, reply),
            Request::Ack { session_id, ack } => self.on_ack(session_id, &ack),
            Request::Reserve { session_id, step_id, ack, reply } => {
                // A session that is gone has reserved nothing.
                if let Err(Ok(reserved)) = reply.send(self.reserve(session_id, step_id, &ack)) {
                    self.on_step_undone(reserved.fence, step_id);
                }
            }
            Request::StepDone { fence, step_id, ranges } => self.on_step_done(fence, step_id, &ranges),
            Request::StepUndone { fence, step_id } => self.on_step_undone(fence, step_id),
            Request::Nack { session_id, nack } => self.on_nack(session_id, *nack),
            Request::Progress { session_id, progress } => self.on_progress(session_id, &progress),
            Request::Credit { session_id, messages, bytes } => self.on_credit(session_id, messages, bytes),
            Request::Count { reply } => self.on_count(reply),
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Listed(result) => self.on_listed(result),
            Event::Acquired { broker_id, result } => self.on_acquired(broker_id, result),
            Event::Committed { partition_id, epoch, number, result } => {
                self.on_committed(partition_id, epoch, number, result);
            }
            Event::Fetched { partition_id, epoch, from, result } => {
                self.on_fetched(partition_id, epoch, from, result);
            }
            Event::Settled { partition_id, epoch, what, result } => {
                self.on_settled(partition_id, epoch, what, result);
            }
            Event::Head { partition_id, epoch, first, result } => {
                self.on_head(partition_id, epoch, first, result);
            }
            Event::Expired { partition_id, epoch, result } => self.on_expired(partition_id, epoch, result),
            Event::Evicted { partition_id, epoch, eviction, result } => {
                self.on_evicted(partition_id, epoch, &eviction, result);
            }
            Event::Copies { partition_id, epoch, parked_offset, result } => {
                self.on_copies(partition_id, epoch, parked_offset, result);
            }
            Event::Entered { session_id } => self.on_entered(session_id),
            Event::Left { session_id } => self.on_left(session_id),
        }
    }

    fn on_hint(&mut self, hint: Result<Hint, broadcast::error::RecvError>) {
        match hint {
            Ok(Hint::Group(group_id)) if group_id == self.group.group_id => self.want(Look::List),
            Ok(Hint::Group(_) | Hint::Heads { .. }) => {}
            // It may have grown.
            Ok(Hint::Topics | Hint::Everything) | Err(broadcast::error::RecvError::Lagged(_)) => {
                self.want(Look::Assign);
            }
            Err(broadcast::error::RecvError::Closed) => {
                self.hints = self.surroundings.hints.subscribe(); // cannot be: we hold its source
            }
        }
    }

    /// Looks at the tables soon; several wishes make one look.
    pub fn want(&mut self, look: Look) {
        if self.look == Look::None {
            self.look_at = Instant::now() + ASSIGN_PAUSE;
        }
        self.look = self.look.max(look);
    }

    fn look_if_due(&mut self, now: Instant) {
        if self.looking || now < self.look_at {
            return;
        }
        self.looks = self.looks.wrapping_add(1);
        let wanted = std::mem::replace(&mut self.look, Look::None);
        self.looked_for = match wanted {
            Look::None if self.looks.is_multiple_of(LOOKS_PER_ASSIGNMENT) => Look::Assign,
            Look::None | Look::List => Look::List,
            Look::Assign => Look::Assign,
        };
        match self.looked_for {
            Look::Assign => self.effects.assign(),
            Look::None | Look::List => self.effects.list(),
        }
        self.looking = true;
    }

    /// A look is over: the next one comes by itself after a while, because hints can be lost.
    pub fn looked(&mut self) {
        self.looking = false;
        if self.look == Look::None {
            self.look_at = Instant::now() + RECONCILE_INTERVAL.mul_f64(rand::rng().random_range(0.75..1.25));
        }
    }

    /// What has to be looked at when nothing happens, lane by lane.
    fn on_timers(&mut self, now: Instant) {
        let later = self.timers.split_off(&(now + NEXT_INSTANT, PartitionId(i64::MIN)));
        for (_, partition_id) in std::mem::replace(&mut self.timers, later) {
            if let Some(held) = self.lanes.get_mut(&partition_id) {
                held.timer = None;
                self.on_moment(partition_id, now);
            }
        }
    }
}
