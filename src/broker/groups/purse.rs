//! The credit of a subscription, and which of its lanes spends it next: the one whose next message has waited longest.
//!
//! Shared by all lanes of a subscription, also by those of other groups if it has selected several topics; each group is a task
//! of its own, so this is a small lock that nobody holds across an await. A lane that finds no credit, or an older lane
//! waiting, lists itself under the time at which its next message was published. Whoever lets go of credit or of a place wakes
//! the oldest.
//! Invariant: while there is credit and a lane is listed, the oldest listed lane has been woken since it is the oldest.

use std::collections::BTreeMap;
use std::sync::Arc;

use laneway_client::wire::CreditGrant;
use parking_lot::Mutex;

use super::credit::{Credit, InvalidCredit, Room};
use crate::broker::hot_tail::Wake;
use crate::broker::outbox::Refund;
use crate::ids::PartitionId;
use crate::limits::FAIRNESS_SLACK;

/// When a message was published, in microseconds on the database clock. The least is: nobody knows, so it may be the oldest.
pub(super) type PublishedAt = i64;

/// Whose lanes share the credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those of one topic.
    Topic,
    /// Those of all topics that a subscription has selected.
    Selection,
}

#[derive(Debug)]
struct State {
    credit: Credit,
    /// Of batches that were never written.
    refund: Arc<Refund>,
    waiting: BTreeMap<(PublishedAt, PartitionId), Arc<Wake>>,
}

/// See the module.
#[derive(Debug)]
pub struct Purse {
    reach: Reach,
    state: Mutex<State>,
}

/// The place of a lane among those that wait. Dropping it lets the next one have its turn.
#[derive(Debug)]
pub(super) struct Place {
    purse: Arc<Purse>,
    wake: Arc<Wake>,
    key: (PublishedAt, PartitionId),
    listed: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.purse.state.lock();
        state.waiting.remove(&self.key);
        state.wake_oldest();
    }
}

impl Place {
    pub fn is_listed(&self) -> bool {
        self.listed
    }
}

impl State {
    fn wake_oldest(&self) {
        if let Some(((_, lane), wake)) = self.waiting.first_key_value()
            && self.credit.room().is_some()
        {
            wake.mark(*lane);
        }
    }
}

impl Purse {
    pub fn new(first: CreditGrant, reach: Reach) -> Result<Arc<Self>, InvalidCredit> {
        let credit = Credit::new(first.messages, first.bytes)?;
        let state = State { credit, refund: Arc::default(), waiting: BTreeMap::new() };
        Ok(Arc::new(Self { reach, state: Mutex::new(state) }))
    }

    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// More of it; nothing happens if it is nothing or too much.
    pub fn add(&self, messages: u32, bytes: u64) -> Result<(), InvalidCredit> {
        let mut state = self.state.lock();
        state.credit.add(messages, bytes)?;
        state.wake_oldest();
        Ok(())
    }

    /// A client has come back: credit is as at the start, and what was not written to its old connection costs nothing.
    pub fn reset(&self, first: CreditGrant) {
        let mut state = self.state.lock();
        state.refund = Arc::default();
        state.credit = Credit::new(first.messages, first.bytes).unwrap_or(state.credit);
        state.wake_oldest();
    }

    /// How many messages may be sent now; `None`: none, until the client gives more.
    pub fn room(&self) -> Option<Room> {
        let mut state = self.state.lock();
        let refund = state.refund.take();
        state.credit.restore(refund);
        state.credit.room()
    }

    /// Whom batches that are never written give their credit back to.
    pub fn refund(&self) -> Arc<Refund> {
        self.state.lock().refund.clone()
    }

    /// Spends credit for a lane whose next message was published at a moment, if there is some and nobody waits for longer.
    /// `take` is told the room and up to which moment it may take, and answers messages, bytes, and the time of the last one.
    /// Over several topics a lane that had to wait stays listed under that time, until it finds that it has nothing more: its task
    /// is not the only one, and the next in line may be younger.
    pub(super) fn draw<T>(
        &self,
        place: &mut Option<Place>,
        head: PublishedAt,
        take: impl FnOnce(Room, PublishedAt) -> (T, usize, u64, PublishedAt),
    ) -> Option<T> {
        let mut state = self.state.lock();
        if let Some(place) = place.as_mut().filter(|place| place.listed) {
            state.waiting.remove(&place.key);
            place.listed = false;
        }
        let room = state.credit.room()?;
        let oldest = state.waiting.first_key_value().map(|((oldest, _), _)| *oldest);
        let until = oldest.map_or(PublishedAt::MAX, |oldest| oldest.saturating_add(slack()));
        if head > until {
            return None;
        }
        let (taken, messages, bytes, last) = take(room, until);
        state.credit.spend(messages, bytes);
        if let Some(place) = place.as_mut().filter(|_| self.reach == Reach::Selection) {
            (place.key.0, place.listed) = (last, true);
            state.waiting.insert(place.key, place.wake.clone());
        }
        Some(taken)
    }

    /// Lists a lane among those that wait.
    pub(super) fn wait(
        self: &Arc<Self>,
        place: &mut Option<Place>,
        head: PublishedAt,
        lane: PartitionId,
        wake: &Arc<Wake>,
    ) {
        let mut state = self.state.lock();
        let key = (head, lane);
        state.waiting.insert(key, wake.clone());
        match place {
            Some(place) => {
                if place.listed && place.key != key {
                    state.waiting.remove(&place.key);
                }
                (place.key, place.listed) = (key, true);
            }
            None => *place = Some(Place { purse: self.clone(), wake: wake.clone(), key, listed: true }),
        }
        state.wake_oldest();
    }
}

