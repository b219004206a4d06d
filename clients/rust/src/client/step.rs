//! A step of a pipeline as its user builds it: deliveries to acknowledge and messages to publish, all of it or nothing, once.
//!
//! Everything that can be known without a broker is checked before anything is sent. From then on the owner sends the step until
//! a broker has said what became of it, over as many connections as that takes; see `steps`.

use std::sync::{Arc, Weak};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use super::Inner;
use super::cause::Origin;
use super::check;
use super::delivery::{Delivery, Shared};
use super::error::Error;
use super::inbox::Place;
use super::owner::Request;
use super::reservation::{LaneAck, Reservation, lanes};
use crate::error_code::ErrorCode;
use crate::wire::bounds::{PUBLISH_MESSAGES_MAX, TRANSACT_ACKS_MAX, TRANSACT_PUBLISHES_MAX};
use crate::wire::{ClientFrame, Limits, NewMessage, Placed, StepPublish, Subprotocol, Transact};

/// What a step has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// It had been done before, by an earlier try or by another holder of its `step_id`: this is the result of that time.
    pub repeated: bool,
    /// Where the messages stand, in the order in which they were given to [`Step::publish`].
    pub placed: Vec<Placed>,
}

/// Acks and publishes that happen together, or not at all. Made by [`Delivery::transact`]; nothing happens before
/// [`commit`](Self::commit), and a step that is dropped before has done nothing.
#[derive(Debug)]
#[must_use = "nothing happens before it is committed"]
pub struct Step {
    client: Weak<Inner>,
    step_id: Uuid,
    origin: Origin,
    readers: Vec<Arc<Shared>>,
    /// The place of a reader among `readers`, and of a message in it.
    acks: Vec<(usize, Place)>,
    publishes: Vec<StepPublish>,
    /// Of each message that was given: its publish, and its place there.
    order: Vec<(usize, usize)>,
    /// The first thing that is wrong with it.
    fault: Option<Error>,
}

/// A step as the owner gets it.
#[derive(Debug)]
pub(super) struct NewStep {
    pub step_id: Uuid,
    pub reservation: Reservation,
    pub publishes: Vec<StepPublish>,
    /// Of each message that was given: its publish, and its place there.
    pub order: Vec<(usize, usize)>,
    pub reply: oneshot::Sender<Result<Committed, Error>>,
    pub _room: [OwnedSemaphorePermit; 2],
}

impl Step {
    pub(super) fn new(delivery: &Delivery) -> Self {
        let step = Self {
            client: delivery.client.clone(),
            step_id: Uuid::now_v7(),
            origin: delivery.origin(),
            readers: Vec::new(),
            acks: Vec::new(),
            publishes: Vec::new(),
            order: Vec::new(),
            fault: None,
        };
        step.ack(delivery)
    }

    /// Acknowledges another delivery with it, of any subscription of the same client.
    pub fn ack(mut self, delivery: &Delivery) -> Self {
        if !self.client.ptr_eq(&delivery.client) {
            return self.fail("acks", "a step acknowledges deliveries of one client");
        }
        if delivery.place.epoch == 0 {
            return self.fail("acks", "a tail holds no lane, so that there is nothing to acknowledge");
        }
        let known = self.readers.iter().position(|reader| Arc::ptr_eq(reader, &delivery.shared));
        let reader = known.unwrap_or_else(|| {
            self.readers.push(delivery.shared.clone());
            self.readers.len() - 1
        });
        self.acks.push((reader, delivery.place));
        self
    }

    /// Publishes a message with it: caused by the delivery that the step began with, unless
    /// [`another one has caused it`](Delivery::caused) or it belongs to another trace. Messages for one partition are stored in
    /// the order in which they are given.
    pub fn publish(mut self, topic: impl Into<String>, message: NewMessage) -> Self {
        if message.sequence.is_some() {
            return self
                .fail("publishes", "a message of a step has no sequence: its step id tells a repetition");
        }
        let (topic, message): (String, NewMessage) = (topic.into(), self.origin.of(message));
        let known = self.publishes.iter().position(|publish| publish.topic == topic);
        let publish = known.unwrap_or_else(|| {
            self.publishes.push(StepPublish { topic, messages: Vec::new() });
            self.publishes.len() - 1
        });
        let messages = &mut self.publishes[publish].messages;
        messages.push(message);
        self.order.push((publish, messages.len() - 1));
        self
    }

    /// Names the step, instead of a new UUIDv7: a program that may be started again before it knows what became of the step can
    /// ask with the same name and the same content, and is told.
    pub fn step_id(mut self, step_id: Uuid) -> Self {
        self.step_id = step_id;
        self
    }

    fn fail(mut self, field: &str, detail: &str) -> Self {
        self.fault.get_or_insert_with(|| Error::refused(ErrorCode::Malformed, detail, Some(field)));
        self
    }

