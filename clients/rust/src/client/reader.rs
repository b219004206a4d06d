//! One subscription or tail of a client: what is wanted, how far it is, and what becomes of it when a session is lost.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::delivery::{Shared, refuse};
use super::error::Error;
use super::parts::Parts;
use crate::wire::{
    CreditGrant, GroupSettings, ResumeOutcome, ResumeReport, ResumedLane, Select, Start, Subscribe, Tail,
};

/// Partitions of a tail that go on by one tail each; more go on together, from the oldest of their positions.
const TAILS_APART_MAX: usize = 32;

/// What a reader wants.
#[derive(Debug, Clone)]
pub(super) enum Wanted {
    Group(Subscribe),
    Select(Select),
    Tail(Tail),
}

/// What a reader gets when it is open.
#[derive(Debug, Clone, Copy)]
pub(super) enum Opened {
    Group { settings: GroupSettings, partitions: u32 },
    Tail,
}

/// A reader that somebody asks for.
#[derive(Debug)]
pub(super) struct NewReader {
    pub shared: Arc<Shared>,
    pub wanted: Wanted,
    pub reply: oneshot::Sender<Result<Opened, Error>>,
}

/// How far a reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// To be asked for, not before the moment.
    Wanted(Instant),
    Asked,
    Open,
    Leaving,
}

/// One subscription or tail.
#[derive(Debug)]
pub(super) struct Reader {
    pub shared: Arc<Shared>,
    pub wanted: Wanted,
    pub reply: Option<oneshot::Sender<Result<Opened, Error>>>,
    pub numbers: Vec<u32>,
    pub phase: Phase,
    /// A connection was lost between the question and its answer: the session may be a member already.
    pub asked_before: bool,
}

impl Reader {
    /// What opens it, without ids: one question, or one per partition of a tail that goes on.
    pub fn questions(&self) -> Vec<Wanted> {
        let tail = match &self.wanted {
            Wanted::Group(_) | Wanted::Select(_) => return vec![self.wanted.clone()],
            Wanted::Tail(tail) => tail,
        };
        let positions = self.shared.with(|inbox| inbox.positions());
        let Some(oldest) = positions.values().min() else { return vec![Wanted::Tail(tail.clone())] };
        if positions.len() > TAILS_APART_MAX {
            let partitions = Some(positions.keys().copied().collect());
            return vec![Wanted::Tail(Tail {
                partitions,
                start: Some(Start::Offset(*oldest)),
                ..tail.clone()
            })];
        }
        let parts = positions.len() as u32;
        let credit = CreditGrant {
            messages: (tail.credit.messages / parts).max(1),
            bytes: (tail.credit.bytes / u64::from(parts)).max(1),
        };
        let one = |(partition, next): (&u32, &i64)| {
            let (partitions, start) = (Some(vec![*partition]), Some(Start::Offset(*next)));
            Wanted::Tail(Tail { partitions, start, credit, ..tail.clone() })
        };
        positions.iter().map(one).collect()
    }

    /// A lane of a report, if it is one of this reader, under the name that it has here.
    fn own<'a>(&self, lane: &'a ResumedLane) -> Option<(u32, &'a ResumedLane)> {
        let number = lane.selection.unwrap_or(lane.subscription);
        if !self.numbers.contains(&number) {
            return None;
        }
        if lane.selection.is_some() {
            // Its client may have missed that it joined.
            self.shared.with_parts(|parts| parts.join(lane.subscription, &lane.topic));
        }
        Some((self.shared.lane(lane.subscription, lane.partition)?, lane))
    }

    pub fn on_resumed(&mut self, report: &ResumeReport) {
        let ours: Vec<(u32, &ResumedLane)> = report.lanes.iter().filter_map(|lane| self.own(lane)).collect();
        let lost = self.shared.with(|inbox| {
            inbox.reopen();
            let mut lost = Vec::new();
            for (partition, _) in inbox.lanes() {
                let resumed =
                    ours.iter().find(|(of, lane)| *of == partition && lane.outcome == ResumeOutcome::Resumed);
                match resumed {
                    Some((_, lane)) => inbox.on_resumed(partition, lane.epoch, lane.round),
                    None => lost.extend(inbox.on_revoked(partition, i64::MAX)),
                }
            }
            for (own, lane) in ours.iter().filter(|(_, lane)| lane.outcome == ResumeOutcome::Resumed) {
                if !inbox.holds(*own, lane.epoch) {
                    lost.extend(inbox.on_granted(*own, lane.epoch, lane.round));
                }
            }
            lost
        });
        refuse(lost);
    }

    pub fn on_reset(&mut self, now: Instant) {
        self.numbers.clear();
        self.shared.with_parts(Parts::reset);
        match self.wanted {
            Wanted::Group(_) | Wanted::Select(_) => refuse(self.shared.with(|inbox| inbox.reset())),
            Wanted::Tail(_) => self.shared.with(|inbox| inbox.rewind()),
        }
        if self.phase != Phase::Leaving {
            self.phase = Phase::Wanted(now);
        }
    }
}
