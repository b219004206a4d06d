//! What a message inherits from the one that led to it: its trace, and the place of its cause. Pure.
//!
//! What the caller has chosen stays: a cause of its own, or another trace, which has no cause here.

use uuid::Uuid;

use crate::message::Cause;
use crate::traceparent;
use crate::wire::NewMessage;

/// The message that leads to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub trace_id: Uuid,
    pub place: Cause,
}

impl Origin {
    /// The message as this one leads to it.
    pub fn of(&self, mut message: NewMessage) -> NewMessage {
        if message.cause.is_some() || own_trace(&message).is_some_and(|own| own != self.trace_id) {
            return message;
        }
        message.trace_id = Some(self.trace_id);
        message.cause = Some(self.place.clone());
        message
    }
}

/// The trace that the caller has chosen, as a broker would read it.
fn own_trace(message: &NewMessage) -> Option<Uuid> {
    let header = || message.headers.get(traceparent::HEADER);
    message.trace_id.or_else(|| header().and_then(|text| traceparent::parse(text).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: Uuid = Uuid::from_u128(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
    const OTHER: Uuid = Uuid::from_u128(5);

    fn origin() -> Origin {
        Origin { trace_id: TRACE, place: Cause { topic: "orders".into(), partition: 3, offset: 41 } }
    }

    fn inherited(message: NewMessage) -> (Option<Uuid>, Option<Cause>) {
        let message = origin().of(message);
        (message.trace_id, message.cause)
    }

    fn with_header(trace_id: Uuid) -> NewMessage {
        let parent = format!("00-{}-b7ad6b7169203331-01", trace_id.simple());
        let headers = [(traceparent::HEADER.to_owned(), parent)].into();
        NewMessage { headers, ..NewMessage::default() }
    }

    #[test]
    fn trace_and_cause_are_inherited_unless_the_caller_has_chosen_others() {
        let both = (Some(TRACE), Some(origin().place));
        assert_eq!(inherited(NewMessage::default()), both);
        assert_eq!(inherited(NewMessage { trace_id: Some(TRACE), ..NewMessage::default() }), both);
        let foreign = NewMessage { trace_id: Some(OTHER), ..NewMessage::default() };
        assert_eq!(inherited(foreign), (Some(OTHER), None), "another trace has no cause here");
        let elsewhere = Cause { topic: "other".into(), partition: 0, offset: 0 };
        let caused = NewMessage { cause: Some(elsewhere.clone()), ..NewMessage::default() };
        assert_eq!(inherited(caused), (None, Some(elsewhere)), "the broker finds the trace of that cause");
    }

    #[test]
    fn a_traceparent_is_a_trace_that_the_caller_has_chosen() {
        assert_eq!(inherited(with_header(TRACE)), (Some(TRACE), Some(origin().place)));
        assert_eq!(inherited(with_header(OTHER)), (None, None));
    }
}
