//! Producers of batches on JetStream, in three ways. A message is counted when the server has acknowledged it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::message::PublishMessage;
use jetstream_extra::batch_publish_fast::{FastPublishExt as _, FastPublisher};
use uuid::Uuid;

use super::{connect, context, headers, subject};
use crate::error::Error;
use crate::messages::Supply;
use crate::system::Publishing;
use crate::work::{BATCH_MESSAGES, BATCHES_IN_FLIGHT, PARTITIONS};
use crate::worker::tally::Count;
use crate::worker::{Ready, Tasks};

/// Streams of messages that one producer has open at the same time, each to a partition.
const FAST_PUBLISHERS: u32 = PARTITIONS;
/// Acknowledgements that may be under way on each: as many as the protocol allows. 8 × 3 batches are in flight, not 32.
const FAST_OUTSTANDING: u16 = 3;

/// Connected; how batches are published is decided.
pub struct Batches {
    context: Context,
    publishing: Publishing,
}

pub async fn open(address: SocketAddr, publishing: Publishing) -> Result<Box<dyn Ready>, Error> {
    Ok(Box::new(Batches { context: context(connect(address).await?), publishing }))
}

impl Ready for Batches {
    fn begin(self: Box<Self>, count: &Arc<Count>) -> Tasks {
        let mut tasks = Tasks::new();
        match self.publishing {
            Publishing::Acked => {
                tasks.spawn(windowed(self.context, every, count.clone()));
            }
            Publishing::Atomic => {
                tasks.spawn(windowed(self.context, whole, count.clone()));
            }
            Publishing::Fast => {
                for partition in 0..FAST_PUBLISHERS {
                    tasks.spawn(fast(self.context.clone(), partition, count.clone()));
                }
            }
        }
        tasks
    }
}

/// What a batch waits for.
type Answers = Vec<PublishAckFuture>;

/// Sends batch after batch to the partitions in turn; as many as may be are unanswered.
async fn windowed<S>(context: Context, send: S, count: Arc<Count>) -> Result<(), Error>
where
    S: AsyncFn(&Context, String, &mut Supply) -> Result<Answers, Error>,
{
    let (mut supply, mut in_flight) = (Supply::new(), VecDeque::new());
    for turn in 0.. {
        in_flight.push_back(send(&context, subject(turn % PARTITIONS), &mut supply).await?);
        if in_flight.len() == BATCHES_IN_FLIGHT {
            for answer in in_flight.pop_front().unwrap_or_default() {
                answer.await.map_err(Error::nats("publishing"))?;
            }
            count.done(BATCH_MESSAGES as u64);
        }
    }
    Ok(())
}

/// Sends a batch of which every message is acknowledged.
async fn every(context: &Context, subject: String, supply: &mut Supply) -> Result<Answers, Error> {
    let mut answers = Answers::with_capacity(BATCH_MESSAGES);
    for _ in 0..BATCH_MESSAGES {
        let (payload, key) = supply.draw();
        let publish = context.publish_with_headers(subject.clone(), headers(&key), payload).await;
        answers.push(publish.map_err(Error::nats("publishing"))?);
    }
    Ok(answers)
}

/// Sends a batch whose last message commits it, and is the only one to be acknowledged.
async fn whole(context: &Context, subject: String, supply: &mut Supply) -> Result<Answers, Error> {
    let (client, batch) = (context.client(), Uuid::now_v7().simple().to_string());
    let mut answers = Answers::new();
    for number in 1..=BATCH_MESSAGES {
        let (payload, key) = supply.draw();
        let mut headers = headers(&key);
        headers.insert("Nats-Batch-Id", batch.as_str());
        headers.insert("Nats-Batch-Sequence", number.to_string());
        if number < BATCH_MESSAGES {
            let sent = client.publish_with_headers(subject.clone(), headers, payload).await;
            sent.map_err(Error::nats("publishing"))?;
        } else {
            headers.insert("Nats-Batch-Commit", "1");
            let last = context.publish_with_headers(subject.clone(), headers, payload).await;
            answers.push(last.map_err(Error::nats("publishing"))?);
        }
    }
    Ok(answers)
}

async fn fast(context: Context, partition: u32, count: Arc<Count>) -> Result<(), Error> {
    let (mut supply, mut acknowledged) = (Supply::new(), 0);
    let mut publisher = publisher(&context)?;
    loop {
        let (payload, key) = supply.draw();
        let message = PublishMessage::build().payload(payload).headers(headers(&key));
        let added = publisher.add_message(message.outbound_message(subject(partition))).await;
        let ack_sequence = added.map_err(Error::nats("publishing"))?.ack_sequence;
        if ack_sequence > acknowledged {
            count.done(ack_sequence - acknowledged);
            acknowledged = ack_sequence;
        }
    }
}

fn publisher(context: &Context) -> Result<FastPublisher, Error> {
    let builder = context.fast_publish().flow(BATCH_MESSAGES as u16).max_outstanding_acks(FAST_OUTSTANDING);
    builder.build().map_err(Error::nats("preparing to publish"))
}
