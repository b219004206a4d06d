//! Those who wait for messages of one group, on this broker: woken together, and asking the database a few at a time.
//!
//! News is a number that grows: with each growth of a partition, hint, or look that is due. A try that found nothing is worth
//! repeating only after news. One task per group follows the partitions while somebody waits; however many wait, it is one look
//! per piece of news and at most [`POPS_AT_ONCE`] tries at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rand::Rng as _;
use tokio::sync::{Semaphore, broadcast, watch};

use crate::broker::hot_tail::{HotTails, Wake};
use crate::ids::{GroupId, Offset, PartitionId};
use crate::limits::{POP_HELD_BACK_LOOK, POP_LINGER, POP_POLL_INTERVAL, POPS_AT_ONCE, PULLERS_TOUCH_PAUSE};
use crate::store::listen::{Hint, Hints};
use crate::store::windows::Windows;

/// The pullers of one group on this broker.
#[derive(Debug)]
pub(super) struct Queue {
    group_id: GroupId,
    news: watch::Sender<u64>,
    /// Tries at once.
    pub turns: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// A try that began when news was this found nothing.
    dry_at: u64,
    /// Lanes that somebody here is just trying to take.
    in_hand: HashSet<PartitionId>,
    /// Lanes whose first message is not due yet.
    held_back: HashMap<PartitionId, HeldBack>,
    /// When it was last written down that somebody pulls.
    touched_at: Option<Instant>,
    waiting: usize,
    following: bool,
    used_at: Instant,
}

/// What stands at an offset of a lane is not due before a moment, by the settings of the group at the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeldBack {
    from: Offset,
    windows: Windows,
    due: Instant,
    /// Until then the lane is not even looked at; no longer than a moment, because somebody may seek.
    left_out_until: Instant,
}

impl Queue {
    pub fn new(group_id: GroupId) -> Self {
        let state = State {
            dry_at: 0,
            in_hand: HashSet::new(),
            held_back: HashMap::new(),
            touched_at: None,
            waiting: 0,
            following: false,
            used_at: Instant::now(),
        };
        Self {
            group_id,
            news: watch::Sender::new(1),
            turns: Semaphore::new(POPS_AT_ONCE),
            state: Mutex::new(state),
        }
    }

    /// Something may have changed.
    pub fn tell(&self) {
        self.news.send_modify(|news| *news += 1);
    }

    pub fn news(&self) -> watch::Receiver<u64> {
        self.state.lock().used_at = Instant::now();
        self.news.subscribe()
    }

    /// When somebody has asked for last.
    pub fn used_at(&self) -> Instant {
        self.state.lock().used_at
    }

    /// Whether there was news since a try that found nothing.
    pub fn is_worth_a_try(&self, news: u64) -> bool {
        self.state.lock().dry_at < news
    }

    /// A try that began with this news found nothing.
    pub fn on_dry(&self, news: u64) {
        let mut state = self.state.lock();
        state.dry_at = state.dry_at.max(news);
    }

    /// Whether it has to be written down, now, that somebody pulls.
    pub fn is_touch_due(&self) -> bool {
        let (mut state, now) = (self.state.lock(), Instant::now());
        let is_due = state.touched_at.is_none_or(|at| now - at >= PULLERS_TOUCH_PAUSE);
        if is_due {
            state.touched_at = Some(now);
        }
        is_due
    }

    /// It could not be written down.
    pub fn on_not_touched(&self) {
        self.state.lock().touched_at = None;
    }

    /// Lanes that are not worth a look: others here are trying to take them, or nothing in them is due.
    pub fn left_out(&self, windows: &Windows, now: Instant) -> Vec<PartitionId> {
        let mut state = self.state.lock();
        state.held_back.retain(|_, held| held.due > now && held.windows == *windows);
        let held_back = state.held_back.iter().filter(|(_, held)| held.left_out_until > now);
        state.in_hand.iter().chain(held_back.map(|(partition_id, _)| partition_id)).copied().collect()
    }

