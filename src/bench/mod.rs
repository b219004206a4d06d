//! Measurements that people can repeat: programs, not timed tests. Every figure is a ratio to the raw insert that the same
//! run measured, because absolute numbers do not travel between machines, nor between two minutes on a busy one.
//!
//! | file | owns |
//! |---|---|
//! | `database` | the database under test: given, or a private one in a temporary directory |
//! | `messages` | the messages that are sent: the same for every measurement |
//! | `limit` | the raw insert: the denominator |
//! | `append` | the same messages through the appender, in process |
//! | `rounds` | alternating, medians, spread, the report |

pub mod append;
pub mod database;
pub mod limit;
mod messages;
pub mod rounds;

use std::time::Duration;

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
    #[error("no temporary directory could be made: {0}")]
    Io(#[from] std::io::Error),
    #[error("a producer of the measurement panicked")]
    Panicked,
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
