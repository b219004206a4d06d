//! What belongs to a group: its defaults, its bounds, and whether a subscriber agrees with them. Pure.

use std::time::Duration;

use laneway_client::wire::{self, GroupOrdering, OnExpiry, OnFailure, WantedSettings};

use crate::limits::{
    ACK_DEADLINE_MAX, ACK_DEADLINE_MIN, AGE_MAX, ATTEMPTS_MAX, BACKOFF_FACTOR_MAX, BACKOFF_MAX,
    WINDOW_MAX_FACTOR, WINDOW_MIN,
};
use crate::store::groups::{FailurePolicy, GroupCapacity, GroupSettings, Ordering};
use crate::store::windows::{ExpiryPolicy, Windows};

/// A setting outside its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} must be {rule}")]
pub struct InvalidSetting {
    pub field: &'static str,
    pub rule: String,
}

/// A setting in which a subscriber differs from its group.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the group has {field} {has}, and this subscriber asks for {asks}")]
pub struct Mismatch {
    pub field: &'static str,
    pub has: String,
    pub asks: String,
}

/// What a group has unless its first subscriber says otherwise.
pub fn defaults() -> GroupSettings {
    GroupSettings {
        ack_deadline: Duration::from_secs(60),
        max_attempts: 5,
        backoff_base: Duration::from_millis(500),
        backoff_factor: 2.0,
        backoff_cap: Duration::from_secs(60),
        on_failure: FailurePolicy::DeadLetter,
        capacity: GroupCapacity::Counted,
        windows: Windows::default(),
        ordering: Ordering::Partition,
    }
}

/// The settings of a group that is made by this request.
pub fn checked(request: &WantedSettings) -> Result<GroupSettings, InvalidSetting> {
    let defaults = defaults();
    let ms = |field, value: Option<u64>, default: Duration, min: Duration, max: Duration| {
        let value = value.map_or(default, Duration::from_millis);
        let rule = || format!("between {} and {} milliseconds", min.as_millis(), max.as_millis());
        if (min..=max).contains(&value) { Ok(value) } else { Err(InvalidSetting { field, rule: rule() }) }
    };
    let max_attempts = request.max_attempts.unwrap_or(defaults.max_attempts);
    if !(1..=ATTEMPTS_MAX).contains(&max_attempts) {
        let rule = format!("between 1 and {ATTEMPTS_MAX}");
        return Err(InvalidSetting { field: "max_attempts", rule });
    }
    let backoff_factor = request.backoff_factor.unwrap_or(defaults.backoff_factor);
    if !(1.0..=BACKOFF_FACTOR_MAX).contains(&backoff_factor) {
        let rule = format!("between 1 and {BACKOFF_FACTOR_MAX}");
        return Err(InvalidSetting { field: "backoff_factor", rule });
    }
    let on_failure = request.on_failure.map_or(defaults.on_failure, failure_policy);
    let ordering = request.ordering.map_or(defaults.ordering, ordering);
    if on_failure == FailurePolicy::Park && ordering != Ordering::Key {
        let rule = "dead_letter, block or skip unless ordering is key: only keys can be parked".to_owned();
        return Err(InvalidSetting { field: "on_failure", rule });
    }
    let zero = Duration::ZERO;
    Ok(GroupSettings {
        ack_deadline: ms(
            "ack_deadline_ms",
            request.ack_deadline_ms,
            defaults.ack_deadline,
            ACK_DEADLINE_MIN,
            ACK_DEADLINE_MAX,
        )?,
        max_attempts,
        backoff_base: ms(
            "backoff_base_ms",
            request.backoff_base_ms,
            defaults.backoff_base,
            zero,
            BACKOFF_MAX,
        )?,
        backoff_factor,
        backoff_cap: ms("backoff_cap_ms", request.backoff_cap_ms, defaults.backoff_cap, zero, BACKOFF_MAX)?,
        on_failure,
        capacity: request.capacity.map_or(defaults.capacity, capacity),
        windows: windows(request)?,
        ordering,
    })
}

/// As the store writes it.
pub fn failure_policy(wanted: OnFailure) -> FailurePolicy {
    match wanted {
        OnFailure::DeadLetter => FailurePolicy::DeadLetter,
        OnFailure::Block => FailurePolicy::Block,
        OnFailure::Skip => FailurePolicy::Skip,
        OnFailure::Park => FailurePolicy::Park,
    }
}

