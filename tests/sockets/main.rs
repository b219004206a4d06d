//! Groups and lanes as clients meet them: the real binary, real sockets, both subprotocols.
//!
//! | file | shows |
//! |---|---|
//! | `fires` | what is due: large, refused, beside paused topics, in topics with limits, and while others change it |
//! | `flow` | where a group starts, credit, batches, waiting for company |
//! | `acks` | cumulative and single acks, rounds, what does not count |
//! | `encryption` | encrypted topics: what is stored, rotation, nonces |
//! | `encryption_failures` | the same without the keys, or with what was changed |
//! | `encryption_paths` | the same parked, expired, turned on under publishers, in doubt |
//! | `encryption_reads` | reads, lists and pops beside what does not open |
//! | `failures` | nacks, backoff, deadlines, poison, the three policies |
//! | `members` | sharing, draining, waiting, taking over, two brokers |
//! | `zombies` | frozen and killed brokers |
//! | `step_crashes` | brokers and backends that die in the midst of steps |
//! | `transact` | steps: acks and publishes together, repeated, fenced, refused |
//! | `handovers` | targets and owners that die on the way, late members, churn |
//! | `poison` | crashes of brokers, dead letters that cannot be written |
//! | `keys` | order by key: slow and failing keys, parked ones, replayed and dropped |
//! | `key_ages` | the same beside ages, blocks and deadlines |
//! | `key_takeovers` | the same over two brokers, one of which dies |
//! | `pops` | consumers without a connection |
//! | `pop_windows` | delays, windows and ages for them |
//! | `pop_wishes` | the settings of their groups, and until when their lanes hold after a nack |
//! | `hops` | trace ids and causes, bit for bit |
//! | `capacity` | topics that are full: refused, waiting, told |
//! | `causes` | causes, links and traceparents: carried, believed, refused |
//! | `traces` | the tree of a trace, and what groups have made of it |
//! | `watches` | traces told as they happen |
//! | `spans` | what an OpenTelemetry collector gets |
//! | `schedules` | messages that wait for their time; lanes that hold until a moment |
//! | `searches` | messages by key, transaction id and time |
//! | `selections` | subscriptions that select their topics by names, patterns and labels |
//! | `clocks`, `hints` | brokers whose clocks are off, LISTEN that is lost |
//! | `crowd` | many sessions that come and go while messages flow |
//! | `commits` | what acks cost the database |
//! | `step_schedules` | messages of steps that wait, ttls of those that wait, how many there are, topics that are full |
//! | `times` | when messages were delivered and done, and what has failed |
//! | `windows` | delays, windows, and what becomes of messages that are too old |
//! | `window_takeovers` | the same over two brokers, one of which dies |
//! | `metrics` | what `/metrics` counts |
//! | `queue_metrics` | what it tells of retention, blocked keys and schedules |
//! | `database_metrics` | what it tells of the database: commits, errors, pools |
//! | `utilisation` | the views that tell who does how much |
//! | `lag_metrics` | what it tells of lag, and which broker does |
//! | `management` | pausing and resuming, partitions in numbers |

#![allow(clippy::unwrap_used, clippy::too_many_lines)]

#[path = "../harness/mod.rs"]
mod harness;

mod acks;
mod capacity;
mod causes;
mod clocks;
mod commits;
mod crowd;
mod database_metrics;
mod encryption;
mod encryption_failures;
mod encryption_paths;
mod encryption_reads;
mod failures;
mod fires;
mod flow;
mod handovers;
mod hints;
mod hops;
mod key_ages;
mod key_takeovers;
mod keys;
mod lag_metrics;
mod management;
mod members;
mod metrics;
mod poison;
mod pop_windows;
mod pop_wishes;
mod pops;
mod queue_metrics;
mod schedules;
mod searches;
mod selections;
#[cfg(feature = "otlp")]
mod spans;
mod step_crashes;
mod step_schedules;
mod times;
mod traces;
mod transact;
mod utilisation;
mod watches;
mod window_takeovers;
mod windows;
mod zombies;

use harness::socket::{Socket, make_topic, text};
use harness::{Server, TestDatabase};
use laneway_client::wire::{NewMessage, Subprotocol};

/// A broker with a topic.
struct Bus {
    database: TestDatabase,
    server: Server,
}

impl Bus {
    async fn with_topic(topic: &str, partitions: u32) -> Self {
        let bus = Self::start().await;
        make_topic(&bus.server.address, topic, partitions).await;
        bus
    }

    async fn start() -> Self {
        let database = TestDatabase::new().await;
        // What a test leaves in flight must not hold up its end for long.
        let server = Server::start(&["--database-url", &database.url, "--lane-drain", "2s"]).await;
        Self { database, server }
    }

    async fn connect(&self, subprotocol: Subprotocol) -> Socket {
        Socket::connect(&self.server.address, subprotocol).await
    }

    /// Publishes numbered messages to one partition.
    async fn publish(&self, topic: &str, partition: u32, numbers: std::ops::Range<usize>) {
        let mut producer = self.connect(Subprotocol::MessagePack).await;
        let messages = numbers.map(|number| to_partition(partition, format!("m{number}")));
        producer.publish(topic, messages.collect()).await;
        producer.close().await;
    }

    async fn stop(mut self) {
        assert_eq!(self.server.stop().await, 0, "{}", self.server.log().join("\n"));
    }
}

/// A message for one partition.
fn to_partition(partition: u32, payload: impl Into<String>) -> NewMessage {
    NewMessage { partition: Some(partition), ..text(payload) }
}
