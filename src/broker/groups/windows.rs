//! When messages are due: delays, windows, ages. Pure: the time is that of the database and comes as an argument.
//!
//! A message has expired if it is older than its group or its producer allows. One that has not is held back until it is old enough,
//! and until the window of its partition opens. Invariant: what is told to be due is due, if the time is not told too late.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use laneway_client::wire::Nack;

use crate::ids::{Offset, SessionId};
use crate::limits::WINDOW_MAX_FACTOR;
use crate::store::messages::Message;
use crate::store::windows::{Evicted, Expiry, Windows};

/// What may become of messages that stand in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// So many of them are due, from the first one on.
    Now(usize),
    /// None before so much time has passed.
    Later(Duration),
    /// The first one waits for its window.
    Closed { published_at: Timestamp },
    /// The first one has expired.
    Expired,
}

/// What a lane knows about its window, and what it is waiting for.
#[derive(Debug)]
pub struct LaneWindow {
    /// The message at this offset is not due before this moment.
    pub due: Option<(Offset, Instant)>,
    /// Everything below was let through already.
    pub open_until: Offset,
    /// Somebody is looking where the partition ends, or what of it has expired.
    pub looking: bool,
    /// What has expired is being written down.
    pub evicting: bool,
    /// A nack that came meanwhile: it counts when that is written down.
    pub nack: Option<(SessionId, Nack)>,
}

impl Default for LaneWindow {
    fn default() -> Self {
        Self { due: None, open_until: Offset::ZERO, looking: false, evicting: false, nack: None }
    }
}

impl LaneWindow {
    /// Whether what stands at an offset has to wait.
    pub fn holds(&self, from: Offset, now: Instant) -> bool {
        self.looking || self.due.is_some_and(|(offset, moment)| offset == from && moment > now)
    }
}

/// Whether messages can be sent without asking what time it is.
pub fn is_timeless<'a>(windows: &Windows, mut messages: impl Iterator<Item = &'a Message>) -> bool {
    let Windows { delay, window, max_age, .. } = windows;
    delay.is_zero() && window.is_zero() && max_age.is_zero() && messages.all(|message| message.ttl.is_none())
}

/// What of some messages is due.
pub fn due<'a>(
    windows: &Windows,
    open_until: Offset,
    messages: impl Iterator<Item = &'a Message>,
    now: Timestamp,
) -> Due {
    let mut count = 0;
    for message in messages {
        let obstacle = obstacle(windows, open_until, message, now);
        match obstacle {
            None => count += 1,
            Some(obstacle) if count == 0 => return obstacle,
            Some(_) => break,
        }
    }
    Due::Now(count)
}

fn obstacle(windows: &Windows, open_until: Offset, message: &Message, now: Timestamp) -> Option<Due> {
    if expiry(windows, message, now).is_some() {
        return Some(Due::Expired);
    }
    let age = age(message.published_at, now);
    if age < windows.delay {
        return Some(Due::Later(windows.delay - age));
    }
    let closed = !windows.window.is_zero() && message.offset >= open_until;
    closed.then_some(Due::Closed { published_at: message.published_at })
}

/// How long a window stays closed, if its first message was published then and the newest of its partition; zero: it opens.
pub fn closed_for(windows: &Windows, first: Timestamp, newest: Timestamp, now: Timestamp) -> Duration {
    let window_max = match windows.window_max.is_zero() {
        true => windows.window * WINDOW_MAX_FACTOR,
        false => windows.window_max.max(windows.window),
    };
    let quiet = windows.window.saturating_sub(age(newest, now));
    quiet.min(window_max.saturating_sub(age(first, now)))
}

/// Why a message has expired, if it has.
pub fn expiry(windows: &Windows, message: &Message, now: Timestamp) -> Option<Expiry> {
    let age = age(message.published_at, now);
    if !windows.max_age.is_zero() && age > windows.max_age {
        return Some(Expiry::MaxAge);
    }
    message.ttl.is_some_and(|ttl| age > ttl).then_some(Expiry::Ttl)
}

/// Those of some messages that have expired, as ranges.
pub fn expired(windows: &Windows, messages: &[Message], now: Timestamp) -> Vec<Evicted> {
    let mut ranges: Vec<Evicted> = Vec::new();
    for message in messages {
        let Some(why) = expiry(windows, message, now) else { continue };
        match ranges.last_mut().filter(|last| last.end == message.offset && last.why == why) {
            Some(last) => last.end = message.offset.plus(1),
            None => ranges.push(Evicted { first: message.offset, end: message.offset.plus(1), why }),
        }
    }
    ranges
}

