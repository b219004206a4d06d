//! Reading without a group: tails, watches, and single looks at a trace.

use laneway_client::wire::{BrokerFrame, ClientFrame, ReadTrace, Tail, Untail, Untailed, Watch};

use super::super::refusals::{too_many_publishes, too_many_subscriptions, unknown_subscription};
use super::{Action, Entry, Kind, Standing, State};
use crate::limits::PUBLISHES_IN_FLIGHT_MAX;

impl State {
    pub(super) fn on_tail(&mut self, tail: Tail) -> Vec<Action> {
        match self.number(Kind::Tail) {
            Some(number) => vec![Action::Tail { number, tail: Box::new(tail) }],
            None => too_many_subscriptions(tail.id),
        }
    }

    pub(super) fn on_watch(&mut self, watch: Watch) -> Vec<Action> {
        match self.number(Kind::Watch) {
            Some(number) => vec![Action::Watch { number, watch: Box::new(watch) }],
            None => too_many_subscriptions(watch.id),
        }
    }

    /// A look at a trace counts as a publish: it is answered as late.
    pub(super) fn on_trace(&mut self, trace: ReadTrace) -> Vec<Action> {
        if self.publishes >= PUBLISHES_IN_FLIGHT_MAX {
            return too_many_publishes(trace.id);
        }
        self.publishes += 1;
        vec![Action::Trace(trace)]
    }

    pub(super) fn on_untail(&mut self, untail: Untail) -> Vec<Action> {
        let Untail { id, subscription: number } = untail;
        match self.subscriptions.get(&number) {
            Some(Entry { standing: Standing::Asked, .. }) => {
                vec![Action::Hold(Box::new(ClientFrame::Untail(untail)))]
            }
            Some(Entry { kind: Kind::Tail | Kind::Watch, .. }) => {
                self.subscriptions.remove(&number);
                let untailed = Action::Send(BrokerFrame::Untailed(Untailed { id, subscription: number }));
                vec![Action::Untail { number }, untailed]
            }
            Some(Entry { kind: Kind::Group { .. }, .. }) | None => unknown_subscription(Some(id), number),
        }
    }
}
