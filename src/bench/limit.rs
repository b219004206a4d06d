//! The limit: two connections, each inserting 500 rows at a time into a plain table of its own, as fast as it goes.
//!
//! The SQL is frozen in `benches/limit`. It speaks to the database directly, beside the store: it is what the store is
//! measured against.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::BenchError;
use super::messages::Supply;
use crate::store::Target;

const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/table.sql"));
const INSERT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/limit/insert.sql"));
const CONNECTIONS: usize = 2;
const ROWS: usize = 500;

/// Messages per second that plain inserts reach in a window.
pub async fn measure(url: &str, window: Duration) -> Result<f64, BenchError> {
    let target = Target::parse(url)?;
    let mut inserters = Vec::new();
    for number in 0..CONNECTIONS {
        inserters.push(Inserter::open(&target, number).await?);
    }
    let started = Instant::now();
    let tasks: Vec<_> = inserters.into_iter().map(|one| tokio::spawn(one.run(started + window))).collect();
    let (mut rows, mut done) = (0, Vec::new());
    for task in tasks {
        let (inserter, inserted) = task.await.map_err(|_| BenchError::Panicked)??;
        rows += inserted;
        done.push(inserter);
    }
    let rate = rows as f64 / started.elapsed().as_secs_f64();
    for inserter in done {
        inserter.close().await?; // after the time that counts
    }
    Ok(rate)
}

struct Inserter {
    client: tokio_postgres::Client,
    statement: tokio_postgres::Statement,
    number: usize,
    supply: Supply,
}

impl Inserter {
    async fn open(target: &Target, number: usize) -> Result<Self, BenchError> {
        let client = target.connect().await?;
        client.batch_execute(&numbered(TABLE, number)).await?;
        let types = [Type::INT8_ARRAY, Type::UUID_ARRAY, Type::BYTEA_ARRAY, Type::BYTEA_ARRAY];
        let statement = client.prepare_typed(&numbered(INSERT, number), &types).await?;
        Ok(Self { client, statement, number, supply: Supply::new() })
    }

    /// Inserts until the deadline. Returns the rows inserted.
    async fn run(mut self, deadline: Instant) -> Result<(Self, u64), BenchError> {
        let mut rows = 0;
        while Instant::now() < deadline {
            let offsets: Vec<i64> = (rows as i64..).take(ROWS).collect();
            let trace_ids: Vec<Uuid> = (0..ROWS).map(|_| Uuid::now_v7()).collect();
            let (payloads, keys): (Vec<Bytes>, Vec<Bytes>) = (0..ROWS).map(|_| self.supply.draw()).unzip();
            let keys: Vec<&[u8]> = keys.iter().map(Bytes::as_ref).collect();
            let payloads: Vec<&[u8]> = payloads.iter().map(Bytes::as_ref).collect();
            self.client.execute(&self.statement, &[&offsets, &trace_ids, &keys, &payloads]).await?;
            rows += ROWS as u64;
        }
        Ok((self, rows))
    }

    /// Removes its table.
    async fn close(self) -> Result<(), BenchError> {
        Ok(self.client.batch_execute(&numbered("DROP TABLE laneway_limit_{number}", self.number)).await?)
    }
}

fn numbered(sql: &str, number: usize) -> String {
    sql.replace("{number}", &number.to_string())
}
