//! Talks to the private server over its socket: does it answer, who is it, does our database exist.
//!
//! Called by `cluster` and `supervisor`. The only SQL of this module stands here; it is about the server, not
//! about messages, and must work before the store exists.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

use super::error::Error;
use super::layout::{self, PORT};
use super::version::Version;

/// Both the superuser that initdb makes and the database of the broker.
pub const USER: &str = "laneway";
pub const DATABASE: &str = "laneway";

/// Made by initdb in every cluster.
const MAINTENANCE_DATABASE: &str = "postgres";

/// A server under full load still answers within this; one that recovers answers at once that it does.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

const SQL_WHO: &str = "SELECT current_setting('data_directory'), current_setting('server_version')";
const SQL_DATABASE_EXISTS: &str = "SELECT 1 FROM pg_database WHERE datname = $1";
const SQL_CREATE_DATABASE: &str = "CREATE DATABASE laneway";

#[derive(Debug)]
pub enum Answer {
    Ready(Server),
    /// It is there, and says why it cannot serve us yet.
    NotYet(String),
    /// Nobody listens on the socket.
    NoListener,
    /// Something went wrong on the way, or it took too long.
    Silent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub data_directory: PathBuf,
    pub version: Version,
}

pub async fn ask(socket_dir: &Path) -> Answer {
    match tokio::time::timeout(ANSWER_TIMEOUT, who(socket_dir)).await {
        Ok(Ok(Some(server))) => Answer::Ready(server),
        Ok(Ok(None)) | Err(_) => Answer::Silent,
        Ok(Err(error)) => answer_of(&error),
    }
}

fn answer_of(error: &tokio_postgres::Error) -> Answer {
    match error.as_db_error() {
        Some(refusal) => Answer::NotYet(refusal.message().to_owned()),
        None if is_no_listener(error) => Answer::NoListener,
        None => Answer::Silent,
    }
}

fn is_no_listener(error: &tokio_postgres::Error) -> bool {
    let io_error = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    io_error.is_some_and(|error| means_no_listener(error.kind()))
}

fn means_no_listener(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// `None` = an answer that no PostgreSQL gives.
async fn who(socket_dir: &Path) -> Result<Option<Server>, tokio_postgres::Error> {
    let session = Session::open(socket_dir).await?;
    let row = session.client.query_one(SQL_WHO, &[]).await?;
    let (data_directory, version): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let version = Version::parse(&version);
    Ok(version.map(|version| Server { data_directory: data_directory.into(), version }))
}

/// Cheaper than a question: positive evidence that the socket is gone although the postmaster may live.
pub async fn is_listener_gone(socket_dir: &Path) -> bool {
    match UnixStream::connect(layout::socket(socket_dir)).await {
        Ok(_) => false,
        Err(error) => means_no_listener(error.kind()),
    }
}

/// Idempotent, also when two brokers do it at once.
pub async fn ensure_database(socket_dir: &Path) -> Result<(), Error> {
    create_database(socket_dir).await.map_err(|source| Error::DatabaseMissing { name: DATABASE, source })
}

async fn create_database(socket_dir: &Path) -> Result<(), tokio_postgres::Error> {
    let session = Session::open(socket_dir).await?;
    if session.client.query_opt(SQL_DATABASE_EXISTS, &[&DATABASE]).await?.is_some() {
        return Ok(());
    }
    match session.client.batch_execute(SQL_CREATE_DATABASE).await {
        Err(error) if error.code() == Some(&SqlState::DUPLICATE_DATABASE) => Ok(()),
        outcome => outcome,
    }
}

/// One short connection; its task ends with it.
struct Session {
    client: Client,
    connection: JoinHandle<()>,
}

impl Session {
    async fn open(socket_dir: &Path) -> Result<Self, tokio_postgres::Error> {
        let mut config = Config::new();
        config.host_path(socket_dir).port(PORT).user(USER).dbname(MAINTENANCE_DATABASE);
        config.application_name("laneway supervisor").connect_timeout(ANSWER_TIMEOUT);
        let (client, connection) = config.connect(NoTls).await?;
        let connection = tokio::spawn(async move {
            let _ = connection.await; // the client's calls report the error
        });
        Ok(Self { client, connection })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
