//! What single rows cost: one connection that commits them one by one, several that do it at an offered rate, and the count of commits.
//!
//! Like the limit, it speaks to the database directly: it is what the bus is measured against.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::BenchError;
use super::messages::Supply;
use super::tally::{Latencies, Tally};
use crate::store::Target;

const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/table.sql"));
const INSERT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/insert.sql"));
const COMMITS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/commits.sql"));
const VACUUM: &str = "VACUUM";
/// As autovacuum paces itself by default; a vacuum by hand takes all it can get.
const AUTOVACUUM_PACE: &str = "SET vacuum_cost_delay = '2ms'; SET vacuum_cost_limit = 200";
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

/// Single rows at an offered rate: how long each took from the moment at which it was due.
pub async fn at_rate(url: &str, rate: u32, window: Duration) -> Result<Tally, BenchError> {
    let interval = Duration::from_secs_f64(CONNECTIONS as f64 / f64::from(rate));
    let mut opened = Vec::new();
    for number in 0..CONNECTIONS {
        opened.push(Rows::open(url, number).await?);
    }
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, rows) in opened.into_iter().enumerate() {
        tasks.spawn(paced(
            rows,
            began + interval * number as u32 / CONNECTIONS as u32,
            interval,
            began + window,
        ));
    }
    let mut tallies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        tallies.push(done.map_err(|_| BenchError::Panicked)??);
    }
    Ok(Tally::sum(&tallies))
}

async fn paced(
    mut rows: Rows,
    first: Instant,
    interval: Duration,
    end: Instant,
) -> Result<Tally, BenchError> {
    let (mut due, mut latencies) = (first, Latencies::new());
    while due < end {
        tokio::time::sleep_until(due.into()).await;
        rows.commit().await?;
        latencies.record(due.elapsed());
        due += interval;
    }
    let messages = rows.next as u64;
    rows.close().await?;
    let seconds = (end - first).as_secs_f64();
    Ok(Tally { messages, seconds, ever: messages, latencies: latencies.counted() })
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

    /// Vacuums everything at the pace of autovacuum, again and again without a rest, until the moment has come.
    pub async fn vacuum_until(&self, end: Instant) -> Result<u32, BenchError> {
        let mut passes = 0;
        self.client.batch_execute(AUTOVACUUM_PACE).await?;
        while Instant::now() < end {
            self.client.batch_execute(VACUUM).await?;
            passes += 1;
        }
        Ok(passes)
    }
}
