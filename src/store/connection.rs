//! One connection: its statements, prepared once or sent unnamed, each timed under its name.
//!
//! Owned by the pool or by one task. It knows no query itself. A transaction that is dropped half-way makes the
//! connection unusable, and the pool throws it away: nobody inherits an open transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use futures_util::future::{join_all, join3};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::config::{DatabaseSettings, Role, StatementMode};
use super::error::{Effect, Error};
use super::query::{Query, Template};
use super::timeline::{Era, Timelines};
use super::timing::QueryTimes;

/// Parameters as tokio-postgres takes them.
pub type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A publish is answered after it is durable, whatever the database, the role or somebody's `ALTER SYSTEM` says. What is
/// stronger than `on`, such as `remote_apply`, stays.
const WAIT_FOR_THE_DISK: &str = "; SELECT set_config('synchronous_commit', 'on', true) \
    WHERE current_setting('synchronous_commit') IN ('off', 'local')";

/// Isolation is always spelled out, because a database may have another default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Each statement sees what was committed before it began. Flushes need exactly this.
    ReadCommitted,
}

impl Isolation {
    const fn begin(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED",
        }
    }
}

/// A live connection in a role.
pub struct Connection {
    client: Client,
    prepared: DashMap<&'static str, Statement>,
    mode: StatementMode,
    /// `BEGIN`, with the timeouts where they cannot be set for the whole connection.
    begin: String,
    times: Arc<QueryTimes>,
    role: Role,
    /// Set while a transaction is open, so that a dropped future cannot hand it on.
    dirty: AtomicBool,
    /// How long the server may be silent: it was told to answer sooner, so then nobody is there.
    silence_max: Option<Duration>,
    timelines: Timelines,
    /// When it was made; in another era it is of no use.
    era: Era,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(
        client: Client,
        role: Role,
        settings: &DatabaseSettings,
        times: Arc<QueryTimes>,
        timelines: Timelines,
    ) -> Self {
        let mut begin = Isolation::ReadCommitted.begin().to_owned();
        if settings.statements == StatementMode::Unnamed {
            for (name, value) in role.server_settings(settings) {
                begin.push_str(&format!("; SET LOCAL {name} = {value}"));
            }
        }
        if role == Role::Appender {
            begin.push_str(WAIT_FOR_THE_DISK);
        }
        let mode = settings.statements;
        Self {
            client,
            prepared: DashMap::new(),
            mode,
            begin,
            role,
            times,
            dirty: AtomicBool::new(false),
            silence_max: role.silence_max(settings),
            era: timelines.era(),
            timelines,
        }
    }

    /// Whether the connection can still be used.
    pub fn is_usable(&self) -> bool {
        let is_open = !self.client.is_closed() && !self.dirty.load(Ordering::Relaxed);
        is_open && self.era == self.timelines.era()
    }

    /// In which era it was made: what it answers belongs there.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Finds out which timeline it speaks to, and belongs to that era from then on.
    pub async fn meet_timeline(&mut self) -> Result<(), Error> {
        self.era = self.timelines.clone().meet(self).await?;
        Ok(())
    }

    /// Runs a query that is used once per connection, in one round trip: never prepared.
    pub(super) async fn ask(&self, query: &'static Query) -> Result<Vec<Row>, Error> {
        let started = Instant::now();
        let answer = self.alone(self.client.query_typed(query.sql, &[]));
        let result = self.in_time(Effect::None, answer).await;
        self.times.record(query.name, started.elapsed(), &result);
        result
    }

    /// Runs a named query and returns its rows.
    pub async fn query(
        &self,
        query: &'static Query,
        params: Params<'_>,
        effect: Effect,
    ) -> Result<Vec<Row>, Error> {
        let (started, is_alone) = (Instant::now(), effect == Effect::Possible && self.is_alone());
        let result = self.in_time(effect, self.send(query, params)).await;
        self.times.record(query.name, started.elapsed(), &result);
        if is_alone && result.is_ok() {
            self.times.on_committed(self.role);
        }
        result
    }

    /// Waits for an answer, but not for ever: a connection whose other end is gone without a word is given up.
    async fn in_time<T>(
        &self,
        effect: Effect,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        let Some(silence_max) = self.silence_max else {
            return answer.await.map_err(|error| Error::classify(&error, effect));
        };
        match tokio::time::timeout(silence_max, answer).await {
            Ok(result) => result.map_err(|error| Error::classify(&error, effect)),
            Err(_) => {
                self.mark_dirty(); // an answer may still come: nobody may take it for his own
                Err(Error::silent(silence_max, effect))
            }
        }
    }

    /// Runs a named query that returns at most one row.
    pub async fn query_opt(
        &self,
        query: &'static Query,
        params: Params<'_>,
        effect: Effect,
    ) -> Result<Option<Row>, Error> {
        Ok(self.query(query, params, effect).await?.into_iter().next())
    }

