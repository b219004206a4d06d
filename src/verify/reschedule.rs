//! Second thoughts: messages that wait are cancelled, or get another time, at whichever broker answers, until one has. Some of them are
//! due in the same moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use laneway_client::admin::AdminError;
use laneway_client::schedule::MoveSchedule;
use laneway_client::{Admin, Class, ErrorCode};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::history::{Event, Recorder};
use super::later::{Later, admin_of};

/// How far ahead a message is moved, in milliseconds: before its first time or after it.
const AHEAD_MS: std::ops::Range<u64> = 100..2_500;
/// How long after its time somebody may still ask: too late, or nearly.
const LATE: Duration = Duration::from_millis(50);
/// After a try that has brought no answer.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Something that was seen of a message that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Second {
    /// It is about to be cancelled.
    CancelAsked { number: i64 },
    /// That was confirmed: it is never appended.
    Cancelled { number: i64 },
    /// It is about to be given this time.
    MoveAsked { number: i64, due_us: i64 },
    /// That was confirmed, at a moment.
    Moved { number: i64, due_us: i64, at_us: i64 },
    /// Either was refused, and no try is in doubt: it does not wait any more, so it was appended.
    Gone { number: i64 },
}

/// What is done about a message.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Cancel,
    MoveTo(Timestamp),
}

enum Tried {
    Done,
    Gone,
    /// Nothing happened.
    Again,
    /// It may have happened.
    Doubtful,
}

/// Cancels a message that waits or moves it, some time before it is due or just after.
pub(super) async fn think_again(
    brokers: Arc<[SocketAddr]>,
    recorder: Arc<Recorder>,
    seed: u64,
    schedule: i64,
    later: Later,
) {
    let mut random = StdRng::seed_from_u64(seed);
    let left_us = later.due_us - Timestamp::now().as_microsecond();
    let left = Duration::from_micros(u64::try_from(left_us).unwrap_or(0)) + LATE;
    tokio::time::sleep(left.mul_f64(random.random_range(0.0..1.0))).await;
    let Later { number, .. } = later;
    let due_us = Timestamp::now().as_microsecond() + 1_000 * random.random_range(AHEAD_MS) as i64;
    let wish = match Timestamp::from_microsecond(due_us) {
        Ok(due) if random.random_bool(0.5) => Wish::MoveTo(due),
        Ok(_) | Err(_) => Wish::Cancel,
    };
    let note = |second| recorder.note(Event::Second(second));
    note(match wish {
        Wish::Cancel => Second::CancelAsked { number },
        Wish::MoveTo(_) => Second::MoveAsked { number, due_us },
    });
    let mut in_doubt = false;
    loop {
        let address = brokers[random.random_range(0..brokers.len())];
        let tried = match admin_of(address) {
            Some(admin) => attempt(&admin, schedule, wish).await,
            None => Tried::Again,
        };
        match (tried, wish) {
            (Tried::Done, Wish::Cancel) => return note(Second::Cancelled { number }),
            (Tried::Done, Wish::MoveTo(_)) => {
                let at_us = Timestamp::now().as_microsecond();
                return note(Second::Moved { number, due_us, at_us });
            }
            (Tried::Gone, Wish::Cancel | Wish::MoveTo(_)) if in_doubt => return,
            (Tried::Gone, Wish::Cancel | Wish::MoveTo(_)) => return note(Second::Gone { number }),
            (Tried::Doubtful, Wish::Cancel | Wish::MoveTo(_)) => in_doubt = true,
            (Tried::Again, Wish::Cancel | Wish::MoveTo(_)) => {}
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

async fn attempt(admin: &Admin, schedule: i64, wish: Wish) -> Tried {
    let answer = async {
        match wish {
            Wish::Cancel => admin.cancel_schedule(schedule).await,
            Wish::MoveTo(due) => {
                let to = MoveSchedule { deliver_at: Some(due.to_string()), delay_ms: None };
                admin.move_schedule(schedule, &to).await.map(drop)
            }
        }
    };
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(())) => Tried::Done,
        Ok(Err(AdminError::Refused(problem))) if problem.code == ErrorCode::UnknownSchedule => Tried::Gone,
        Ok(Err(AdminError::Refused(problem))) if problem.class == Class::Retry => Tried::Again,
        Ok(Err(_)) | Err(_) => Tried::Doubtful,
    }
}
