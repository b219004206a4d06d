//! How long a lane holds after a nack, if the consumer says so: for a while, or until a moment.

use std::time::Duration;

use jiff::Timestamp;

/// A lane holds for no longer.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);
/// By how much clocks may differ: a moment that is so close to the bound is told as a pause instead.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(60);

/// What a nack asks for instead of the group's backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    After(Duration),
    Until(Timestamp),
}

impl Pause {
    /// As the members `delay_ms` and `until` of a nack. What is too long becomes as long as may be, and what is past is now: a broker
    /// refuses both, and nobody who has said nack would hear of that before the ack deadline.
    pub fn members(pause: Option<Self>, now: Timestamp) -> (Option<u64>, Option<String>) {
        let after = |pause: Duration| {
            (Some(u64::try_from(pause.min(PAUSE_MAX).as_millis()).unwrap_or(u64::MAX)), None)
        };
        match pause {
            None => (None, None),
            Some(Self::After(pause)) => after(pause),
            Some(Self::Until(until)) => match Duration::try_from(until.duration_since(now)) {
                Ok(pause) if pause + CLOCKS_DIFFER_MAX < PAUSE_MAX => (None, Some(until.to_string())),
                Ok(pause) => after(pause),
                Err(_) => after(Duration::ZERO),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nack_asks_for_no_pause_that_a_broker_refuses() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let until = |text: &str| Pause::members(Some(Pause::Until(text.parse().unwrap())), now);
        let after = |pause| Pause::members(Some(Pause::After(pause)), now);
        assert_eq!(Pause::members(None, now), (None, None));
        assert_eq!(after(Duration::from_millis(1_500)), (Some(1_500), None));
        assert_eq!(after(Duration::MAX), (Some(86_400_000), None));
        assert_eq!(until("2026-11-17T11:00:00Z"), (None, Some("2026-11-17T11:00:00Z".into())));
        assert_eq!(until("2026-11-17T11:59:30Z"), (Some(86_370_000), None));
        assert_eq!(until("2099-01-01T00:00:00Z"), (Some(86_400_000), None));
        assert_eq!(until("2026-11-16T11:00:00Z"), (Some(0), None));
    }
}
