//! Waits until a launched server serves queries, or explains why it never did.
//!
//! The second half of `Cluster`; called by `Cluster::start` and the supervisor.
//! Why no deadline: after a crash PostgreSQL replays its WAL, which may take long, and stopping it would only
//! make it begin again. As long as the postmaster lives we wait, and say every few seconds what it works on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::cluster::Cluster;
use super::error::Error;
use super::failure;
use super::layout::PORT;
use super::postmaster::{Exit, Postmaster};
use super::postmaster_pid::{self, Endpoint};
use super::probe::{self, Answer, Server};
use super::server_log::{self, LogMark};
use super::version::Version;

/// A fresh server is ready after about a tenth of a second.
const ASK_EVERY_MIN: Duration = Duration::from_millis(20);

/// A recovering one is not hurried by more questions.
const ASK_EVERY_MAX: Duration = Duration::from_millis(500);

/// How often a person is told that it still takes time.
const NOT_READY_WORD_EVERY: Duration = Duration::from_secs(3);

/// The log collector writes the last words after the postmaster has ended.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub enum Readiness {
    Ready,
    /// It serves our data, but not as we need it: to be restarted in order.
    Unfit(Unfit),
}

#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    #[error("it runs version {running}, but {installed} is installed")]
    OtherVersion { running: Version, installed: Version },
    #[error("it listens in {}, not where brokers look for it", .0.display())]
    OtherSocket(PathBuf),
}

enum Found {
    Here(Server),
    Elsewhere(PathBuf),
}

impl Cluster {
    /// Cancel safety: may be dropped and called again; the postmaster stays as it is.
    pub(super) async fn ready(&self, postmaster: &mut Postmaster) -> Result<Readiness, Error> {
        let mark = postmaster.mark.clone();
        let found = tokio::select! {
            biased; // an exit explains the silence
            exit = postmaster.exited() => return Err(self.explain(exit, &mark).await),
            found = self.found(&mark) => found,
        };
        match found {
            Found::Elsewhere(dir) => Ok(Readiness::Unfit(Unfit::OtherSocket(dir))),
            Found::Here(server) => self.judge(server, postmaster).await,
        }
    }

    async fn judge(&self, server: Server, postmaster: &Postmaster) -> Result<Readiness, Error> {
        if !is_same_directory(&server.data_directory, self.pgdata()) {
            let socket_dir = self.socket_dir().into();
            return Err(Error::OtherServer { socket_dir, theirs: server.data_directory });
        }
        let (running, installed) = (server.version, self.binaries.version);
        if postmaster.is_adopted() && running != installed {
            return Ok(Readiness::Unfit(Unfit::OtherVersion { running, installed }));
        }
        probe::ensure_database(self.socket_dir()).await?;
        Ok(Readiness::Ready)
    }

    async fn found(&self, mark: &LogMark) -> Found {
        let mut wait = Wait::new();
        loop {
            let answer = probe::ask(self.socket_dir()).await;
            match answer {
                Answer::Ready(server) => return Found::Here(server),
                Answer::NotYet(words) => wait.heard(words),
                Answer::NoListener | Answer::Silent => {
                    if let Some(dir) = self.listens_elsewhere() {
                        return Found::Elsewhere(dir);
                    }
                }
            }
            wait.mention(|| server_log::last_since(self.log_dir(), mark));
            wait.pause().await;
        }
    }

    /// Moved data directories, and other temp directories, lead to other socket directories.
    fn listens_elsewhere(&self) -> Option<PathBuf> {
        let Endpoint { port, socket_dir } = postmaster_pid::read(self.pgdata()).ok()??.endpoint?;
        (port != PORT || socket_dir != self.socket_dir()).then_some(socket_dir)
    }

    /// What the server said before it ended, as an error that says whether another try makes sense.
    async fn explain(&self, exit: Exit, mark: &LogMark) -> Error {
        let lines = self.last_words(mark).await;
        let log_dir = self.log_dir().into();
        match failure::classify(&lines) {
            Some((cause, line)) => Error::Refused { cause, line: line.to_owned(), log_dir },
            None => Error::Exited { status: exit.to_string(), line: failure::telling_line(&lines), log_dir },
        }
    }

    async fn last_words(&self, mark: &LogMark) -> Vec<String> {
        let deadline = Instant::now() + LAST_WORDS_TIMEOUT;
        loop {
            let lines = server_log::serious_since(self.log_dir(), mark);
            let said_enough =
                lines.iter().any(|line| failure::is_serious(line)) || failure::classify(&lines).is_some();
            if said_enough || Instant::now() >= deadline {
                return lines;
            }
            sleep(ASK_EVERY_MIN).await;
        }
    }
}

fn is_same_directory(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        (Ok(_) | Err(_), _) => false,
    }
}

/// The rhythm of asking, and of telling that we still ask.
struct Wait {
    since: Instant,
    mentioned_at: Instant,
    pause: Duration,
    server_says: Option<String>,
}

impl Wait {
    fn new() -> Self {
        let now = Instant::now();
        Self { since: now, mentioned_at: now, pause: ASK_EVERY_MIN, server_says: None }
    }

    fn heard(&mut self, words: String) {
        self.server_says = Some(words);
    }

    fn mention(&mut self, log_line: impl FnOnce() -> Option<String>) {
        if self.mentioned_at.elapsed() < NOT_READY_WORD_EVERY {
            return;
        }
        self.mentioned_at = Instant::now();
        let seconds = self.since.elapsed().as_secs();
        let says = self.server_says.as_deref().unwrap_or("nothing yet");
        let log = log_line().unwrap_or_default();
        tracing::info!(seconds, says, log, "PostgreSQL is recovering or starting; waiting for it");
    }

    async fn pause(&mut self) {
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(ASK_EVERY_MAX);
    }
}
