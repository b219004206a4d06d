//! When messages were delivered and done, and which attempts at them have failed.
//!
//! Written in the transaction of what they belong to: a flush, a step or a settlement. Brokers know ages, Postgres knows the time:
//! an age is taken right before the transaction is begun, and counted back from its beginning, so that no clocks are compared. What is
//! older than its retention is dropped by walking the tables, some pages at a time (`docs/adr/0006-delivery-times.md`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use postgres_types::ToSql;
use serde::Deserialize;

use super::error::{Effect, Error};
use super::lanes::{Fence, Settlement};
use super::query::{Query, query};
use super::{Connection, Store};
use crate::ids::Offset;
use crate::limits::{ACKED_TOGETHER, DELIVERED_TOGETHER, WALK_PAGES_MAX};

query!(
    LANE_TIMES_RECORD = "lane_times_record"[
        INT8, INT8, INT8, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY
    ]
);
query!(FAILURES_RECORD = "failures_record"[INT8, INT8, INT8, INT4, TEXT, TEXT, INT8, INT8]);
query!(LANE_TIMES_EXPIRE = "lane_times_expire"[INT8, INT8, INT8]);
query!(FAILURES_EXPIRE = "failures_expire"[INT8, INT8, INT8]);
query!(PRODUCER_RUNS_EXPIRE = "producer_runs_expire"[INT8, INT8]);

/// Messages of a lane that were delivered together and acknowledged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaneTime {
    pub first: Offset,
    /// Not included.
    pub end: Offset,
    pub delivered_at: Instant,
    pub acked_at: Instant,
}

impl LaneTime {
    /// Whether another range begins where this one ends, at times that count as the same.
    pub fn goes_on_with(&self, next: &Self) -> bool {
        let apart = |one: Instant, other: Instant| one.max(other) - one.min(other);
        self.end == next.first
            && apart(self.delivered_at, next.delivered_at) <= DELIVERED_TOGETHER
            && apart(self.acked_at, next.acked_at) <= ACKED_TOGETHER
    }
}

/// Times that are on their way with the commit of this number, and may arrive with it or not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TimesUnderWay {
    pub number: i64,
    pub times: Arc<[LaneTime]>,
}

/// What follows from a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureOutcome {
    /// The message comes again, sooner or later.
    Retry,
    /// It is given up and kept aside.
    DeadLetter,
    /// It is given up.
    Skip,
    /// It has expired: it was not delivered, or not again.
    Evicted,
    /// Its key is parked: it is copied aside.
    Park,
    /// An operator has dropped its copy.
    Drop,
}

impl FailureOutcome {
    const fn as_str(self) -> &'static str {
        match self {
            FailureOutcome::Retry => "retry",
            FailureOutcome::DeadLetter => "dead_letter",
            FailureOutcome::Skip => "skip",
            FailureOutcome::Evicted => "evicted",
            FailureOutcome::Park => "park",
            FailureOutcome::Drop => "drop",
        }
    }
}

/// An attempt at a message that has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    pub offset: Offset,
    /// Counted from 1.
    pub attempt: u32,
    pub outcome: FailureOutcome,
    pub reason: String,
    /// Absent: nobody knows any more.
    pub delivered_at: Option<Instant>,
    pub failed_at: Instant,
}

/// Times, column by column.
#[derive(Debug, Default)]
pub(super) struct TimeColumns {
    pub first_offsets: Vec<i64>,
    pub end_offsets: Vec<i64>,
    pub delivered_us: Vec<i64>,
    pub acked_us: Vec<i64>,
}

impl TimeColumns {
    /// Adds one, as old as it is now.
    pub fn add(&mut self, time: &LaneTime, now: Instant) {
        self.first_offsets.push(time.first.0);
        self.end_offsets.push(time.end.0);
        self.delivered_us.push(age_us(time.delivered_at, now));
        self.acked_us.push(age_us(time.acked_at, now));
    }

    pub fn params(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.first_offsets, &self.end_offsets, &self.delivered_us, &self.acked_us]
    }
}

fn age_us(moment: Instant, now: Instant) -> i64 {
    i64::try_from(now.saturating_duration_since(moment).as_micros()).unwrap_or(i64::MAX)
}

impl Connection {
    /// Writes down what a settlement tells of times and failures; `now` is the moment right before its transaction was begun.
    pub(super) async fn settle_times(
        &self,
        fence: &Fence,
        settlement: &Settlement,
        now: Instant,
    ) -> Result<(), Error> {
        let (mut numbers, mut columns) = (Vec::new(), TimeColumns::default());
        for time in settlement.commit.iter().flat_map(|commit| commit.times.iter()) {
            numbers.push(0_i64);
            columns.add(time, now);
        }
        if let Some(TimesUnderWay { number, times }) = &settlement.under_way {
            for time in times.iter() {
                numbers.push(*number);
                columns.add(time, now);
            }
        }
        if !numbers.is_empty() {
            let [first, end, delivered, acked] = columns.params();
            let params: super::connection::Params<'_> = &[
                &fence.group_id.0,
                &fence.partition_id.0,
                &fence.epoch.0,
                &numbers,
                first,
                end,
                delivered,
                acked,
            ];
            self.execute(&LANE_TIMES_RECORD, params).await?;
        }
        match &settlement.failure {
            Some(failure) => self.record_failure(fence, failure, now).await,
            None => Ok(()),
        }
    }

    async fn record_failure(
        &self,
        fence: &Fence,
        failure: &FailedAttempt,
        now: Instant,
    ) -> Result<(), Error> {
        let delivered_us = failure.delivered_at.map(|moment| age_us(moment, now));
        let params: super::connection::Params<'_> = &[
            &fence.group_id.0,
            &fence.partition_id.0,
            &failure.offset.0,
            &(failure.attempt as i32),
            &failure.outcome.as_str(),
            &failure.reason,
            &delivered_us,
            &age_us(failure.failed_at, now),
        ];
        self.execute(&FAILURES_RECORD, params).await.map(|_| ())
    }
}

/// A table whose rows are kept for a while only, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    LaneTimes(Duration),
    Failures(Duration),
    /// For as long as the window of any topic remembers them.
    ProducerRuns,
}

impl Record {
    fn query(self) -> &'static Query {
        match self {
            Record::LaneTimes(_) => &LANE_TIMES_EXPIRE,
            Record::Failures(_) => &FAILURES_EXPIRE,
            Record::ProducerRuns => &PRODUCER_RUNS_EXPIRE,
        }
    }

    fn retention_ms(self) -> Option<i64> {
        match self {
            Record::LaneTimes(retention) | Record::Failures(retention) => {
                Some(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX))
            }
            Record::ProducerRuns => None,
        }
    }
}

/// What a look at some pages of a table has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// Rows that are gone now.
    pub rows: u64,
    /// Pages that the table has.
    pub pages: i64,
}

impl Store {
    /// Drops what is too old, or belongs to nobody, from a few pages of a table, beginning with this one.
    pub async fn records_expire(&self, record: Record, first_page: i64) -> Result<Expired, Error> {
        let (end_page, retention_ms) = (first_page + WALK_PAGES_MAX, record.retention_ms());
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&first_page, &end_page];
        params.extend(retention_ms.as_ref().map(|retention_ms| retention_ms as &(dyn ToSql + Sync)));
        let connection = self.connection().await?;
        let row = connection.query_opt(record.query(), &params, Effect::Possible).await?;
        Ok(row.map_or(Expired { rows: 0, pages: 0 }, |row| Expired {
            rows: row.get::<_, i64>("rows") as u64,
            pages: row.get("pages"),
        }))
    }
}
