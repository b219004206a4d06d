//! What single rows cost: one connection that commits them one by one, several that do it at an offered rate, and the count of commits.
//!
//! Like the limit, it speaks to the database directly: it is what the bus is measured against.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::BenchError;
use super::messages::{Supply, now_us};
use super::pacing::{self, Due, Schedule};
use super::tally::{Latencies, Tally};
use super::worker::{LATE, Round};
use crate::store::Target;

const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/table.sql"));
const INSERT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/insert.sql"));
const COMMITS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/commits.sql"));
const SEGMENTS_GONE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/segments_gone.sql"));
const TOPICS_LEAVING: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/topics_leaving.sql"));
const SETTINGS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/settings.sql"));
const VACUUM: &str = "VACUUM";
/// As autovacuum paces itself there; a vacuum by hand takes all it can get.
const VACUUM_PACE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/vacuum_pace.sql"));
/// Connections that share an offered rate, as the producers of the bus do.
const CONNECTIONS: usize = 4;
/// The numbers of their tables follow those of the limit.
const TABLE_NUMBER: usize = 2;

/// A connection that inserts single rows into a table of its own.
struct Rows {
    client: tokio_postgres::Client,
    insert: tokio_postgres::Statement,
    number: usize,
    supply: Supply,
    next: i64,
}

impl Rows {
    async fn open(url: &str, number: usize) -> Result<Self, BenchError> {
        let number = number + TABLE_NUMBER;
        let client = Target::parse(url)?.connect().await?;
        client.batch_execute(&TABLE.replace("{number}", &number.to_string())).await?;
        let types = [Type::INT8_ARRAY, Type::UUID_ARRAY, Type::BYTEA_ARRAY, Type::BYTEA_ARRAY];
        let insert = client.prepare_typed(&INSERT.replace("{number}", &number.to_string()), &types).await?;
        Ok(Self { client, insert, number, supply: Supply::small(), next: 0 })
    }

    async fn commit(&mut self) -> Result<(), BenchError> {
        let (payload, key): (Bytes, Bytes) = self.supply.draw();
        let (offset, id) = (vec![self.next], vec![Uuid::now_v7()]);
        self.client
            .execute(&self.insert, &[&offset, &id, &vec![key.as_ref()], &vec![payload.as_ref()]])
            .await?;
        self.next += 1;
        Ok(())
    }

    async fn close(self) -> Result<(), BenchError> {
        let drop = format!("DROP TABLE laneway_limit_{}", self.number);
        Ok(self.client.batch_execute(&drop).await?)
    }
}

/// Single rows per second that one connection commits.
pub async fn one_by_one(url: &str, window: Duration) -> Result<f64, BenchError> {
    let mut rows = Rows::open(url, 0).await?;
    let started = Instant::now();
    while started.elapsed() < window {
        rows.commit().await?;
    }
    let rate = rows.next as f64 / started.elapsed().as_secs_f64();
    rows.close().await?;
    Ok(rate)
}

/// Single rows at an offered rate, paced as the producers of the bus are: how long each took from the moment at which it was due.
pub async fn at_rate(url: &str, rate: u32, window: Duration) -> Result<Tally, BenchError> {
    let mut opened = Vec::new();
    for number in 0..CONNECTIONS {
        opened.push(Rows::open(url, number).await?);
    }
    let round = Round::beginning(Duration::ZERO, window);
    let (schedule, too_late) = (Schedule::new(round, rate), Instant::now() + window + LATE);
    let mut tasks = JoinSet::new();
    for (rows, dues) in opened.into_iter().zip(pacing::begin(schedule, CONNECTIONS)) {
        tasks.spawn(paced(rows, dues, too_late));
    }
    let (mut latencies, mut messages) = (Latencies::new(), 0);
    while let Some(done) = tasks.join_next().await {
        let (rows, times) = done.map_err(|_| BenchError::Panicked)??;
        latencies.add(&times.counted());
        messages += times.recorded();
        rows.close().await?;
    }
    let missing = schedule.in_window().saturating_sub(messages);
    latencies.record_times(LATE, missing);
    let latencies = latencies.counted();
    Ok(Tally { messages, seconds: window.as_secs_f64(), ever: messages, missing, latencies })
}

/// Commits what is due; what it has not come to when it is too late is left out.
async fn paced(
    mut rows: Rows,
    mut dues: mpsc::Receiver<Due>,
    too_late: Instant,
) -> Result<(Rows, Latencies), BenchError> {
    let mut latencies = Latencies::new();
    while let Some(due) = dues.recv().await {
        for due_us in due {
            if Instant::now() > too_late {
                return Ok((rows, latencies));
            }
            rows.commit().await?;
            latencies.record_us((now_us() - due_us).max(0) as u64);
        }
    }
    Ok((rows, latencies))
}

/// What retention has taken.
#[derive(Debug, Clone, Copy)]
pub struct Gone {
    pub dropped: i64,
    pub leaving: i64,
}

/// How a vacuum is paced, as the server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VacuumPace {
    pub delay: String,
    pub limit: String,
}

/// Looks at the database from beside.
#[derive(Debug)]
pub struct Witness {
    client: tokio_postgres::Client,
}

impl Witness {
    pub async fn open(url: &str) -> Result<Self, BenchError> {
        Ok(Self { client: Target::parse(url)?.connect().await? })
    }

    /// Transactions that the database has committed. Connections tell of theirs once a second, so what is measured is the
    /// difference of two looks while the load goes on.
    pub async fn commits(&self) -> Result<i64, BenchError> {
        Ok(self.client.query_one(COMMITS, &[]).await?.get(0))
    }

    /// Segments that retention has dropped since the beginning, and those that are on their way out.
    pub async fn segments_gone(&self) -> Result<Gone, BenchError> {
        let row = self.client.query_one(SEGMENTS_GONE, &[]).await?;
        let (retired, leaving): (i64, i64) = (row.get(0), row.get(1));
        Ok(Gone { dropped: retired - leaving, leaving })
    }

    /// Deleted topics whose tables are still there.
    pub async fn topics_leaving(&self) -> Result<i64, BenchError> {
        Ok(self.client.query_one(TOPICS_LEAVING, &[]).await?.get(0))
    }

    /// What decides how durable a commit is: fsync and synchronous_commit.
    pub async fn durability(&self) -> Result<(String, String), BenchError> {
        let row = self.client.query_one(SETTINGS, &[]).await?;
        Ok((row.get(0), row.get(1)))
    }

    /// Vacuums as fast as the server's own autovacuum from now on. Tells after which cost it rests, and for how long.
    pub async fn pace_vacuum(&self) -> Result<VacuumPace, BenchError> {
        let row = self.client.query_one(VACUUM_PACE, &[]).await?;
        Ok(VacuumPace { delay: row.get(0), limit: row.get(1) })
    }

    /// Vacuums everything, again and again without a rest, until the moment has come.
    pub async fn vacuum_until(&self, end: Instant) -> Result<u32, BenchError> {
        let mut passes = 0;
        while Instant::now() < end {
            self.client.batch_execute(VACUUM).await?;
            passes += 1;
        }
        Ok(passes)
    }
}
