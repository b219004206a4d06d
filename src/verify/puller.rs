//! A puller: pops messages over HTTP at one broker and acknowledges them at another; now and then it is gone when it should, and comes
//! back too late.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use laneway_client::admin::AdminError;
use laneway_client::pull_api::{Pop, PopAck, PopRequest};
use laneway_client::{Class, ErrorCode};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::history::Event;
use super::later::admin_of;
use super::scene::Scene;
use super::settings::{LATER, PULLERS};

/// How long a pop waits for messages.
const WAIT_MS: u32 = 400;
/// How long a puller may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// After a try that has brought no answer.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Messages of a pop, at most.
const MESSAGES_MAX: u32 = 20;
/// One pop in so many is acknowledged too late.
const LATE_EVERY: u32 = 25;

/// See the module.
pub(super) struct Puller {
    random: StdRng,
    scene: Arc<Scene>,
}

impl Puller {
    pub fn new(seed: u64, scene: Arc<Scene>) -> Self {
        Self { random: StdRng::seed_from_u64(seed), scene }
    }

    /// Pulls until it is stopped.
    pub async fn run(mut self) {
        let stop = self.scene.stop.clone();
        while !stop.is_cancelled() {
            match stop.run_until_cancelled(self.pop()).await {
                Some(Some(pop)) => self.work(&pop).await,
                Some(None) => tokio::time::sleep(RETRY_PAUSE).await,
                None => return,
            }
        }
    }

    fn broker(&mut self) -> SocketAddr {
        let brokers = &self.scene.brokers;
        brokers[self.random.random_range(0..brokers.len())]
    }

    async fn pop(&mut self) -> Option<Pop> {
        let admin = admin_of(self.broker())?;
        let wish = PopRequest {
            max_messages: Some(self.random.random_range(1..=MESSAGES_MAX)),
            wait_ms: Some(WAIT_MS),
            ack_deadline_ms: Some(DEADLINE.as_millis() as u64),
            ..PopRequest::default()
        };
        let pop = tokio::time::timeout(PATIENCE, admin.pop(LATER, PULLERS, &wish)).await.ok()?.ok()??;
        let offsets = pop.messages.iter().map(|message| message.offset).collect();
        self.scene.recorder.note(Event::Popped { partition: pop.partition, epoch: pop.epoch, offsets });
        Some(pop)
    }

    /// Acknowledges a pop, until somebody knows what became of it.
    async fn work(&mut self, pop: &Pop) {
        if self.random.random_ratio(1, LATE_EVERY) {
            tokio::time::sleep(DEADLINE + DEADLINE / 4).await; // somebody else has it by now
        }
        let (partition, epoch, end) = (pop.partition, pop.epoch, pop.end_offset);
        self.scene.recorder.note(Event::PopAsked { partition, epoch });
        loop {
            let answer = match admin_of(self.broker()) {
                Some(admin) => {
                    let all = PopAck::all(pop);
                    tokio::time::timeout(PATIENCE, admin.ack(LATER, PULLERS, &all)).await.ok()
                }
                None => None,
            };
            let event = match answer {
                Some(Ok(_)) => Event::PopAcked { partition, epoch, end },
                Some(Err(AdminError::Refused(problem))) if problem.class == Class::Refused => {
                    Event::PopRefused { partition, epoch, fenced: problem.code == ErrorCode::LeaseLost }
                }
                Some(Err(_)) | None if self.scene.stop.is_cancelled() => return,
                Some(Err(_)) | None => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
            };
            return self.scene.recorder.note(event);
        }
    }
}
