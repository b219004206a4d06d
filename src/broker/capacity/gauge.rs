//! What is known about how deep one topic is, and whether a publish may go in. Pure: time comes as an argument.
//!
//! Depth is what the newest look has found, plus everything of this broker that may not be in it: what was let in and is not
//! answered, and what was answered since that look began. What others have written since then is not known; therefore a broker
//! lets in at most one flush per connection between two looks, or one publish that is larger: it goes in whole and alone.
//! Invariant: what is not known yet is counted, so that an old look refuses sooner, never later.

use std::time::{Duration, Instant};

use crate::limits::{CAPACITY_HIGH_PERCENT, CAPACITY_INTERVAL, CAPACITY_LOW_PERCENT, CAPACITY_RETRY_MAX};
use crate::store::timeline::Era;
use crate::store::topics::TopicLimits;

/// Messages and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub messages: u64,
    pub bytes: u64,
}

impl Load {
    fn plus(self, other: Load) -> Load {
        let (messages, bytes) =
            (self.messages.saturating_add(other.messages), self.bytes.saturating_add(other.bytes));
        Load { messages, bytes }
    }

    fn minus(self, other: Load) -> Load {
        let (messages, bytes) =
            (self.messages.saturating_sub(other.messages), self.bytes.saturating_sub(other.bytes));
        Load { messages, bytes }
    }

    fn is_more_than(self, other: Load) -> bool {
        self.messages > other.messages || self.bytes > other.bytes
    }
}

/// Which limit is meant, as settings name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    BacklogMessages,
    BacklogBytes,
    StoredBytes,
}

impl Limited {
    pub const fn as_str(self) -> &'static str {
        match self {
            Limited::BacklogMessages => "max_backlog_messages",
            Limited::BacklogBytes => "max_backlog_bytes",
            Limited::StoredBytes => "max_stored_bytes",
        }
    }
}

/// How much there is of what is limited, and how much there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    pub limited: Limited,
    pub depth: u64,
    pub limit: u64,
}

/// What one look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// By which the slowest counted group is behind; `None`: there is no such group, and so no backlog.
    pub backlog: Option<Load>,
    pub stored_bytes: u64,
    pub era: Era,
    /// When it began.
    pub at: Instant,
}

/// Whether a publish may go in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is counted from now on.
    Admitted,
    Full {
        reading: Reading,
        retry_after: Duration,
    },
    /// Too little is known: look, and ask again.
    LookFirst,
}

/// A mark was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossing {
    NearlyFull(Reading),
    RoomAgain(Reading),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Level {
    #[default]
    Low,
    High,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Gauge {
    look: Option<Look>,
    /// Let in, and not answered.
    pending: Load,
    /// Answered since the newest look began: it may not be in it.
    answered: Load,
    /// Of those, since the look that is under way began.
    answered_meanwhile: Load,
    /// Looks in a row that found it full.
    full_looks: u32,
    level: Level,
}

impl Gauge {
    /// Whether a publish may go in; if so, it is counted. A publish that is larger than a limit goes into an empty topic.
    pub fn judge(
        &mut self,
        load: Load,
        limits: &TopicLimits,
        allowance: Load,
        (now, era): (Instant, Era),
    ) -> Verdict {
        let Some(look) = self.look.filter(|look| look.era == era) else { return Verdict::LookFirst };
        let unseen = self.unseen();
        let over = |with: Load| {
            readings(&look, limits, with).into_iter().flatten().find(|reading| {
                let more =
                    if reading.limited == Limited::BacklogMessages { load.messages } else { load.bytes };
                reading.depth > 0 && reading.depth.saturating_add(more) > reading.limit
            })
        };
        // What was answered since the look began may be in it: nothing is refused because it was counted twice.
        match (over(unseen), over(self.pending)) {
            (Some(_), _) if now.saturating_duration_since(look.at) > CAPACITY_INTERVAL => Verdict::LookFirst,
            (Some(_), None) => Verdict::LookFirst,
            (_, Some(reading)) => Verdict::Full { reading, retry_after: self.retry_after() },
            (None, None) if unseen != Load::default() && unseen.plus(load).is_more_than(allowance) => {
                Verdict::LookFirst
            }
            (None, None) => {
                self.pending = self.pending.plus(load);
                Verdict::Admitted
            }
        }
    }

    /// What this broker has let in that the newest look may not have seen.
    fn unseen(&self) -> Load {
        self.pending.plus(self.answered)
    }

    /// The longer it has been full, the longer.
    fn retry_after(&self) -> Duration {
        (CAPACITY_INTERVAL * (1 + self.full_looks.min(100))).min(CAPACITY_RETRY_MAX)
    }

    /// Something that was let in is written, or is not going to be.
    pub fn on_answered(&mut self, load: Load) {
        self.pending = self.pending.minus(load);
        self.answered = self.answered.plus(load);
        self.answered_meanwhile = self.answered_meanwhile.plus(load);
    }

    /// Whether the newest look has begun at a moment or later.
    pub fn has_looked_since(&self, moment: Instant) -> bool {
        self.look.is_some_and(|look| look.at >= moment)
    }

    /// A look begins: what is answered from here on may not be in it.
    pub fn on_look_begun(&mut self) {
        self.answered_meanwhile = Load::default();
    }

    /// A look has ended. Returns the mark that was passed, if one was.
    pub fn on_looked(&mut self, look: Look, limits: &TopicLimits) -> Option<Crossing> {
        self.look = Some(look);
        self.answered = self.answered_meanwhile;
        let fullest = self.readings(limits).max_by_key(|reading| percent(*reading))?;
        let percent = percent(fullest);
        self.full_looks = if percent >= 100 { self.full_looks.saturating_add(1) } else { 0 };
        match self.level {
            Level::Low if percent >= CAPACITY_HIGH_PERCENT => {
                self.level = Level::High;
                Some(Crossing::NearlyFull(fullest))
            }
            Level::High if percent < CAPACITY_LOW_PERCENT => {
                self.level = Level::Low;
                Some(Crossing::RoomAgain(fullest))
            }
            Level::Low | Level::High => None,
        }
    }

    /// How much there is of what is limited, as far as it is known.
    pub fn readings(&self, limits: &TopicLimits) -> impl Iterator<Item = Reading> {
        let readings = self.look.map(|look| readings(&look, limits, Load::default()));
        readings.into_iter().flatten().flatten()
    }

    pub fn is_high(&self) -> bool {
        self.level == Level::High
    }
}

fn readings(look: &Look, limits: &TopicLimits, unseen: Load) -> [Option<Reading>; 3] {
    let backlog = look.backlog.map_or(Load::default(), |backlog| backlog.plus(unseen));
    let stored_bytes = look.stored_bytes.saturating_add(unseen.bytes);
    let reading = |limited, depth, limit: Option<u64>| limit.map(|limit| Reading { limited, depth, limit });
    [
        reading(Limited::BacklogMessages, backlog.messages, limits.backlog_messages),
        reading(Limited::BacklogBytes, backlog.bytes, limits.backlog_bytes),
        reading(Limited::StoredBytes, stored_bytes, limits.stored_bytes),
    ]
}

fn percent(reading: Reading) -> u64 {
    (u128::from(reading.depth) * 100 / u128::from(reading.limit.max(1))) as u64
}

#[cfg(test)]
#[path = "gauge_tests.rs"]
mod tests;
