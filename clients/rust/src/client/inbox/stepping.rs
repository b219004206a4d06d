//! What steps acknowledge: reserved while they are under way, done when a broker has said so.
//!
//! Until then nobody else settles it, no cumulative ack passes it, and a copy of it that comes in a newer round waits in the
//! queue, with those of its lane behind it, so that no reader begins what may be done already. What becomes of a step is known
//! only by its answer; if its lane is lost meanwhile, there is nothing left to note here.
//! Invariant: `reserved` counts what was reserved and not given back, whatever has become of its lane.

use super::{Inbox, Lane, Place, Queued};

/// Why a step may not acknowledge a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Unreserved {
    /// Its lane is not held any more, or its round is over: it comes again.
    Lost,
    /// It is done already, or another step that acknowledges it is under way.
    Done,
}

impl<C> Inbox<C> {
    /// The next message for the reader. Behind one that a step may have done, its lane waits.
    pub fn take(&mut self) -> Option<Queued> {
        let mut waiting: Vec<u32> = Vec::new();
        let index = self.queue.iter().position(|queued| {
            let partition = queued.place.partition;
            if waiting.contains(&partition) {
                return false;
            }
            let is_stepping =
                self.lanes.get(&partition).is_some_and(|lane| lane.stepping.contains(&queued.place.offset));
            if is_stepping {
                waiting.push(partition);
            }
            !is_stepping
        })?;
        self.queue.remove(index)
    }

    /// Takes messages of one lane for a step, all or none.
    pub fn reserve(&mut self, places: &[Place]) -> Result<(), Unreserved> {
        for place in places {
            self.may_step(*place)?;
        }
        for place in places {
            if let Some(lane) = self.lane_of(*place) {
                lane.stepping.insert(place.offset);
                self.reserved += 1;
            }
        }
        Ok(())
    }

    fn may_step(&self, place: Place) -> Result<(), Unreserved> {
        let lane = self.lanes.get(&place.partition).filter(|lane| lane.epoch == place.epoch);
        let lane = lane.filter(|lane| !lane.is_void(place)).ok_or(Unreserved::Lost)?;
        let book = lane.books.get(&place.round).ok_or(Unreserved::Lost)?;
        let is_done = !book.is_open(place.offset) || lane.unconfirmed.covers(place.offset);
        match is_done || lane.stepping.contains(&place.offset) {
            true => Err(Unreserved::Done),
            false => Ok(()),
        }
    }

    /// A step has not happened: what it had reserved is as it was before.
    pub fn release(&mut self, places: &[Place]) {
        self.reserved = self.reserved.saturating_sub(places.len());
        for place in places {
            if let Some(lane) = self.lane_of(*place) {
                lane.stepping.remove(&place.offset);
            }
        }
    }

    /// A step has happened: what it has acknowledged is done, in whatever round it was sent.
    pub fn on_stepped(&mut self, places: &[Place]) {
        self.release(places);
        for place in places {
            let Some(lane) = self.lane_of(*place) else { continue };
            lane.books.values_mut().for_each(|book| book.on_stepped(place.offset));
            // A copy of it can only have come in a newer round.
            if place.round < lane.round {
                let is_copy = |of: Place| (of.partition, of.offset) == (place.partition, place.offset);
                self.drop_queued(|queued| is_copy(queued.place));
            }
        }
    }

    /// Whether a step under way acknowledges something of this subscription.
    pub fn is_stepping(&self) -> bool {
        self.reserved > 0
    }

