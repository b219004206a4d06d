//! What of a free lane is due: pops keep the delays, windows and ages of a group as sessions do (`groups::windows` has the rules).
//!
//! Nothing is kept in memory but what saves reads: how far a window was opened stands in the lane's row, and what has expired is
//! settled under the epoch under which the lane was seen. Whoever had the lane meanwhile has raised it, and nothing happens.

use std::time::{Duration, Instant};

use super::rules;
use super::{PopKey, PullError, Refused, Surroundings};
use crate::broker::clock::until_passed;
use crate::broker::groups::evict::{At, expired};
use crate::broker::groups::windows::{self, Due};
use crate::broker::reader::ReadError;
use crate::ids::Offset;
use crate::limits::COMMIT_RETRY_PAUSE;
use crate::store::Error;
use crate::store::messages::Message;
use crate::store::pops::FreeLane;
use crate::store::windows::Windows;

/// What stands in line of a lane.
#[derive(Debug)]
pub(super) enum Line {
    /// These can be taken, and so far its window is open.
    Due { messages: Vec<Message>, open_until: Offset },
    /// None of it before this moment.
    Waits { until: Instant },
    /// The first one has expired.
    Expired(At),
}

/// What has become of messages that have expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    /// The lane is past some of them.
    On,
    /// Somebody else has it, or has done the same.
    NotNow,
}

/// What of the messages of a lane is due.
pub(super) async fn in_line(
    surroundings: &Surroundings,
    windows: &Windows,
    lane: &FreeLane,
    messages: Vec<Message>,
) -> Result<Line, Error> {
    let Some(first) = messages.first() else {
        return Ok(Line::Due { messages, open_until: lane.open_until });
    };
    if windows::is_timeless(windows, messages.iter()) {
        return Ok(Line::Due { messages, open_until: lane.open_until });
    }
    let (now, from) = (Instant::now(), first.offset);
    let Some(time) = surroundings.lease.clock().at_least(now) else {
        return Ok(Line::Waits { until: now + COMMIT_RETRY_PAUSE });
    };
    match windows::due(windows, lane.open_until, messages.iter(), time) {
        Due::Now(count) => Ok(cut(messages, count, lane.open_until)),
        Due::Later(wait) => Ok(Line::Waits { until: now + until_passed(wait) }),
        Due::Expired => Ok(Line::Expired(At { from, now: time })),
        Due::Closed { published_at } => {
            let head = surroundings.store.head_newest(lane.at.partition_id).await?;
            let Some((next, newest)) = head else {
                return Ok(Line::Waits { until: now + COMMIT_RETRY_PAUSE });
            };
            match windows::closed_for(windows, published_at, newest, time) {
                Duration::ZERO => match windows::due(windows, next, messages.iter(), time) {
                    Due::Now(count) => Ok(cut(messages, count, next)),
                    Due::Later(_) | Due::Closed { .. } | Due::Expired => Ok(Line::Waits { until: now }),
                },
                wait => Ok(Line::Waits { until: now + until_passed(wait) }),
            }
        }
    }
}

fn cut(mut messages: Vec<Message>, count: usize, open_until: Offset) -> Line {
    messages.truncate(count);
    Line::Due { messages, open_until }
}

/// Moves a free lane past what has expired, if nobody has had it since it was seen.
pub(super) async fn evict(
    surroundings: &Surroundings,
    key: &PopKey,
    at: At,
    windows: &Windows,
) -> Result<Moved, PullError> {
    let Surroundings { store, reader, metrics, .. } = surroundings;
    let eviction = match expired(store, reader, key.partition_id, at, windows).await {
        Ok(eviction) => eviction,
        Err(ReadError::OutOfRange { .. } | ReadError::UnknownPartition) => return Ok(Moved::NotNow), // it changes just now
        Err(error @ ReadError::Store(_)) => return Err(error.into()),
    };
    let settled = store.pops_settle(key, |lane| rules::evict(lane, &eviction)).await?;
    match settled {
        Some(Ok(done)) if !done.ranges.is_empty() => {
            metrics.on_evicted(&done);
            for range in &done.ranges {
                tracing::debug!(
                    partition = %key.partition_id, first = %range.first, end = %range.end, reason = range.why.as_str(),
                    policy = done.policy.as_str(), "messages have expired"
                );
            }
            Ok(Moved::On)
        }
        Some(Ok(_)) | None => Ok(Moved::NotNow),
        Some(Err(
            Refused::LeaseLost
            | Refused::BeyondSent { .. }
            | Refused::AlreadyDone { .. }
            | Refused::TooManyGaps
            | Refused::NeedsMessage { .. },
        )) => Ok(Moved::NotNow),
    }
}
