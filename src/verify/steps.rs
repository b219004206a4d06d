//! The steps of a consumer: sent until somebody knows what became of them, on whatever broker, as a client with care does.

use std::collections::HashMap;

use laneway_client::Class;
use laneway_client::ErrorCode;
use laneway_client::wire::{
    Ack, Batch, ClientFrame, ErrorFrame, NewMessage, OffsetRange, StepPublish, Transact, Transacted,
};
use uuid::Uuid;

use super::history::{Event, LaneId, Ranges, Term};
use super::settings::RESULTS;

/// A step without an answer.
#[derive(Debug)]
struct Open {
    lane: LaneId,
    term: Term,
    ranges: Ranges,
    transact: Transact,
    /// To be sent once more.
    again: bool,
}

/// The steps of a consumer that have no answer.
#[derive(Debug, Default)]
pub(super) struct Steps {
    open: HashMap<u64, Open>,
}

/// What an error is about.
#[derive(Debug)]
pub(super) enum Answer {
    /// A step, and what is to be noted about it.
    Mine(Option<Event>),
    /// Something else.
    NotMine,
}

impl Steps {
    /// Acknowledges a batch, and publishes what follows from it: a message that says which messages it stands for.
    pub fn step(&mut self, id: u64, lane: LaneId, batch: &Batch, ranges: Ranges) -> ClientFrame {
        let ack = Ack {
            id: None,
            subscription: batch.subscription,
            partition: batch.partition,
            epoch: batch.epoch,
            round: batch.round,
            next: None,
            ranges: ranges.iter().map(|(from, to)| OffsetRange { from: *from, to: *to }).collect(),
        };
        let key = Some(lane.partition.to_string().into());
        let result =
            NewMessage { payload: result(lane.partition, &ranges).into(), key, ..NewMessage::default() };
        let publishes = vec![StepPublish { topic: RESULTS.into(), messages: vec![result] }];
        let transact = Transact { id, step_id: Uuid::now_v7(), acks: vec![ack], publishes };
        let term = (batch.epoch, batch.round);
        self.open.insert(id, Open { lane, term, ranges, transact: transact.clone(), again: false });
        ClientFrame::Transact(transact)
    }

    /// A new connection knows nothing of what was sent on the old one.
    pub fn on_connected(&mut self) {
        self.open.values_mut().for_each(|open| open.again = true);
    }

    /// What has to be sent once more.
    pub fn again(&mut self) -> Vec<ClientFrame> {
        let again = self.open.values_mut().filter(|open| open.again);
        let frames = again.map(|open| {
            open.again = false;
            ClientFrame::Transact(open.transact.clone())
        });
        frames.collect()
    }

    /// `now`: the term that a lane has by now.
    pub fn on_transacted(
        &mut self,
        done: &Transacted,
        now: impl Fn(LaneId) -> Option<Term>,
    ) -> Option<Event> {
        let Open { lane, term, ranges, .. } = self.open.remove(&done.id)?;
        let during = match done.repeated {
            true => (term.0, u32::MAX), // in which round of its epoch it was done, nobody remembers
            false => now(lane).filter(|now| now.0 == term.0).map_or(term, |now| now.max(term)),
        };
        Some(Event::Stepped { lane, term, during, ranges })
    }

    pub fn on_error(&mut self, error: &ErrorFrame) -> Answer {
        let Some(id) = error.id.filter(|id| self.open.contains_key(id)) else { return Answer::NotMine };
        // Not subscribed yet on this connection, or a broker that cannot tell: it is asked again.
        let unsettled = error.class != Class::Refused || error.code == ErrorCode::UnknownSubscription;
        if let Some(open) = self.open.get_mut(&id).filter(|_| unsettled) {
            open.again = true;
            return Answer::Mine(None);
        }
        let fenced = error.code == ErrorCode::LeaseLost;
        let refused = self.open.remove(&id);
        Answer::Mine(refused.map(|Open { lane, term, ranges, .. }| Event::AckRefused {
            lane,
            term,
            ranges,
            fenced,
        }))
    }
}

/// What follows from messages: their partition and offsets.
fn result(partition: u32, ranges: &[(i64, i64)]) -> String {
    let ranges: Vec<String> = ranges.iter().map(|(from, to)| format!("{from}-{to}")).collect();
    format!("{partition}:{}", ranges.join(","))
}

/// Reads [`result`] back; `None`: nobody has published that.
pub(super) fn parse_result(payload: &[u8]) -> Option<(u32, Ranges)> {
    let (partition, ranges) = std::str::from_utf8(payload).ok()?.split_once(':')?;
    let range = |range: &str| {
        let (from, to) = range.split_once('-')?;
        Some((from.parse().ok()?, to.parse().ok()?))
    };
    Some((partition.parse().ok()?, ranges.split(',').map(range).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read_back_as_it_was_published() {
        let ranges = vec![(3, 5), (7, 8)];
        assert_eq!(parse_result(result(11, &ranges).as_bytes()), Some((11, ranges)));
        for broken in ["", "11", "11:", "11:3", "x:3-5", "11:3-5,"] {
            assert_eq!(parse_result(broken.as_bytes()), None, "{broken:?}");
        }
    }
}
