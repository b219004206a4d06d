//! How long a lane holds after a nack, if the consumer says so: for a while, or until a moment.

use std::time::Duration;

use jiff::Timestamp;

/// What a nack asks for instead of the group's backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    After(Duration),
    Until(Timestamp),
}

impl Pause {
    /// As the members `delay_ms` and `until` of a nack.
    pub fn members(pause: Option<Self>) -> (Option<u64>, Option<String>) {
        match pause {
            None => (None, None),
            Some(Self::After(pause)) => (Some(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)), None),
            Some(Self::Until(until)) => (None, Some(until.to_string())),
        }
    }
}
