//! The client: one connection, many users. [`Client`] is a handle; a task owns everything behind it.
//!
//! | module | owns |
//! |---|---|
//! | [`options`] | what a user may choose |
//! | [`error`] | why something did not happen |
//! | `check` | which messages may be published at all |
//! | `topics` | how many partitions a topic has, and the home of a message |
//! | `line` | the messages of one partition: numbered, in order, sent again until their fate is known (pure) |
//! | [`publisher`] | frames from lines, receipts from answers |
//! | `reroute` | another home for messages whose partition is gone |
//! | `book` | acks of one round as few frames (pure) |
//! | `unconfirmed` | acks of a lane that are not known to be durable (pure) |
//! | `confirmations` | acks whose answer somebody waits for |
//! | `inbox` | lanes, rounds, queue and credit of a subscription (pure) |
//! | [`delivery`] | what a reader holds |
//! | `cause` | what a message inherits from the one that led to it (pure) |
//! | [`step`] | acks and publishes that happen together, as a user builds them |
//! | `reservation` | what a step acknowledges, while it is under way |
//! | `steps` | steps without an answer |
//! | `readers`, `selecting` | subscriptions and tails across sessions |
//! | `parts` | the topics of a subscription that selects them (pure) |
//! | [`subscribe`] | asking for them |
//! | [`run`] | handling messages with a function |
//! | [`pipeline`] | the same, where each message and what follows from it are one step |
//! | `link` | one connection: a reader and a writer |
//! | [`connection`] | whether there is one just now |
//! | `owner` | the task: connects, reads, sends, connects again |

mod book;
mod cause;
mod check;
mod confirmations;
pub mod connection;
pub mod delivery;
pub mod error;
mod inbox;
mod line;
mod link;
pub mod options;
mod owner;
mod parts;
mod pause;
pub mod pipeline;
pub mod publisher;
mod reader;
mod readers;
mod reroute;
mod reservation;
pub mod run;
mod selecting;
pub mod step;
mod steps;
pub mod subscribe;
mod topics;
mod unconfirmed;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use rustls::ClientConfig;

use crate::selection::Selection;
use crate::tls::{self, Extra};
use crate::wire::bounds::WEBSOCKET_PATH;
use crate::wire::{Limits, NewMessage, Start};
use check::TopicFacts;
use connection::Connection;
use error::Error;
use link::{DialError, Link};
use options::{Builder, Options};
use owner::{Owner, Parts, Request};
use publisher::{Admitted, Receipt, Ticket};
use subscribe::{Subscribing, Tailing};
use topics::Topics;

/// Requests that wait for the owner: enough that a turn of it takes many.
const REQUESTS_MAX: usize = 1_024;

/// A connection to a bus, kept for as long as a handle of it lives. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    requests: mpsc::Sender<Request>,
    wake: Arc<Notify>,
    limits: Arc<Mutex<Limits>>,
    topics: Arc<Topics>,
    /// Room for messages without a receipt.
    messages: Arc<Semaphore>,
    /// Room for their bytes.
    bytes: Arc<Semaphore>,
    connection: watch::Receiver<Connection>,
    options: Options,
}

/// What was given up when a client was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leftover {
    /// Messages without a receipt; whoever waits for one is told.
    pub publishes: usize,
    /// Steps without an answer; whoever waits for one is told.
    pub steps: usize,
    /// Lanes whose last acks were not confirmed: what they were about may be delivered again.
    pub lanes: usize,
}

