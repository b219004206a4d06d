//! The trace index: finding the blocks of a trace, and keeping the index cut by time.
//!
//! A flush writes one block per partition; the index maps half a trace id to blocks, and the message decides. The index is
//! cut by time into tables, made ahead like segments and dropped whole once no message that old is stored.

use super::error::{Effect, Error};
use super::messages::{Message, message};
use super::query::{query, template};
use super::{Connection, Store};
use crate::ids::{CutId, Offset, PartitionId, SegmentId, TraceId};

query!(TRACE_BLOCKS_FIND = "trace_blocks_find"[INT8, INT8]);
query!(TRACE_CUTS_SURVEY = "trace_cuts_survey"[]);
query!(TRACE_CUTS_TRY_LOCK = "trace_cuts_try_lock"[]);
query!(TRACE_CUTS_INSERT = "trace_cuts_insert"[INT8, INT8]);
query!(TRACE_CUTS_OPEN = "trace_cuts_open"[]);
query!(TRACE_CUTS_CLOSE = "trace_cuts_close"[INT8]);
query!(TRACE_CUTS_EXPIRED = "trace_cuts_expired"[]);
query!(TRACE_CUTS_FORGET = "trace_cuts_forget"[INT8]);
template!(TRACE_CUT_CREATE = "trace_cut_create"[]);
template!(TRACE_CUT_MERGE = "trace_cut_merge"[]);
template!(TRACE_CUT_FREEZE = "trace_cut_freeze"[]);
template!(TRACE_CUT_DROP = "trace_cut_drop"[]);
template!(SEGMENT_FIND_TRACE = "segment_find_trace"[INT8, INT8, UUID]);

/// Microseconds of the database clock since 1970.
type Micros = i64;

const MINUTE: Micros = 60 * 1_000_000;
/// How far ahead of the clock there is always a cut.
const CUT_AHEAD: Micros = 30 * MINUTE;
/// Shortest cut: fewer, larger tables are quicker to search.
const CUT_SPAN_MIN: Micros = 30 * MINUTE;
/// Longest cut: what retention waits for at most, beyond its age.
const CUT_SPAN_MAX: Micros = 24 * 60 * MINUTE;
/// The first cut, while nothing is known about the rate.
const CUT_SPAN_FIRST: Micros = 60 * MINUTE;
/// What a cut should hold: its index then stays in memory while it is written.
const CUT_BYTES_TARGET: i64 = 512 << 20;

/// Offsets of one partition that may hold messages of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub partition_id: PartitionId,
    pub first_offset: Offset,
    pub end_offset: Offset,
}

impl Store {
    /// The blocks that may hold messages of a trace, in the order they were written.
    pub async fn trace_blocks_find(&self, trace_id: TraceId, limit: usize) -> Result<Vec<Block>, Error> {
        let connection = self.connection().await?;
        let limit = limit as i64;
        let rows = connection.query(&TRACE_BLOCKS_FIND, &[&trace_id.prefix(), &limit], Effect::None).await?;
        let block = |row: &tokio_postgres::Row| {
            let first_offset = Offset(row.get("first_offset"));
            let messages = i64::from(row.get::<_, i32>("messages"));
            Block {
                partition_id: PartitionId(row.get("partition_id")),
                first_offset,
                end_offset: first_offset.plus(messages),
            }
        };
        Ok(rows.iter().map(block).collect())
    }

    /// The messages of a trace among some offsets of one segment.
    pub async fn segment_find_trace(
        &self,
        segment_id: SegmentId,
        block: Block,
        trace_id: TraceId,
    ) -> Result<Vec<Message>, Error> {
        let connection = self.connection().await?;
        let params: super::connection::Params<'_> =
            &[&block.first_offset.0, &block.end_offset.0, &trace_id.0];
        let rows = connection.read(&SEGMENT_FIND_TRACE, &[("segment_id", segment_id.0)], params).await?;
        Ok(rows.iter().map(message).collect())
    }
}

impl Connection {
    /// Makes the next cut if the newest one ends soon.
    pub async fn trace_cuts_extend(&mut self) -> Result<(), Error> {
        let transaction = self.begin().await?;
        let locked = transaction.query_opt(&TRACE_CUTS_TRY_LOCK, &[], Effect::None).await?;
        let row = transaction.query_opt(&TRACE_CUTS_SURVEY, &[], Effect::None).await?;
        let next = row.and_then(|row| next_cut(&survey(&row)));
        let (true, Some((from, to))) = (locked.is_some_and(|row| row.get("locked")), next) else {
            return transaction.rollback().await;
        };
        let row = transaction.query_opt(&TRACE_CUTS_INSERT, &[&from, &to], Effect::Possible).await?;
        let cut_id: i64 = row.expect("an insert that returns, returns its row").get("cut_id");
        transaction.run(&TRACE_CUT_CREATE, &[("cut_id", cut_id), ("from_us", from), ("to_us", to)]).await?;
        transaction.commit().await
    }

