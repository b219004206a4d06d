//! Why a comparison could not be made, as one sentence for whoever runs it.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} failed: {source}")]
    Io { what: &'static str, source: std::io::Error },
    #[error("{} cannot be started: {source}", .program.display())]
    Spawn { program: PathBuf, source: std::io::Error },
    #[error("{name} did not answer within {seconds} s; the end of its log:\n{log}")]
    NotReady { name: &'static str, seconds: u64, log: String },
    #[error("{name} ended right after its start ({status}); the end of its log:\n{log}")]
    EndedEarly { name: &'static str, status: std::process::ExitStatus, log: String },
    #[error("a worker that should {role} ended without a report: see what it says above")]
    WorkerSilent { role: &'static str },
    #[error("a worker or a benchmark said what is not the JSON that was expected: {source}: {text}")]
    NotUnderstood { text: String, source: serde_json::Error },
    #[error("Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("Redis answered a read with something else than entries")]
    RedisReply,
    #[error("NATS: {what}: {source}")]
    Nats { what: &'static str, source: async_nats::Error },
    #[error("NATS has closed a subscription")]
    NatsClosed,
    #[error("a task of a worker panicked")]
    Panicked,
    #[error("'{command}' failed ({status}): {log}")]
    Laneway { command: String, status: std::process::ExitStatus, log: String },
    #[error("'{command}' printed no rate")]
    LanewayRate { command: String },
    #[error("there is no laneway to measure: build it and give --laneway, or leave it out of --systems")]
    LanewayMissing,
    #[error("{} cannot be written: {source}", .path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{failures} points could not be measured: see above; the file has the others")]
    Points { failures: usize },
    #[error("{failures} measurements failed: see above; the table has the others")]
    Measurements { failures: usize },
    #[error("interrupted: everything that was started has been ended")]
    Interrupted,
}

impl Error {
    pub fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// For the many error types of the client of NATS.
    pub fn nats<E: Into<async_nats::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Nats { what, source: source.into() }
    }
}