    fn lane_of(&mut self, place: Place) -> Option<&mut Lane<C>> {
        self.lanes.get_mut(&place.partition).filter(|lane| lane.epoch == place.epoch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::super::Outgoing;
    use super::*;
    use crate::wire::{Batch, CreditGrant, Record};

    const CREDIT: CreditGrant = CreditGrant { messages: 8, bytes: 1000 };

    fn batch(partition: u32, round: u32, offsets: impl IntoIterator<Item = i64>) -> Batch {
        let record = |offset| Record {
            offset,
            published_at_us: 0,
            trace_id: Uuid::nil(),
            cause: None,
            key: None,
            transaction_id: None,
            headers: None,
            content_type: None,
            payload: "x".into(),
        };
        let messages = offsets.into_iter().map(record).collect();
        Batch { subscription: 1, partition, epoch: 4, round, attempts: vec![], messages }
    }

    fn inbox() -> Inbox<&'static str> {
        let mut inbox = Inbox::new();
        inbox.open(1, CREDIT);
        inbox.on_granted(7, 4, 1);
        inbox.on_granted(8, 4, 1);
        inbox
    }

    fn taken(inbox: &mut Inbox<&'static str>) -> Vec<Place> {
        std::iter::from_fn(|| inbox.take()).map(|queued| queued.place).collect()
    }

    /// What an ack says: `next`, and ranges.
    type Said = (Option<i64>, Vec<(i64, i64)>);

    fn acks(inbox: &mut Inbox<&'static str>) -> Vec<Said> {
        let of = |out: Outgoing<&'static str>| match out {
            Outgoing::Ack { tally, .. } => {
                Some((tally.next, tally.ranges.iter().map(|range| (range.from, range.to)).collect()))
            }
            Outgoing::Nack { .. } | Outgoing::Progress { .. } => None,
        };
        inbox.collect().into_iter().filter_map(of).collect()
    }

    #[test]
    fn no_cumulative_ack_passes_a_message_whose_step_is_under_way() {
        let mut inbox = inbox();
        inbox.on_batch(batch(7, 1, 0..4));
        let places = taken(&mut inbox);
        inbox.reserve(&places[1..2]).unwrap();
        for place in [places[0], places[2]] {
            assert_eq!(inbox.ack(place, None), Ok(()));
        }
        assert_eq!(acks(&mut inbox), [(Some(1), vec![(2, 3)])]);
        inbox.on_stepped(&places[1..2]);
        assert!(acks(&mut inbox).is_empty(), "the broker knows it");
        assert_eq!(inbox.ack(places[3], None), Ok(()));
        assert_eq!(acks(&mut inbox), [(Some(4), vec![])]);
    }

    #[test]
    fn nobody_else_settles_what_a_step_has_reserved_until_it_has_failed() {
        let mut inbox = inbox();
        inbox.on_batch(batch(7, 1, 0..3));
        let places = taken(&mut inbox);
        inbox.reserve(&places[..2]).unwrap();
        assert!(inbox.is_stepping());
        assert_eq!(inbox.reserve(&places[1..]), Err(Unreserved::Done), "all or none");
        assert_eq!(inbox.reserve(&places[2..]), Ok(()), "2 was left alone");
        inbox.release(&places[2..]);
        assert_eq!(inbox.ack(places[0], Some("ack")), Err(Some("ack")));
        assert!(!inbox.nack(places[0], None, None, None));
        assert_eq!(inbox.ignored(), 2);
        inbox.release(&places[..2]);
        assert!(!inbox.is_stepping());
        assert_eq!(inbox.ack(places[0], None), Ok(()));
        assert_eq!(inbox.reserve(&places[..1]), Err(Unreserved::Done), "it is acknowledged");
        assert!(inbox.nack(places[1], None, None, None));
        assert_eq!(inbox.reserve(&places[1..2]), Err(Unreserved::Lost), "its round is over");
    }

