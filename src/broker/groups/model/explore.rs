//! Every state of a model, by the faults and then by the steps that lead there, and what must hold in each.
//!
//! A state is kept once, with the fewest faults that lead to it: whoever has spent fewer can do all that one who has spent more can.
//! So a counterexample has the fewest faults that show it, and among those the fewest steps. Whether a lane can get stuck is decided on
//! the finished graph, backwards from the settled states.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What a step is, to the budget of faults and to the question whether everything settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// What the protocol does by itself, sooner or later.
    Work,
    /// What a client or the clock may do, and need not.
    Chance,
    /// As [`Kind::Chance`], and paid from the budget.
    Fault,
}

/// One step, and the state behind it. `Err`: something happened that never may.
pub struct Next<S, T> {
    pub step: T,
    pub kind: Kind,
    pub state: Result<S, String>,
}

pub trait Model {
    type State: Clone + Eq + Hash;
    type Step: Copy + Debug;

    fn start(&self) -> Self::State;

    /// Every step that can be taken.
    fn next(&self, state: &Self::State) -> Vec<Next<Self::State, Self::Step>>;

    /// Whether no work is left.
    fn is_settled(&self, state: &Self::State) -> bool;

    /// A state, to be read.
    fn describe(&self, state: &Self::State) -> String;
}

/// What went wrong, and how it came to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub what: String,
    pub path: Vec<String>,
}

#[derive(Debug)]
pub struct Explored {
    pub states: usize,
    pub transitions: usize,
    pub violation: Option<Violation>,
}

/// What is known while an exploration goes on. States have numbers in the order in which they were found.
struct Graph<M: Model> {
    numbers: HashMap<M::State, u32, BuildHasherDefault<Mixer>>,
    /// How each state was found first.
    found: Vec<Option<(u32, M::Step)>>,
    faults: Vec<u8>,
    settled: Vec<bool>,
    /// Steps of [`Kind::Work`] that change something: to, from.
    work: Vec<(u32, u32)>,
    /// States to look at, by the faults that they have cost.
    queues: Vec<VecDeque<(u32, M::State)>>,
    transitions: usize,
}

/// Explores until everything is seen or something is violated.
pub fn explore<M: Model>(model: &M, faults_max: u8) -> Explored {
    let mut graph = Graph::<M> {
        numbers: HashMap::default(),
        found: Vec::new(),
        faults: Vec::new(),
        settled: Vec::new(),
        work: Vec::new(),
        queues: (0..=faults_max).map(|_| VecDeque::new()).collect(),
        transitions: 0,
    };
    graph.enter(model.start(), 0, None);
    let mut violation = None;
    'all: for faults in 0..=faults_max {
        while let Some((number, state)) = graph.queues[usize::from(faults)].pop_front() {
            if graph.faults[number as usize] < faults {
                continue; // looked at since, with fewer
            }
            violation = graph.expand(model, number, &state, faults_max);
            if violation.is_some() {
                break 'all;
            }
        }
    }
    let violation = violation.or_else(|| graph.stuck(model));
    Explored { states: graph.found.len(), transitions: graph.transitions, violation }
}

impl<M: Model> Graph<M> {
    /// The number of a state; one that is new, or was found with more faults, is looked at.
    fn enter(&mut self, state: M::State, faults: u8, from: Option<(u32, M::Step)>) -> u32 {
        match self.numbers.get(&state) {
            Some(number) if self.faults[*number as usize] <= faults => *number,
            Some(number) => {
                // Found with a fault more, and not looked at yet.
                let number = *number;
                self.found[number as usize] = from;
                self.faults[number as usize] = faults;
                self.queues[usize::from(faults)].push_back((number, state));
                number
            }
            None => {
                let number = self.found.len() as u32;
                self.found.push(from);
                self.faults.push(faults);
                self.settled.push(false);
                self.numbers.insert(state.clone(), number);
                self.queues[usize::from(faults)].push_back((number, state));
                number
            }
        }
    }

