//! Printing a stream of messages until it is enough: what `laneway subscribe` and `laneway tail` share.
//!
//! What is there is printed together, flushed, and only then settled. A message whose line was not written in full is not
//! acknowledged, so that the group gets it again.

mod form;
mod output;

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use futures_util::{FutureExt as _, Stream, StreamExt as _};
use laneway_client::Delivery;

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
#[derive(Debug)]
pub(super) enum Settle {
    /// It is acknowledged.
    Ack,
    /// It stays in flight. The oldest of each partition is kept, to ask for more time: a message that was only looked at
    /// must not count as failed.
    Keep(HashMap<u32, Delivery>),
    /// There is nothing to settle.
    Nothing,
}

/// One printing.
pub(super) struct Reading<'a> {
    pub form: Form,
    /// How many; all if it is not said.
    pub count: Option<u64>,
    pub settle: Settle,
    /// How often lanes are told that their messages are still in work.
    pub progress: Duration,
    pub signals: &'a Signals,
}

impl Reading<'_> {
    /// Prints what comes and is wanted.
    pub async fn print<S>(
        mut self,
        stream: &mut S,
        is_wanted: impl Fn(&Delivery) -> bool,
    ) -> Result<End, Failure>
    where
        S: Stream<Item = Delivery> + Unpin,
    {
        let output = Output::start()?;
        while self.count != Some(0) {
            let first = match self.next(stream).await {
                Ok(first) => first,
                Err(end) => return Ok(end),
            };
            let together = self.together(first, stream, &is_wanted);
            if let Some(end) = self.put(&output, together).await? {
                return Ok(end);
            }
        }
        Ok(End::Count)
    }

    /// The next message, or why there is none.
    async fn next<S: Stream<Item = Delivery> + Unpin>(&self, stream: &mut S) -> Result<Delivery, End> {
        loop {
            tokio::select! {
                biased; // a signal is obeyed even if messages never cease
                () = self.signals.stopped() => return Err(End::Signal),
                next = stream.next() => return next.ok_or(End::Stream),
                () = tokio::time::sleep(self.progress) => self.still_at_it(&[]),
            }
        }
    }

    /// The first message and those behind it that are there already, without those that are not wanted.
    fn together<S: Stream<Item = Delivery> + Unpin>(
        &self,
        first: Delivery,
        stream: &mut S,
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
            next = stream.next().now_or_never().flatten();
        }
        together
    }

    /// Prints some messages and settles those that were printed.
    async fn put(&mut self, output: &Output, together: Vec<Delivery>) -> Result<Option<End>, Failure> {
        let (mut text, mut ends) = (Vec::new(), Vec::with_capacity(together.len()));
        for delivery in &together {
            self.form.write(delivery, &mut text);
            ends.push(text.len());
        }
        let mut writing = std::pin::pin!(output.write(text));
        let written = loop {
            tokio::select! {
                written = &mut writing => break written?,
                () = tokio::time::sleep(self.progress) => self.still_at_it(&together),
            }
        };
        for (delivery, end) in together.into_iter().zip(ends) {
            if end <= written.bytes {
                self.count = self.count.map(|left| left - 1);
                self.settle.settle(delivery);
            }
        }
        match written.error {
            None => Ok(None),
            Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Some(End::Pipe)),
            Some(error) => Err(format!("cannot write to standard output: {error}").into()),
        }
    }

    fn still_at_it(&self, in_work: &[Delivery]) {
        match &self.settle {
            Settle::Ack => in_work.iter().for_each(Delivery::progress),
            Settle::Keep(kept) => in_work.iter().chain(kept.values()).for_each(Delivery::progress),
            Settle::Nothing => {}
        }
    }
}

impl Settle {
    fn settle(&mut self, delivery: Delivery) {
        match self {
            Self::Ack => delivery.ack(),
            Self::Keep(kept) => {
                let partition = delivery.partition;
                let is_older = |old: &Delivery| old.is_current() && old.offset < delivery.offset;
                if !kept.get(&partition).is_some_and(is_older) {
                    kept.insert(partition, delivery);
                }
            }
            Self::Nothing => {}
        }
    }
}
