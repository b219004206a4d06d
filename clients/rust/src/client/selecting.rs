//! Subscriptions that select their topics, as a client knows them: topics that join and leave, and whose lane is whose.

use std::sync::Arc;

use super::delivery::{Shared, refuse};
use super::reader::{Opened, Wanted};
use super::readers::{Numbered, Readers};
use crate::wire::{Batch, Selected, Start, TopicJoined, TopicLeft};

impl Readers {
    pub fn on_selected(&mut self, selected: &Selected) {
        let Some((key, credit)) = self.take_asked(selected.id) else { return };
        if let Some(Wanted::Select(select)) = self.wanted(key) {
            // What it has begun with is begun: a topic without a group came after that, and nothing of it is skipped.
            select.start = Some(Start::Earliest);
        }
        let opened = Opened::Group { settings: selected.settings, partitions: 0 };
        self.on_open(key, selected.subscription, credit, opened);
    }

    pub fn on_topic_joined(&mut self, joined: &TopicJoined) {
        if let Some(shared) = self.shared(joined.selection).cloned() {
            tracing::debug!(topic = joined.topic, "a topic takes part");
            shared.with_parts(|parts| parts.join(joined.subscription, &joined.topic));
            self.name(joined.subscription, joined.selection);
        }
    }

    pub fn on_topic_left(&mut self, left: &TopicLeft) {
        if let Some(error) = &left.error {
            let (code, detail) = (error.code.as_str(), &error.detail);
            tracing::warn!(topic = left.topic, code, detail, "a topic that is selected cannot take part");
        }
        let Some(number) = left.subscription else { return };
        if let Some(shared) = self.shared(left.selection).cloned() {
            tracing::debug!(topic = left.topic, reason = left.reason, "a topic takes part no longer");
            for lane in shared.with_parts(|parts| parts.leave(number)) {
                refuse(shared.with(|inbox| inbox.on_revoked(lane, i64::MAX)));
            }
            self.unname(number);
        }
    }

    /// The inbox and the lane that a broker speaks of.
    pub fn lane(&self, number: u32, partition: u32) -> Option<(&Arc<Shared>, u32)> {
        let shared = self.shared(number)?;
        Some((shared, shared.lane(number, partition)?))
    }

    /// Takes a batch in, under the names that its subscription has for it.
    pub fn on_batch(&mut self, mut batch: Batch) {
        let Some(number) = self.first_number(batch.subscription) else { return };
        if let Some((shared, lane)) = self.lane(batch.subscription, batch.partition) {
            batch.partition = lane;
            if shared.selects() {
                batch.subscription = number; // credit is of the whole
            }
            shared.with(|inbox| inbox.on_batch(batch));
        }
    }

    /// How a broker calls a lane of a reader, for who knows its inbox.
    pub fn numbered(&self, shared: &Arc<Shared>, lane: u32) -> Numbered {
        match self.number_of(shared) {
            None => Numbered::Never,
            Some(number) => shared.wire(number, lane).map_or(Numbered::NotYet, Numbered::As), // a topic may join again
        }
    }
}