impl Leftover {
    /// Whether everything was finished.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A message that was let in: await it for its receipt. Dropping it does not take the message back.
#[derive(Debug)]
#[must_use = "the message is published anyway, but nobody learns what became of it"]
pub struct Pending {
    inner: Arc<Inner>,
    topic: Arc<str>,
    receipt: oneshot::Receiver<Result<Receipt, Error>>,
}

impl Pending {
    /// What became of it.
    pub async fn receipt(self) -> Result<Receipt, Error> {
        let result = self.receipt.await.unwrap_or(Err(Error::Closed));
        if let Err(error) = &result {
            self.inner.topics.on_error(&self.topic, error);
        }
        result
    }
}

impl Client {
    /// Connects, and comes back by itself from then on. The brokers of `options.more_urls` are tried if the first does not
    /// answer.
    pub async fn connect(url: &str, options: Options) -> Result<Self, Error> {
        let urls = std::iter::once(url).chain(options.more_urls.iter().map(String::as_str));
        let urls: Vec<String> = urls.map(socket_url).collect();
        let extra = Extra { file: options.ca_file.as_deref(), pem: options.ca_pem.as_deref() };
        let tls = tls::config(urls.iter().map(String::as_str), extra)?;
        let topics = Arc::new(Topics::new(&urls, &tls)?);
        let (link, connected) = first_link(&urls, &options, &tls).await?;
        let limits = Arc::new(Mutex::new(link.welcome.limits));
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        let wake = Arc::new(Notify::new());
        let (told, connection) = watch::channel(Connection::Up { losses: 0 });
        let parts = Parts {
            options: options.clone(),
            urls,
            tls,
            requests: receiver,
            wake: wake.clone(),
            limits: limits.clone(),
            connection: told,
            rerouting: reroute::start(topics.clone(), limits.clone(), options.clone()),
        };
        tokio::spawn(Owner::new(parts, connected).run(link));
        let messages = Arc::new(Semaphore::new(options.publish_messages_max.max(1)));
        let bytes = Arc::new(Semaphore::new(options.publish_bytes_max.max(1)));
        let inner = Inner { requests, wake, limits, topics, messages, bytes, connection, options };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// As [`connect`](Self::connect), step by step.
    pub fn builder(url: impl Into<String>) -> Builder {
        Builder::new(url.into())
    }

    /// Publishes a message and waits for its receipt. It is stored once, however often the connection is lost.
    pub async fn publish(&self, topic: &str, message: NewMessage) -> Result<Receipt, Error> {
        self.publish_later(topic, message).await?.receipt().await
    }

    /// Lets a message in, waiting for room if need be. Messages of one partition are stored in the order in which they
    /// were let in.
    pub async fn publish_later(&self, topic: &str, message: NewMessage) -> Result<Pending, Error> {
        let inner = &self.inner;
        let checked = inner.check(topic, message).await?;
        let bytes = inner.room(checked.bytes);
        let room = [
            inner.messages.clone().acquire_owned().await.map_err(|_| Error::Closed)?,
            inner.bytes.clone().acquire_many_owned(bytes).await.map_err(|_| Error::Closed)?,
        ];
        let (request, pending) = inner.admit(checked, room);
        inner.requests.send(request).await.map_err(|_| Error::Closed)?;
        Ok(pending)
    }

    /// As [`publish_later`](Self::publish_later), but [`Error::Full`] instead of waiting for room.
    pub async fn try_publish(&self, topic: &str, message: NewMessage) -> Result<Pending, Error> {
        let inner = &self.inner;
        let checked = inner.check(topic, message).await?;
        let bytes = inner.room(checked.bytes);
        let room = [
            inner.messages.clone().try_acquire_owned().map_err(|_| Error::Full)?,
            inner.bytes.clone().try_acquire_many_owned(bytes).map_err(|_| Error::Full)?,
        ];
        let (request, pending) = inner.admit(checked, room);
        inner.requests.try_send(request).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Full,
            mpsc::error::TrySendError::Closed(_) => Error::Closed,
        })?;
        Ok(pending)
    }

    /// Publishes messages in their order and waits for all receipts. One result per message; the first that is not let in
    /// ends it, and those behind it get the same error.
    pub async fn publish_many(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = NewMessage>,
    ) -> Vec<Result<Receipt, Error>> {
        let mut pending = Vec::new();
        let mut refused: Option<Error> = None;
        for message in messages {
            pending.push(match &refused {
                Some(error) => Err(error.clone()),
                None => self
                    .publish_later(topic, message)
                    .await
                    .inspect_err(|error| refused = Some(error.clone())),
            });
        }
        let mut results = Vec::with_capacity(pending.len());
        for one in pending {
            results.push(match one {
                Ok(one) => one.receipt().await,
                Err(error) => Err(error),
            });
        }
        results
    }

    /// Becomes a member of a group: `client.subscribe("orders", "billing").await` yields a stream of deliveries.
    pub fn subscribe(&self, topic: impl Into<String>, group: impl Into<String>) -> Subscribing {
        Subscribing::new(self.clone(), topic.into(), group.into())
    }