    /// Runs a named query and counts the rows that it touched.
    pub async fn execute(&self, query: &'static Query, params: Params<'_>) -> Result<u64, Error> {
        let (started, is_alone) = (Instant::now(), self.is_alone());
        let result = self.in_time(Effect::Possible, self.send_counted(query, params)).await;
        self.times.record(query.name, started.elapsed(), &result);
        if is_alone && result.is_ok() {
            self.times.on_committed(self.role);
        }
        result
    }

    async fn send_counted(
        &self,
        query: &'static Query,
        params: Params<'_>,
    ) -> Result<u64, tokio_postgres::Error> {
        match self.mode {
            StatementMode::Prepared => {
                let statement = self.statement(query).await?;
                self.client.execute(&statement, params).await
            }
            StatementMode::Unnamed => {
                let params = typed(params, query.types);
                self.alone(self.client.execute_typed(query.sql, &params)).await
            }
        }
    }

    /// Reads through a template. Never prepared: there are more tables than a connection should remember.
    pub async fn read(
        &self,
        template: &'static Template,
        integers: &[(&str, i64)],
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        let started = Instant::now();
        let sql = template.fill(integers);
        let params = typed(params, template.types);
        let answer = self.alone(self.client.query_typed(&sql, &params));
        let result = self.in_time(Effect::None, answer).await;
        self.times.record(template.name, started.elapsed(), &result);
        result
    }

    /// Changes the schema through a template.
    pub async fn run(&self, template: &'static Template, integers: &[(&str, i64)]) -> Result<(), Error> {
        let (started, is_alone) = (Instant::now(), self.is_alone());
        let result = self.client.batch_execute(&template.fill(integers)).await;
        let result = result.map_err(|error| Error::classify(&error, Effect::Possible));
        self.times.record(template.name, started.elapsed(), &result);
        if is_alone && result.is_ok() {
            self.times.on_committed(self.role);
        }
        result
    }

    /// Runs statements that have no parameters and no rows.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(sql).await
    }

    /// Whether a statement that is sent now is a transaction of its own.
    fn is_alone(&self) -> bool {
        !self.dirty.load(Ordering::Relaxed)
    }

    /// Marks the connection while a transaction is open; what is never unmarked is thrown away.
    fn mark_dirty(&self) {
        self.dirty.store(true, Ordering::Relaxed);
    }

    fn mark_clean(&self) {
        self.dirty.store(false, Ordering::Relaxed);
    }

    /// The server's version, as a number and in words.
    pub async fn server_version(&self) -> Result<(u32, String), Error> {
        let rows = self.client.simple_query("SHOW server_version_num; SHOW server_version").await;
        let rows = rows.map_err(|error| Error::classify(&error, Effect::None))?;
        let mut values = rows.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let number = values.next().and_then(|text| text.parse().ok()).unwrap_or_default();
        Ok((number, values.next().unwrap_or_default().to_owned()))
    }

    /// Opens a transaction.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, Error> {
        self.mark_dirty();
        self.batch(&self.begin).await.map_err(|error| Error::classify(&error, Effect::None))?;
        Ok(Transaction { connection: self })
    }

    /// The prepared statement of a query, made at its first use on this connection.
    async fn statement(&self, query: &'static Query) -> Result<Statement, tokio_postgres::Error> {
        if let Some(statement) = self.prepared.get(query.name) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare_typed(query.sql, query.types).await?;
        self.prepared.insert(query.name, statement.clone());
        Ok(statement)
    }

    async fn send(
        &self,
        query: &'static Query,
        params: Params<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        match self.mode {
            StatementMode::Prepared => {
                let statement = self.statement(query).await?;
                self.client.query(&statement, params).await
            }
            StatementMode::Unnamed => {
                let params = typed(params, query.types);
                self.alone(self.client.query_typed(query.sql, &params)).await
            }
        }
    }

    /// Behind a pooler a statement of its own is a transaction of its own, because timeouts hold for a transaction only.
    /// Inside one that is open already, it is just sent. One round trip either way.
    async fn alone<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        if self.mode == StatementMode::Prepared || self.dirty.load(Ordering::Relaxed) {
            return statement.await;
        }
        self.mark_dirty();
        let (begun, result, committed) =
            join3(self.batch(&self.begin), statement, self.batch("COMMIT")).await;
        if !self.client.is_closed() {
            self.mark_clean();
        }
        begun?;
        let result = result?;
        committed?;
        Ok(result)
    }

    /// A whole transaction of a few statements in one round trip.
    ///
    /// Order: everything is prepared before the first byte is sent; then each part is sent at its first poll, in order.
    /// Were a statement prepared in between, `COMMIT` would overtake it and the locks would not be held.
    /// `stall`: how long the server lets the transaction idle while the next statement is on its way.
    pub(super) async fn pipeline(
        &self,
        name: &'static str,
        stall: Duration,
        statements: &[(&'static Query, Params<'_>)],
    ) -> Pipelined {
        if self.mode == StatementMode::Prepared {
            for (query, _) in statements {
                if let Err(error) = self.statement(query).await {
                    return Pipelined::NothingHappened(Error::classify(&error, Effect::None));
                }
            }
        }
        let started = Instant::now();
        self.mark_dirty();
        let begin =
            format!("{}; SET LOCAL idle_in_transaction_session_timeout = {}", self.begin, stall.as_millis());
        let answers = join3(
            self.batch(&begin),
            join_all(statements.iter().map(|(query, params)| self.send(query, params))),
            self.batch("COMMIT"),
        );
        let silence_max = self.silence_max.unwrap_or(Duration::MAX).saturating_add(stall);
        let outcome = match tokio::time::timeout(silence_max, answers).await {
            Ok((begun, answers, committed)) => Pipelined::judge(begun, answers, committed),
            Err(_) => {
                let silent = Error::silent(silence_max, Effect::Possible);
                self.times.record::<()>(name, started.elapsed(), &Err(silent.clone()));
                return Pipelined::Unknown(silent); // and it stays dirty
            }
        };
        if !self.client.is_closed() {
            self.mark_clean(); // COMMIT was answered, so no transaction is open, whatever became of it
        }
        self.times.record(name, started.elapsed(), &outcome.as_result());
        if matches!(outcome, Pipelined::Committed(_)) {
            self.times.on_committed(self.role);
        }
        outcome
    }
}