/// How old something is; what is ahead of the clock has no age.
fn age(published_at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(published_at)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::ids::TraceId;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    fn message(offset: i64, published_ms: i64, ttl_ms: Option<u64>) -> Message {
        Message {
            offset: Offset(offset),
            published_at: at(published_ms),
            trace_id: TraceId::generate(),
            cause: None,
            origin: None,
            key: None,
            transaction_id: None,
            headers: None,
            content_type: None,
            data_key_id: None,
            payload: Bytes::new(),
            producer: None,
            ttl: ttl_ms.map(Duration::from_millis),
        }
    }

    #[test]
    fn a_delay_lets_through_what_is_old_enough_and_says_when_the_rest_is() {
        let windows = Windows { delay: 100 * MS, ..Windows::default() };
        let messages = [message(0, 0, None), message(1, 50, None), message(2, 150, None)];
        let due_at = |now| due(&windows, Offset(0), messages.iter(), at(now));
        assert_eq!(due_at(99), Due::Later(MS));
        assert_eq!(due_at(100), Due::Now(1));
        assert_eq!(due_at(150), Due::Now(2));
        assert_eq!(due_at(250), Due::Now(3));
    }

    #[test]
    fn a_window_opens_when_it_is_quiet_or_after_its_longest_wait() {
        let windows = Windows { window: 100 * MS, window_max: 300 * MS, ..Windows::default() };
        assert_eq!(closed_for(&windows, at(0), at(50), at(60)), 90 * MS);
        assert_eq!(closed_for(&windows, at(0), at(50), at(150)), Duration::ZERO);
        assert_eq!(closed_for(&windows, at(0), at(290), at(295)), 5 * MS);
        let patient = Windows { window_max: Duration::ZERO, ..windows };
        assert_eq!(closed_for(&patient, at(0), at(950), at(960)), 40 * MS);
        let messages = [message(4, 0, None), message(5, 0, None)];
        let closed = Due::Closed { published_at: at(0) };
        assert_eq!(due(&windows, Offset(4), messages.iter(), at(500)), closed);
        assert_eq!(due(&windows, Offset(5), messages.iter(), at(500)), Due::Now(1));
    }

    #[test]
    fn what_has_expired_is_found_in_ranges_by_reason() {
        let windows = Windows { max_age: 100 * MS, ..Windows::default() };
        let published = [(0, 0, None), (1, 10, None), (2, 20, None), (3, 90, Some(5)), (4, 95, None)];
        let messages = published.map(|(offset, ms, ttl)| message(offset, ms, ttl));
        let found = expired(&windows, &messages, at(115));
        let range = |first, end, why| Evicted { first: Offset(first), end: Offset(end), why };
        assert_eq!(found, [range(0, 2, Expiry::MaxAge), range(3, 4, Expiry::Ttl)]);
        assert_eq!(due(&windows, Offset(0), messages[2..].iter(), at(115)), Due::Now(1));
        assert_eq!(due(&windows, Offset(0), messages[3..].iter(), at(115)), Due::Expired);
    }

    proptest! {
        #[test]
        fn nothing_is_due_early_and_nothing_that_is_due_has_expired(
            published in prop::collection::vec((0i64..200, prop::option::of(1u64..200)), 1..20),
            delay in 0u32..200, max_age in 0u32..400, now in 0i64..600,
        ) {
            let windows = Windows { delay: MS * delay, max_age: MS * max_age, ..Windows::default() };
            let mut published = published;
            published.sort_unstable();
            let messages: Vec<Message> =
                published.iter().enumerate().map(|(offset, (ms, ttl))| message(offset as i64, *ms, *ttl)).collect();
            if let Due::Now(count) = due(&windows, Offset(0), messages.iter(), at(now)) {
                for (ms, ttl) in &published[..count] {
                    let age = now - ms;
                    prop_assert!(delay == 0 || age >= i64::from(delay));
                    prop_assert!(max_age == 0 || age <= i64::from(max_age));
                    prop_assert!(ttl.is_none_or(|ttl| age <= ttl as i64));
                }
            }
        }
    }
}
