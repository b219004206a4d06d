//! The topics of a subscription that selects them: their numbers in this session, and one name for each of their lanes.
//!
//! Inside a client, a lane has one number, whatever its topic: for a subscription to one topic it is the number of the
//! partition, otherwise it is counted here. Only what comes from a broker or goes to one is translated.
//! Invariant: the lane of a topic and partition stays the same for as long as the subscription lives, also over sessions.

use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Numbers of this session.
    topics: HashMap<u32, Arc<str>>,
    lanes: HashMap<(Arc<str>, u32), u32>,
    places: Vec<(Arc<str>, u32)>,
}

impl Parts {
    /// A topic has joined under a number.
    pub fn join(&mut self, number: u32, topic: &str) {
        self.topics.insert(number, topic.into());
    }

    /// A number is not used any more. Returns its lanes.
    pub fn leave(&mut self, number: u32) -> Vec<u32> {
        let Some(topic) = self.topics.remove(&number) else { return Vec::new() };
        self.lanes.iter().filter(|((of, _), _)| *of == topic).map(|(_, lane)| *lane).collect()
    }

    /// Another session: its numbers come later.
    pub fn reset(&mut self) {
        self.topics.clear();
    }

    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.topics.keys().copied()
    }

    /// The names of the topics that take part.
    pub fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self.topics.values().map(|topic| topic.to_string()).collect();
        topics.sort_unstable();
        topics
    }

    /// The lane that a broker speaks of; `None`: no topic has this number.
    pub fn lane(&mut self, number: u32, partition: u32) -> Option<u32> {
        let topic = self.topics.get(&number)?.clone();
        let next = self.places.len() as u32;
        let lane = *self.lanes.entry((topic.clone(), partition)).or_insert(next);
        if lane == next {
            self.places.push((topic, partition));
        }
        Some(lane)
    }

    /// The topic and partition of a lane.
    pub fn place(&self, lane: u32) -> Option<&(Arc<str>, u32)> {
        self.places.get(lane as usize)
    }

    /// How a broker calls a lane; `None`: its topic has no number now.
    pub fn wire(&self, lane: u32) -> Option<(u32, u32)> {
        let (topic, partition) = self.place(lane)?;
        let number = self.topics.iter().find(|(_, of)| *of == topic).map(|(number, _)| *number)?;
        Some((number, *partition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_keep_their_names_over_sessions_and_topics_do_not_mix() {
        let mut parts = Parts::default();
        parts.join(10, "a");
        parts.join(11, "b");
        let (a, b) = (parts.lane(10, 0).unwrap(), parts.lane(11, 0).unwrap());
        assert_ne!(a, b);
        assert_eq!((parts.lane(10, 0), parts.lane(12, 0)), (Some(a), None));
        assert_eq!(parts.wire(b), Some((11, 0)));
        parts.reset();
        assert_eq!(parts.wire(a), None);
        parts.join(20, "a");
        assert_eq!((parts.wire(a), parts.lane(20, 0)), (Some((20, 0)), Some(a)));
        assert_eq!(parts.leave(20), [a]);
        assert_eq!((parts.place(a).unwrap().0.as_ref(), parts.topics().len()), ("a", 0));
    }
}
