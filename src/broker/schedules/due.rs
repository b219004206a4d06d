//! When a message is to be appended, as producers write it, and what of it can be judged without the database. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::limits::SCHEDULE_AHEAD_MAX;
pub use crate::store::schedules::{Due, TimeFault};

/// Why a time cannot be one, whatever the clock says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DueFault {
    #[error("a time is deliver_at or delay_ms, not both")]
    Twice,
    #[error("a time is needed: deliver_at or delay_ms")]
    Missing,
    #[error("{text:?} is not a time like 2026-11-16T12:00:00Z (RFC 3339)")]
    Unreadable { text: String },
    #[error("the delay is longer than {} days", SCHEDULE_AHEAD_MAX.as_secs() / 86_400)]
    TooLong,
    #[error("{0}")]
    Clock(TimeFault),
}

impl DueFault {
    /// The field at fault, as the wire names it.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Twice | Self::Missing | Self::Unreadable { .. } | Self::Clock(_) => "deliver_at",
            Self::TooLong => "delay_ms",
        }
    }
}

/// When a message is due; `None`: at once, as it is published.
pub fn due(deliver_at: Option<&str>, delay_ms: Option<u64>) -> Result<Option<Due>, DueFault> {
    match (deliver_at, delay_ms) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(DueFault::Twice),
        (Some(text), None) => match text.parse::<Timestamp>() {
            // Long past, whatever the clock says; and the database does not take every time that can be written.
            Ok(at) if at < Timestamp::UNIX_EPOCH => Err(DueFault::Clock(TimeFault::Past)),
            Ok(at) => Ok(Some(Due::At(at))),
            Err(_) => Err(DueFault::Unreadable { text: text.chars().take(100).collect() }),
        },
        (None, Some(delay_ms)) => match Duration::from_millis(delay_ms) {
            delay if delay > SCHEDULE_AHEAD_MAX => Err(DueFault::TooLong),
            delay => Ok(Some(Due::After(delay))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_given_once_and_can_be_read() {
        assert_eq!(due(None, None), Ok(None));
        assert_eq!(due(None, Some(1_500)), Ok(Some(Due::After(Duration::from_millis(1_500)))));
        let at = due(Some("2026-11-16T14:00:00+02:00"), None);
        assert_eq!(at, Ok(Some(Due::At("2026-11-16T12:00:00Z".parse().unwrap()))));
        assert_eq!(due(Some("2026-11-16T12:00:00Z"), Some(0)), Err(DueFault::Twice));
        assert!(matches!(due(Some("tomorrow"), None), Err(DueFault::Unreadable { .. })));
        assert_eq!(due(None, Some(u64::MAX)), Err(DueFault::TooLong));
        for past in ["1969-12-31T23:59:59.999999Z", "-004713-01-01T00:00:00Z", "-009999-01-02T01:59:59Z"] {
            assert_eq!(due(Some(past), None), Err(DueFault::Clock(TimeFault::Past)), "{past}");
        }
    }
}