    /// What stands there is not due before a moment.
    pub fn hold_back(&self, partition_id: PartitionId, from: Offset, windows: &Windows, due: Instant) {
        let left_out_until = due.min(Instant::now() + POP_HELD_BACK_LOOK);
        let held = HeldBack { from, windows: *windows, due, left_out_until };
        self.state.lock().held_back.insert(partition_id, held);
    }

    /// Whether it is known that what stands there is not due.
    pub fn holds_back(
        &self,
        partition_id: PartitionId,
        from: Offset,
        windows: &Windows,
        now: Instant,
    ) -> bool {
        let mut state = self.state.lock();
        let held = state.held_back.get_mut(&partition_id);
        let held = held.filter(|held| held.from == from && held.windows == *windows && held.due > now);
        held.map(|held| held.left_out_until = held.due.min(now + POP_HELD_BACK_LOOK)).is_some()
    }

    /// When the first of those that are held back is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.state.lock().held_back.values().map(|held| held.due).min()
    }

    /// Those that are due by now are news, once.
    pub fn on_due(&self, now: Instant) {
        let mut state = self.state.lock();
        let before = state.held_back.len();
        state.held_back.retain(|_, held| held.due > now);
        let is_news = state.held_back.len() < before;
        drop(state);
        if is_news {
            self.tell();
        }
    }

    /// Keeps others here off a lane; `None`: somebody was faster.
    pub fn hold(self: &Arc<Self>, partition_id: PartitionId) -> Option<InHand> {
        let is_free = self.state.lock().in_hand.insert(partition_id);
        is_free.then(|| InHand { queue: self.clone(), partition_id, settled: false })
    }

    /// Waits from now on, and has growth followed. What has happened before is news, because nobody has followed yet.
    pub fn wait(self: &Arc<Self>, partitions: &[PartitionId], tails: &HotTails, hints: &Hints) -> Waiting {
        let mut state = self.state.lock();
        state.waiting += 1;
        if !std::mem::replace(&mut state.following, true) {
            tokio::spawn(follow(self.clone(), partitions.to_vec(), tails.clone(), hints.subscribe()));
        }
        Waiting(self.clone())
    }

    /// Whether nobody has waited for a while; then the follower is gone.
    fn ends(&self, idle_since: &mut Instant) -> bool {
        let mut state = self.state.lock();
        if state.waiting > 0 {
            *idle_since = Instant::now();
        }
        let ends = idle_since.elapsed() >= POP_LINGER;
        state.following = !ends;
        ends
    }
}

/// A lane that nobody else here tries to take meanwhile.
#[derive(Debug)]
pub(super) struct InHand {
    queue: Arc<Queue>,
    partition_id: PartitionId,
    settled: bool,
}

impl InHand {
    /// It is known what became of it.
    pub fn settled(mut self) {
        self.settled = true;
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.queue.state.lock().in_hand.remove(&self.partition_id);
        if !self.settled {
            self.queue.tell(); // nobody has tried it to the end: those who have left it out may want it
        }
    }
}

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Waiting(Arc<Queue>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

/// Tells those who wait of growth and hints, and now and then without either, because both can be lost.
async fn follow(
    queue: Arc<Queue>,
    partitions: Vec<PartitionId>,
    tails: HotTails,
    mut hints: broadcast::Receiver<Hint>,
) {
    let wake = Arc::new(Wake::default());
    partitions.iter().for_each(|partition_id| tails.follow(*partition_id, &wake));
    queue.tell();
    let (mut idle_since, mut pause) = (Instant::now(), POP_POLL_INTERVAL);
    loop {
        tokio::select! {
            () = wake.woken() => drop(wake.take()),
            hint = hints.recv() => match hint {
                Ok(Hint::Group(group_id)) if group_id == queue.group_id => {}
                Ok(Hint::Everything) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Ok(Hint::Group(_) | Hint::Topics | Hint::Heads { .. }) => continue,
                Err(broadcast::error::RecvError::Closed) => break,
            },
            () = tokio::time::sleep(pause) => {
                pause = POP_POLL_INTERVAL.mul_f64(rand::rng().random_range(0.75..1.25));
            }
        }
        if queue.ends(&mut idle_since) {
            break;
        }
        queue.tell();
    }
    partitions.iter().for_each(|partition_id| tails.unfollow(*partition_id, &wake));
}
