//! What can happen next: every step that a broker, a client, the clock or a fault may take.

use super::assigning::{Assignments, Wanted};
use super::rows::Broken;
use super::world::{BROKERS, Bug, COMMITTED_MAX, Grant, Home, LANES, Lease, Process, SESSIONS, SLOTS, World};
use crate::broker::groups::model::explore::Kind;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A heartbeat arrives.
    Renew {
        broker: usize,
    },
    /// The other broker buries this one.
    Bury {
        broker: usize,
    },
    /// A broker looks at the lanes and writes down who is to have them.
    Assign {
        wanted: Wanted,
    },
    /// A broker gets a lane for one of its sessions.
    Acquire {
        broker: usize,
        lane: usize,
        session: usize,
    },
    /// A client acknowledges a message, and its broker sends that on.
    Ack {
        broker: usize,
        lane: usize,
    },
    /// A commit arrives in the database, from a broker or from a life that has ended.
    Arrive {
        lane: usize,
        slot: usize,
    },
    /// A holder that is not wanted any more lets go.
    Release {
        broker: usize,
        lane: usize,
    },
    /// A holder that had its time is put out.
    Revoke {
        lane: usize,
    },
    /// A broker sees in the tables that a lane is somebody else's.
    Notice {
        broker: usize,
        lane: usize,
    },
    /// A consumer misses its deadline: its broker lets the lane go, and says that it should not come back.
    Miss {
        broker: usize,
        lane: usize,
    },
    /// Time passes: a broker's trust ends, then its row expires.
    Expire {
        broker: usize,
    },
    Crash {
        broker: usize,
    },
    Restart {
        broker: usize,
    },
    Freeze {
        broker: usize,
    },
    Thaw {
        broker: usize,
    },
    /// A session that is no member becomes one.
    Join {
        session: usize,
        broker: usize,
    },
    Leave {
        session: usize,
    },
    /// A session resumes at another broker.
    Move {
        session: usize,
        broker: usize,
    },
}

impl Step {
    /// What kind of step it is in the state in which it is taken.
    pub fn kind(self, world: &World) -> Kind {
        match self {
            Self::Expire { broker } if world.brokers[broker].process == Process::Up => Kind::Fault,
            Self::Ack { .. } => Kind::Chance,
            Self::Crash { .. }
            | Self::Freeze { .. }
            | Self::Miss { .. }
            | Self::Join { .. }
            | Self::Leave { .. }
            | Self::Move { .. } => Kind::Fault,
            Self::Renew { .. }
            | Self::Bury { .. }
            | Self::Assign { .. }
            | Self::Acquire { .. }
            | Self::Arrive { .. }
            | Self::Release { .. }
            | Self::Revoke { .. }
            | Self::Notice { .. }
            | Self::Expire { .. }
            | Self::Restart { .. }
            | Self::Thaw { .. } => Kind::Work,
        }
    }
}

impl World {
    /// Every step that can be taken now.
    pub fn steps(&self, bug: Option<Bug>, assignments: &mut Assignments) -> Vec<Step> {
        let mut steps = Vec::with_capacity(24);
        for broker in 0..BROKERS {
            self.steps_of_process(broker, &mut steps);
            self.steps_of_lease(broker, bug, &mut steps);
            if self.brokers[broker].process == Process::Up {
                (0..LANES).for_each(|lane| self.steps_of_holder(broker, lane, &mut steps));
            }
        }
        let anybody_acts = (0..BROKERS).any(|broker| self.acts(broker));
        if anybody_acts {
            // Rows that a burial has left behind look alive to whoever does not ask for the broker.
            let members = self.sessions.map(|home| home != Home::None);
            let wanted = assignments.of(self, members).iter();
            steps.extend(wanted.map(|wanted| Step::Assign { wanted: *wanted }));
        }
        for lane in 0..LANES {
            let row = &self.rows[lane];
            if anybody_acts && row.holder.is_some() && row.wanted != row.holder {
                steps.push(Step::Revoke { lane });
            }
            let slots = (0..SLOTS).filter(|slot| self.flushes[lane][*slot].is_some());
            steps.extend(slots.map(|slot| Step::Arrive { lane, slot }));
        }
        (0..SESSIONS).for_each(|session| self.steps_of_session(session, &mut steps));
        steps
    }

    fn steps_of_process(&self, broker: usize, steps: &mut Vec<Step>) {
        match self.brokers[broker].process {
            Process::Up => steps.extend([Step::Crash { broker }, Step::Freeze { broker }]),
            Process::Frozen => steps.push(Step::Thaw { broker }),
            // A new process has an id of its own. The model has one row per broker: it waits for the burial of the old life, or is
            // itself the only one that can bury it.
            Process::Down => match self.brokers[broker].lease {
                Lease::Buried => steps.push(Step::Restart { broker }),
                Lease::Expired if self.brokers[1 - broker].process == Process::Down => {
                    steps.push(Step::Restart { broker });
                }
                Lease::Trusted | Lease::Expired => {}
            },
        }
    }

