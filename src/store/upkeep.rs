//! Small chores on partitions: sealing full segments, freezing them once, thinning heads.

use jiff::Timestamp;
use tokio_postgres::Row;

use super::error::{Effect, Error};
use super::query::{query, template};
use super::{Connection, Store};
use crate::ids::{PartitionId, SegmentId};
use crate::limits::HEAD_SPACING;

query!(SEGMENTS_FULL = "segments_full"[]);
query!(SEGMENTS_SEAL = "segments_seal"[INT8]);
query!(SEGMENTS_UNFROZEN = "segments_unfrozen"[INT8]);
query!(SEGMENTS_FROZEN = "segments_frozen"[INT8]);
query!(HEADS_THIN = "heads_thin"[INT8_ARRAY, TIMESTAMPTZ_ARRAY, INT8]);
template!(SEGMENT_FREEZE = "segment_freeze"[]);

/// Segments that one round freezes: a vacuum of a full segment takes a second or two.
const FREEZE_AT_ONCE: i64 = 4;

impl Store {
    /// Partitions with segments that are full and not sealed yet.
    pub async fn segments_full(&self) -> Result<Vec<PartitionId>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&SEGMENTS_FULL, &[], Effect::None).await?;
        Ok(rows.iter().map(|row| PartitionId(row.get("partition_id"))).collect())
    }

    /// Records what full segments of a partition hold. Returns those sealed now.
    pub async fn segments_seal(&self, partition_id: PartitionId) -> Result<Vec<SegmentId>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&SEGMENTS_SEAL, &[&partition_id.0], Effect::Possible).await?;
        Ok(rows.iter().map(|row| SegmentId(row.get("segment_id"))).collect())
    }

    /// Thins the heads of partitions, each since a moment. Returns up to when they are thin now; one without heads is left out.
    pub async fn heads_thin(
        &self,
        partitions: &[(PartitionId, Timestamp)],
    ) -> Result<Vec<(PartitionId, Timestamp)>, Error> {
        let (ids, since): (Vec<i64>, Vec<Timestamp>) =
            partitions.iter().map(|(partition_id, since)| (partition_id.0, *since)).unzip();
        let connection = self.connection().await?;
        let rows = connection.query(&HEADS_THIN, &[&ids, &since, &HEAD_SPACING], Effect::Possible).await?;
        let thinned = |row: &Row| (PartitionId(row.get("partition_id")), row.get("thinned_to"));
        Ok(rows.iter().map(thinned).collect())
    }
}

impl Connection {
    /// Freezes sealed segments that are not frozen yet, a few at a time. Returns how many.
    pub async fn segments_freeze(&mut self) -> Result<usize, Error> {
        let rows = self.query(&SEGMENTS_UNFROZEN, &[&FREEZE_AT_ONCE], Effect::None).await?;
        for row in &rows {
            let segment_id: i64 = row.get("segment_id");
            match self.run(&SEGMENT_FREEZE, &[("segment_id", segment_id)]).await {
                Ok(()) | Err(Error::TableGone { .. }) => {}
                Err(error) => return Err(error),
            }
            self.execute(&SEGMENTS_FROZEN, &[&segment_id]).await?;
        }
        Ok(rows.len())
    }
}
