//! What a client knows about topics: how many partitions they have and how large a payload may be. Asked for over HTTP.
//!
//! Kept until a broker says that it is not so: a topic that is deleted and made again with fewer partitions is learned anew
//! when a broker refuses a partition. A topic that is altered to more partitions refuses nothing, so that a client goes on
//! with the number that it knows: its keys keep their partitions until it is made anew (or forgets the topic among many
//! others), and only then are spread over all of them. A message without a home of its own is given one here: a partition for a
//! while, then the next, so that batches stay large and partitions are used evenly.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::check::TopicFacts;
use super::error::Error;
use super::options::backoff;
use crate::admin::{Admin, AdminError};
use crate::error_code::{Class, ErrorCode};
use crate::routing;
use crate::wire::NewMessage;

/// Topics that are remembered; a program that publishes to more asks again now and then.
const TOPICS_KEPT_MAX: usize = 1_024;
/// Messages without a home that go to one partition before the next has its turn.
const HOMELESS_TOGETHER: u64 = 100;
/// First and longest pause before asking again.
const ASK_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

#[derive(Debug)]
struct Known {
    name: Arc<str>,
    facts: TopicFacts,
    homeless: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Topics {
    brokers: Vec<Admin>,
    known: Mutex<HashMap<Arc<str>, Known>>,
    /// One question at a time. It is fair, so that messages that wait for the same answer keep their order.
    asking: tokio::sync::Mutex<()>,
}

impl Topics {
    pub fn new(urls: &[String], tls: &rustls::ClientConfig) -> Result<Self, Error> {
        let admin =
            |url: &String| Admin::with_tls(url, tls.clone()).map_err(|_| Error::Address { url: url.clone() });
        let brokers = urls.iter().map(admin).collect::<Result<_, _>>()?;
        Ok(Self { brokers, known: Mutex::default(), asking: tokio::sync::Mutex::default() })
    }

    /// The topic, from memory or from a broker; brokers that do not answer are asked again until the deadline.
    pub async fn facts(&self, topic: &str, timeout: Duration) -> Result<(Arc<str>, TopicFacts), Error> {
        if let Some(known) = self.known(topic) {
            return Ok(known);
        }
        let deadline = Instant::now() + timeout;
        let late = |_| Error::TimedOut { doubtful: false };
        let _turn = tokio::time::timeout_at(deadline.into(), self.asking.lock()).await.map_err(late)?;
        if let Some(known) = self.known(topic) {
            return Ok(known); // somebody before us has asked
        }
        for tries in 0_u32.. {
            let last = match self.ask(topic).await {
                Ok(facts) => return Ok((self.learn(topic, facts), facts)),
                Err(error) => error,
            };
            let pause = backoff(tries, ASK_PAUSES.0, ASK_PAUSES.1, rand::random());
            if last.class() != Class::Retry || Instant::now() + pause >= deadline {
                return Err(last);
            }
            tokio::time::sleep(pause).await;
        }
        Err(Error::TimedOut { doubtful: false })
    }

    fn known(&self, topic: &str) -> Option<(Arc<str>, TopicFacts)> {
        self.lock().get(topic).map(|known| (known.name.clone(), known.facts))
    }

    async fn ask(&self, topic: &str) -> Result<TopicFacts, Error> {
        let mut last = Error::Closed;
        for broker in &self.brokers {
            match broker.show_topic(topic).await {
                Ok(detail) => {
                    let topic = detail.topic;
                    let (partitions, payload_bytes_max) = (topic.partitions, topic.payload_bytes_max);
                    return Ok(TopicFacts { partitions, payload_bytes_max });
                }
                Err(AdminError::Refused(problem)) => {
                    last = Error::refused(problem.code, problem.detail, problem.field.as_deref());
                    if last.class() == Class::Refused {
                        return Err(last);
                    }
                }
                Err(AdminError::Unreachable { url, reason }) => last = Error::Unreachable { url, reason },
                Err(AdminError::Foreign { url, reason, .. }) => last = Error::Unreachable { url, reason },
                Err(AdminError::Address { url }) => return Err(Error::Address { url }),
                Err(AdminError::Certificates(error)) => return Err(error.into()),
            }
        }
        Err(last)
    }

    fn learn(&self, topic: &str, facts: TopicFacts) -> Arc<str> {
        let mut known = self.lock();
        if known.len() >= TOPICS_KEPT_MAX {
            known.clear();
        }
        let name: Arc<str> = topic.into();
        let homeless = u64::from(rand::random::<u32>());
        known.entry(name.clone()).or_insert(Known { name, facts, homeless }).name.clone()
    }

    /// The partition of a message.
    pub fn home(&self, topic: &str, message: &NewMessage, facts: TopicFacts) -> u32 {
        let id = message.transaction_id.as_deref();
        let home = routing::route(message.partition, message.key.as_deref(), id, facts.partitions);
        home.unwrap_or_else(|| {
            let turn = self.lock().get_mut(topic).map_or(0, |known| {
                known.homeless += 1;
                known.homeless / HOMELESS_TOGETHER
            });
            (turn % u64::from(facts.partitions.max(1))) as u32
        })
    }

    /// A partition was refused: if it is among those that we believe in, what we know is not so.
    pub fn doubt(&self, topic: &str, partition: u32) {
        let mut known = self.lock();
        if known.get(topic).is_some_and(|known| partition < known.facts.partitions) {
            known.remove(topic);
        }
    }

    /// An error may say that what we know is not so.
    pub fn on_error(&self, topic: &str, error: &Error) {
        if let Some(ErrorCode::PartitionOutOfRange | ErrorCode::UnknownTopic | ErrorCode::PayloadTooLarge) =
            error.code()
        {
            self.lock().remove(topic);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