    fn steps_of_lease(&self, broker: usize, bug: Option<Bug>, steps: &mut Vec<Step>) {
        let (this, other) = (&self.brokers[broker], &self.brokers[1 - broker]);
        if this.lease == Lease::Trusted {
            steps.push(Step::Expire { broker });
        } else if this.process == Process::Up {
            steps.push(Step::Renew { broker });
        }
        let has_read = bug == Some(Bug::BurialReadsFirst) && other.to_bury;
        let may_bury = other.process == Process::Up && other.lease == Lease::Trusted;
        if may_bury && (this.lease == Lease::Expired || has_read) {
            steps.push(Step::Bury { broker });
        }
    }

    fn steps_of_holder(&self, broker: usize, lane: usize, steps: &mut Vec<Step>) {
        let row = &self.rows[lane];
        if let (None, Some(session)) = (row.holder, row.wanted)
            && self.lives(broker)
            && self.sessions[session] == Home::At(broker)
        {
            steps.push(Step::Acquire { broker, lane, session });
        }
        let Some(held) = self.held[lane][broker] else { return };
        let is_flushing = self.flushes[lane][broker].is_some();
        if held.done < COMMITTED_MAX && !is_flushing {
            steps.push(Step::Ack { broker, lane });
        }
        match self.passes(lane, &held) {
            true if is_flushing => {}
            true if row.wanted != Some(held.session) => steps.push(Step::Release { broker, lane }),
            true => steps.push(Step::Miss { broker, lane }),
            false => steps.push(Step::Notice { broker, lane }),
        }
    }

    fn steps_of_session(&self, session: usize, steps: &mut Vec<Step>) {
        match self.sessions[session] {
            Home::None => {
                let brokers = (0..BROKERS).filter(|broker| self.acts(*broker));
                steps.extend(brokers.map(|broker| Step::Join { session, broker }));
            }
            Home::At(home) => {
                if self.acts(home) {
                    steps.push(Step::Leave { session });
                }
                if self.acts(1 - home) {
                    steps.push(Step::Move { session, broker: 1 - home });
                }
            }
            Home::Dangling => {}
        }
    }

    /// Takes a step. `Err`: something happened that never may.
    pub fn take_step(&mut self, step: Step, bug: Option<Bug>) -> Broken {
        match step {
            Step::Renew { broker } => self.renew(broker),
            Step::Bury { broker } => return self.bury_step(broker, bug),
            Step::Assign { wanted } => (0..LANES).for_each(|lane| self.rows[lane].wanted = wanted[lane]),
            Step::Acquire { broker, lane, session } => self.acquire(broker, lane, session, bug),
            Step::Ack { broker, lane } => self.ack(broker, lane),
            Step::Arrive { lane, slot } => return self.arrive(lane, slot, bug),
            Step::Release { broker, lane } => {
                self.held[lane][broker] = None;
                self.free(lane);
            }
            Step::Revoke { lane } => self.free(lane),
            Step::Notice { broker, lane } => self.held[lane][broker] = None,
            Step::Miss { broker, lane } => self.miss(broker, lane),
            Step::Expire { broker } => self.brokers[broker].lease = Lease::Expired,
            Step::Crash { broker } => {
                self.forget(broker);
                self.brokers[broker].process = Process::Down;
                self.brokers[broker].to_bury = false;
            }
            Step::Restart { broker } => {
                self.brokers[broker].process = Process::Up;
                if self.brokers[broker].lease == Lease::Expired {
                    return self.bury(broker, bug);
                }
            }
            Step::Freeze { broker } => self.brokers[broker].process = Process::Frozen,
            Step::Thaw { broker } => self.brokers[broker].process = Process::Up,
            Step::Join { session, broker } => self.sessions[session] = Home::At(broker),
            Step::Leave { session } => self.leave(session),
            Step::Move { session, broker } => self.take(session, broker),
        }
        Ok(())
    }

    fn bury_step(&mut self, broker: usize, bug: Option<Bug>) -> Broken {
        let other = 1 - broker;
        match bug {
            Some(Bug::BurialReadsFirst) if !self.brokers[other].to_bury => {
                self.brokers[other].to_bury = true;
                Ok(())
            }
            _ => {
                self.brokers[other].to_bury = false;
                self.bury(broker, bug)
            }
        }
    }

    fn ack(&mut self, broker: usize, lane: usize) {
        let Some(held) = &mut self.held[lane][broker] else { return };
        held.done += 1;
        self.flushes[lane][broker] = Some(*held);
    }

    fn miss(&mut self, broker: usize, lane: usize) {
        let Some(held) = self.held[lane][broker].take() else { return };
        self.free(lane);
        let row = &mut self.rows[lane];
        row.avoided = Some(held.session);
        row.wanted = row.wanted.filter(|wanted| *wanted != held.session);
    }

    fn arrive(&mut self, lane: usize, slot: usize, bug: Option<Bug>) -> Broken {
        let Some(flush) = self.flushes[lane][slot].take() else { return Ok(()) };
        let passes = self.passes(lane, &flush);
        if bug == Some(Bug::FenceReadsSnapshot) && !flush.passed {
            self.flushes[lane][slot] = passes.then_some(Grant { passed: true, ..flush });
            return Ok(());
        }
        match flush.passed || passes {
            true => self.commit(lane, &flush),
            false => Ok(()), // lease_lost: nothing happened
        }
    }
}
