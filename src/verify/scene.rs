//! Who takes part in a run, and what they share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::history::Recorder;
use super::settings::PIPELINE;

/// How a consumer works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Every batch at once.
    Steady,
    /// Every batch, after a while.
    Slow,
    /// Several batches with one ack.
    Collecting,
    /// Message by message, in any order.
    Singles,
    /// Refuses a message now and then.
    Nacking,
    /// Dies in the middle of a batch now and then.
    Dying,
    /// Every batch with one step, which publishes what follows from it.
    Stepping,
}

impl Style {
    /// How the members of a group work, by the number of the group.
    pub fn of_group(group: usize) -> &'static [Self] {
        match group {
            PIPELINE => &[Self::Stepping; 6],
            _ => &[Self::Steady, Self::Singles, Self::Slow, Self::Collecting, Self::Nacking, Self::Dying],
        }
    }
}

/// What a fault does to a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Vanishes without a word, and comes back as another session.
    Die,
    /// Neither reads nor writes for so long, and goes on as if nothing had been.
    Freeze(Duration),
    /// Leaves in order, and comes back as another session.
    Leave,
}

/// What consumers find out beside the history.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Acks of what was never sent: how many were refused.
    pub odd_acks: usize,
    /// Such acks that were confirmed.
    pub odd_acks_confirmed: Vec<String>,
    /// Codes that told a consumer not to come back.
    pub closes_not_retryable: Vec<u16>,
    /// Producers whose publishes were not answered in the end.
    pub producers_unsettled: usize,
}

/// What all consumers share.
#[derive(Debug)]
pub(super) struct Scene {
    pub brokers: Arc<[SocketAddr]>,
    pub recorder: Arc<Recorder>,
    pub findings: parking_lot::Mutex<Findings>,
    pub stop: CancellationToken,
}