    /// Does it, and returns when that is durable. It is sent until a broker has said what became of it, also if the connection is
    /// lost, the broker dies or the lane moves meanwhile; it happens once.
    ///
    /// After any error but a [`doubtful`](Error::TimedOut) one nothing was acknowledged and nothing was published:
    ///
    /// - [`Error::LaneLost`]: the lane has moved or the round is over; the messages come again by themselves.
    /// - [`ErrorCode::AlreadyDone`]: one of the messages is done already, or is in a step that is under way. Which one, a step for
    ///   each of them tells.
    /// - [`Error::Refused`] otherwise: a rule was broken, such as a topic that does not exist. The deliveries are still yours: nack
    ///   them, or acknowledge them in another way.
    /// - [`Error::Closed`]: the client is closed or gone.
    ///
    /// While it is under way, acks and nacks of its deliveries do nothing; whatever else is acknowledged on its lanes counts. The
    /// deliveries may be dropped at any time.
    ///
    /// Cancel safety: if it is dropped, the step may happen or not, as if its answer had been lost. If it has not, the messages come
    /// again when their lane moves or their ack deadline is over.
    pub async fn commit(self) -> Result<Committed, Error> {
        let inner = self.client.upgrade().ok_or(Error::Closed)?;
        let Self { step_id, readers, acks, publishes, order, fault, .. } = self;
        if let Some(fault) = fault {
            return Err(fault);
        }
        let lanes = lanes(&acks);
        check_step(step_id, &lanes, &publishes, &inner.limits(), inner.options.subprotocol)?;
        let reservation = Reservation::take(readers, lanes)?;
        let bytes = publishes.iter().flat_map(|publish| &publish.messages).map(check::takes).sum();
        let _room = inner.step_room(order.len(), bytes).await?;
        let (reply, committed) = oneshot::channel();
        let step = NewStep { step_id, reservation, publishes, order, reply, _room };
        inner.requests.send(Request::Step(Box::new(step))).await.map_err(|_| Error::Closed)?;
        committed.await.unwrap_or(Err(Error::Closed))
    }
}

/// Whether a broker would take a step at all. The same rules as the broker's, as far as they can be known here.
fn check_step(
    step_id: Uuid,
    lanes: &[LaneAck],
    publishes: &[StepPublish],
    limits: &Limits,
    subprotocol: Subprotocol,
) -> Result<(), Error> {
    if step_id.is_nil() {
        let detail = "a step id of zeros names no step";
        return Err(Error::refused(ErrorCode::Malformed, detail, Some("step_id")));
    }
    let messages: usize = publishes.iter().map(|publish| publish.messages.len()).sum();
    at_most("lanes", "acks", lanes.len(), TRANSACT_ACKS_MAX)?;
    at_most("topics", "publishes", publishes.len(), TRANSACT_PUBLISHES_MAX)?;
    let messages_max = PUBLISH_MESSAGES_MAX.min(limits.publish_messages_max as usize);
    at_most("messages", "publishes", messages, messages_max)?;
    let ranges: usize = lanes.iter().map(|lane| lane.places.len()).sum();
    let bytes: usize = publishes.iter().flat_map(|publish| &publish.messages).map(check::takes).sum();
    // Why: JSON writes a byte as up to six characters. What is smaller than an eighth fits in any encoding.
    if (bytes + ranges * size_of::<Place>()) as u64 <= limits.frame_bytes_max / 8 {
        return Ok(());
    }
    let acks = lanes.iter().map(|lane| lane.ack((u32::MAX, u32::MAX))).collect();
    let whole = Transact { id: u64::MAX, step_id, acks, publishes: publishes.to_vec() };
    let bytes = subprotocol.encode_client(&ClientFrame::Transact(whole)).len();
    at_most(
        "bytes of a frame",
        "publishes",
        bytes,
        usize::try_from(limits.frame_bytes_max).unwrap_or(usize::MAX),
    )
}

fn at_most(what: &str, field: &str, found: usize, max: usize) -> Result<(), Error> {
    match found > max {
        false => Ok(()),
        true => {
            let detail = format!("a step has at most {max} {what}, this one has {found}");
            Err(Error::refused(ErrorCode::TooLarge, detail, Some(field)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        frame_bytes_max: 8_000,
        publish_messages_max: 5,
        publishes_in_flight_max: 8,
        subscriptions_max: 8,
        credit_messages_max: 100,
        credit_bytes_max: 1 << 20,
    };

    fn of_lanes(many: u32) -> Vec<LaneAck> {
        let place = |partition| Place { partition, epoch: 1, round: 1, offset: 0 };
        lanes(&(0..many).map(|partition| (0, place(partition))).collect::<Vec<_>>())
    }

    fn to(topics: usize, messages: usize, payload: usize) -> Vec<StepPublish> {
        let message = NewMessage { payload: vec![b'x'; payload].into(), ..NewMessage::default() };
        let one =
            |topic| StepPublish { topic: format!("t{topic}"), messages: vec![message.clone(); messages] };
        (0..topics).map(one).collect()
    }

    fn refused(step_id: Uuid, lanes: &[LaneAck], publishes: &[StepPublish]) -> Option<(ErrorCode, String)> {
        match check_step(step_id, lanes, publishes, &LIMITS, Subprotocol::Json) {
            Err(Error::Refused(refusal)) => Some((refusal.code, refusal.field.unwrap_or_default())),
            Err(other) => panic!("{other}"),
            Ok(()) => None,
        }
    }

    #[test]
    fn what_a_broker_would_refuse_for_its_size_is_refused_before_it_is_sent() {
        let (id, one) = (Uuid::from_u128(1), of_lanes(1));
        let too_large = |field: &str| Some((ErrorCode::TooLarge, field.to_owned()));
        assert_eq!(refused(id, &one, &to(1, 5, 3)), None);
        assert_eq!(refused(id, &one, &[]), None, "a step may publish nothing");
        assert_eq!(refused(Uuid::nil(), &one, &[]), Some((ErrorCode::Malformed, "step_id".to_owned())));
        assert_eq!(refused(id, &of_lanes(64), &[]), None);
        assert_eq!(refused(id, &of_lanes(65), &[]), too_large("acks"));
        assert_eq!(refused(id, &one, &to(65, 0, 0)), too_large("publishes"));
        assert_eq!(refused(id, &one, &to(2, 3, 3)), too_large("publishes"), "six messages where five may be");
        assert_eq!(refused(id, &one, &to(1, 1, 7_000)), None);
        assert_eq!(refused(id, &one, &to(1, 1, 8_000)), too_large("publishes"), "it fits in no frame");
    }
}
