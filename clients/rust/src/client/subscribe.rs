//! Asking for a subscription or a tail, step by step: `client.subscribe("orders", "billing").credit(100, 1 << 20).await`.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Client;
use super::delivery::{Shared, Subscription, Tail};
use super::error::Error;
use super::owner::Request;
use super::readers::{NewReader, Opened, Wanted};
use crate::selection::Selection;
use crate::wire::{self, BatchOptions, CreditGrant, Start, WantedSettings};

/// What is accepted unless it is said otherwise: enough to keep a fast reader busy, little enough to hold in memory.
const CREDIT_DEFAULT: CreditGrant = CreditGrant { messages: 1_000, bytes: 8 << 20 };

/// What every subscription may choose.
type Terms<'a> = Option<(
    &'a mut Option<Start>,
    &'a mut CreditGrant,
    &'a mut Option<BatchOptions>,
    &'a mut Option<WantedSettings>,
)>;

type Opening<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// A subscription to be. Await it.
#[derive(Debug)]
#[must_use = "nothing is subscribed before it is awaited"]
pub struct Subscribing {
    client: Client,
    wanted: Wanted,
}

/// A tail to be. Await it.
#[derive(Debug)]
#[must_use = "nothing is read before it is awaited"]
pub struct Tailing {
    client: Client,
    frame: wire::Tail,
}

impl Subscribing {
    pub(super) fn new(client: Client, topic: String, group: String) -> Self {
        let (start, batch, settings) = (None, None, None);
        let frame = wire::Subscribe { id: 0, group, topic, start, credit: CREDIT_DEFAULT, batch, settings };
        Self { client, wanted: Wanted::Group(frame) }
    }

    pub(super) fn select(client: Client, selection: Selection, group: String) -> Self {
        let Selection { topics, pattern, labels } = selection;
        let (start, batch, settings, credit) = (None, None, None, CREDIT_DEFAULT);
        let frame = wire::Select { id: 0, group, topics, pattern, labels, start, credit, batch, settings };
        Self { client, wanted: Wanted::Select(frame) }
    }

    fn terms(&mut self) -> Terms<'_> {
        match &mut self.wanted {
            Wanted::Group(wire::Subscribe { start, credit, batch, settings, .. })
            | Wanted::Select(wire::Select { start, credit, batch, settings, .. }) => {
                Some((start, credit, batch, settings))
            }
            Wanted::Tail(_) => None, // never a subscription
        }
    }

    /// Where a new group begins; a group that exists goes on where it is.
    pub fn start(mut self, start: Start) -> Self {
        if let Some((wanted, ..)) = self.terms() {
            *wanted = Some(start);
        }
        self
    }

    /// How much may be here unread or unsettled: the bound of the memory that it takes.
    pub fn credit(mut self, messages: u32, bytes: u64) -> Self {
        if let Some((_, credit, ..)) = self.terms() {
            *credit = CreditGrant { messages, bytes };
        }
        self
    }

    /// How batches are cut.
    pub fn batch(mut self, batch: BatchOptions) -> Self {
        if let Some((_, _, wanted, _)) = self.terms() {
            *wanted = Some(batch);
        }
        self
    }

    /// Settings of the group, if it is to be made.
    pub fn settings(mut self, settings: WantedSettings) -> Self {
        if let Some((_, _, _, wanted)) = self.terms() {
            *wanted = Some(settings);
        }
        self
    }
}

impl IntoFuture for Subscribing {
    type Output = Result<Subscription, Error>;
    type IntoFuture = Opening<Subscription>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { client, wanted } = self;
            let (shared, opened) = open(&client, wanted).await?;
            match opened {
                Opened::Group { settings, partitions } => {
                    Ok(Subscription { shared, settings, partitions, client })
                }
                Opened::Tail => Err(Error::Closed),
            }
        })
    }
}

impl Tailing {
    pub(super) fn new(client: Client, topic: String, start: Start) -> Self {
        let (partitions, batch) = (None, None);
        let frame =
            wire::Tail { id: 0, topic, partitions, start: Some(start), credit: CREDIT_DEFAULT, batch };
        Self { client, frame }
    }

    /// Only these partitions.
    pub fn partitions(mut self, partitions: impl IntoIterator<Item = u32>) -> Self {
        self.frame.partitions = Some(partitions.into_iter().collect());
        self
    }

    /// How much may be here unread: the bound of the memory that it takes.
    pub fn credit(mut self, messages: u32, bytes: u64) -> Self {
        self.frame.credit = CreditGrant { messages, bytes };
        self
    }
}

impl IntoFuture for Tailing {
    type Output = Result<Tail, Error>;
    type IntoFuture = Opening<Tail>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { client, frame } = self;
            let (shared, _) = open(&client, Wanted::Tail(frame)).await?;
            Ok(Tail { shared, client })
        })
    }
}

/// A reader that nobody takes over is abandoned, so that its group does not wait for it.
struct Unclaimed(Option<Arc<Shared>>);

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            shared.abandon();
        }
    }
}

async fn open(client: &Client, wanted: Wanted) -> Result<(Arc<Shared>, Opened), Error> {
    let topic = match &wanted {
        Wanted::Group(wire::Subscribe { topic, .. }) | Wanted::Tail(wire::Tail { topic, .. }) => {
            Some(topic.as_str().into())
        }
        Wanted::Select(_) => None,
    };
    let shared = Shared::new(topic, client.inner.wake.clone());
    let mut unclaimed = Unclaimed(Some(shared.clone()));
    let (reply, opened) = oneshot::channel();
    let reader = NewReader { shared: shared.clone(), wanted, reply };
    client.inner.requests.send(Request::Open(Box::new(reader))).await.map_err(|_| Error::Closed)?;
    let opened = opened.await.unwrap_or(Err(Error::Closed))?;
    unclaimed.0 = None;
    Ok((shared, opened))
}
