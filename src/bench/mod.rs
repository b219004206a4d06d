//! Measurements that people can repeat: programs, not timed tests. Every figure is a ratio to what the same run measured beside it,
//! because absolute numbers do not travel between machines, nor between two minutes on a busy one.
//!
//! | file | owns |
//! |---|---|
//! | `database` | the database under test: given, or a private one in a temporary directory |
//! | `messages` | the messages that are sent: the same for every measurement |
//! | `limit`, `rows` | the raw inserts: the denominators |
//! | `pacing` | when the messages of an offered rate are due |
//! | `append` | the same messages through the appender, in process |
//! | `process`, `stage` | broker and worker processes; where a measurement takes place |
//! | `worker` | what a producer or consumer process does |
//! | `tally` | what workers have counted: messages and times |
//! | `measures` | the measurements: alternating rounds |
//! | `report` | medians, spread, bars |
//!
//! Producers, brokers, PostgreSQL and consumers are processes of their own and speak over real sockets, all on this machine.

pub mod append;
pub mod database;
pub mod limit;
pub mod measures;
mod messages;
mod pacing;
mod process;
pub mod report;
pub mod rows;
mod stage;
pub mod tally;
pub mod worker;

use std::time::Duration;

use database::Database;

/// Why a measurement could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Url(#[from] crate::store::UrlError),
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    #[error(transparent)]
    Migrate(#[from] crate::store::migrate::MigrateError),
    #[error(transparent)]
    Topic(#[from] crate::broker::topics::TopicError),
    #[error("the appender refused a unit: {0}")]
    Append(#[from] crate::broker::appender::AppendError),
    #[error(transparent)]
    Postgres(#[from] crate::postgres::Error),
    #[error("the raw insert failed: {0}")]
    Raw(#[from] tokio_postgres::Error),
    #[error("a broker does not start: {reason}")]
    Broker { reason: String },
    #[error("a broker refused a request of the measurement: {0}")]
    Admin(#[from] laneway_client::admin::AdminError),
    #[error("a file or process of the measurement failed: {0}")]
    Io(#[from] std::io::Error),
    #[error("what the measurement reads of its processes cannot be understood: {what}")]
    Unreadable { what: &'static str },
    #[error("a worker of the measurement has ended before its time; see what it said above")]
    Panicked,
    #[error("a worker of the measurement says nothing any more")]
    Silent,
    #[error("the consumers did not come to the end of what was published: {missing} messages are missing")]
    Undrained { missing: u64 },
}

/// How long to measure.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    pub rounds: u32,
    pub seconds: u32,
}

impl Schedule {
    fn window(self) -> Duration {
        Duration::from_secs(u64::from(self.seconds))
    }
}

/// What is told about each step, for a progress display.
pub trait Progress: Send + std::fmt::Debug {
    fn step(&mut self, name: &str, done: u32, of: u32);
}
