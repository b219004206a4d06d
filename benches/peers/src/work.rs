//! The work: what is measured, and its shape, which is the same for every system.
//!
//! `laneway bench` has the same numbers. Whoever changes one here makes the comparison unfair.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Partitions of the topic: streams in Redis, streams in JetStream.
pub const PARTITIONS: u32 = 8;
/// Messages that are sent together.
pub const BATCH_MESSAGES: usize = 100;
/// Batches of one producer that wait for their answers.
pub const BATCHES_IN_FLIGHT: usize = 32;
/// Processes that publish batches.
pub const PRODUCERS: usize = 2;
/// Processes that consume, each half of the partitions.
pub const CONSUMERS: usize = 2;
/// Groups that each get every message of the fan-out.
pub const FANOUT_GROUPS: usize = 10;
/// Producers with one message at a time.
pub const SINGLES: usize = 64;
/// Connections of the producer that keeps to a schedule.
pub const SCHEDULED_CONNECTIONS: u32 = 4;
/// Before the window: connections, caches, the first files.
pub const WARM_UP: Duration = Duration::from_secs(2);
/// How long messages that are late may still arrive after the window, and be counted with their whole latency.
pub const DRAIN: Duration = Duration::from_secs(10);

/// One kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Two producers, batches of 100, 32 in flight; messages that are answered.
    Publish,
    /// The same with a group of two consumers; messages that are acknowledged.
    E2e,
    /// The same with ten groups; deliveries that are acknowledged.
    Fanout,
    /// 64 producers with one message at a time; messages that are answered.
    Singles,
    /// Single messages on a schedule; time from the moment a message is due to its delivery.
    Latency,
}

impl Work {
    /// As `laneway bench` calls it, and people do.
    pub fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::E2e => "e2e",
            Self::Fanout => "fanout",
            Self::Singles => "singles",
            Self::Latency => "latency",
        }
    }

    /// Groups that consume.
    pub fn groups(self) -> usize {
        match self {
            Self::Publish | Self::Singles => 0,
            Self::E2e | Self::Latency => 1,
            Self::Fanout => FANOUT_GROUPS,
        }
    }
}

/// The name of a group.
pub fn group(number: usize) -> String {
    format!("group-{number}")
}

/// A work with what may be chosen about it.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub work: Work,
    /// Messages per second that are offered where the work keeps to a schedule.
    pub rate: u32,
    /// Connections over which the single producers of a peer publish.
    pub singles_connections: usize,
}
