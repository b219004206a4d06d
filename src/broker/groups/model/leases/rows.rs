//! What a statement does to the rows: all of it at once, because it holds the locks of what it looks at.

use super::world::{Bug, Grant, Home, LANES, Lease, ORPHAN, Process, SESSIONS, World};

/// What must never happen, as a sentence.
pub type Broken = Result<(), String>;

impl World {
    /// `brokers_renew`, or `brokers_register` after a burial: then nothing of the former life is the broker's.
    pub fn renew(&mut self, broker: usize) {
        if self.brokers[broker].lease == Lease::Buried {
            self.forget(broker);
            self.brokers.iter_mut().for_each(|other| other.to_bury = false); // whoever read it has read another id
        }
        self.brokers[broker].lease = Lease::Trusted;
    }

    /// A life is over: what it has sent may still arrive.
    pub fn forget(&mut self, broker: usize) {
        for lane in 0..LANES {
            self.held[lane][broker] = None;
            if let Some(flush) = self.flushes[lane][broker].take() {
                self.flushes[lane][ORPHAN] = Some(flush);
            }
        }
    }

    /// `brokers_bury`, with `lanes_orphan` and `sessions_orphan` in one transaction.
    pub fn bury(&mut self, dead: usize, bug: Option<Bug>) -> Broken {
        let row = &mut self.brokers[dead];
        let trusts = row.lease == Lease::Trusted && row.process != Process::Down;
        row.lease = Lease::Buried;
        let lost = |world: &Self, session: usize| world.sessions[session] == Home::At(dead);
        for lane in 0..LANES {
            if self.rows[lane].holder.is_some_and(|holder| lost(self, holder)) {
                self.rows[lane].holder = None;
                self.rows[lane].wanted = self.rows[lane].wanted.filter(|wanted| !lost(self, *wanted));
                self.end_grants(lane);
            }
        }
        let left = if bug == Some(Bug::BurialForgetsSessions) { Home::Dangling } else { Home::None };
        self.sessions.iter_mut().filter(|home| **home == Home::At(dead)).for_each(|home| *home = left);
        match trusts {
            true => Err(format!("broker {dead} was buried while it trusted its lease")),
            false => Ok(()),
        }
    }

    /// `lanes_acquire`, and the commit that is read under its lock.
    pub fn acquire(&mut self, broker: usize, lane: usize, session: usize, bug: Option<Bug>) {
        match bug {
            Some(Bug::AcquireKeepsEpoch) => self.end_grants(lane),
            _ => self.raise_epoch(lane),
        }
        self.grant(broker, lane, session);
    }

    fn grant(&mut self, broker: usize, lane: usize, session: usize) {
        let row = &mut self.rows[lane];
        row.holder = Some(session);
        let done = row.committed;
        self.held[lane][broker] =
            Some(Grant { session, same_epoch: true, ended: false, done, passed: false });
    }

    /// `sessions_take` and `lanes_take`: a session has come back at another broker.
    pub fn take(&mut self, session: usize, broker: usize) {
        self.sessions[session] = Home::At(broker);
        for lane in 0..LANES {
            if self.rows[lane].holder == Some(session) {
                self.raise_epoch(lane);
                self.grant(broker, lane, session);
            }
        }
    }

    /// `members_leave`.
    pub fn leave(&mut self, session: usize) {
        self.sessions[session] = Home::None;
        for lane in 0..LANES {
            if self.rows[lane].holder == Some(session) {
                self.free(lane);
            }
        }
    }

    /// `lanes_release` by its holder, or `lanes_revoke_overdue` by anybody.
    pub fn free(&mut self, lane: usize) {
        self.rows[lane].holder = None;
        self.end_grants(lane);
    }

    /// `lane_commits_insert`.
    pub fn commit(&mut self, lane: usize, flush: &Grant) -> Broken {
        let row = &mut self.rows[lane];
        let before = row.committed;
        row.committed = flush.done;
        if flush.ended {
            return Err(format!(
                "a commit of session {} counted after lane {lane} was taken from it",
                flush.session
            ));
        }
        match flush.done >= before {
            true => Ok(()),
            false => Err(format!("lane {lane} fell from {before} to {}", flush.done)),
        }
    }

    /// Whether every lane has a living holder that is to have it and knows of it; without members, none.
    pub fn is_settled(&self) -> bool {
        let anybody = (0..SESSIONS).any(|session| self.is_member(session));
        let is_served = |lane: usize, session: usize| {
            let knows =
                |broker: usize| self.held[lane][broker].is_some_and(|grant| self.passes(lane, &grant));
            let Home::At(broker) = self.sessions[session] else { return false };
            self.rows[lane].wanted == Some(session) && knows(broker)
        };
        (0..LANES).all(|lane| match self.rows[lane].holder {
            Some(session) => is_served(lane, session),
            None => !anybody,
        })
    }
}
