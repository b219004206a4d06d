//! Members of consumer groups on Redis. Each reads its streams with XREADGROUP and acknowledges with XACK what it read, in the same
//! pipeline as the next read, so that neither waits for the other.

use std::net::SocketAddr;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};

use super::{PAYLOAD, answers, connect, stream};
use crate::error::Error;
use crate::messages::due_ns;
use crate::worker::tally::Count;
use crate::worker::{Counting, Ready, Tasks};

/// How long a read waits for something to read.
const BLOCK_MS: usize = 1_000;

/// How a member reads: what was fastest when both were tried.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// Each connection has one read under way, which covers so many streams.
    streams: usize,
    /// Entries of one stream in one read.
    entries_max: usize,
}

impl Reading {
    /// Many groups keep the server busy with few and small reads each; one needs more of its turns.
    fn fastest(groups: usize) -> Self {
        match groups {
            0 | 1 => Self { streams: 1, entries_max: 1_000 },
            _ => Self { streams: 2, entries_max: 200 },
        }
    }
}

/// A few connections for each group.
pub struct Members(Vec<Member>);

struct Member {
    connection: MultiplexedConnection,
    group: String,
    streams: Vec<String>,
    entries_max: usize,
    counting: Counting,
}

impl Members {
    pub async fn open(
        address: SocketAddr,
        groups: &[String],
        partitions: &[u32],
        counting: Counting,
    ) -> Result<Self, Error> {
        let streams: Vec<String> = partitions.iter().map(|partition| stream(*partition)).collect();
        let reading = Reading::fastest(groups.len());
        let mut members = Vec::new();
        for group in groups {
            for streams in streams.chunks(reading.streams) {
                let connection = connect(address).await?;
                let (group, streams, entries_max) = (group.clone(), streams.to_vec(), reading.entries_max);
                members.push(Member { connection, group, streams, entries_max, counting });
            }
        }
        Ok(Self(members))
    }
}

impl Ready for Members {
    fn begin(self: Box<Self>, count: &Arc<Count>) -> Tasks {
        let mut tasks = Tasks::new();
        for member in self.0 {
            tasks.spawn(member.run(count.clone()));
        }
        tasks
    }
}

impl Member {
    async fn run(mut self, count: Arc<Count>) -> Result<(), Error> {
        // By the first stream, so that members of one group have names of their own.
        let read = self.xreadgroup(&format!("owner of {}", self.streams[0]));
        let mut pipeline = Pipeline::new();
        loop {
            pipeline.add_command(read.clone());
            let mut answers = answers(&mut self.connection, &pipeline).await?;
            let entries = answers.pop().ok_or(Error::RedisReply)?;
            if let Counting::Acknowledged = self.counting {
                count.done(answers.iter().map(acknowledged).sum());
            }
            pipeline = self.take(entries, &count)?;
        }
    }

    fn xreadgroup(&self, consumer: &str) -> Cmd {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(consumer);
        read.arg("COUNT").arg(self.entries_max).arg("BLOCK").arg(BLOCK_MS);
        read.arg("STREAMS").arg(&self.streams).arg(vec![">"; self.streams.len()]);
        read
    }

    /// Counts what was delivered, and makes the acknowledgements.
    fn take(&self, answer: Value, count: &Count) -> Result<Pipeline, Error> {
        let mut acks = Pipeline::new();
        for stream in array(answer)? {
            let mut named = array(stream)?.into_iter();
            let (Some(Value::BulkString(name)), Some(entries)) = (named.next(), named.next()) else {
                return Err(Error::RedisReply);
            };
            let entries = array(entries)?;
            if let Counting::Delivered { .. } = self.counting {
                count.delivered(entries.iter().filter_map(payload).map(due_ns));
            }
            let mut xack = Cmd::with_capacity(3 + entries.len(), 24 * entries.len());
            xack.arg("XACK").arg(name).arg(&self.group);
            for entry in entries {
                let Some(Value::BulkString(id)) = array(entry)?.into_iter().next() else {
                    return Err(Error::RedisReply);
                };
                xack.arg(id);
            }
            acks.add_command(xack);
        }
        Ok(acks)
    }
}

fn array(value: Value) -> Result<Vec<Value>, Error> {
    match value {
        Value::Array(values) => Ok(values),
        Value::Nil => Ok(Vec::new()), // nothing came while the read waited
        _ => Err(Error::RedisReply),
    }
}

/// What XACK says: how many entries it has acknowledged.
fn acknowledged(answer: &Value) -> u64 {
    match answer {
        Value::Int(entries) => u64::try_from(*entries).unwrap_or(0),
        _ => 0,
    }
}

/// The payload of an entry: a list of its id and its fields.
fn payload(entry: &Value) -> Option<&[u8]> {
    let Value::Array(entry) = entry else { return None };
    let [_, Value::Array(fields)] = entry.as_slice() else { return None };
    let [.., Value::BulkString(name), Value::BulkString(payload)] = fields.as_slice() else { return None };
    (name == PAYLOAD.as_bytes()).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_the_last_field_of_an_entry() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = ["k", "key", "t", "trace", "p", "payload"].map(text).to_vec();
        let entry = Value::Array(vec![text("1-0"), Value::Array(fields)]);
        assert_eq!(payload(&entry), Some(b"payload".as_slice()));
        assert_eq!(payload(&Value::Array(vec![text("1-0"), Value::Nil])), None, "a deleted entry has none");
    }

    #[test]
    fn an_acknowledgement_counts_what_it_acknowledged() {
        assert_eq!(acknowledged(&Value::Int(100)), 100);
        assert_eq!(acknowledged(&Value::Nil), 0);
    }
}
