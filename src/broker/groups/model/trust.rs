//! The lease of one broker on two clocks, by the code that brokers run: [`Standing`].
//!
//! A heartbeat begins, arrives in the database, and is answered, each as late as it likes or never. The row expires on the database's
//! clock, the trust ends on the broker's, which may lose a tick in every ttl. Somebody is always there to bury a row that has expired.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::explore::{Kind, Model, Next};
use crate::broker::lease::lease;
use crate::ids::BrokerId;
use crate::store::timeline::Timelines;

/// In ticks of a second.
const TTL: i64 = 5;
/// Ticks after which it makes no difference how long ago something was.
const AGE_MAX: i64 = 3 * TTL;

/// Seeded on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Trust counts from the answer to a heartbeat, and not from its beginning.
    TrustCountsFromTheAnswer,
}

/// A heartbeat: when it began on the broker's clock, and how far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Beat {
    age: i64,
    has_arrived: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Ticks of the database until the row expires; below zero it has.
    left: i64,
    /// Ticks of the broker since the heartbeat that it trusts in began.
    trusted_age: i64,
    beat: Option<Beat>,
    /// Ticks since the broker's clock has last lost one.
    ticks_since_slip: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Tick,
    /// A tick that the broker's clock loses.
    Slip,
    Begin,
    Arrive,
    Answer,
    Lose,
    Bury,
}

pub struct Trust {
    bug: Option<Bug>,
    now: Instant,
}

impl Trust {
    pub fn right() -> Self {
        Self { bug: None, now: Instant::now() + Duration::from_secs(1_000) }
    }

    pub fn with(bug: Bug) -> Self {
        Self { bug: Some(bug), ..Self::right() }
    }

    /// Whether a broker whose heartbeat began so long ago trusts its lease.
    fn trusts(&self, age: i64) -> bool {
        let timelines = Timelines::default();
        let (keeper, lease) = lease(timelines.clone());
        let started = self.now - Duration::from_secs(age as u64);
        keeper.renewed(BrokerId(Uuid::nil()), (started, timelines.era()), Duration::from_secs(TTL as u64), 1);
        lease.standing().is_trusted(self.now, timelines.era())
    }

    fn take(&self, state: &mut State, step: Step) -> Option<Result<(), String>> {
        let older = |age: i64| (age + 1).min(AGE_MAX);
        match step {
            Step::Tick => {
                state.left = (state.left - 1).max(-AGE_MAX);
                state.trusted_age = older(state.trusted_age);
                state.ticks_since_slip = older(state.ticks_since_slip);
                state.beat = state.beat.map(|beat| Beat { age: older(beat.age), ..beat });
            }
            Step::Slip => {
                (state.ticks_since_slip >= TTL).then_some(())?;
                state.left = (state.left - 1).max(-AGE_MAX);
                state.ticks_since_slip = 0;
            }
            Step::Begin => {
                state.beat.is_none().then_some(())?;
                state.beat = Some(Beat { age: 0, has_arrived: false });
            }
            Step::Arrive => {
                let beat = state.beat.as_mut().filter(|beat| !beat.has_arrived)?;
                beat.has_arrived = true;
                state.left = TTL;
            }
            Step::Answer => {
                let beat = state.beat.filter(|beat| beat.has_arrived)?;
                state.beat = None;
                state.trusted_age = if self.bug.is_some() { 0 } else { beat.age };
            }
            Step::Lose => state.beat = state.beat.take().map(|_| None)?,
            Step::Bury => {
                (state.left < 0).then_some(())?;
                if self.trusts(state.trusted_age) {
                    return Some(Err("a broker was buried while it trusted its lease".to_owned()));
                }
                return None; // what follows is another life
            }
        }
        Some(Ok(()))
    }
}

impl Model for Trust {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        State { left: TTL, trusted_age: 0, beat: None, ticks_since_slip: TTL }
    }

    fn next(&self, state: &State) -> Vec<Next<State, Step>> {
        let steps = [Step::Tick, Step::Slip, Step::Begin, Step::Arrive, Step::Answer, Step::Lose, Step::Bury];
        let take = |step: Step| {
            let mut next = state.clone();
            let broken = self.take(&mut next, step)?;
            Some(Next { step, kind: Kind::Chance, state: broken.map(|()| next) })
        };
        steps.into_iter().filter_map(take).collect()
    }

    /// Nothing has to happen here.
    fn is_settled(&self, _state: &State) -> bool {
        true
    }

    fn describe(&self, state: &State) -> String {
        format!("{state:?}")
    }
}
