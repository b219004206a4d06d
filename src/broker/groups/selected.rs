//! What a group knows of a member that came by a selection of topics: whose credit it spends, and whom to tell that it is gone.

use std::sync::Arc;

use laneway_client::selection::Selection;
use laneway_client::wire::{self, BrokerFrame, ErrorFrame};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::task::Member;
use super::{Purse, Subscription, settings};
use crate::ids::TopicId;
use crate::store::groups::Group;
use crate::store::topics::Topic;
use crate::store::{Error, Store};

/// A member that came by a selection.
#[derive(Debug, Clone)]
pub struct Selected {
    /// The number of the selection within its session.
    pub selection: u32,
    /// Shared with its other topics.
    pub purse: Arc<Purse>,
    /// Told when the group is gone. Why without waiting: the selection looks after its topics anyway.
    pub gone: mpsc::Sender<TopicId>,
}

/// What a selection is stored as, as far as it decides which topics are its.
#[derive(Debug, Deserialize)]
struct Selecting {
    selection: Selection,
}

/// Whether a topic without the group has appeared after somebody has selected it under that name, and has not joined yet. Then that
/// one is the first consumer of the group, and it begins with the topic, whoever is faster.
pub(super) async fn is_awaited(store: &Store, topic: &Topic, group: &str) -> Result<bool, Error> {
    let found = store.selections_before(topic.topic_id, group).await?;
    Ok(found.iter().any(|(terms, labels)| {
        let terms: Option<Selecting> = serde_json::from_str(terms).ok(); // what cannot be read is told where it is taken up
        terms.is_some_and(|terms| terms.selection.matches(&topic.name, labels))
    }))
}

/// Tells a session that it takes part, before the first lane can come.
pub(super) fn announce(subscription: &Subscription, topic: &Topic, group: &Group) {
    let (group_name, topic_name) = (subscription.group.clone(), topic.name.clone());
    let partitions = topic.partitions.len() as u32;
    let settings = settings::described(&group.settings);
    let frame = match (&subscription.selected, subscription.id) {
        (Some(selected), _) => BrokerFrame::TopicJoined(Box::new(wire::TopicJoined {
            selection: selected.selection,
            subscription: subscription.number,
            group: group_name,
            topic: topic_name,
            partitions,
            settings,
        })),
        (None, Some(id)) => BrokerFrame::Subscribed(Box::new(wire::Subscribed {
            id,
            subscription: subscription.number,
            group: group_name,
            topic: topic_name,
            partitions,
            settings,
        })),
        (None, None) => return,
    };
    subscription.outbox.push(frame);
}

/// Tells a member that its group is gone: its selection, if it came by one, or its client.
pub(super) fn tell_gone(member: &Member, topic_id: TopicId, frame: ErrorFrame) {
    match (&member.selected, &member.outbox) {
        (Some(selected), _) => {
            let _busy_or_over = selected.gone.try_send(topic_id);
        }
        (None, Some(outbox)) => outbox.push(BrokerFrame::Error(Box::new(frame))),
        (None, None) => {}
    }
}
