//! Subscriptions to a topic, and those that select some: of these one for each name of a group, and nothing else beside it.

use laneway_client::ErrorCode;
use laneway_client::wire::{Select, Subscribe};

use super::super::refusals::{refuse, too_many_subscriptions};
use super::{Action, Entry, Kind, State};

impl State {
    pub(super) fn on_subscribe(&mut self, subscribe: Subscribe) -> Vec<Action> {
        let (group, topic) = (subscribe.group.clone(), subscribe.topic.clone());
        let selects = Kind::Group { group: group.clone(), topic: None };
        let kind = Kind::Group { group, topic: Some(topic) };
        let is_same = |entry: &Entry| entry.kind == kind || entry.kind == selects;
        if let Some((number, _)) = self.subscriptions.iter().find(|(_, entry)| is_same(entry)) {
            let detail = format!("subscription {number} is to this group already");
            return refuse(ErrorCode::AlreadySubscribed, Some(subscribe.id), "group", &detail);
        }
        match self.number(kind) {
            Some(number) => vec![Action::Subscribe { number, subscribe: Box::new(subscribe) }],
            None => too_many_subscriptions(subscribe.id),
        }
    }

    /// Why alone: a session is a member of a group once, and a selection may get to any topic.
    pub(super) fn on_select(&mut self, select: Box<Select>) -> Vec<Action> {
        let is_same = |kind: &Kind| matches!(kind, Kind::Group { group, .. } if *group == select.group);
        if let Some((number, _)) = self.subscriptions.iter().find(|(_, entry)| is_same(&entry.kind)) {
            let detail = format!("subscription {number} is to a group of this name already");
            return refuse(ErrorCode::AlreadySubscribed, Some(select.id), "group", &detail);
        }
        match self.number(Kind::Group { group: select.group.clone(), topic: None }) {
            Some(number) => vec![Action::Select { number, select }],
            None => too_many_subscriptions(select.id),
        }
    }
}
