//! How long a message that failed waits for its next try. Pure: the randomness is an argument.

use std::time::Duration;

use crate::store::groups::GroupSettings;

/// base × factor^(attempts − 1), at most the cap, spread over its upper half by `jitter` in [0, 1).
pub fn delay(settings: &GroupSettings, attempts: u32, jitter: f64) -> Duration {
    let exponent = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
    let base = settings.backoff_base.as_secs_f64() * settings.backoff_factor.powi(exponent);
    let capped = base.min(settings.backoff_cap.as_secs_f64());
    Duration::from_secs_f64(capped * (0.5 + jitter / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::groups::settings::defaults;

    #[test]
    fn delays_grow_up_to_the_cap() {
        let settings = defaults();
        let at = |attempts| delay(&settings, attempts, 0.999_999);
        assert!(at(1) <= settings.backoff_base);
        assert!(at(2) > at(1) && at(3) > at(2));
        assert!(at(1_000) <= settings.backoff_cap);
        assert!(delay(&settings, 1, 0.0) >= settings.backoff_base / 2);
    }
}