    /// Becomes a member of a group on several topics: those that are selected, now and later.
    ///
    /// ```no_run
    /// # use laneway_client::{Client, Error, selection::Selection};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let selection = Selection { pattern: Some("orders.*".to_owned()), ..Selection::default() };
    /// let mut orders = client.select(selection, "billing").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn select(&self, selection: Selection, group: impl Into<String>) -> Subscribing {
        Subscribing::select(self.clone(), selection, group.into())
    }

    /// Reads without a group: `client.tail("orders", Start::Latest).await` yields a stream of deliveries.
    pub fn tail(&self, topic: impl Into<String>, start: Start) -> Tailing {
        Tailing::new(self.clone(), topic.into(), start)
    }

    /// Whether there is a connection: as of now, and as it changes. It ends with the client.
    pub fn connection(&self) -> watch::Receiver<Connection> {
        self.inner.connection.clone()
    }

    /// Waits until every message has its receipt, every step its answer and every ack is confirmed, and closes the connection. All handles are
    /// closed with it, and all streams end. What takes longer than `close_timeout` is given up, and is in the answer.
    pub async fn close(&self) -> Leftover {
        let (reply, closed) = oneshot::channel();
        match self.inner.requests.send(Request::Close(reply)).await {
            Ok(()) => closed.await.unwrap_or_default(), // an owner that has ended is closed, too
            Err(_) => Leftover::default(),
        }
    }
}

/// A message that may be published, and what is known of its topic.
struct Checked {
    topic: Arc<str>,
    facts: TopicFacts,
    message: NewMessage,
    bytes: usize,
}

impl Inner {
    /// Checks a message before it takes any room.
    async fn check(&self, topic: &str, message: NewMessage) -> Result<Checked, Error> {
        if self.requests.is_closed() {
            return Err(Error::Closed); // rather than asking brokers about the topic
        }
        let (topic, facts) = self.topics.facts(topic, self.options.publish_timeout).await?;
        let bytes = check::check(&message, facts, &self.limits(), self.options.subprotocol)?;
        Ok(Checked { topic, facts, message, bytes })
    }

    /// What the owner is asked for, and what the user waits with.
    fn admit(self: &Arc<Self>, checked: Checked, room: [OwnedSemaphorePermit; 2]) -> (Request, Pending) {
        let Checked { topic, facts, message, bytes } = checked;
        let partition = self.topics.home(&topic, &message, facts);
        let (reply, receipt) = oneshot::channel();
        let ticket = Ticket { reply: Some(reply), reroutes: 0, _room: room };
        let pending = Pending { inner: self.clone(), topic: topic.clone(), receipt };
        (Request::Publish(Box::new(Admitted { topic, partition, message, bytes, ticket })), pending)
    }

    /// Room for the messages of a step, which may have none.
    async fn step_room(&self, messages: usize, bytes: usize) -> Result<[OwnedSemaphorePermit; 2], Error> {
        let most = self.options.publish_messages_max.max(1);
        let messages = u32::try_from(messages.min(most)).unwrap_or(u32::MAX);
        Ok([
            self.messages.clone().acquire_many_owned(messages).await.map_err(|_| Error::Closed)?,
            self.bytes.clone().acquire_many_owned(self.room(bytes)).await.map_err(|_| Error::Closed)?,
        ])
    }

    fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message that is larger than all the room takes all of it.
    fn room(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.options.publish_bytes_max.max(1))).unwrap_or(u32::MAX)
    }
}

/// The address of the socket, also if that of the HTTP API is given: both are on one port. What is no address stays as it is, for
/// whoever tries it to say so.
fn socket_url(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let scheme = match scheme {
        "http" => "ws",
        "https" => "wss",
        _ => return url.to_owned(),
    };
    let host = rest.split('/').next().unwrap_or(rest);
    format!("{scheme}://{host}{WEBSOCKET_PATH}")
}

/// The first broker that answers, and its place in the list.
async fn first_link(
    urls: &[String],
    options: &Options,
    tls: &Arc<ClientConfig>,
) -> Result<(Link, usize), Error> {
    let mut last = Error::Closed;
    for (index, url) in urls.iter().enumerate() {
        let hello = owner::hello(options, 1, None);
        match link::dial(url, tls, options.subprotocol, hello, options.connect_timeout).await {
            Ok(link) => return Ok((link, index)),
            Err(DialError::Refused(error)) => return Err(error),
            Err(DialError::Away(reason)) => last = Error::Unreachable { url: url.clone(), reason },
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_http_api_leads_to_the_socket() {
        assert_eq!(socket_url("http://127.0.0.1:7420"), "ws://127.0.0.1:7420/v1/ws");
        assert_eq!(socket_url("https://bus.example/"), "wss://bus.example/v1/ws");
        for given in ["ws://127.0.0.1:7420/v1/ws", "wss://bus.example/behind/a/proxy", "nonsense"] {
            assert_eq!(socket_url(given), given);
        }
    }
}
