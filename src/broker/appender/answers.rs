//! The answers to the units of one publish, gathered: whoever publishes is woken once, by the last of them.
//!
//! A publish to many partitions has a unit for each. Waking its session for every one of them cost more than writing it.
//! Made by whoever hands units in; each unit carries a [`Reply`] through the appender.
//! Invariant: every place is answered once: by its reply, or by the end of it if the appender stops before.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{AppendError, AppendResult};

#[derive(Debug)]
struct Gathered {
    /// One per place; `None` until it is answered.
    results: Vec<Option<AppendResult>>,
    open: usize,
    waker: Option<Waker>,
}

/// What becomes of several units, once all are answered. Who drops it just does not hear of them.
#[derive(Debug)]
pub struct Answers {
    gathered: Arc<Mutex<Gathered>>,
}

impl Answers {
    /// Answers to so many units.
    pub fn to(units: usize) -> Self {
        let gathered = Gathered { results: vec![None; units], open: units, waker: None };
        Self { gathered: Arc::new(Mutex::new(gathered)) }
    }

    /// The reply that a unit carries; each place has one.
    pub(super) fn reply(&self, place: usize) -> Reply {
        Reply(Some(To::Place { gathered: self.gathered.clone(), place }))
    }
}

/// Cancel safety: safe; the answers are kept until somebody takes them.
impl Future for Answers {
    type Output = Vec<AppendResult>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<AppendResult>> {
        let mut gathered = self.gathered.lock();
        if gathered.open > 0 {
            gathered.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let results = std::mem::take(&mut gathered.results);
        Poll::Ready(results.into_iter().flatten().collect())
    }
}

#[derive(Debug)]
enum To {
    Place { gathered: Arc<Mutex<Gathered>>, place: usize },
    Alone(oneshot::Sender<AppendResult>),
}

impl To {
    fn answer(self, result: AppendResult) {
        match self {
            // The producer may have gone; what is written stays written.
            To::Alone(reply) => drop(reply.send(result)),
            To::Place { gathered, place } => {
                let mut gathered = gathered.lock();
                gathered.results[place] = Some(result);
                gathered.open -= 1;
                if gathered.open == 0 {
                    let waker = gathered.waker.take();
                    drop(gathered); // whoever is woken takes the lock
                    waker.into_iter().for_each(Waker::wake);
                }
            }
        }
    }
}

/// Where the answer to a unit goes; empty once it is given.
#[derive(Debug)]
pub(super) struct Reply(Option<To>);

impl Reply {
    /// A unit that somebody waits for alone.
    pub fn alone() -> (Self, oneshot::Receiver<AppendResult>) {
        let (reply, answer) = oneshot::channel();
        (Self(Some(To::Alone(reply))), answer)
    }

    pub fn send(mut self, result: AppendResult) {
        if let Some(to) = self.0.take() {
            to.answer(result);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            to.answer(Err(AppendError::OutcomeUnknown { reason: "the broker is stopping".into() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::broker::appender::Receipt;

    #[tokio::test]
    async fn all_answers_come_together_each_in_its_place_whatever_becomes_of_a_unit() {
        let mut answers = Answers::to(3);
        let [first, second, third] = [0, 1, 2].map(|place| answers.reply(place));
        third.send(Ok(Receipt::default()));
        drop(second);
        let early = poll_fn(|context| Poll::Ready(Pin::new(&mut answers).poll(context))).await;
        assert!(early.is_pending());
        let waiting = tokio::spawn(answers);
        first.send(Err(AppendError::Overloaded));
        let gone = AppendError::OutcomeUnknown { reason: "the broker is stopping".into() };
        let expected = vec![Err(AppendError::Overloaded), Err(gone), Ok(Receipt::default())];
        assert_eq!(waiting.await.unwrap(), expected);
    }

    #[tokio::test]
    async fn nobody_waits_for_no_units() {
        assert_eq!(Answers::to(0).await, vec![]);
    }

    #[tokio::test]
    async fn a_unit_that_somebody_waits_for_alone_is_answered_even_by_its_end() {
        let (reply, answer) = Reply::alone();
        drop(reply);
        assert!(matches!(answer.await.unwrap(), Err(AppendError::OutcomeUnknown { .. })));
    }
}