/// What became of a pipelined transaction.
#[derive(Debug)]
pub(super) enum Pipelined {
    /// Every statement succeeded and `COMMIT` was confirmed; these are their rows.
    Committed(Vec<Vec<Row>>),
    /// A statement failed before the commit, or nothing was sent.
    NothingHappened(Error),
    /// The connection was lost with the commit on its way.
    Unknown(Error),
}

impl Pipelined {
    fn as_result(&self) -> Result<(), Error> {
        match self {
            Self::Committed(_) => Ok(()),
            Self::NothingHappened(error) | Self::Unknown(error) => Err(error.clone()),
        }
    }

    /// Why every part is looked at: `COMMIT` of a failed transaction returns without an error.
    fn judge(
        begun: Result<(), tokio_postgres::Error>,
        answers: Vec<Result<Vec<Row>, tokio_postgres::Error>>,
        committed: Result<(), tokio_postgres::Error>,
    ) -> Self {
        let answers: Result<Vec<Vec<Row>>, _> = begun.and_then(|()| answers.into_iter().collect());
        let rows = match answers {
            Ok(rows) => rows,
            Err(error) => return Self::failed(&error),
        };
        match committed {
            Ok(()) => Self::Committed(rows),
            Err(error) => match Error::classify(&error, Effect::Possible) {
                unknown @ Error::OutcomeUnknown { .. } => Self::Unknown(unknown),
                error => Self::NothingHappened(error),
            },
        }
    }

    /// A statement that the server answered with an error cannot have been committed; a silence can.
    fn failed(error: &tokio_postgres::Error) -> Self {
        match Error::classify(error, Effect::Possible) {
            unknown @ Error::OutcomeUnknown { .. } => Self::Unknown(unknown),
            error => Self::NothingHappened(error),
        }
    }
}

fn typed<'a>(
    params: Params<'a>,
    types: &[tokio_postgres::types::Type],
) -> Vec<(&'a (dyn ToSql + Sync), tokio_postgres::types::Type)> {
    params.iter().zip(types).map(|(value, type_)| (*value, type_.clone())).collect()
}

/// An open transaction. Dropped without `commit`, it takes its connection with it.
#[derive(Debug)]
pub struct Transaction<'a> {
    connection: &'a mut Connection,
}

impl Transaction<'_> {
    /// Commits. `COMMIT` of a failed transaction answers without an error, so callers must not come here after one.
    pub async fn commit(self) -> Result<(), Error> {
        let result = self.connection.batch("COMMIT").await;
        if result.is_ok() {
            self.connection.mark_clean();
            self.connection.times.on_committed(self.connection.role);
        }
        result.map_err(|error| Error::classify(&error, Effect::Possible))
    }

    /// Gives up; nothing happened.
    pub async fn rollback(self) -> Result<(), Error> {
        let result = self.connection.batch("ROLLBACK").await;
        if result.is_ok() {
            self.connection.mark_clean();
        }
        result.map_err(|error| Error::classify(&error, Effect::None))
    }
}

impl std::ops::Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}
