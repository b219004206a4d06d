//! What was published already: where a repeated message stands, and when that is forgotten.

use super::Store;
use super::error::{Effect, Error};
use super::query::query;
use crate::ids::{Offset, PartitionId, ProducerId, Sequence};
use crate::limits::EXPIRE_ROWS_MAX;

query!(PRODUCER_RUNS_FIND = "producer_runs_find"[INT8, UUID, INT8, INT8]);
query!(TRANSACTIONS_FIND = "transactions_find"[INT8_ARRAY, TEXT]);
query!(TRANSACTIONS_EXPIRE = "transactions_expire"[INT8]);
query!(SCHEDULES_EXPIRE = "schedules_expire"[INT8]);

/// A run of messages of one producer that stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub first_sequence: Sequence,
    pub last_sequence: Sequence,
    pub first_offset: Offset,
}

impl Run {
    /// Where the message of a sequence stands, if it belongs to this run.
    pub fn offset_of(&self, sequence: Sequence) -> Option<Offset> {
        (self.first_sequence <= sequence && sequence <= self.last_sequence)
            .then(|| self.first_offset.plus(sequence.0 - self.first_sequence.0))
    }
}

impl Store {
    /// The runs that hold some sequences; those that left the window are missing.
    pub async fn producer_runs_find(
        &self,
        partition_id: PartitionId,
        producer_id: ProducerId,
        first: Sequence,
        last: Sequence,
    ) -> Result<Vec<Run>, Error> {
        let connection = self.connection().await?;
        let rows = connection
            .query(&PRODUCER_RUNS_FIND, &[&partition_id.0, &producer_id.0, &first.0, &last.0], Effect::None)
            .await?;
        let run = |row: &tokio_postgres::Row| Run {
            first_sequence: Sequence(row.get(0)),
            last_sequence: Sequence(row.get(1)),
            first_offset: Offset(row.get(2)),
        };
        Ok(rows.iter().map(run).collect())
    }

    /// Where messages of a transaction id stand, as far as the window remembers them, newest first.
    pub async fn transactions_find(
        &self,
        partitions: &[PartitionId],
        transaction_id: &str,
    ) -> Result<Vec<(PartitionId, Offset)>, Error> {
        let partition_ids: Vec<i64> = partitions.iter().map(|partition_id| partition_id.0).collect();
        let connection = self.connection().await?;
        let params: super::connection::Params<'_> = &[&partition_ids, &transaction_id];
        let rows = connection.query(&TRANSACTIONS_FIND, params, Effect::None).await?;
        let place =
            |row: &tokio_postgres::Row| (PartitionId(row.get("partition_id")), Offset(row.get("offset")));
        Ok(rows.iter().map(place).collect())
    }

    /// Forgets ids that no window remembers, in short transactions. Returns how many rows went. Runs go by the walk over their table.
    pub async fn deduplication_expire(&self) -> Result<u64, Error> {
        let mut gone = 0;
        for query in [&TRANSACTIONS_EXPIRE, &SCHEDULES_EXPIRE] {
            loop {
                let connection = self.connection().await?;
                let rows = connection.execute(query, &[&EXPIRE_ROWS_MAX]).await?;
                gone += rows;
                if rows < EXPIRE_ROWS_MAX as u64 {
                    break;
                }
            }
        }
        Ok(gone)
    }
}
