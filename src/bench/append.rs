//! The append: the same messages through the appender, in process, with everything on: trace look-ups, deduplication by
//! producer and sequence, heads. Two producers, units of 100 messages, up to 32 of them unanswered, 8 partitions.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use laneway_client::TopicName;
use laneway_client::topic::CreateTopic;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::BenchError;
use super::messages::Supply;
use crate::broker::Broker;
use crate::broker::appender::{AppendResult, AppenderHandle, ProducerRun, Unit};
use crate::broker::message::Draft;
use crate::broker::topics::TopicError;
use crate::ids::{PartitionId, ProducerId, Sequence};
use crate::limits::PAYLOAD_BYTES_MAX_DEFAULT;
use crate::store::topics::Topic;

const TOPIC: &str = "laneway.bench.append";
const PARTITIONS: u32 = 8;
const PRODUCERS: usize = 2;
const UNIT_MESSAGES: usize = 100;
const UNITS_IN_FLIGHT: usize = 32;

/// Messages per second that the appender commits in a window.
pub async fn measure(broker: &Broker, window: Duration) -> Result<f64, BenchError> {
    let topic = topic(broker).await?;
    let started = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..PRODUCERS {
        let producer = Producer::new(broker.appender.clone(), &topic);
        tasks.push(tokio::spawn(producer.run(started + window)));
    }
    let mut messages = 0;
    for task in tasks {
        messages += task.await.map_err(|_| BenchError::Panicked)??;
    }
    Ok(messages as f64 / started.elapsed().as_secs_f64())
}

async fn topic(broker: &Broker) -> Result<std::sync::Arc<Topic>, BenchError> {
    let made = broker.topics.create(&CreateTopic::new(TOPIC, PARTITIONS)).await;
    match made {
        Ok(topic) => Ok(topic),
        Err(TopicError::Exists { .. }) => {
            Ok(broker.topics.find(&TopicName::new(TOPIC).map_err(TopicError::from)?).await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes the topic away.
pub async fn clear(broker: &Broker) -> Result<(), BenchError> {
    Ok(broker.topics.delete(&TopicName::new(TOPIC).map_err(TopicError::from)?).await?)
}

/// One producer: numbers what it sends to each partition, and keeps a window of units in flight.
struct Producer {
    appender: AppenderHandle,
    producer_id: ProducerId,
    /// With the next sequence of each.
    partitions: Vec<(PartitionId, i64)>,
    dedup_window: Duration,
    in_flight: VecDeque<oneshot::Receiver<AppendResult>>,
    supply: Supply,
    turn: usize,
}

impl Producer {
    fn new(appender: AppenderHandle, topic: &Topic) -> Self {
        Self {
            appender,
            producer_id: ProducerId(Uuid::new_v4()),
            partitions: topic.partitions.iter().map(|partition| (*partition, 0)).collect(),
            dedup_window: topic.settings.dedup_window,
            in_flight: VecDeque::new(),
            supply: Supply::new(),
            turn: 0,
        }
    }

    /// Sends until the deadline and waits for every answer. Returns the messages committed.
    async fn run(mut self, deadline: Instant) -> Result<u64, BenchError> {
        let mut committed = 0;
        loop {
            while Instant::now() < deadline && self.in_flight.len() < UNITS_IN_FLIGHT {
                let unit = self.unit();
                self.in_flight.push_back(self.appender.submit(unit)?);
            }
            let Some(answer) = self.in_flight.pop_front() else { return Ok(committed) };
            answer.await.map_err(|_| BenchError::Panicked)??;
            committed += UNIT_MESSAGES as u64;
        }
    }

    fn unit(&mut self) -> Unit {
        let place = self.turn % self.partitions.len();
        self.turn += 1;
        let messages = (0..UNIT_MESSAGES)
            .map(|_| {
                let (payload, key) = self.supply.draw();
                let draft = Draft { payload, key: Some(key), ..Draft::default() };
                draft.check(PAYLOAD_BYTES_MAX_DEFAULT).expect("the messages of the bench keep every rule")
            })
            .collect();
        let (partition_id, next_sequence) = &mut self.partitions[place];
        let run = ProducerRun { producer_id: self.producer_id, first_sequence: Sequence(*next_sequence) };
        *next_sequence += UNIT_MESSAGES as i64;
        Unit { partition_id: *partition_id, messages, run: Some(run), dedup_window: self.dedup_window }
    }
}
