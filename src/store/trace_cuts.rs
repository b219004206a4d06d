//! The cuts of the trace index: tables by time, made ahead like segments and dropped whole once no message that old is
//! stored.
//!
//! While a cut takes blocks, their entries collect in the index's pending list and are merged here, beside the publish path.
//! A cut that is over is frozen once, and written anew when retention has left most of it without messages.

use super::Connection;
use super::error::{Effect, Error};
use super::query::{query, template};
use crate::ids::CutId;

query!(TRACE_CUTS_SURVEY = "trace_cuts_survey"[]);
query!(TRACE_CUTS_TRY_LOCK = "trace_cuts_try_lock"[]);
query!(TRACE_CUTS_INSERT = "trace_cuts_insert"[INT8, INT8]);
query!(TRACE_CUTS_OPEN = "trace_cuts_open"[]);
query!(TRACE_CUTS_CLOSE = "trace_cuts_close"[INT8]);
query!(TRACE_CUTS_EXPIRED = "trace_cuts_expired"[]);
query!(TRACE_CUTS_FORGET = "trace_cuts_forget"[INT8]);
query!(TRACE_CUTS_UNCHECKED = "trace_cuts_unchecked"[FLOAT8]);
query!(TRACE_CUTS_CHECKED = "trace_cuts_checked"[INT8]);
template!(TRACE_CUT_CREATE = "trace_cut_create"[]);
template!(TRACE_CUT_MERGE = "trace_cut_merge"[]);
template!(TRACE_CUT_FREEZE = "trace_cut_freeze"[]);
template!(TRACE_CUT_DROP = "trace_cut_drop"[]);
template!(TRACE_CUT_COUNT = "trace_cut_count"[]);
template!(TRACE_CUT_COPY = "trace_cut_copy"[]);
template!(TRACE_CUT_SWAP = "trace_cut_swap"[]);

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
            let locked = transaction.query_opt(&TRACE_CUTS_TRY_LOCK, &[], Effect::None).await?;
            if !locked.is_some_and(|row| row.get("locked")) {
                transaction.rollback().await?; // somebody writes cuts anew; the next pass drops them
                return Ok(dropped);
            }
            if transaction.execute(&TRACE_CUTS_FORGET, &[&cut_id]).await? == 1 {
                transaction.run(&TRACE_CUT_DROP, &[("cut_id", cut_id)]).await?;
                dropped.push(CutId(cut_id));
            }
            transaction.commit().await?;
        }
        Ok(dropped)
    }
}

/// A closed cut is looked at this often, to see whether it still is worth its space.
const CHECK_EVERY_SECONDS: f64 = 3_600.0;

/// A closed cut, by its table and its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClosedCut {
    cut_id: i64,
    from: Micros,
    to: Micros,
}

impl ClosedCut {
    fn integers(self) -> [(&'static str, i64); 3] {
        [("cut_id", self.cut_id), ("from_us", self.from), ("to_us", self.to)]
    }
}

impl Connection {
    /// Looks at one closed cut that is due; if most of its blocks have lost their messages to retention, it is written anew
    /// without them. Without this, one topic that is kept for ever would keep the entries of all others too.
    pub async fn trace_cuts_shrink(&mut self) -> Result<(), Error> {
        self.trace_cuts_shrink_after(CHECK_EVERY_SECONDS).await
    }

    /// As [`Connection::trace_cuts_shrink`], for cuts not looked at for this long.
    pub async fn trace_cuts_shrink_after(&mut self, seconds: f64) -> Result<(), Error> {
        let Some(row) = self.query_opt(&TRACE_CUTS_UNCHECKED, &[&seconds], Effect::None).await? else {
            return Ok(());
        };
        let cut = ClosedCut { cut_id: row.get("cut_id"), from: row.get("from_us"), to: row.get("to_us") };
        let counted = self.read(&TRACE_CUT_COUNT, &cut.integers(), &[]).await?;
        let (blocks, living): (i64, i64) =
            counted.first().map_or((0, 0), |row| (row.get("blocks"), row.get("living")));
        // Marked first: a rewrite that does not get its lock is tried again an hour later, not every second.
        self.execute(&TRACE_CUTS_CHECKED, &[&cut.cut_id]).await?;
        if blocks > 0 && living * 2 < blocks {
            self.rewrite(cut).await?;
            tracing::info!(cut = cut.cut_id, blocks, living, "trace index cut written anew");
        }
        Ok(())
    }

    /// Copies first, under a lock that only other brokers' upkeep meets, and then swaps in an instant.
    async fn rewrite(&mut self, cut: ClosedCut) -> Result<(), Error> {
        for template in [&TRACE_CUT_COPY, &TRACE_CUT_SWAP] {
            let transaction = self.begin().await?;
            let locked = transaction.query_opt(&TRACE_CUTS_TRY_LOCK, &[], Effect::None).await?;
            if !locked.is_some_and(|row| row.get("locked")) {
                return transaction.rollback().await; // the next look finds it again
            }
            transaction.run(template, &cut.integers()).await?;
            transaction.commit().await?;
        }
        Ok(())
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