/// As the store writes it.
pub fn ordering(wanted: GroupOrdering) -> Ordering {
    match wanted {
        GroupOrdering::Partition => Ordering::Partition,
        GroupOrdering::Key => Ordering::Key,
    }
}

/// As the store writes it.
pub fn capacity(wanted: wire::GroupCapacity) -> GroupCapacity {
    match wanted {
        wire::GroupCapacity::Counted => GroupCapacity::Counted,
        wire::GroupCapacity::Excluded => GroupCapacity::Excluded,
    }
}

/// When a group that is made by this request delivers. No two of these may contradict each other.
fn windows(request: &WantedSettings) -> Result<Windows, InvalidSetting> {
    let ms = |field, value: Option<u64>| match Duration::from_millis(value.unwrap_or(0)) {
        value if value <= AGE_MAX => Ok(value),
        _ => broken(field, format!("at most {} milliseconds", AGE_MAX.as_millis())),
    };
    let windows = Windows {
        delay: ms("delay_ms", request.delay_ms)?,
        window: ms("window_ms", request.window_ms)?,
        window_max: ms("window_max_ms", request.window_max_ms)?,
        max_age: ms("max_age_ms", request.max_age_ms)?,
        on_expiry: expiry_policy(request.on_expiry.unwrap_or(OnExpiry::Evict)),
    };
    let Windows { delay, window, window_max, max_age, .. } = windows;
    if !window.is_zero() && window < WINDOW_MIN {
        return broken("window_ms", format!("0, or at least {} milliseconds", WINDOW_MIN.as_millis()));
    }
    if !window_max.is_zero() && (window.is_zero() || window_max < window) {
        return broken("window_max_ms", "0, or with a window_ms that is not longer".to_owned());
    }
    let longest = if window_max.is_zero() { window * WINDOW_MAX_FACTOR } else { window_max };
    if !max_age.is_zero() && max_age <= delay.max(longest) {
        let rule = format!(
            "0, or longer than {} milliseconds: so long messages wait",
            delay.max(longest).as_millis()
        );
        return broken("max_age_ms", rule);
    }
    Ok(windows)
}

const fn broken<T>(field: &'static str, rule: String) -> Result<T, InvalidSetting> {
    Err(InvalidSetting { field, rule })
}

/// As the store has it.
pub fn expiry_policy(on_expiry: OnExpiry) -> ExpiryPolicy {
    match on_expiry {
        OnExpiry::Evict => ExpiryPolicy::Evict,
        OnExpiry::DeadLetter => ExpiryPolicy::DeadLetter,
    }
}

/// What a group would have if these were altered: those of its settings that must not contradict each other.
pub fn altered(group: &GroupSettings, request: &WantedSettings) -> WantedSettings {
    let has = described(group);
    WantedSettings {
        delay_ms: request.delay_ms.or(Some(has.delay_ms)),
        window_ms: request.window_ms.or(Some(has.window_ms)),
        window_max_ms: request.window_max_ms.or(Some(has.window_max_ms)),
        max_age_ms: request.max_age_ms.or(Some(has.max_age_ms)),
        on_failure: request.on_failure.or(Some(has.on_failure)),
        ordering: request.ordering.or(Some(has.ordering)),
        ..*request
    }
}

/// Whether a subscriber agrees; what it leaves out, it agrees with.
pub fn agree(group: &GroupSettings, request: &WantedSettings) -> Result<(), Mismatch> {
    let has = described(group);
    differs("ack_deadline_ms", has.ack_deadline_ms, request.ack_deadline_ms)?;
    differs("max_attempts", has.max_attempts, request.max_attempts)?;
    differs("backoff_base_ms", has.backoff_base_ms, request.backoff_base_ms)?;
    differs("backoff_factor", has.backoff_factor, request.backoff_factor)?;
    differs("backoff_cap_ms", has.backoff_cap_ms, request.backoff_cap_ms)?;
    differs("on_failure", has.on_failure.as_str(), request.on_failure.map(OnFailure::as_str))?;
    differs("capacity", has.capacity.as_str(), request.capacity.map(wire::GroupCapacity::as_str))?;
    differs("delay_ms", has.delay_ms, request.delay_ms)?;
    differs("window_ms", has.window_ms, request.window_ms)?;
    differs("window_max_ms", has.window_max_ms, request.window_max_ms)?;
    differs("max_age_ms", has.max_age_ms, request.max_age_ms)?;
    differs("on_expiry", has.on_expiry.as_str(), request.on_expiry.map(OnExpiry::as_str))?;
    differs("ordering", has.ordering.as_str(), request.ordering.map(GroupOrdering::as_str))
}

