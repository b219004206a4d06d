//! `laneway verify`: is the bus as good as its word? It runs brokers on a PostgreSQL of its own, lets producers and consumers
//! work over real sockets while faults fall inside their operations, heals, drains, and then judges the history.
//!
//! | file | owns |
//! |---|---|
//! | `settings` | what is asked for: brokers, seconds, faults, seed; the kinds of faults |
//! | `stage` | the cluster: PostgreSQL, broker processes, proxies on both sides of each broker |
//! | `process`, `proxy` | one broker process; one wire that can be cut, delayed, truncated, swallowed |
//! | `plan`, `faults` | when which fault falls (pure, by seed); how it is done |
//! | `link`, `producer`, `consumer`, `steps`, `reader` | the load, frame by frame over the socket |
//! | `later`, `reschedule`, `limited` | messages that wait, and those that are cancelled or moved; a topic with a limit |
//! | `puller`, `mixed` | lanes that are pulled, and a group that pullers share with sessions |
//! | `keys`, `key_member` | messages that keep the order of their keys, and keys that are parked |
//! | `scene` | who takes part, and what they share |
//! | `value` | what is published: unique, and readable without memory |
//! | `history` | what was seen, in the order in which it was seen |
//! | `watcher` | who holds which lane, seen in the tables all the time |
//! | `truth` | what the database holds at the end |
//! | `probes` | promises that need a scene of their own |
//! | `checks` | one checker per promise: pure, over history and truth |
//! | `report` | the figures, for people and for programs |
//!
//! Data flows one way: load → history → checks → report. A timeout is unknown, never failed.

pub mod checks;
mod consumer;
mod faults;
pub mod history;
mod key_member;
pub mod keys;
pub mod later;
mod limited;
mod link;
pub mod mixed;
mod plan;
mod probes;
mod process;
mod producer;
mod proxy;
pub mod puller;
mod reader;
pub mod report;
pub mod reschedule;
mod run;
mod scene;
pub mod settings;
mod stage;
mod steps;
mod truth;
mod value;
mod watcher;

pub use run::{Progress, run};
pub use settings::{FaultKind, VerifySettings};

/// Why a run could not be made. A violated promise is no error: the report says so.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Postgres(#[from] crate::postgres::Error),
    #[error(transparent)]
    Url(#[from] crate::store::UrlError),
    #[error("the database cannot be read: {0}")]
    Store(#[from] crate::store::Error),
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("broker {broker} does not start: {reason}")]
    Broker { broker: usize, reason: String },
    #[error("the topics of the run cannot be made: {0}")]
    Topic(String),
    #[error("the load cannot begin: {0}")]
    Scene(String),
    #[error("a task of the run has panicked: {0}")]
    Panicked(String),
    #[error("interrupted; everything that was started is stopped")]
    Interrupted,
}

impl VerifyError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
