//! Rounds, acks and late commits of one lane, by the code that brokers run: [`Lane`] and `Ranges`.
//!
//! Three messages, a lane that moves from one broker to another, a consumer that acknowledges and refuses whatever it likes in
//! whichever round it likes, commits that arrive late, in another order, or twice. What should follow from each step is worked out
//! beside the lane, on plain sets, and compared. What a former holder commits must not count.

use std::time::{Duration, Instant};

use super::explore::{Kind, Model, Next};
use crate::broker::groups::lane::{AckError, Failure, Gate, Lane};
use crate::broker::groups::ranges::Ranges;
use crate::ids::{Epoch, Offset, PartitionId};
use crate::store::lanes::{Failed, ResumeAt};

const MESSAGES: i64 = 3;
const ALL: u8 = (1 << MESSAGES) - 1;
/// After how many failures a message is given up.
const ATTEMPTS_MAX: u8 = 2;

/// How many epochs there may be, and how many rounds in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub epochs: u8,
    pub rounds: u32,
}

/// Seeded on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// An ack counts whatever its round was.
    RoundsAreIgnored,
    /// The newest commit is the one that came last, and not the one with the highest epoch and number.
    LastCommitWins,
    /// A commit counts under any epoch.
    FlushIsNotFenced,
}

/// What is done of the lane, as bits by offset.
type Done = u8;

/// A lane in the hands of a broker, and beside it what should be true of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Held {
    epoch: u8,
    lane: Lane,
    committing: bool,
    done: Done,
    /// Below this everything was sent in this round or is done.
    cursor: i64,
    /// From where on each ended round is void, the first round first.
    void_from: Vec<i64>,
    /// The furthest that was sent in any round.
    sent: i64,
}

