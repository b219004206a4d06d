//! A step of a pipeline as a function: a message in, messages out. Both happen, or neither, once.
//!
//! The loop is that of [`run`](super::run); what differs is how a message is settled: by a step that acknowledges it and
//! publishes its outputs. The next message of a partition is begun when the step has its answer.

use std::fmt::Display;
use std::sync::Arc;

use super::delivery::{Delivery, Subscription};
use super::error::Error;
use super::run::{Handled, Outcome, Stop};
use super::step::Step;
use crate::error_code::ErrorCode;
use crate::wire::NewMessage;

/// What a handler makes of a message: messages for any topics, in order.
///
/// ```
/// use laneway_client::{NewMessage, Outputs};
///
/// let message = |payload: &'static str| NewMessage { payload: payload.into(), ..NewMessage::default() };
/// let outputs = Outputs::to("charges", message("4 EUR")).and("audit", message("charged"));
/// assert_eq!(outputs.len(), 2);
/// assert!(Outputs::none().is_empty());
/// let many: Outputs = ["a", "b", "c"].map(|item| ("items", message(item))).into_iter().collect();
/// assert_eq!(many.len(), 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outputs {
    messages: Vec<(String, NewMessage)>,
}

impl Outputs {
    /// Nothing follows: the message is acknowledged.
    pub fn none() -> Self {
        Self::default()
    }

    /// One message.
    pub fn to(topic: impl Into<String>, message: NewMessage) -> Self {
        Self::none().and(topic, message)
    }

    /// One message more.
    pub fn and(mut self, topic: impl Into<String>, message: NewMessage) -> Self {
        self.messages.push((topic.into(), message));
        self
    }

    /// How many messages follow.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether nothing follows.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

impl<T: Into<String>> FromIterator<(T, NewMessage)> for Outputs {
    fn from_iter<I: IntoIterator<Item = (T, NewMessage)>>(messages: I) -> Self {
        Self { messages: messages.into_iter().map(|(topic, message)| (topic.into(), message)).collect() }
    }
}

impl Subscription {
    /// Calls `handler` for every message. `Ok` acknowledges the message and publishes the [`Outputs`] as one step: both
    /// happen, or neither, and once, whatever becomes of connections and brokers. Outputs carry the trace id of the message, and it
    /// is their cause. `Err` refuses the message with the text of the error; so does a step that a broker refuses, for example
    /// because of a topic that does not exist.
    ///
    /// As in [`run`](Self::run), up to `concurrency` partitions are handled at the same time, each of them in order: the next
    /// message of a partition is begun when the step of the one before it has its answer.
    ///
    /// Ends when `stop` is called, when the client is closed, or with the reason why the subscription has ended. What is in work is
    /// finished first, its step included: without a broker that takes as long as the broker is away.
    ///
    /// What the handler itself does happens again if its message comes again; only what it returns happens once.
    pub async fn run_pipeline<H, F, E>(
        &mut self,
        concurrency: usize,
        stop: &Stop,
        handler: H,
    ) -> Result<Handled, Error>
    where
        H: Fn(Arc<Delivery>) -> F,
        F: Future<Output = Result<Outputs, E>>,
        E: Display,
    {
        let work = |delivery: Arc<Delivery>| {
            let handling = handler(delivery.clone());
            async move {
                match handling.await {
                    Ok(outputs) => step(&delivery, outputs).await,
                    Err(error) => Outcome::Failed(error.to_string()),
                }
            }
        };
        self.work_off(concurrency, stop, work).await
    }
}

async fn step(delivery: &Delivery, outputs: Outputs) -> Outcome {
    let with = |step: Step, (topic, message): (String, NewMessage)| step.publish(topic, message);
    match outputs.messages.into_iter().fold(delivery.transact(), with).commit().await {
        Ok(_) => Outcome::Stepped,
        Err(error) => settled(&error),
    }
}

/// What becomes of a message whose step has failed.
fn settled(error: &Error) -> Outcome {
    match error {
        // Another holder or a newer round has it, or another ack has done it.
        Error::LaneLost => Outcome::Gone,
        Error::Refused(refusal) if refusal.code == ErrorCode::AlreadyDone => Outcome::Gone,
        Error::Refused(_) => Outcome::Failed(error.to_string()),
        // The client has ended. If the step has not happened, the message comes again to another one.
        Error::TimedOut { .. }
        | Error::Stopped { .. }
        | Error::Closed
        | Error::Full
        | Error::Address { .. }
        | Error::Certificates(_)
        | Error::Unreachable { .. } => Outcome::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_refused_if_and_only_if_its_step_was() {
        let refused = |code| Error::refused(code, "because", None);
        assert!(
            matches!(settled(&refused(ErrorCode::UnknownTopic)), Outcome::Failed(why) if why.contains("because"))
        );
        assert!(matches!(settled(&refused(ErrorCode::TooLarge)), Outcome::Failed(_)));
        for gone in [Error::LaneLost, refused(ErrorCode::AlreadyDone), Error::TimedOut { doubtful: true }] {
            assert!(matches!(settled(&gone), Outcome::Gone), "{gone}");
        }
    }
}
