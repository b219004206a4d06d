//! Units and messages to publish, each with a value of its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use laneway::broker::Broker;
use laneway::broker::appender::{ProducerRun, Unit};
use laneway::broker::message::{Draft, NewMessage};
use laneway::ids::{Offset, PartitionId, ProducerId, Sequence};
use laneway::store::messages::{Message, ReadLimit};
use laneway::store::topics::Topic;
use laneway_client::topic::CreateTopic;

/// Room for everything a test writes.
pub const ALL: ReadLimit = ReadLimit { messages: 10_000, bytes: 64 << 20 };

/// A topic with the defaults.
pub async fn topic(broker: &Broker, name: &str, partitions: u32) -> Arc<Topic> {
    broker.topics.create(&CreateTopic::new(name, partitions)).await.unwrap()
}

/// A topic whose segments are short.
pub async fn topic_of_segments(
    broker: &Broker,
    name: &str,
    partitions: u32,
    segment_messages: u32,
) -> Arc<Topic> {
    let request =
        CreateTopic { segment_messages: Some(segment_messages), ..CreateTopic::new(name, partitions) };
    broker.topics.create(&request).await.unwrap()
}

/// A message that says who made it and as which.
pub fn message(text: impl Into<String>) -> NewMessage {
    draft(text).check(1 << 20).unwrap()
}

pub fn draft(text: impl Into<String>) -> Draft {
    Draft { payload: Bytes::from(text.into()), ..Draft::default() }
}

/// A unit of plain messages.
pub fn unit(partition_id: PartitionId, texts: impl IntoIterator<Item = String>) -> Unit {
    let messages = texts.into_iter().map(message).collect();
    Unit { partition_id, messages, run: None, dedup_window: Duration::from_secs(3600) }
}

/// A unit that its producer numbers.
pub fn numbered(
    partition_id: PartitionId,
    producer: ProducerId,
    first: i64,
    texts: impl IntoIterator<Item = String>,
) -> Unit {
    let run = Some(ProducerRun { producer_id: producer, first_sequence: Sequence(first) });
    Unit { run, ..unit(partition_id, texts) }
}

/// A unit of one message that its transaction id names.
pub fn named(partition_id: PartitionId, transaction_id: &str, text: &str) -> Unit {
    let draft = Draft { transaction_id: Some(transaction_id.to_owned()), ..draft(text) };
    Unit { messages: vec![draft.check(1 << 20).unwrap()], ..unit(partition_id, []) }
}

/// Everything that a partition holds, in order.
pub async fn all(broker: &Broker, partition_id: PartitionId) -> Vec<Message> {
    all_from(broker, partition_id, Offset::ZERO).await
}

/// Everything that a partition holds from an offset on, in order.
pub async fn all_from(broker: &Broker, partition_id: PartitionId, mut from: Offset) -> Vec<Message> {
    let mut messages = Vec::new();
    loop {
        let more = broker.reader.read(partition_id, from, ALL).await.unwrap();
        let Some(last) = more.last() else { return messages };
        from = last.offset.plus(1);
        messages.extend(more);
    }
}

/// The payloads of some messages as text.
pub fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8(message.payload.to_vec()).unwrap()).collect()
}
