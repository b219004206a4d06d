//! Segments: the catalogue of which table holds which offsets, and the making of tables ahead of need.
//!
//! A segment's table, its catalogue row and its attachment are one small transaction, so the catalogue never lies. Makers
//! of one partition exclude each other by a transaction-level advisory lock, which no publish waits for.
//! Locks: ATTACH takes SHARE UPDATE EXCLUSIVE on the parent, which inserts do not meet.

use std::ops::Range;

use jiff::Timestamp;

use super::connection::Transaction;
use super::error::{Effect, Error};
use super::query::{query, template};
use super::{Connection, Store, retry};
use crate::ids::{Offset, PartitionId, SegmentId};
use crate::limits::SEGMENT_BYTES_TARGET;

query!(SEGMENTS_LIST = "segments_list"[INT8]);
query!(SEGMENTS_TRY_LOCK = "segments_try_lock"[INT8]);
query!(SEGMENTS_SURVEY = "segments_survey"[INT8]);
query!(SEGMENTS_INSERT = "segments_insert"[INT8, INT8, INT8]);
template!(PARTITION_CREATE = "partition_create"[]);
template!(SEGMENT_CREATE = "segment_create"[]);

/// One table of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub segment_id: SegmentId,
    pub first_offset: Offset,
    pub end_offset: Offset,
    /// Known once it is sealed.
    pub bytes: Option<i64>,
    pub last_published_at: Option<Timestamp>,
}

/// The readable segments of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    pub start_offset: Offset,
    /// By offset; they need not touch after a quiet partition was cut.
    pub segments: Vec<Segment>,
}

impl Catalogue {
    /// The segment that holds an offset.
    pub fn segment_of(&self, offset: Offset) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.first_offset <= offset && offset < segment.end_offset)
    }
}

/// Whether a partition may be the one for which a parent table has no place.
pub fn may_lack_table(partition_id: PartitionId, relation: &str) -> bool {
    match relation.strip_prefix("message_p") {
        Some(id) => id.parse() == Ok(partition_id.0),
        None => true, // the root, or the trace index: every partition of the flush may be it
    }
}

/// Whether tables were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extended {
    /// Tables exist from the next offset up to the end; the last segment begins at `ahead_from`.
    Covered { next_offset: Offset, ahead_from: Offset, end_offset: Offset },
    /// Another broker is at it: look again in a moment.
    Busy,
    /// There is no such partition (any more).
    Gone,
}

impl Store {
    /// The catalogue of a partition; `None`: no such partition.
    pub async fn segments_list(&self, partition_id: PartitionId) -> Result<Option<Catalogue>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&SEGMENTS_LIST, &[&partition_id.0], Effect::None).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let start_offset = Offset(first.get("start_offset"));
        let segments = rows.iter().filter_map(segment).collect();
        Ok(Some(Catalogue { start_offset, segments }))
    }

    /// Makes whatever tables some more messages of a partition need, its trace cut among them.
    pub async fn tables_extend(&self, partition_id: PartitionId, messages: usize) -> Result<Extended, Error> {
        retry::contended(retry::Policy::DDL, || async {
            let mut connection = self.upkeep_connection().await?;
            connection.trace_cuts_extend().await?;
            connection.segments_extend(partition_id, messages).await
        })
        .await
    }
}

fn segment(row: &tokio_postgres::Row) -> Option<Segment> {
    Some(Segment {
        segment_id: SegmentId(row.get::<_, Option<i64>>("segment_id")?),
        first_offset: Offset(row.get("first_offset")),
        end_offset: Offset(row.get("end_offset")),
        bytes: row.get("bytes"),
        last_published_at: row.get("last_published_at"),
    })
}

impl Connection {
    /// Makes the tables that a partition needs for some messages more, and one segment ahead.
    pub async fn segments_extend(
        &mut self,
        partition_id: PartitionId,
        messages: usize,
    ) -> Result<Extended, Error> {
        let transaction = self.begin().await?;
        let locked = transaction.query_opt(&SEGMENTS_TRY_LOCK, &[&partition_id.0], Effect::None).await?;
        if !locked.is_some_and(|row| row.get("locked")) {
            transaction.rollback().await?;
            return Ok(Extended::Busy);
        }
        let Some(survey) = Survey::take(&transaction, partition_id).await? else {
            transaction.rollback().await?;
            return Ok(Extended::Gone);
        };
        let needed = survey.next_offset..survey.next_offset + messages.max(1) as i64;
        let missing = missing(&needed, &survey.attached, survey.length());
        if !survey.has_table {
            transaction.run(&PARTITION_CREATE, &[("partition_id", partition_id.0)]).await?;
        }
        for range in &missing {
            create(&transaction, partition_id, range).await?;
        }
        transaction.commit().await?;
        Ok(survey.covered(&missing))
    }
}

