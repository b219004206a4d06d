//! How long a lane holds after a nack, if its consumer says so: for a while, or until a moment. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::limits::{NACK_DELAY_MAX, SCHEDULE_PAST_MAX};

/// Why a moment is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PauseFault {
    #[error("{text:?} is not a time like 2026-11-16T12:00:00Z (RFC 3339)")]
    Unreadable { text: String },
    #[error("until is past by more than {} s", SCHEDULE_PAST_MAX.as_secs())]
    Past,
    #[error("a lane holds for {} s at most", NACK_DELAY_MAX.as_secs())]
    Far,
    #[error("a lane holds for {} s at most", NACK_DELAY_MAX.as_secs())]
    TooLong,
}

impl PauseFault {
    /// The field at fault, as the wire names it.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::Past | Self::Far => "until",
            Self::TooLong => "delay_ms",
        }
    }
}

/// What a nack asks for, which is one of both; `None`: the backoff of the group. A moment that is just past is now.
pub fn pause(
    delay_ms: Option<u64>,
    until: Option<&str>,
    now: Timestamp,
) -> Result<Option<Duration>, PauseFault> {
    let Some(text) = until else {
        return match delay_ms.map(Duration::from_millis) {
            Some(delay) if delay > NACK_DELAY_MAX => Err(PauseFault::TooLong),
            delay => Ok(delay),
        };
    };
    let Ok(until) = text.parse::<Timestamp>() else {
        return Err(PauseFault::Unreadable { text: text.chars().take(100).collect() });
    };
    match Duration::try_from(until.duration_since(now)) {
        Ok(pause) if pause > NACK_DELAY_MAX => Err(PauseFault::Far),
        Ok(pause) => Ok(Some(pause)),
        Err(_) if now.duration_since(until).unsigned_abs() > SCHEDULE_PAST_MAX => Err(PauseFault::Past),
        Err(_) => Ok(Some(Duration::ZERO)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_holds_for_a_while_or_until_a_moment() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let until = |text| pause(None, Some(text), now);
        assert_eq!(pause(None, None, now), Ok(None));
        assert_eq!(pause(Some(86_400_000), None, now), Ok(Some(NACK_DELAY_MAX)));
        assert_eq!(pause(Some(86_400_001), None, now), Err(PauseFault::TooLong));
        assert_eq!(pause(Some(u64::MAX), None, now), Err(PauseFault::TooLong));
        assert_eq!(until("2026-11-16T14:00:01.5+02:00"), Ok(Some(Duration::from_millis(1_500))));
        assert_eq!(until("2026-11-16T11:59:30Z"), Ok(Some(Duration::ZERO)));
        assert_eq!(until("2026-11-16T11:58:59Z"), Err(PauseFault::Past));
        assert_eq!(until("2026-11-17T12:00:01Z"), Err(PauseFault::Far));
        assert!(matches!(until("soon"), Err(PauseFault::Unreadable { .. })));
    }
}
