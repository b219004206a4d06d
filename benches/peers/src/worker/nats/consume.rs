//! Members of groups on JetStream: a pull that is always renewed, and acknowledgements that the server confirms.
//!
//! The consumers acknowledge up to a message (`AckPolicy::All`). One acknowledgement is under way at a time; the next covers all that
//! has come meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::{MessagesError, Stream};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};

use super::{connect, context, stream};
use crate::error::Error;
use crate::messages::due_ns;
use crate::worker::tally::Count;
use crate::worker::{Counting, Ready, Tasks};

/// Messages of one pull. It is renewed when half of them have come.
const PULL_MESSAGES: usize = 2_000;
/// Messages that are taken at once, of those that are there.
const CHUNK_MESSAGES_MAX: usize = 500;

/// A connection for each group, a task for each of its consumers.
pub struct Members(Vec<Member>);

struct Member {
    messages: Stream,
    counting: Counting,
}

impl Members {
    pub async fn open(
        address: SocketAddr,
        groups: &[String],
        partitions: &[u32],
        counting: Counting,
    ) -> Result<Self, Error> {
        let mut members = Vec::new();
        for group in groups {
            let context = context(connect(address).await?);
            for partition in partitions {
                let consumer: PullConsumer = context
                    .get_consumer_from_stream(group, stream(*partition))
                    .await
                    .map_err(Error::nats("finding a consumer"))?;
                let pull = consumer.stream().max_messages_per_batch(PULL_MESSAGES);
                let messages = pull.messages().await.map_err(Error::nats("pulling"))?;
                members.push(Member { messages, counting });
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
    async fn run(self, count: Arc<Count>) -> Result<(), Error> {
        let counting = self.counting;
        let mut chunks = self.messages.ready_chunks(CHUNK_MESSAGES_MAX);
        let mut acks = Acks::default();
        loop {
            tokio::select! {
                biased; // a confirmation makes room for the next acknowledgement
                messages = acks.confirmed() => {
                    let messages = messages?;
                    if let Counting::Acknowledged = counting {
                        count.done(messages);
                    }
                }
                chunk = chunks.next() => {
                    let chunk = taken(chunk.ok_or(Error::NatsClosed)?)?;
                    if let Counting::Delivered { .. } = counting {
                        count.delivered(chunk.iter().map(|message| due_ns(&message.payload)));
                    }
                    acks.add(chunk);
                }
            }
        }
    }
}

fn taken(chunk: Vec<Result<Message, MessagesError>>) -> Result<Vec<Message>, Error> {
    chunk.into_iter().collect::<Result<_, _>>().map_err(Error::nats("pulling"))
}

/// Acknowledgements of one consumer.
#[derive(Default)]
struct Acks {
    under_way: Option<BoxFuture<'static, Result<u64, Error>>>,
    /// The last message that came, with how many came since those that are under way.
    next: Option<(Message, u64)>,
}

impl Acks {
    fn add(&mut self, mut chunk: Vec<Message>) {
        let before = self.next.take().map_or(0, |(_, messages)| messages);
        let messages = before + chunk.len() as u64;
        self.next = chunk.pop().map(|last| (last, messages));
        self.go_on();
    }

    fn go_on(&mut self) {
        if self.under_way.is_none() {
            self.under_way = self.next.take().map(|(last, messages)| confirm(last, messages).boxed());
        }
    }

    /// How many messages the acknowledgement under way covers, once it is confirmed. Cancel safety: safe.
    async fn confirmed(&mut self) -> Result<u64, Error> {
        let Some(under_way) = &mut self.under_way else { return std::future::pending().await };
        let messages = under_way.await;
        self.under_way = None;
        self.go_on();
        messages
    }
}

/// Acknowledges everything up to a message, and waits until the server says that it has taken note.
async fn confirm(last: Message, messages: u64) -> Result<u64, Error> {
    let reply = last.reply.clone().ok_or(Error::NatsClosed)?;
    let request = last.context.client().request(reply, Bytes::from_static(b"+ACK")).await;
    request.map(|_| messages).map_err(Error::nats("acknowledging"))
}
