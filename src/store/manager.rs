//! Makes connections: for the pool (as bb8's manager) and, one by one, for the tasks that own theirs.
//!
//! bb8 hides why a connection could not be made behind a time-out; the last reason is kept here and told with it.

use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Instrument as _;

use super::config::{DatabaseSettings, Role, Target};
use super::connection::Connection;
use super::error::{Effect, Error};
use super::timeline::Timelines;
use super::timing::QueryTimes;

/// Makes connections in one role.
#[derive(Debug, Clone)]
pub struct Connector {
    /// Shared: every store that is handed on has it, and so has every session.
    target: Arc<Target>,
    settings: Arc<DatabaseSettings>,
    times: Arc<QueryTimes>,
    timelines: Timelines,
    role: Role,
    last_failure: Arc<Mutex<Option<Error>>>,
}

impl Connector {
    pub(super) fn new(target: Target, settings: Arc<DatabaseSettings>, times: Arc<QueryTimes>) -> Self {
        let (timelines, last_failure) = (Timelines::default(), Arc::default());
        Self { target: Arc::new(target), settings, times, timelines, role: Role::Pool, last_failure }
    }

    /// The same database, for another purpose.
    pub fn for_role(&self, role: Role) -> Self {
        Self { role, ..self.clone() }
    }

    /// Connects once, to a timeline that is known by then.
    pub async fn connect(&self) -> Result<Connection, Error> {
        let connected = async {
            let mut connection = self.open().await?;
            connection.meet_timeline().await?;
            Ok(connection)
        };
        let connected: Result<Connection, Error> = connected.await;
        if let Err(error) = &connected {
            self.times.on_error(error);
        }
        *self.last_failure.lock() = connected.as_ref().err().cloned();
        connected
    }

    async fn open(&self) -> Result<Connection, Error> {
        let config = self.target.config_for(self.role, &self.settings);
        match config.connect(self.target.tls.clone()).await {
            Ok((client, connection)) => {
                let role = self.role;
                let driver = async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, ?role, "database connection ended");
                    }
                };
                tokio::spawn(driver.in_current_span()); // ends when its client is dropped or the server goes
                let (times, timelines) = (self.times.clone(), self.timelines.clone());
                Ok(Connection::new(client, self.role, &self.settings, times, timelines))
            }
            Err(error) => Err(connect_failure(&error)),
        }
    }

    /// Why the last try failed, if it did.
    pub(super) fn last_failure(&self) -> Option<Error> {
        self.last_failure.lock().clone()
    }

    pub(super) fn timelines(&self) -> &Timelines {
        &self.timelines
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    pub(super) fn settings(&self) -> &DatabaseSettings {
        &self.settings
    }
}

/// What a pooler says to settings that travel with the connection; waiting does not cure it.
const POOLER_SAYS: &str = "unsupported startup parameter";

/// Nothing can have happened on a connection that was never made.
fn connect_failure(error: &tokio_postgres::Error) -> Error {
    if let Some(db) = error.as_db_error().filter(|db| db.message().starts_with(POOLER_SAYS)) {
        let message = format!(
            "{}; if this is a transaction pooler such as PgBouncer, start with --no-prepared-statements",
            db.message()
        );
        return Error::Unexpected { sqlstate: db.code().code().to_owned(), message };
    }
    match Error::classify(error, Effect::None) {
        Error::Unexpected { sqlstate, message } if sqlstate.starts_with("3D") => {
            Error::Unavailable { reason: format!("{message} ({sqlstate})") } // the database is not created yet
        }
        error => error,
    }
}

impl bb8::ManageConnection for Connector {
    type Connection = Connection;
    type Error = Error;

    async fn connect(&self) -> Result<Connection, Error> {
        Connector::connect(self).await
    }

    async fn is_valid(&self, connection: &mut Connection) -> Result<(), Error> {
        // Looked at, not asked: a ping per checkout would cost every read a round trip.
        match connection.is_usable() {
            true => Ok(()),
            false => Err(Error::Unavailable { reason: "the connection was lost".into() }),
        }
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        !connection.is_usable()
    }
}