/// A commit that is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Flight {
    epoch: u8,
    number: i64,
    done: Done,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum What {
    Commit,
    /// A failure is written down with it.
    Charge {
        offset: i64,
        attempts: u8,
    },
    GiveUp {
        offset: i64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    epoch: u8,
    /// The newest commit: its epoch and number, and what it says.
    stored: (u8, i64, Done),
    attempts: [u8; MESSAGES as usize],
    held: Held,
    flights: Vec<Flight>,
    /// What was acknowledged so that it counts, or given up.
    counted: Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Send,
    AckBelow {
        round: u32,
        next: i64,
    },
    AckOne {
        round: u32,
        offset: i64,
    },
    Nack {
        round: u32,
        offset: i64,
    },
    /// The consumer comes back to the same broker.
    Resume,
    Commit,
    Arrive {
        flight: usize,
    },
    /// A commit arrives and its answer is lost: it is sent again.
    ArriveUnheard {
        flight: usize,
    },
    /// The lane goes to the other broker.
    Move,
}

/// The model, right or with a bug.
pub struct Rounds {
    bug: Option<Bug>,
    bounds: Bounds,
    /// The moment of everything: a timer that is late is a step that is not taken yet.
    now: Instant,
}

type Broken = Result<(), String>;

fn done_of(committed: Offset, acked: &Ranges) -> Done {
    let is_done = |offset: &i64| *offset < committed.0 || acked.contains(Offset(*offset));
    (0..MESSAGES).filter(is_done).fold(0, |done, offset| done | 1 << offset)
}

fn first_open(done: Done, from: i64) -> i64 {
    (from..).find(|offset| done & (1 << offset) == 0).unwrap_or(MESSAGES)
}

impl Held {
    /// A lane as it is acquired, from what is stored.
    fn new(epoch: u8, done: Done, attempts: &[u8; MESSAGES as usize], now: Instant) -> Self {
        let committed = first_open(done, 0);
        let acked = (committed..MESSAGES).filter(|offset| done & (1 << offset) != 0);
        let failed = (0..MESSAGES).filter(|offset| attempts[*offset as usize] > 0).map(|offset| Failed {
            offset: Offset(offset),
            attempts: u32::from(attempts[offset as usize]),
            reason: String::new(),
            retry_in: Duration::ZERO,
        });
        let at = ResumeAt {
            parked: Vec::new(),
            partition_id: PartitionId(1),
            epoch: Epoch(i64::from(epoch)),
            session_id: None,
            committed: Offset(committed),
            acked: acked.map(|offset| (Offset(offset), Offset(offset + 1))).collect(),
            start_offset: Offset::ZERO,
            suspect_until: Offset::ZERO,
            failed: failed.collect(),
        };
        let lane = Lane::new(&at, now);
        Self {
            epoch,
            lane,
            committing: false,
            done,
            cursor: committed,
            void_from: Vec::new(),
            sent: committed,
        }
    }

    /// Below which offset an ack of a round counts.
    fn counts_below(&self, round: u32) -> i64 {
        match round == self.lane.round {
            true => self.cursor,
            false => self.void_from[round as usize - 1..].iter().copied().min().unwrap_or(0),
        }
    }

    /// Compares the lane with what should be true of it.
    fn check(&self, after: &str) -> Broken {
        let (committed, acked) = self.lane.position();
        match done_of(committed, &acked) {
            done if done == self.done => Ok(()),
            done => Err(format!("after {after} {done:03b} is done, and should be {:03b}", self.done)),
        }
    }

    fn end_round(&mut self, void_from: i64) {
        self.void_from.push(void_from);
        self.cursor = first_open(self.done, 0);
    }

    fn send(&mut self, now: Instant) -> Option<Broken> {
        let sendable = self.lane.sendable(now).filter(|sendable| sendable.from.0 < MESSAGES)?;
        let due = first_open(self.done, self.cursor);
        if sendable.from.0 != due {
            return Some(Err(format!("offset {} was sent instead of {due}", sendable.from)));
        }
        self.lane.on_sent(sendable.from.plus(1), now);
        self.cursor = due + 1;
        self.sent = self.sent.max(self.cursor);
        Some(Ok(()))
    }
}

impl State {
    /// An ack of some offsets; `None`: nothing has changed.
    fn ack(&mut self, round: u32, (from, to): (i64, i64), rounds: &Rounds) -> Option<Broken> {
        let held = &mut self.held;
        let said = if rounds.bug == Some(Bug::RoundsAreIgnored) { held.lane.round } else { round };
        let ranges = [(Offset(from), Offset(to))];
        let (next, ranges) = if from == 0 { (Some(Offset(to)), &[][..]) } else { (None, &ranges[..]) };
        let result = held.lane.on_ack(said, next, ranges, rounds.now);
        let sent = if round == held.lane.round { held.cursor } else { held.sent };
        let below = held.counts_below(round);
        let counts = |offset: &i64| to <= sent && *offset < below;
        let new = (from..to).filter(counts).fold(0, |done, offset| done | 1 << offset) & !held.done;
        held.done |= new;
        held.cursor = held.cursor.max(first_open(held.done, 0));
        let expected = match () {
            () if to > sent => matches!(result, Err(AckError::BeyondSent { .. })),
            () if to > below => matches!(result, Err(AckError::StaleRound { .. })),
            () => result.is_ok(),
        };
        if !expected {
            return Some(Err(format!("an ack of {from}..{to} in round {round} was answered {result:?}")));
        }
        let checked = held.check("an ack");
        self.counted |= new;
        (new != 0 || checked.is_err()).then_some(checked)
    }

    /// A nack that counts; `None`: it does not.
    fn nack(&mut self, round: u32, offset: i64, bounds: Bounds) -> Option<Broken> {
        let held = &mut self.held;
        let sent = if round == held.lane.round { held.cursor } else { held.sent };
        let counts = offset < held.counts_below(round) && offset < sent && held.done & (1 << offset) == 0;
        let result = held.lane.check_nack(round, Offset(offset));
        if result.is_ok() != counts {
            return Some(Err(format!("a nack of {offset} in round {round} was answered {result:?}")));
        }
        if !counts || held.lane.gate == Gate::Settling || held.lane.round == bounds.rounds {
            return None;
        }
        let attempts = held.lane.attempts_after_failure(Offset(offset)) as u8;
        held.lane.end_round(Offset(offset), Gate::Settling);
        held.end_round(offset);
        let (what, commit, done) = match attempts < ATTEMPTS_MAX {
            true => (What::Charge { offset, attempts }, held.lane.next_commit(), held.done),
            false => {
                (What::GiveUp { offset }, held.lane.commit_without(Offset(offset)), held.done | 1 << offset)
            }
        };
        self.flights.push(Flight { epoch: held.epoch, number: commit.number, done, what });
        self.counted |= done;
        Some(Ok(()))
    }

    fn resume(&mut self, bounds: Bounds) -> Option<Broken> {
        let held = &mut self.held;
        (held.lane.round < bounds.rounds).then_some(())?;
        held.lane.restart();
        held.end_round(held.sent);
        Some(held.check("a resume"))
    }

    fn commit(&mut self) -> Option<Broken> {
        let held = &mut self.held;
        if held.committing || held.lane.gate == Gate::Settling {
            return None;
        }
        let commit = held.lane.take_commit()?;
        held.committing = true;
        self.flights.push(Flight {
            epoch: held.epoch,
            number: commit.number,
            done: held.done,
            what: What::Commit,
        });
        Some(Ok(()))
    }

    fn store(&mut self, flight: &Flight, bug: Option<Bug>) -> Broken {
        let (epoch, number, before) = self.stored;
        if (flight.epoch, flight.number) > (epoch, number) || bug == Some(Bug::LastCommitWins) {
            self.stored = (flight.epoch, flight.number, flight.done);
        }
        match flight.what {
            What::Commit => {}
            What::Charge { offset, attempts } => self.attempts[offset as usize] = attempts,
            What::GiveUp { offset } => self.attempts[offset as usize] = 0,
        }
        let after = self.stored.2;
        if after & before != before {
            return Err(format!("what is done fell from {before:03b} to {after:03b}"));
        }
        match after & !self.counted {
            0 => Ok(()),
            _ => Err(format!("{after:03b} is stored, and only {:03b} counted", self.counted)),
        }
    }

    fn arrive(&mut self, index: usize, rounds: &Rounds) -> Broken {
        let flight = self.flights.remove(index);
        if flight.epoch != self.epoch && rounds.bug != Some(Bug::FlushIsNotFenced) {
            return Ok(()); // lease_lost: nothing happened
        }
        self.store(&flight, rounds.bug)?;
        let held = &mut self.held;
        if flight.epoch != held.epoch {
            return Ok(());
        }
        match flight.what {
            What::Commit => held.committing = false,
            What::Charge { offset, attempts } => {
                let failure =
                    Failure { attempts: u32::from(attempts), reason: String::new(), retry_at: rounds.now };
                held.lane.on_charged(Offset(offset), failure, Gate::Until(rounds.now));
            }
            What::GiveUp { offset } => {
                held.lane.on_given_up(Offset(offset), rounds.now);
                held.done |= 1 << offset;
                held.cursor = held.cursor.max(first_open(held.done, 0));
            }
        }
        held.check("a commit")
    }

    /// The lane goes to another broker. The former one does not know, hears that all it has sent is done, and commits that.
    fn shift(&mut self, now: Instant) -> Broken {
        let former = &mut self.held;
        let all_sent = former.lane.on_ack(former.lane.round, Some(Offset(former.cursor)), &[], now);
        all_sent.map_err(|error| format!("an ack of what was sent was refused: {error}"))?;
        let commit = former.lane.next_commit();
        let done = (0..former.cursor).fold(former.done, |done, offset| done | 1 << offset);
        self.flights = vec![Flight { epoch: former.epoch, number: commit.number, done, what: What::Commit }];
        self.epoch += 1;
        self.held = Held::new(self.epoch, self.stored.2, &self.attempts, now);
        self.held.check("a move")
    }
}

impl Rounds {
    pub fn right(bounds: Bounds) -> Self {
        Self { bug: None, bounds, now: Instant::now() }
    }

    pub fn with(bug: Bug) -> Self {
        Self { bug: Some(bug), ..Self::right(Bounds { epochs: 2, rounds: 2 }) }
    }

    fn steps(&self, state: &State) -> Vec<(Step, Kind)> {
        let mut steps = Vec::new();
        Self::steps_of_holder(&state.held, &mut steps);
        for flight in 0..state.flights.len() {
            steps.extend([
                (Step::Arrive { flight }, Kind::Work),
                (Step::ArriveUnheard { flight }, Kind::Chance),
            ]);
        }
        if state.epoch < self.bounds.epochs {
            steps.push((Step::Move, Kind::Chance));
        }
        steps
    }

    /// Whoever has the lane sends, and hears whatever a consumer may say.
    fn steps_of_holder(held: &Held, steps: &mut Vec<(Step, Kind)>) {
        steps.extend([(Step::Send, Kind::Work), (Step::Commit, Kind::Work)]);
        steps.push((Step::Resume, Kind::Chance));
        for round in 1..=held.lane.round {
            for offset in 0..MESSAGES {
                // A consumer that is at work ends with what it was sent.
                let ends = round == held.lane.round && offset + 1 == held.cursor && held.lane.in_flight() > 0;
                let kind = if ends { Kind::Work } else { Kind::Chance };
                steps.push((Step::AckBelow { round, next: offset + 1 }, kind));
                steps.push((Step::Nack { round, offset }, Kind::Chance));
                if offset > 0 {
                    steps.push((Step::AckOne { round, offset }, Kind::Chance));
                }
            }
        }
    }

    /// Only the order of commits matters: their numbers start again from zero, without gaps.
    fn renumber(state: &mut State) {
        for epoch in 1..=state.epoch {
            let mut numbers: Vec<i64> = Vec::new();
            let in_epoch = state.flights.iter().filter(|flight| flight.epoch == epoch);
            numbers.extend(in_epoch.map(|flight| flight.number));
            if state.stored.0 == epoch {
                numbers.push(state.stored.1);
            }
            numbers.sort_unstable();
            let rank = |number: i64| numbers.partition_point(|other| *other < number) as i64;
            for flight in state.flights.iter_mut().filter(|flight| flight.epoch == epoch) {
                flight.number = rank(flight.number);
            }
            if state.stored.0 == epoch {
                state.stored.1 = rank(state.stored.1);
            }
            if state.held.epoch == epoch {
                state.held.lane.renumber(rank);
            }
        }
    }

    /// `None`: the step changes nothing.
    fn take(&self, state: &mut State, step: Step) -> Option<Broken> {
        match step {
            Step::Send => state.held.send(self.now),
            Step::AckBelow { round, next } => state.ack(round, (0, next), self),
            Step::AckOne { round, offset } => state.ack(round, (offset, offset + 1), self),
            Step::Nack { round, offset } => state.nack(round, offset, self.bounds),
            Step::Resume => state.resume(self.bounds),
            Step::Commit => state.commit(),
            Step::Arrive { flight } => Some(state.arrive(flight, self)),
            Step::ArriveUnheard { flight } => {
                let flight = state.flights[flight].clone();
                let passes = flight.epoch == state.epoch || self.bug == Some(Bug::FlushIsNotFenced);
                passes.then(|| state.store(&flight, self.bug))
            }
            Step::Move => Some(state.shift(self.now)),
        }
    }
}

impl Model for Rounds {
    type State = State;
    type Step = Step;

    fn start(&self) -> State {
        let (stored, attempts) = ((0, 0, 0), [0; MESSAGES as usize]);
        let held = Held::new(1, stored.2, &attempts, self.now);
        State { epoch: 1, stored, attempts, held, flights: Vec::new(), counted: 0 }
    }

    fn next(&self, state: &State) -> Vec<Next<State, Step>> {
        let take = |(step, kind): (Step, Kind)| {
            let mut next = state.clone();
            let broken = self.take(&mut next, step)?;
            Self::renumber(&mut next);
            next.flights.sort_unstable();
            Some(Next { step, kind, state: broken.map(|()| next) })
        };
        self.steps(state).into_iter().filter_map(take).collect()
    }

    fn is_settled(&self, state: &State) -> bool {
        state.stored.2 == ALL
    }

    fn describe(&self, state: &State) -> String {
        format!("{state:?}")
    }
}
