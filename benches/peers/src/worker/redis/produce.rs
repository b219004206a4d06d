//! Producers on Redis. Every answer is waited for; an entry is counted when its XADD is answered.

use std::net::SocketAddr;
use std::sync::Arc;

use redis::Pipeline;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;

use super::{answers, connect, stream, xadd};
use crate::error::Error;
use crate::messages::Supply;
use crate::schedule::Schedule;
use crate::work::{BATCH_MESSAGES, BATCHES_IN_FLIGHT, PARTITIONS};
use crate::worker::pace::{self, Due};
use crate::worker::tally::Count;
use crate::worker::{Ready, Tasks};

/// Connections of a producer of batches. Why: Redis reads 16 KiB from each connection in a turn of its loop, and syncs once per turn;
/// with one connection hardly half a batch is synced at a time.
const BATCH_CONNECTIONS: usize = 8;

/// A task for each batch in flight, over a few connections.
pub struct Batches(Vec<MultiplexedConnection>);

impl Batches {
    pub async fn open(address: SocketAddr) -> Result<Self, Error> {
        opened(address, BATCH_CONNECTIONS).await.map(Self)
    }
}

async fn opened(address: SocketAddr, connections: usize) -> Result<Vec<MultiplexedConnection>, Error> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(connect(address).await?);
    }
    Ok(opened)
}

impl Ready for Batches {
    fn begin(self: Box<Self>, count: &Arc<Count>) -> Tasks {
        let mut tasks = Tasks::new();
        for number in 0..BATCHES_IN_FLIGHT {
            tasks.spawn(batches(self.0[number % self.0.len()].clone(), number as u32, count.clone()));
        }
        tasks
    }
}

async fn batches(mut connection: MultiplexedConnection, first: u32, count: Arc<Count>) -> Result<(), Error> {
    let mut supply = Supply::new();
    for turn in first.. {
        let stream = stream(turn % PARTITIONS);
        let mut pipeline = Pipeline::with_capacity(BATCH_MESSAGES);
        for _ in 0..BATCH_MESSAGES {
            pipeline.add_command(xadd(&stream, supply.draw()));
        }
        answers(&mut connection, &pipeline).await?;
        count.done(BATCH_MESSAGES as u64);
    }
    Ok(())
}

/// The producers, each with its connection, which it may share.
pub struct Singles(Vec<MultiplexedConnection>);

impl Singles {
    pub async fn open(address: SocketAddr, producers: usize, connections: usize) -> Result<Self, Error> {
        let opened = opened(address, connections).await?;
        Ok(Self(opened.into_iter().cycle().take(producers).collect()))
    }
}

impl Ready for Singles {
    fn begin(self: Box<Self>, count: &Arc<Count>) -> Tasks {
        let mut tasks = Tasks::new();
        for (number, connection) in self.0.into_iter().enumerate() {
            tasks.spawn(singles(connection, number as u32, count.clone()));
        }
        tasks
    }
}

async fn singles(mut connection: MultiplexedConnection, first: u32, count: Arc<Count>) -> Result<(), Error> {
    let mut supply = Supply::new();
    for turn in first.. {
        let stream = stream(turn % PARTITIONS);
        xadd(&stream, supply.draw()).exec_async(&mut connection).await?;
        count.done(1);
    }
    Ok(())
}

/// Some connections that send what is due, in pipelines of what is due at once.
pub struct Scheduled {
    connections: Vec<MultiplexedConnection>,
    rate: u32,
}

impl Scheduled {
    pub async fn open(address: SocketAddr, connections: u32, rate: u32) -> Result<Self, Error> {
        Ok(Self { connections: opened(address, connections as usize).await?, rate })
    }
}

impl Ready for Scheduled {
    fn begin(self: Box<Self>, count: &Arc<Count>) -> Tasks {
        let dues = pace::begin(Schedule::new(count.window, self.rate), self.connections.len() as u32);
        let mut tasks = Tasks::new();
        for (connection, due) in self.connections.into_iter().zip(dues) {
            tasks.spawn(scheduled(connection, due, count.clone()));
        }
        tasks
    }
}

async fn scheduled(
    connection: MultiplexedConnection,
    mut dues: mpsc::Receiver<Due>,
    count: Arc<Count>,
) -> Result<(), Error> {
    let (mut supply, mut turn, mut unanswered) = (Supply::new(), 0, Tasks::new());
    while let Some(due) = dues.recv().await {
        let mut pipeline = Pipeline::with_capacity(due.len());
        for due_ns in due {
            pipeline.add_command(xadd(&stream(turn % PARTITIONS), supply.draw_due(due_ns)));
            turn += 1;
        }
        let (mut connection, count) = (connection.clone(), count.clone());
        unanswered.spawn(async move {
            answers(&mut connection, &pipeline).await?;
            count.done(pipeline.len() as u64);
            Ok(())
        });
        while let Some(answered) = unanswered.try_join_next() {
            answered.map_err(|_| Error::Panicked)??;
        }
    }
    while let Some(answered) = unanswered.join_next().await {
        answered.map_err(|_| Error::Panicked)??;
    }
    Ok(())
}
