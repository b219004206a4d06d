//! Messages in flight of a lane whose order is kept by key, in the order in which they were sent last. Pure.
//!
//! The oldest is the one that was sent first, wherever it lies: a message that fails and is sent again stands behind all others, so
//! that nothing which comes again and again keeps the deadline of what hangs from running.

use std::collections::BTreeMap;

use crate::ids::Offset;

/// See the module.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(super) struct Flying {
    /// The turn of each.
    turns: BTreeMap<Offset, u64>,
    order: BTreeMap<u64, Offset>,
    next_turn: u64,
}

impl Flying {
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    pub fn contains(&self, offset: Offset) -> bool {
        self.turns.contains_key(&offset)
    }

    /// The one with the lowest offset.
    pub fn first(&self) -> Option<Offset> {
        self.turns.first_key_value().map(|(offset, _)| *offset)
    }

    /// The one that was sent before all others.
    pub fn oldest(&self) -> Option<Offset> {
        self.order.first_key_value().map(|(_, offset)| *offset)
    }

    /// It is sent, after all others.
    pub fn insert(&mut self, offset: Offset) {
        self.remove(offset);
        self.turns.insert(offset, self.next_turn);
        self.order.insert(self.next_turn, offset);
        self.next_turn += 1;
    }

    pub fn remove(&mut self, offset: Offset) {
        if let Some(turn) = self.turns.remove(&offset) {
            self.order.remove(&turn);
        }
    }

    /// None is in flight any more; returns those that were.
    pub fn take(&mut self) -> Vec<Offset> {
        self.order.clear();
        std::mem::take(&mut self.turns).into_keys().collect()
    }
}
