//! `PrivatePostgres`: what `serve` holds when no database URL is given.
//!
//! A handle; the server's state belongs to the supervisor task. Dropping the handle without `stop` does what
//! a killed broker does: the lock goes, the server stays, the next broker adopts it.

use std::path::{Path, PathBuf};

use tokio::sync::{mpsc, oneshot, watch};

use super::cluster::Cluster;
use super::error::Error;
use super::lock::BrokerLock;
use super::settings::Settings;
use super::supervisor::{Request, Status, Supervisor};

/// There is one request, and it consumes the only handle.
const REQUESTS_MAX: usize = 1;

#[derive(Debug)]
pub struct PrivatePostgres {
    url: String,
    socket_dir: PathBuf,
    requests: mpsc::Sender<Request>,
    status: watch::Receiver<Status>,
}

impl PrivatePostgres {
    /// Answers when the database serves queries. After a crash this may take as long as its recovery.
    /// Cancel safety: if dropped, a server that was started runs on, to be adopted by the next start.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        let cluster = Cluster::open(settings).await?;
        let lock = BrokerLock::acquire(&cluster.layout)?;
        cluster.initialise().await?;
        let (url, socket_dir) = (cluster.url(), cluster.socket_dir().to_owned());
        let (status_sender, status) = watch::channel(Status::Running);
        let mut supervisor = Supervisor::new(cluster, lock, status_sender);
        supervisor.bring_up().await?;
        let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
        tokio::spawn(supervisor.run(inbox));
        Ok(Self { url, socket_dir, requests, status })
    }

    /// Stays the same across restarts.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Where further brokers of this machine find it.
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Stops the server in order. The data directory is free for the next start when this answers.
    pub async fn stop(self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Stop { reply }).await.map_err(|_| Error::SupervisorGone)?;
        answer.await.map_err(|_| Error::SupervisorGone)?
    }
}
