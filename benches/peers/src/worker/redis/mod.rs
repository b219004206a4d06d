//! The work on Redis Streams: a stream per partition, a consumer group per group.
//!
//! | file | owns |
//! |---|---|
//! | `produce` | pipelines of XADD, single XADDs, XADDs on a schedule |
//! | `consume` | XREADGROUP and XACK |

mod consume;
mod produce;

use std::net::SocketAddr;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, Value};
use bytes::Bytes;
use uuid::Uuid;

use super::{Job, Post, Ready};
use crate::error::Error;

/// Fields of an entry.
const KEY: &str = "k";
const TRACE: &str = "t";
const PAYLOAD: &str = "p";

/// The stream of a partition.
pub fn stream(partition: u32) -> String {
    format!("bench:{partition}")
}

/// A connection that pipelines by itself what several tasks send.
pub async fn connect(address: SocketAddr) -> Result<MultiplexedConnection, Error> {
    // No timeout: an answer that takes long is to be measured, and reads wait.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(format!("redis://{address}/"))?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

pub async fn open(post: &Post) -> Result<Box<dyn Ready>, Error> {
    Ok(match &post.job {
        Job::Batches => Box::new(produce::Batches::open(post.address).await?),
        Job::Singles { producers, connections } => {
            Box::new(produce::Singles::open(post.address, *producers, *connections).await?)
        }
        Job::Scheduled { connections, rate } => {
            Box::new(produce::Scheduled::open(post.address, *connections, *rate).await?)
        }
        Job::Consume { groups, partitions, counting } => {
            Box::new(consume::Members::open(post.address, groups, partitions, *counting).await?)
        }
    })
}

/// Sends a pipeline and waits for all its answers. One that is an error ends the measurement.
async fn answers(connection: &mut MultiplexedConnection, pipeline: &Pipeline) -> Result<Vec<Value>, Error> {
    let values = connection.send_packed_commands(pipeline, 0, pipeline.len()).await?;
    match values.iter().find(|value| matches!(value, Value::ServerError(_))) {
        Some(error) => Err(error.clone().extract_error().err().map_or(Error::RedisReply, Error::Redis)),
        None => Ok(values),
    }
}

fn xadd(stream: &str, (payload, key): (Bytes, Bytes)) -> Cmd {
    let mut xadd = Cmd::with_capacity(9, 300);
    xadd.arg("XADD").arg(stream).arg("*");
    xadd.arg(KEY).arg(&*key).arg(TRACE).arg(Uuid::now_v7().as_bytes()).arg(PAYLOAD).arg(&*payload);
    xadd
}