fn differs<T: PartialEq + ToString>(field: &'static str, has: T, asks: Option<T>) -> Result<(), Mismatch> {
    match asks {
        Some(asks) if asks != has => Err(Mismatch { field, has: has.to_string(), asks: asks.to_string() }),
        Some(_) | None => Ok(()),
    }
}

/// As the wire tells them.
pub fn described(settings: &GroupSettings) -> wire::GroupSettings {
    let ms = |duration: Duration| duration.as_millis() as u64;
    wire::GroupSettings {
        ack_deadline_ms: ms(settings.ack_deadline),
        max_attempts: settings.max_attempts,
        backoff_base_ms: ms(settings.backoff_base),
        backoff_factor: settings.backoff_factor,
        backoff_cap_ms: ms(settings.backoff_cap),
        on_failure: match settings.on_failure {
            FailurePolicy::DeadLetter => OnFailure::DeadLetter,
            FailurePolicy::Block => OnFailure::Block,
            FailurePolicy::Skip => OnFailure::Skip,
            FailurePolicy::Park => OnFailure::Park,
        },
        capacity: match settings.capacity {
            GroupCapacity::Counted => wire::GroupCapacity::Counted,
            GroupCapacity::Excluded => wire::GroupCapacity::Excluded,
        },
        delay_ms: ms(settings.windows.delay),
        window_ms: ms(settings.windows.window),
        window_max_ms: ms(settings.windows.window_max),
        max_age_ms: ms(settings.windows.max_age),
        on_expiry: match settings.windows.on_expiry {
            ExpiryPolicy::Evict => OnExpiry::Evict,
            ExpiryPolicy::DeadLetter => OnExpiry::DeadLetter,
        },
        ordering: match settings.ordering {
            Ordering::Partition => GroupOrdering::Partition,
            Ordering::Key => GroupOrdering::Key,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_agreed_with_and_what_differs_is_named() {
        let group = checked(&WantedSettings::default()).unwrap();
        assert_eq!(group, defaults());
        assert_eq!(agree(&group, &WantedSettings::default()), Ok(()));
        let same = WantedSettings { backoff_factor: Some(2.0), ..WantedSettings::default() };
        assert_eq!(agree(&group, &same), Ok(()));
        let other = WantedSettings { max_attempts: Some(6), ..WantedSettings::default() };
        assert_eq!(agree(&group, &other).unwrap_err().field, "max_attempts");
        let absurd = WantedSettings { max_attempts: Some(0), ..WantedSettings::default() };
        assert_eq!(checked(&absurd).unwrap_err().field, "max_attempts");
    }

    #[test]
    fn windows_that_contradict_each_other_are_refused_by_name() {
        let wanted = |change: fn(&mut WantedSettings)| {
            let mut wanted = WantedSettings::default();
            change(&mut wanted);
            checked(&wanted).map(|_| ()).map_err(|error| error.field)
        };
        assert_eq!(wanted(|w| (w.window_ms, w.max_age_ms) = (Some(100), Some(1_001))), Ok(()));
        assert_eq!(wanted(|w| w.window_ms = Some(9)), Err("window_ms"));
        assert_eq!(wanted(|w| w.window_max_ms = Some(100)), Err("window_max_ms"));
        assert_eq!(wanted(|w| (w.window_ms, w.window_max_ms) = (Some(100), Some(99))), Err("window_max_ms"));
        assert_eq!(wanted(|w| (w.window_ms, w.max_age_ms) = (Some(100), Some(1_000))), Err("max_age_ms"));
        assert_eq!(wanted(|w| (w.delay_ms, w.max_age_ms) = (Some(100), Some(100))), Err("max_age_ms"));
        assert_eq!(wanted(|w| w.delay_ms = Some(u64::MAX)), Err("delay_ms"));
        let delayed = checked(&WantedSettings { delay_ms: Some(100), ..WantedSettings::default() }).unwrap();
        let young = WantedSettings { max_age_ms: Some(50), ..WantedSettings::default() };
        assert!(checked(&young).is_ok());
        assert_eq!(checked(&altered(&delayed, &young)).unwrap_err().field, "max_age_ms");
    }
}
