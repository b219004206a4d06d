//! Messages that wait: published with a time, named by a transaction id, at whichever broker answers, until one has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use laneway_client::admin::AdminError;
use laneway_client::message::PublishMessage;
use laneway_client::{Admin, Class};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::history::{Event, Recorder};
use super::reschedule::think_again;
use super::settings::{LATER, LATER_PARTITIONS};

/// How long a message waits: across a fault or two.
const WAITS_MS: std::ops::Range<u64> = 200..3_000;
/// Between two publishes.
const PAUSE: Duration = Duration::from_millis(40);
/// After a try that has brought no answer.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// One message in so many is cancelled or moved.
const SECOND_EVERY: u32 = 5;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// A message that waits, as its payload says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Later {
    pub number: i64,
    /// When it is due, in microseconds since 1970.
    pub due_us: i64,
}

impl Later {
    fn payload(self) -> String {
        format!("{}-{}", self.number, self.due_us)
    }

    /// Reads it back; `None`: nobody has published that.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (number, due_us) = std::str::from_utf8(payload).ok()?.split_once('-')?;
        Some(Self { number: number.parse().ok()?, due_us: due_us.parse().ok()? })
    }
}

/// The HTTP API of a broker, by way of its wire.
pub(super) fn admin_of(address: SocketAddr) -> Option<Admin> {
    Admin::new(&format!("ws://{address}/v1/ws")).ok()
}

/// Publishes until it is enough, and until everything is answered, second thoughts among it.
pub(super) async fn publish_later(
    brokers: Arc<[SocketAddr]>,
    recorder: Arc<Recorder>,
    seed: u64,
    enough: CancellationToken,
) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut seconds = JoinSet::new();
    for number in 0.. {
        if enough.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
            break;
        }
        let waits_ms = random.random_range(WAITS_MS) as i64;
        let later = Later { number, due_us: Timestamp::now().as_microsecond() + 1_000 * waits_ms };
        loop {
            let address = brokers[random.random_range(0..brokers.len())];
            match try_publish(address, later).await {
                Tried::Scheduled { schedule } => {
                    recorder.note(Event::Scheduled { later, at_us: Timestamp::now().as_microsecond() });
                    if let Some(schedule) = schedule.filter(|_| random.random_ratio(1, SECOND_EVERY)) {
                        let (brokers, recorder) = (brokers.clone(), recorder.clone());
                        seconds.spawn(think_again(brokers, recorder, random.random(), schedule, later));
                    }
                }
                Tried::Refused => {}
                Tried::Again => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
            }
            break;
        }
    }
    seconds.join_all().await;
}

enum Tried {
    /// It is written down, now or before, under this id if it waits.
    Scheduled {
        schedule: Option<i64>,
    },
    /// Its time has passed by too much meanwhile: nobody has taken it.
    Refused,
    Again,
}

async fn try_publish(address: SocketAddr, later: Later) -> Tried {
    let Some(admin) = admin_of(address) else { return Tried::Again };
    let Ok(due) = Timestamp::from_microsecond(later.due_us) else { return Tried::Refused };
    let message = serde_json::json!({
        "payload": later.payload(),
        "partition": later.number % i64::from(LATER_PARTITIONS),
        "transaction_id": format!("later-{}", later.number),
        "deliver_at": due.to_string(),
    });
    let Ok(message) = serde_json::from_str::<PublishMessage>(&message.to_string()) else {
        return Tried::Refused;
    };
    match tokio::time::timeout(PATIENCE, admin.publish_message(LATER, &message)).await {
        Ok(Ok(result)) => match result.error {
            None => Tried::Scheduled { schedule: result.schedule },
            Some(problem) if problem.class == Class::Refused => Tried::Refused,
            Some(_) => Tried::Again,
        },
        Ok(Err(AdminError::Refused(problem))) if problem.class == Class::Refused => Tried::Refused,
        Ok(Err(_)) | Err(_) => Tried::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_read_back_from_its_payload_and_from_no_other() {
        let later = Later { number: 7, due_us: 1_800_000_000_000_000 };
        assert_eq!(Later::parse(later.payload().as_bytes()), Some(later));
        for broken in ["", "7", "7-", "x-7", "7-x"] {
            assert_eq!(Later::parse(broken.as_bytes()), None, "{broken:?}");
        }
    }
}
