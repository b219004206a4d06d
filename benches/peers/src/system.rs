//! The systems that are compared, and what each of them promises when it answers.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A system with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    Laneway,
    RedisAlways,
    RedisEverysec,
    NatsDefault,
    NatsAlways,
}

/// A system of others, with which our own workers speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Peer {
    Redis(Appendfsync),
    Nats(SyncInterval, Publishing),
}

/// When Redis forces its append-only file to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Appendfsync {
    Always,
    Everysec,
}

/// When JetStream forces its files to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncInterval {
    /// Every two minutes.
    Default,
    Always,
}

/// How batches get into JetStream. Single messages are always published and acknowledged one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Publishing {
    /// Every message is acknowledged: the classic way.
    Acked,
    /// A batch is stored as a whole or not at all, and acknowledged as one (since 2.12).
    Atomic,
    /// A stream of messages, acknowledged every 100 (since 2.14).
    Fast,
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            Self::Laneway => "laneway",
            Self::RedisAlways => "redis-always",
            Self::RedisEverysec => "redis-everysec",
            Self::NatsDefault => "nats-default",
            Self::NatsAlways => "nats-always",
        }
    }

    /// What has happened to a message when its producer has its answer.
    pub fn durability(self) -> &'static str {
        match self {
            Self::Laneway => "fsync before the answer (PostgreSQL's commit); acks too",
            Self::RedisAlways => "fsync before the answer; acks too",
            Self::RedisEverysec => "fsync every second, after the answer; acks too",
            Self::NatsDefault => "fsync every 2 minutes, after the answer; acks in memory, written later",
            Self::NatsAlways => "fsync before the answer; acks in memory, written later",
        }
    }

    /// `None`: Laneway, which measures itself.
    pub fn peer(self) -> Option<Peer> {
        match self {
            Self::Laneway => None,
            Self::RedisAlways => Some(Peer::Redis(Appendfsync::Always)),
            Self::RedisEverysec => Some(Peer::Redis(Appendfsync::Everysec)),
            Self::NatsDefault => Some(Peer::Nats(SyncInterval::Default, Publishing::Fast)),
            Self::NatsAlways => Some(Peer::Nats(SyncInterval::Always, Publishing::Atomic)),
        }
    }
}