    #[test]
    fn a_copy_of_what_a_step_may_have_done_waits_and_with_it_its_lane_alone() {
        let mut inbox = inbox();
        inbox.on_batch(batch(7, 1, 0..3));
        let places = taken(&mut inbox);
        inbox.reserve(&places[1..2]).unwrap();
        inbox.reopen();
        inbox.on_resumed(7, 4, 2);
        inbox.on_batch(batch(7, 2, 0..3));
        inbox.on_batch(batch(8, 1, 0..1));
        let at = |inbox: &mut Inbox<&'static str>| -> Vec<(u32, i64)> {
            taken(inbox).iter().map(|place| (place.partition, place.offset)).collect()
        };
        assert_eq!(at(&mut inbox), [(7, 0), (8, 0)]);
        inbox.on_stepped(&places[1..2]);
        assert_eq!(at(&mut inbox), [(7, 2)], "1 is done in every round");
        let second = |offset| Place { partition: 7, epoch: 4, round: 2, offset };
        assert_eq!(inbox.ack(second(0), None), Ok(()));
        assert_eq!(acks(&mut inbox), [(Some(2), vec![])]);
        assert!(!inbox.nack(second(1), None, None, None), "nobody ends a round for what is done");
    }

    #[test]
    fn a_copy_is_handed_out_when_the_step_has_failed_and_order_is_kept() {
        let mut inbox = inbox();
        inbox.on_batch(batch(7, 1, 0..2));
        let places = taken(&mut inbox);
        inbox.reserve(&places[..1]).unwrap();
        inbox.on_resumed(7, 4, 2);
        inbox.on_batch(batch(7, 2, 0..2));
        assert!(inbox.take().is_none());
        inbox.release(&places[..1]);
        let again: Vec<i64> = taken(&mut inbox).iter().map(|place| place.offset).collect();
        assert_eq!(again, [0, 1]);
    }

    #[test]
    fn a_lane_that_is_lost_leaves_the_step_to_its_answer() {
        let mut inbox = inbox();
        inbox.on_batch(batch(7, 1, 0..2));
        let places = taken(&mut inbox);
        inbox.reserve(&places[..1]).unwrap();
        inbox.on_granted(7, 5, 1);
        assert!(inbox.is_stepping(), "its answer is still to come");
        assert_eq!(inbox.reserve(&places[1..]), Err(Unreserved::Lost));
        let again = Batch { epoch: 5, ..batch(7, 1, 0..2) };
        inbox.on_batch(again);
        assert_eq!(taken(&mut inbox).len(), 2, "under the next epoch it is not done by that step");
        inbox.on_stepped(&places[..1]);
        assert!(!inbox.is_stepping());
        assert_eq!(inbox.ack(Place { epoch: 5, ..places[0] }, None), Ok(()));
    }

    #[derive(Debug, Clone)]
    enum Turn {
        Send(i64),
        Take,
        Ack(prop::sample::Index),
        Reserve(prop::sample::Index),
        Done(prop::sample::Index),
        Failed(prop::sample::Index),
        Tell,
        Resume,
    }

    fn turn() -> impl Strategy<Value = Turn> {
        let pick = || any::<prop::sample::Index>();
        prop_oneof![
            3 => (1..5_i64).prop_map(Turn::Send),
            6 => Just(Turn::Take),
            3 => pick().prop_map(Turn::Ack),
            3 => pick().prop_map(Turn::Reserve),
            2 => pick().prop_map(Turn::Done),
            1 => pick().prop_map(Turn::Failed),
            2 => Just(Turn::Tell),
            1 => Just(Turn::Resume),
        ]
    }

    /// One lane as its broker sees it, and the user of the inbox.
    struct Model {
        inbox: Inbox<&'static str>,
        round: u32,
        /// The next offset to send in this round, and the end of what was ever sent.
        cursor: i64,
        sent: i64,
        /// What the broker knows to be done.
        known: BTreeSet<i64>,
        /// What the user has acknowledged, or a step.
        done: BTreeSet<i64>,
        stepped: BTreeSet<i64>,
        held: Vec<Place>,
        steps: Vec<Place>,
        /// The last offset that was handed out in a round.
        last: BTreeMap<u32, i64>,
    }

    impl Model {
        fn new() -> Self {
            let (known, done, stepped) = Default::default();
            let (held, steps, last) = Default::default();
            Self { inbox: inbox(), round: 1, cursor: 0, sent: 0, known, done, stepped, held, steps, last }
        }

        fn send(&mut self, many: i64) {
            let until = self.cursor + many;
            let offsets: Vec<i64> =
                (self.cursor..until).filter(|offset| !self.known.contains(offset)).collect();
            self.inbox.on_batch(batch(7, self.round, offsets));
            (self.cursor, self.sent) = (until, self.sent.max(until));
        }

        fn take(&mut self) -> bool {
            let Some(Queued { place, .. }) = self.inbox.take() else { return false };
            assert!(!self.stepped.contains(&place.offset), "a step has done it: {place:?}");
            assert!(
                !self.steps.iter().any(|step| step.offset == place.offset),
                "a step may do it: {place:?}"
            );
            let before = self.last.insert(place.round, place.offset);
            assert!(before.is_none_or(|before| before < place.offset), "out of order: {place:?}");
            self.held.push(place);
            true
        }

        fn tell(&mut self) {
            for out in self.inbox.collect() {
                let Outgoing::Ack { tally, .. } = out else { continue };
                let below = (0..tally.next.unwrap_or(0)).collect::<Vec<_>>();
                let single = tally.ranges.iter().flat_map(|range| range.from..range.to);
                for offset in below.into_iter().chain(single) {
                    assert!(self.done.contains(&offset), "nobody has done {offset}: {tally:?}");
                    self.known.insert(offset);
                }
            }
        }

        fn resume(&mut self) {
            self.round += 1;
            self.inbox.reopen();
            self.inbox.on_resumed(7, 4, self.round);
            self.cursor = 0;
        }

        fn ack(&mut self, place: Place) {
            if self.inbox.ack(place, None).is_ok() {
                self.done.insert(place.offset);
            }
        }

        fn turn(&mut self, turn: &Turn) {
            let picked = |from: &mut Vec<Place>, pick: &prop::sample::Index| match from.is_empty() {
                true => None,
                false => Some(from.remove(pick.index(from.len()))),
            };
            match turn {
                Turn::Send(many) => self.send(*many),
                Turn::Take => {
                    self.take();
                }
                Turn::Tell => self.tell(),
                Turn::Resume => self.resume(),
                Turn::Ack(pick) => {
                    if let Some(place) = picked(&mut self.held, pick) {
                        self.ack(place);
                    }
                }
                Turn::Reserve(pick) => {
                    let place = picked(&mut self.held, pick);
                    self.steps.extend(place.filter(|place| self.inbox.reserve(&[*place]).is_ok()));
                }
                Turn::Done(pick) => match picked(&mut self.steps, pick) {
                    // A late ack of another copy came first: the broker refuses the step.
                    Some(place) if self.known.contains(&place.offset) => self.inbox.release(&[place]),
                    Some(place) => {
                        self.inbox.on_stepped(&[place]);
                        for set in [&mut self.known, &mut self.done, &mut self.stepped] {
                            set.insert(place.offset);
                        }
                    }
                    None => {}
                },
                Turn::Failed(pick) => {
                    if let Some(place) = picked(&mut self.steps, pick) {
                        self.inbox.release(&[place]);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn acks_and_steps_in_any_order_say_what_is_done_and_nothing_else(turns in prop::collection::vec(turn(), 1..150)) {
            let mut model = Model::new();
            turns.iter().for_each(|turn| model.turn(turn));
            // In the end everything is acknowledged, one way or the other.
            for place in std::mem::take(&mut model.steps) {
                model.inbox.release(&[place]);
            }
            prop_assert!(!model.inbox.is_stepping());
            model.tell();
            model.resume();
            model.send(model.sent);
            while model.take() {}
            for place in std::mem::take(&mut model.held) {
                model.ack(place);
            }
            model.tell();
            prop_assert_eq!(model.known.len() as i64, model.sent);
        }
    }
}
