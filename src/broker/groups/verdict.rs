//! What follows from a failure, by how often the message has failed and by the policy of its group. Pure.

use crate::store::groups::{FailurePolicy, GroupSettings};
use crate::store::times::FailureOutcome;

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Retry,
    DeadLetter,
    Block,
    Skip,
    Park,
}

impl Verdict {
    /// After so many attempts.
    pub fn of(attempts: u32, settings: &GroupSettings) -> Self {
        match settings.on_failure {
            _ if attempts < settings.max_attempts => Verdict::Retry,
            FailurePolicy::DeadLetter => Verdict::DeadLetter,
            FailurePolicy::Block => Verdict::Block,
            FailurePolicy::Skip => Verdict::Skip,
            FailurePolicy::Park => Verdict::Park,
        }
    }

    /// As it is written down.
    pub fn outcome(self) -> FailureOutcome {
        match self {
            Verdict::Retry | Verdict::Block => FailureOutcome::Retry,
            Verdict::DeadLetter => FailureOutcome::DeadLetter,
            Verdict::Skip => FailureOutcome::Skip,
            Verdict::Park => FailureOutcome::Park,
        }
    }
}
