//! Printing a stream of messages until it is enough: what `laneway subscribe` and `laneway tail` share.
//!
//! What is there is printed together, flushed, and only then settled. A message whose line was not written in full is not
//! acknowledged, so that the group gets it again.

mod form;
mod output;

use std::io;
use std::time::Duration;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use laneway_client::{Delivery, Subscription, Tail};
use tokio::time::Interval;

pub(super) use self::form::Form;
use self::output::Output;
use super::Failure;
use super::signals::Signals;

/// Messages that are printed with one write, if so many are there.
const TOGETHER_MAX: usize = 256;
/// Bytes of payloads that are printed with one write, give or take a message.
const TOGETHER_BYTES_MAX: usize = 1 << 20;

/// Why the printing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// As many were printed as were asked for.
    Count,
    /// Ctrl-C or SIGTERM.
    Signal,
    /// Nobody reads standard output any more.
    Pipe,
    /// No more comes.
    Stream,
}

/// What follows when a message was printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settle {
    /// It is acknowledged.
    Ack,
    /// Nothing: it stays in flight, or there is nothing to settle.
    Nothing,
}

/// Where messages come from.
pub(super) trait Source: Stream<Item = Delivery> + Unpin {
    /// What was delivered and not printed yet, and what was printed and not acknowledged, must not count as failed.
    fn still_at_it(&self);
}

impl Source for Subscription {
    fn still_at_it(&self) {
        self.progress();
    }
}

impl Source for Tail {
    fn still_at_it(&self) {} // there is no deadline
}

/// One printing.
pub(super) struct Reading<'a> {
    pub form: Form,
    /// How many; all if it is not said.
    pub count: Option<u64>,
    pub settle: Settle,
    /// When lanes are told that their messages are still in work; see [`pace`].
    pub progress: Interval,
    pub signals: &'a Signals,
}

/// Every so often, however much comes between.
pub(super) fn pace(every: Duration) -> Interval {
    let mut pace = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    pace
}

impl Reading<'_> {
    /// Prints what comes and is wanted.
    pub async fn print(
        mut self,
        source: &mut impl Source,
        is_wanted: impl Fn(&Delivery) -> bool,
    ) -> Result<End, Failure> {
        let output = Output::start()?;
        while self.count != Some(0) {
            let first = match self.next(source).await {
                Ok(first) => first,
                Err(end) => return Ok(end),
            };
            let together = self.together(first, source, &is_wanted);
            if let Some(end) = self.put(&output, together, source).await? {
                return Ok(end);
            }
        }
        Ok(End::Count)
    }

    /// The next message, or why there is none.
    async fn next(&mut self, source: &mut impl Source) -> Result<Delivery, End> {
        loop {
            tokio::select! {
                biased; // a signal is obeyed even if messages never cease
                () = self.signals.stopped() => return Err(End::Signal),
                _ = self.progress.tick() => source.still_at_it(), // also while messages never cease
                next = source.next() => return next.ok_or(End::Stream),
            }
        }
    }

    /// The first message and those behind it that are there already, without those that are not wanted.
    fn together(
        &self,
        first: Delivery,
        source: &mut impl Source,
        is_wanted: impl Fn(&Delivery) -> bool,
    ) -> Vec<Delivery> {
        let most = self.count.map_or(TOGETHER_MAX, |left| left.min(TOGETHER_MAX as u64) as usize);
        let (mut together, mut bytes, mut next) = (Vec::new(), 0, Some(first));
        while let Some(delivery) = next {
            if is_wanted(&delivery) {
                bytes += delivery.payload.len();
                together.push(delivery);
            }
            if together.len() >= most || bytes >= TOGETHER_BYTES_MAX {
                break;
            }
            next = source.next().now_or_never().flatten();
        }
        together
    }

    /// Prints some messages and settles those that were printed.
    async fn put(
        &mut self,
        output: &Output,
        together: Vec<Delivery>,
        source: &impl Source,
    ) -> Result<Option<End>, Failure> {
        let (mut text, mut ends) = (Vec::new(), Vec::with_capacity(together.len()));
        for delivery in &together {
            self.form.write(delivery, &mut text);
            ends.push(text.len());
        }
        let mut writing = std::pin::pin!(output.write(text));
        let written = loop {
            tokio::select! {
                written = &mut writing => break written?,
                _ = self.progress.tick() => source.still_at_it(),
            }
        };
        for (delivery, end) in together.into_iter().zip(ends) {
            if end <= written.bytes {
                self.count = self.count.map(|left| left - 1);
                match self.settle {
                    Settle::Ack => delivery.ack(),
                    Settle::Nothing => {}
                }
            }
        }
        match written.error {
            None => Ok(None),
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Some(End::Pipe)),
            Some(error) => Err(format!("cannot write to standard output: {error}").into()),
        }
    }
}