    /// Merges pending entries into the index; freezes and closes cuts that are over.
    pub async fn trace_cuts_tidy(&self) -> Result<(), Error> {
        for row in self.query(&TRACE_CUTS_OPEN, &[], Effect::None).await? {
            let (cut_id, over): (i64, bool) = (row.get("cut_id"), row.get("over"));
            let template = if over { &TRACE_CUT_FREEZE } else { &TRACE_CUT_MERGE };
            self.run(template, &[("cut_id", cut_id)]).await?;
            if over {
                self.execute(&TRACE_CUTS_CLOSE, &[&cut_id]).await?;
            }
        }
        Ok(())
    }

    /// Drops the cuts that no stored message needs. Returns those dropped.
    pub async fn trace_cuts_drop(&mut self) -> Result<Vec<CutId>, Error> {
        let mut dropped = Vec::new();
        for row in self.query(&TRACE_CUTS_EXPIRED, &[], Effect::None).await? {
            let cut_id: i64 = row.get("cut_id");
            let transaction = self.begin().await?;
            if transaction.execute(&TRACE_CUTS_FORGET, &[&cut_id]).await? == 1 {
                transaction.run(&TRACE_CUT_DROP, &[("cut_id", cut_id)]).await?;
                dropped.push(CutId(cut_id));
            }
            transaction.commit().await?;
        }
        Ok(dropped)
    }
}

/// The newest cut, and the time.
struct CutSurvey {
    now: Micros,
    newest: Option<Newest>,
}

struct Newest {
    from: Micros,
    to: Micros,
    bytes: i64,
}

fn survey(row: &tokio_postgres::Row) -> CutSurvey {
    let from: Option<Micros> = row.get("from_us");
    let newest = from.map(|from| Newest { from, to: row.get("to_us"), bytes: row.get("bytes") });
    CutSurvey { now: row.get("now_us"), newest }
}

/// The cut to make now, if any: contiguous with the newest, as long as the rate suggests.
fn next_cut(survey: &CutSurvey) -> Option<(Micros, Micros)> {
    let Some(newest) = &survey.newest else {
        return Some((0, survey.now + CUT_SPAN_FIRST)); // from 1970: no clock may fall below it
    };
    if newest.to - survey.now > CUT_AHEAD {
        return None;
    }
    let elapsed = (survey.now - newest.from).clamp(MINUTE, CUT_SPAN_MAX);
    let bytes_per_minute = (newest.bytes / (elapsed / MINUTE)).max(1);
    let span = (CUT_BYTES_TARGET / bytes_per_minute).saturating_mul(MINUTE).clamp(CUT_SPAN_MIN, CUT_SPAN_MAX);
    Some((newest.to, newest.to.max(survey.now) + span + CUT_AHEAD))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Micros = 1_000_000 * MINUTE;

    fn with(newest: Option<Newest>) -> Option<(Micros, Micros)> {
        next_cut(&CutSurvey { now: NOW, newest })
    }

    #[test]
    fn cuts_are_made_ahead_without_holes_and_shorter_when_busy() {
        assert_eq!(with(None), Some((0, NOW + CUT_SPAN_FIRST)));
        let far = Newest { from: 0, to: NOW + CUT_AHEAD + 1, bytes: 0 };
        assert_eq!(with(Some(far)), None);
        let quiet = Newest { from: NOW - 60 * MINUTE, to: NOW + MINUTE, bytes: 0 };
        assert_eq!(with(Some(quiet)), Some((NOW + MINUTE, NOW + MINUTE + CUT_SPAN_MAX + CUT_AHEAD)));
        let busy = Newest { from: NOW - 60 * MINUTE, to: NOW + MINUTE, bytes: 100 << 30 };
        assert_eq!(with(Some(busy)), Some((NOW + MINUTE, NOW + MINUTE + CUT_SPAN_MIN + CUT_AHEAD)));
        let long_gone = Newest { from: 0, to: NOW / 2, bytes: 0 };
        assert_eq!(with(Some(long_gone)), Some((NOW / 2, NOW + CUT_SPAN_MAX + CUT_AHEAD)));
    }
}
