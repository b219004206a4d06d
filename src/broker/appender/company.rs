//! Whether an appender meets other brokers at the locks of its partitions, and what it does then. Pure.
//!
//! Alone, it leaves out what is locked, because that is rare and its neighbours must not wait. In company that would be every
//! second flush, sent in vain: then it queues for the locks, for a bounded time, and is let in as soon as the other has committed.
//! Whoever has waited in vain has met a frozen broker, and leaves partitions out again for a while.

use std::time::Instant;

use crate::limits::{FLUSH_COMPANY, FLUSH_IMPATIENCE};
use crate::store::flush::LockMode;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Company {
    #[default]
    Alone,
    /// Another broker had a partition of ours locked.
    Met { until: Instant },
    /// Somebody does not let go.
    Stuck { until: Instant },
}

impl Company {
    /// How the next flush takes its locks.
    pub fn mode(self, now: Instant) -> LockMode {
        match self {
            Company::Met { until } if now < until => LockMode::Queue,
            Company::Met { .. } | Company::Alone | Company::Stuck { .. } => LockMode::Skip,
        }
    }

    /// A partition was left out.
    pub fn on_skipped(&mut self, now: Instant) {
        match *self {
            Company::Stuck { until } if now < until => {}
            Company::Stuck { .. } | Company::Alone | Company::Met { .. } => {
                *self = Company::Met { until: now + FLUSH_COMPANY };
            }
        }
    }

    /// A flush has waited for its locks and did not get them in time.
    pub fn on_waited_in_vain(&mut self, now: Instant) {
        *self = Company::Stuck { until: now + FLUSH_IMPATIENCE };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_meets_another_broker_queues_and_who_waits_in_vain_does_not_for_a_while() {
        let now = Instant::now();
        let mut company = Company::default();
        assert_eq!(company.mode(now), LockMode::Skip);
        company.on_skipped(now);
        assert_eq!(company.mode(now), LockMode::Queue);
        assert_eq!(company.mode(now + FLUSH_COMPANY), LockMode::Skip, "asks again whether there is company");
        company.on_waited_in_vain(now);
        company.on_skipped(now);
        assert_eq!(company.mode(now), LockMode::Skip);
        company.on_skipped(now + FLUSH_IMPATIENCE);
        assert_eq!(company.mode(now + FLUSH_IMPATIENCE), LockMode::Queue);
    }
}
