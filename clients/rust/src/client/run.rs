//! Handling the messages of a group with a function: partitions in parallel, each in order.
//!
//! A partition has one message in work at a time; what comes meanwhile waits for it, within the credit. If a message
//! fails, those behind it are dropped, because the broker sends them again after it.
//! Invariant: of one partition, no message is begun before the one before it is settled.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;

use super::delivery::{Delivery, Subscription};
use super::error::Error;
use crate::wire::GroupOrdering;

/// Stops a [`Subscription::run`] or [`run_pipeline`](Subscription::run_pipeline) in order. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Notify>);

impl Stop {
    /// A stop that has not been called.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes nothing new, finishes what is in work, and ends the run. One call stops one run, also one that begins later.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

/// What a run has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handled {
    /// Messages that were acknowledged.
    pub acked: u64,
    /// Messages that failed, counted each time.
    pub failed: u64,
}

/// How the work on a message has ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is to be acknowledged.
    Done,
    /// A step has acknowledged it.
    Stepped,
    /// It is to be refused, and why.
    Failed(String),
    /// There is nothing left to settle: it comes again, or is done already.
    Gone,
}

/// What is handled one after the other: a partition, or a key of one; a message without a key stands for itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Line {
    Partition(u32),
    Key(u32, Bytes),
    Own(u32, i64),
}

impl Line {
    fn of(delivery: &Delivery, ordering: GroupOrdering) -> Self {
        match (ordering, &delivery.key) {
            (GroupOrdering::Partition, _) => Line::Partition(delivery.place.partition),
            (GroupOrdering::Key, Some(key)) => Line::Key(delivery.place.partition, key.clone()),
            (GroupOrdering::Key, None) => Line::Own(delivery.place.partition, delivery.offset),
        }
    }
}

/// What waits in one line. Present while a message of it is in work.
type Waiting = HashMap<Line, VecDeque<Delivery>>;

impl Subscription {
    /// Calls `handler` for every message: `Ok` acknowledges it, `Err` refuses it with the text of the error. Up to
    /// `concurrency` partitions are handled at the same time, each of them in order; if the group keeps order by key, up to
    /// `concurrency` keys.
    ///
    /// Ends when `stop` is called, when the client is closed, or with the reason why the subscription has ended. What is in
    /// work is finished first, and acknowledged.
    pub async fn run<H, F, E>(
        &mut self,
        concurrency: usize,
        stop: &Stop,
        handler: H,
    ) -> Result<Handled, Error>
    where
        H: Fn(Arc<Delivery>) -> F,
        F: Future<Output = Result<(), E>>,
        E: Display,
    {
        let work = |delivery: Arc<Delivery>| {
            let handling = handler(delivery);
            async move {
                match handling.await {
                    Ok(()) => Outcome::Done,
                    Err(error) => Outcome::Failed(error.to_string()),
                }
            }
        };
        self.work_off(concurrency, stop, work).await
    }

    /// Does `work` on every message and settles it as its outcome says.
    pub(super) async fn work_off<W, F>(
        &mut self,
        concurrency: usize,
        stop: &Stop,
        work: W,
    ) -> Result<Handled, Error>
    where
        W: Fn(Arc<Delivery>) -> F,
        F: Future<Output = Outcome>,
    {
        let concurrency = concurrency.max(1);
        let (mut in_work, mut waiting, mut handled) =
            (FuturesUnordered::new(), Waiting::new(), Handled::default());
        let ordering = self.settings.ordering;
        let mut parked: VecDeque<Delivery> = VecDeque::new();
        let begin = |delivery: Delivery| {
            let delivery = Arc::new(delivery);
            let working = work(delivery.clone());
            async move { (delivery, working.await) }
        };
        let mut stopping = std::pin::pin!(stop.0.notified());
        let mut is_over = false;
        loop {
            while !is_over && in_work.len() < concurrency {
                let Some(next) = parked.pop_front() else { break };
                let line = Line::of(&next, ordering);
                match waiting.get_mut(&line) {
                    Some(behind) => behind.push_back(next),
                    None if !next.counts() => {} // its lane has moved, or it comes again in a newer round
                    None => {
                        waiting.insert(line, VecDeque::new());
                        in_work.push(begin(next));
                    }
                }
            }
            if is_over && in_work.is_empty() {
                break;
            }
            tokio::select! {
                biased; // settle what we hold before taking more
                Some((delivery, outcome)) = in_work.next() => {
                    let line = Line::of(&delivery, ordering);
                    let next = settle(&delivery, &line, outcome, &mut waiting, &mut handled);
                    match next {
                        Some(next) if !is_over => in_work.push(begin(next)),
                        Some(_) | None => {}
                    }
                }
                () = &mut stopping, if !is_over => is_over = true,
                next = self.next(), if !is_over => match next {
                    Some(next) => match waiting.get_mut(&Line::of(&next, ordering)) {
                        Some(behind) => behind.push_back(next),
                        None => parked.push_back(next),
                    },
                    None => is_over = true,
                },
            }
        }
        match self.error() {
            None | Some(Error::Closed) => Ok(handled),
            Some(error) => Err(error),
        }
    }
}

/// Settles a message. Returns the next of its line, which is in work from then on.
fn settle(
    delivery: &Delivery,
    line: &Line,
    outcome: Outcome,
    waiting: &mut Waiting,
    handled: &mut Handled,
) -> Option<Delivery> {
    match outcome {
        Outcome::Done => {
            handled.acked += 1;
            delivery.settle_ack();
        }
        Outcome::Stepped => handled.acked += 1,
        Outcome::Failed(reason) => {
            handled.failed += 1;
            delivery.settle_nack(reason);
        }
        Outcome::Gone => {}
    }
    let behind = waiting.get_mut(line)?;
    // What the nack has made void, or what a newer round or another epoch has replaced, comes again.
    let next = std::iter::from_fn(|| behind.pop_front()).find(Delivery::counts);
    if next.is_none() {
        waiting.remove(line);
    }
    next
}
