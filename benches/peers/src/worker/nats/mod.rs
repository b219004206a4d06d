//! The work on NATS JetStream: a stream per partition, a durable pull consumer per group on each of them.
//!
//! | file | owns |
//! |---|---|
//! | `batches` | batches that are acknowledged message by message, as a whole, or as a stream |
//! | `singles` | one message at a time, and messages on a schedule |
//! | `consume` | pulls, and acknowledgements that the server confirms |

mod batches;
mod consume;
mod singles;

use std::net::SocketAddr;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectOptions, HeaderMap};
use bytes::Bytes;
use uuid::Uuid;

use super::{Job, Post, Ready};
use crate::error::Error;
use crate::system::Publishing;

/// Headers of a message.
const KEY: &str = "key";
const TRACE: &str = "trace-id";
/// Longer than any measurement: an answer that takes long is to be measured.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Publishes without an answer, per connection: more than any work has, so that the client holds nothing up.
const UNANSWERED_MAX: usize = 1 << 20;
/// What the client hands to its connection ahead of the socket: a few batches.
const COMMANDS_MAX: usize = 16_384;

/// The stream of a partition.
pub fn stream(partition: u32) -> String {
    format!("bench-{partition}")
}

/// The subject of a partition.
pub fn subject(partition: u32) -> String {
    format!("bench.{partition}")
}

pub async fn connect(address: SocketAddr) -> Result<Client, Error> {
    let options = ConnectOptions::new().client_capacity(COMMANDS_MAX);
    options.connect(address.to_string()).await.map_err(Error::nats("connecting"))
}

pub fn context(client: Client) -> Context {
    ContextBuilder::new().timeout(ANSWER_TIMEOUT).max_ack_inflight(UNANSWERED_MAX).build(client)
}

pub async fn open(post: &Post, publishing: Publishing) -> Result<Box<dyn Ready>, Error> {
    Ok(match &post.job {
        Job::Batches => batches::open(post.address, publishing).await?,
        Job::Singles { producers, connections } => {
            Box::new(singles::Singles::open(post.address, *producers, *connections).await?)
        }
        Job::Scheduled { connections, rate } => {
            Box::new(singles::Scheduled::open(post.address, *connections, *rate).await?)
        }
        Job::Consume { groups, partitions, counting } => {
            Box::new(consume::Members::open(post.address, groups, partitions, *counting).await?)
        }
    })
}

/// Headers are text: the key in hexadecimal digits, the trace id as it is written.
fn headers(key: &Bytes) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let key = key.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    headers.insert(KEY, format!("{key:016x}"));
    headers.insert(TRACE, Uuid::now_v7().to_string());
    headers
}
