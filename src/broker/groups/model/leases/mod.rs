//! Leases, burials, assignment and fences: two brokers, three sessions, two lanes.
//!
//! Who is to have which lane is decided by `assignment::assign` itself; what the statements of `schema/queries` do to rows, each of them
//! atomic under its locks, is written down in `rows`. A hint that is lost, a timer that is late and a broker that is slow are all the same
//! here: the step is not taken yet. There is no bound on epochs and lives; the only bounds are the numbers above, the faults, and how
//! much is acknowledged.

mod assigning;
mod code;
mod rows;
mod steps;
mod world;

use std::cell::RefCell;

use super::explore::{Model, Next};
use assigning::Assignments;
use code::{Code, Names, code, decode};
use steps::Step;
use world::World;

pub use world::Bug;

/// The model, right or with a bug.
pub struct Leases {
    bug: Option<Bug>,
    names: Names,
    assignments: RefCell<Assignments>,
}

impl Leases {
    pub fn right() -> Self {
        Self { bug: None, names: Names::Forgotten, assignments: RefCell::default() }
    }

    /// Names are kept, so that its counterexample can be read.
    pub fn with(bug: Bug) -> Self {
        Self { bug: Some(bug), names: Names::Kept, assignments: RefCell::default() }
    }
}

impl Model for Leases {
    type State = Code;
    type Step = Step;

    fn start(&self) -> Code {
        code(&World::new(), self.names)
    }

    fn next(&self, state: &Code) -> Vec<Next<Code, Step>> {
        let world = decode(*state);
        let steps = world.steps(self.bug, &mut self.assignments.borrow_mut());
        let take = |step: Step| {
            let mut next = world;
            let broken = next.take_step(step, self.bug);
            Next { step, kind: step.kind(&world), state: broken.map(|()| code(&next, self.names)) }
        };
        steps.into_iter().map(take).collect()
    }

    fn is_settled(&self, state: &Code) -> bool {
        decode(*state).is_settled()
    }

    fn describe(&self, state: &Code) -> String {
        format!("{:?}", decode(*state))
    }
}