async fn create(
    transaction: &Transaction<'_>,
    partition_id: PartitionId,
    range: &Range<i64>,
) -> Result<(), Error> {
    let row = transaction
        .query_opt(&SEGMENTS_INSERT, &[&partition_id.0, &range.start, &range.end], Effect::Possible)
        .await?
        .expect("an insert that returns, returns its row");
    let segment_id: i64 = row.get("segment_id");
    let integers = [
        ("segment_id", segment_id),
        ("partition_id", partition_id.0),
        ("first_offset", range.start),
        ("end_offset", range.end),
    ];
    transaction.run(&SEGMENT_CREATE, &integers).await
}

/// What is known about a partition before tables are made for it.
struct Survey {
    next_offset: i64,
    bytes_total: i64,
    segment_messages: i64,
    has_table: bool,
    attached: Vec<Range<i64>>,
}

impl Survey {
    async fn take(connection: &Connection, partition_id: PartitionId) -> Result<Option<Self>, Error> {
        let row = connection.query_opt(&SEGMENTS_SURVEY, &[&partition_id.0], Effect::None).await?;
        Ok(row.map(|row| {
            let firsts: Vec<i64> = row.get("first_offsets");
            let ends: Vec<i64> = row.get("end_offsets");
            Self {
                next_offset: row.get("next_offset"),
                bytes_total: row.get("bytes_total"),
                segment_messages: i64::from(row.get::<_, i32>("segment_messages")),
                has_table: row.get("has_table"),
                attached: firsts.into_iter().zip(ends).map(|(first, end)| first..end).collect(),
            }
        }))
    }

    /// Messages of the next segment: the topic's bound, or fewer where messages are large.
    fn length(&self) -> i64 {
        let bytes_each = (self.bytes_total / self.next_offset.max(1)).max(1);
        (SEGMENT_BYTES_TARGET / bytes_each).clamp(1_000, i64::MAX).min(self.segment_messages)
    }

    /// How far the partition is covered without a hole from its next offset on.
    fn covered(&self, made: &[Range<i64>]) -> Extended {
        let mut ranges: Vec<_> = self.attached.iter().chain(made).collect();
        ranges.sort_by_key(|range| range.start);
        let mut last = self.next_offset..self.next_offset;
        for range in ranges {
            if range.contains(&last.end) {
                last = range.clone();
            }
        }
        Extended::Covered {
            next_offset: Offset(self.next_offset),
            ahead_from: Offset(last.start),
            end_offset: Offset(last.end),
        }
    }
}

/// The ranges to make so that `needed` lies in segments and a whole one follows, without touching what is attached.
fn missing(needed: &Range<i64>, attached: &[Range<i64>], length: i64) -> Vec<Range<i64>> {
    let mut made = Vec::new();
    let mut from = needed.start;
    let mut ahead = false;
    while !ahead {
        ahead = from >= needed.end;
        if let Some(there) = attached.iter().find(|range| range.contains(&from)) {
            from = there.end;
            continue;
        }
        let following = attached.iter().map(|range| range.start).filter(|start| *start > from).min();
        let end = following.unwrap_or(i64::MAX).min(from + length);
        made.push(from..end);
        from = end;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_new_partition_gets_a_segment_and_one_ahead() {
        assert_eq!(missing(&(0..1), &[], 100), vec![0..100, 100..200]);
        assert_eq!(missing(&(99..100), &[0..100, 100..110], 100), vec![]);
        assert_eq!(missing(&(100..101), &[0..100, 100..200], 100), vec![200..300]);
        assert_eq!(missing(&(42..43), &[0..100, 100..200], 100), vec![]);
    }

    #[test]
    fn a_unit_longer_than_a_segment_gets_as_many_as_it_needs() {
        assert_eq!(missing(&(5..35), &[], 10), vec![5..15, 15..25, 25..35, 35..45]);
    }

    #[test]
    fn the_hole_that_a_cut_leaves_is_filled_exactly() {
        let attached = 100..200;
        assert_eq!(missing(&(40..41), &[attached], 100), vec![40..100]);
    }

    proptest! {
        #[test]
        fn what_is_made_never_overlaps_and_covers_the_next_offset(
            next in 0..1_000_i64,
            messages in 1..200_i64,
            length in 1..50_i64,
            bounds in prop::collection::btree_set(0..1_200_i64, 0..12),
        ) {
            let bounds: Vec<i64> = bounds.into_iter().collect();
            let attached: Vec<Range<i64>> = bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
            let made = missing(&(next..next + messages), &attached, length);
            let all: Vec<_> = attached.iter().chain(&made).collect();
            for offset in next..=next + messages {
                prop_assert!(all.iter().any(|range| range.contains(&offset)));
            }
            for (place, one) in all.iter().enumerate() {
                prop_assert!(one.start < one.end);
                for other in &all[place + 1..] {
                    prop_assert!(one.end <= other.start || other.end <= one.start);
                }
            }
        }
    }
}