fn slack() -> PublishedAt {
    FAIRNESS_SLACK.as_micros() as PublishedAt
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: PublishedAt = 1_000_000;

    struct Lane {
        id: PartitionId,
        wake: Arc<Wake>,
        place: Option<Place>,
        /// When its messages were published.
        messages: Vec<PublishedAt>,
    }

    impl Lane {
        fn new(id: i64, messages: Vec<PublishedAt>) -> Self {
            Self { id: PartitionId(id), wake: Arc::default(), place: None, messages }
        }

        fn is_woken(&self) -> bool {
            !self.wake.take().is_empty()
        }

        /// One try to send. Returns what was sent.
        fn send(&mut self, purse: &Arc<Purse>) -> Vec<PublishedAt> {
            let Some(head) = self.messages.first().copied() else {
                self.place = None;
                return Vec::new();
            };
            let messages = &mut self.messages;
            let drawn = purse.draw(&mut self.place, head, |room, until| {
                let fitting = messages.iter().take(room.messages).take_while(|at| **at <= until).count();
                let sent: Vec<PublishedAt> = messages.drain(..fitting).collect();
                let last = sent.last().copied().unwrap_or(head);
                (sent, fitting, fitting as u64, last)
            });
            drawn.unwrap_or_else(|| {
                purse.wait(&mut self.place, head, self.id, &self.wake);
                Vec::new()
            })
        }
    }

    /// Lets everybody who is woken send until nobody is. Returns what was sent, in order.
    fn settle(purse: &Arc<Purse>, lanes: &mut [Lane]) -> Vec<(i64, PublishedAt)> {
        let mut sent = Vec::new();
        let mut turns = 0;
        while let Some(lane) = lanes.iter_mut().find(|lane| lane.is_woken()) {
            loop {
                let some = lane.send(purse);
                if some.is_empty() {
                    break;
                }
                sent.extend(some.into_iter().map(|at| (lane.id.0, at)));
            }
            turns += 1;
            assert!(turns < 100_000, "nobody ever rests");
        }
        sent
    }

    fn purse(messages: u32) -> Arc<Purse> {
        Purse::new(CreditGrant { messages, bytes: 1 << 20 }, Reach::Selection).unwrap()
    }

    #[test]
    fn the_lane_whose_message_waits_longest_goes_first() {
        let purse = purse(1);
        let mut lanes = vec![
            Lane::new(1, vec![SECOND, 2 * SECOND, 9 * SECOND]),
            Lane::new(2, vec![3 * SECOND]),
            Lane::new(3, vec![5 * SECOND]),
        ];
        assert_eq!(lanes[1].send(&purse), [3 * SECOND], "whoever is there first has the credit");
        lanes[1].messages = vec![4 * SECOND];
        lanes.iter_mut().for_each(|lane| assert!(lane.send(&purse).is_empty()));
        assert!(settle(&purse, &mut lanes).is_empty());
        purse.add(2, 2).unwrap();
        assert_eq!(settle(&purse, &mut lanes), [(1, SECOND), (1, 2 * SECOND)]);
        purse.add(9, 9).unwrap();
        assert_eq!(settle(&purse, &mut lanes), [(2, 4 * SECOND), (3, 5 * SECOND), (1, 9 * SECOND)]);
    }

    #[test]
    fn who_lets_go_of_its_place_lets_the_next_one_have_its_turn() {
        let purse = purse(1);
        let mut lanes = vec![Lane::new(1, vec![SECOND, SECOND]), Lane::new(2, vec![2 * SECOND])];
        assert_eq!(lanes[0].send(&purse).len(), 1);
        lanes.iter_mut().for_each(|lane| assert!(lane.send(&purse).is_empty()));
        purse.add(1, 1).unwrap();
        lanes.remove(0); // its lane moves: nobody sends for it any more
        assert_eq!(settle(&purse, &mut lanes), [(2, 2 * SECOND)]);
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_left_behind_and_scarce_credit_follows_age(
            times in proptest::collection::vec(proptest::collection::vec(1_i64..100, 0..12), 1..6),
            credit in 1_u32..5,
        ) {
            let purse = purse(1);
            let mut lanes: Vec<Lane> = times.iter().enumerate().map(|(id, times)| {
                let mut times: Vec<i64> = times.iter().map(|second| second * SECOND).collect();
                times.sort_unstable();
                Lane::new(id as i64 + 1, times)
            }).collect();
            let mut spent = Lane::new(1_000, vec![0]);
            assert_eq!(spent.send(&purse).len(), 1);
            lanes.iter_mut().for_each(|lane| assert!(lane.send(&purse).is_empty()));
            let total: usize = times.iter().map(Vec::len).sum();
            let mut sent = Vec::new();
            for _ in 0..=total {
                purse.add(credit, u64::from(credit)).unwrap();
                sent.extend(settle(&purse, &mut lanes));
            }
            assert_eq!(sent.len(), total);
            assert!(sent.is_sorted_by_key(|(_, at)| *at), "{sent:?}");
        }
    }
}