    fn expand(&mut self, model: &M, number: u32, state: &M::State, faults_max: u8) -> Option<Violation> {
        self.settled[number as usize] = model.is_settled(state);
        let faults = self.faults[number as usize];
        for Next { step, kind, state: next } in model.next(state) {
            let cost = faults + u8::from(kind == Kind::Fault);
            if cost > faults_max {
                continue;
            }
            self.transitions += 1;
            let next = match next {
                Ok(next) => next,
                Err(what) => return Some(Violation { what, path: self.path(number, Some(step)) }),
            };
            let to = self.enter(next, cost, Some((number, step)));
            if kind == Kind::Work && to != number {
                self.work.push((to, number));
            }
        }
        None
    }

    fn path(&self, at: u32, last: Option<M::Step>) -> Vec<String> {
        let mut steps: Vec<String> = last.iter().map(|step| format!("{step:?}")).collect();
        let mut at = at;
        while let Some((before, step)) = &self.found[at as usize] {
            steps.push(format!("{step:?}"));
            at = *before;
        }
        steps.reverse();
        steps
    }

    /// The first state from which work may go on for ever, or end, without everything being settled.
    ///
    /// A state settles if it is settled, or if it has work and settles whichever is done first: the least such set, found backwards.
    fn stuck(&mut self, model: &M) -> Option<Violation> {
        let states = self.found.len();
        self.work.sort_unstable();
        self.work.dedup();
        let mut left = vec![0u32; states];
        self.work.iter().for_each(|(_, from)| left[*from as usize] += 1);
        let mut settles = self.settled.clone();
        let mut queue: Vec<u32> = (0..states as u32).filter(|number| settles[*number as usize]).collect();
        while let Some(to) = queue.pop() {
            let first = self.work.partition_point(|edge| edge.0 < to);
            for (_, from) in self.work[first..].iter().take_while(|edge| edge.0 == to) {
                let from = *from as usize;
                left[from] -= 1;
                if left[from] == 0 && !settles[from] {
                    settles[from] = true;
                    queue.push(from as u32);
                }
            }
        }
        let bad = (0..states).filter(|number| !settles[*number]).min_by_key(|number| self.faults[*number])?;
        let state = self.numbers.iter().find(|(_, number)| **number as usize == bad);
        let what = state.map_or_else(String::new, |(state, _)| model.describe(state));
        Some(Violation { what: format!("stuck: {what}"), path: self.path(bad as u32, None) })
    }
}

/// Hashes of states are no secret, and there are millions of them: a multiplication per word is enough.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_u128(&mut self, words: u128) {
        self.write_u64(words as u64);
        self.write_u64((words >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that may be counted up to a bound, beside a trap that work leads into.
    struct Counting {
        trap: Option<u8>,
    }

    impl Model for Counting {
        type State = u8;
        type Step = u8;

        fn start(&self) -> u8 {
            0
        }

        fn next(&self, state: &u8) -> Vec<Next<u8, u8>> {
            let leads = |to: u8| Next { step: to, kind: Kind::Work, state: Ok(to) };
            match *state {
                0..5 if self.trap == Some(*state) => vec![leads(state + 1), leads(100)],
                0..5 => vec![leads(state + 1)],
                100 => vec![leads(101)],
                101 => vec![leads(100)],
                _ => Vec::new(),
            }
        }

        fn is_settled(&self, state: &u8) -> bool {
            *state == 5
        }

        fn describe(&self, state: &u8) -> String {
            format!("at {state}")
        }
    }

    #[test]
    fn work_that_may_go_round_for_ever_is_stuck() {
        assert_eq!(explore(&Counting { trap: None }, 0).violation, None);
        let violation = explore(&Counting { trap: Some(0) }, 0).violation.expect("there is a trap");
        assert_eq!(violation.what, "stuck: at 0");
        let violation = explore(&Counting { trap: Some(3) }, 0).violation.expect("there is a trap");
        assert!(violation.path.is_empty(), "even the start may end in it: {violation:?}");
    }
}
