//! Producers of single messages on JetStream: one at a time, or on a schedule.

use std::net::SocketAddr;
use std::sync::Arc;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishAckFuture;
use tokio::sync::mpsc;

use super::{UNANSWERED_MAX, connect, context, headers, subject};
use crate::error::Error;
use crate::messages::Supply;
use crate::schedule::Schedule;
use crate::work::PARTITIONS;
use crate::worker::pace::{self, Due};
use crate::worker::tally::Count;
use crate::worker::{Ready, Tasks};

async fn contexts(address: SocketAddr, connections: usize) -> Result<Vec<Context>, Error> {
    let mut contexts = Vec::new();
    for _ in 0..connections {
        contexts.push(context(connect(address).await?));
    }
    Ok(contexts)
}

/// The producers, each with its connection, which it may share.
pub struct Singles(Vec<Context>);

impl Singles {
    pub async fn open(address: SocketAddr, producers: usize, connections: usize) -> Result<Self, Error> {
        let opened = contexts(address, connections).await?;
        Ok(Self(opened.into_iter().cycle().take(producers).collect()))
    }
}

impl Ready for Singles {
    fn begin(self: Box<Self>, count: &Arc<Count>) -> Tasks {
        let mut tasks = Tasks::new();
        for (number, context) in self.0.into_iter().enumerate() {
            tasks.spawn(singles(context, number as u32, count.clone()));
        }
        tasks
    }
}

async fn singles(context: Context, first: u32, count: Arc<Count>) -> Result<(), Error> {
    let mut supply = Supply::new();
    for turn in first.. {
        let (payload, key) = supply.draw();
        let publish = context.publish_with_headers(subject(turn % PARTITIONS), headers(&key), payload);
        let answer = publish.await.map_err(Error::nats("publishing"))?;
        answer.await.map_err(Error::nats("publishing"))?;
        count.done(1);
    }
    Ok(())
}

/// Some connections that send what is due.
pub struct Scheduled {
    connections: Vec<Context>,
    rate: u32,
}

impl Scheduled {
    pub async fn open(address: SocketAddr, connections: u32, rate: u32) -> Result<Self, Error> {
        Ok(Self { connections: contexts(address, connections as usize).await?, rate })
    }
}

impl Ready for Scheduled {
    fn begin(self: Box<Self>, count: &Arc<Count>) -> Tasks {
        let dues = pace::begin(Schedule::new(count.window, self.rate), self.connections.len() as u32);
        let mut tasks = Tasks::new();
        for (context, due) in self.connections.into_iter().zip(dues) {
            let (sent, unanswered) = mpsc::channel(UNANSWERED_MAX);
            tasks.spawn(scheduled(context.clone(), due, sent));
            tasks.spawn(answers(context, unanswered, count.clone()));
        }
        tasks
    }
}

async fn scheduled(
    context: Context,
    mut dues: mpsc::Receiver<Due>,
    sent: mpsc::Sender<PublishAckFuture>,
) -> Result<(), Error> {
    let (mut supply, mut turn) = (Supply::new(), 0);
    while let Some(due) = dues.recv().await {
        for due_ns in due {
            let (payload, key) = supply.draw_due(due_ns);
            let publish = context.publish_with_headers(subject(turn % PARTITIONS), headers(&key), payload);
            let answer = publish.await.map_err(Error::nats("publishing"))?;
            sent.send(answer).await.map_err(|_| Error::NatsClosed)?;
            turn += 1;
        }
    }
    Ok(())
}

/// Holds on to the connection until the last answer is there.
async fn answers(
    _connection: Context,
    mut unanswered: mpsc::Receiver<PublishAckFuture>,
    count: Arc<Count>,
) -> Result<(), Error> {
    while let Some(answer) = unanswered.recv().await {
        answer.await.map_err(Error::nats("publishing"))?;
        count.done(1);
    }
    Ok(())
}
