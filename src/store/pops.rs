//! Pops: lanes that stateless consumers have for a while. Such a lane has no session and no broker: its row says until when it is
//! taken and how far, and whoever knows its epoch may speak for it, on any broker.
//!
//! Invariant: every effect of a pop happens in a transaction that has locked the lane's row with its epoch and without a session in
//! the `WHERE`. No row, no effect. The lock is one statement, what depends on it the next.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Params;
use super::error::{Effect, Error};
use super::groups::GROUPS_HINT;
use super::lanes::{ATTEMPTS_LIST, Commit, Fence, ResumeAt, Settlement, failed, ranges, settle};
use super::query::query;
use super::{Connection, Store, retry};
use crate::ids::{Epoch, GroupId, Offset, PartitionId, SessionId};
use crate::limits::PULLERS_TTL;

query!(POPS_FIND = "pops_find"[INT8, UUID, INT8_ARRAY, INT8]);
query!(POPS_TAKE = "pops_take"[INT8, INT8, INT8, UUID, INT8, INT8, INT8]);
query!(POPS_NEWEST = "pops_newest"[INT8, INT8]);
query!(POPS_LOCK = "pops_lock"[INT8, INT8, INT8]);
query!(POPS_SHOW = "pops_show"[INT8, INT8]);
query!(POPS_CUT = "pops_cut"[INT8, INT8, INT8]);
query!(POPS_FREE = "pops_free"[INT8, INT8, INT8]);
query!(POPS_EXTEND = "pops_extend"[INT8, INT8, INT8, INT8]);
query!(POPS_EXPIRED = "pops_expired"[INT8]);
query!(PULLERS_TOUCH = "pullers_touch"[INT8, INT8]);
query!(PULLERS_FIND = "pullers_find"[INT8, INT8]);

/// Whom the rows name for all pullers of a group together: the nil UUID, which no session has.
pub const PULLERS: SessionId = SessionId(Uuid::nil());

/// A pop, by everything that its fence looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PopKey {
    pub group_id: GroupId,
    pub partition_id: PartitionId,
    pub epoch: Epoch,
}

/// A lane that has messages and that nobody has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeLane {
    /// The number of its partition, which people see.
    pub number: u32,
    /// Of the partition.
    pub next_offset: Offset,
    /// Below it no window is waited for: it was open already.
    pub open_until: Offset,
    /// Epoch and number of its newest commit; zeros: there is none.
    pub newest_commit: (Epoch, i64),
    pub at: ResumeAt,
}

/// What a puller is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Take<'a> {
    /// With the epoch under which the lane was seen.
    pub key: PopKey,
    pub end: Offset,
    pub deadline: Duration,
    /// The window of the lane is open below it.
    pub open_until: Offset,
    /// Of the lane, as it was seen.
    pub newest_commit: (Epoch, i64),
    /// At most once: what is given is done, and the lane is free again.
    pub commit: Option<&'a Commit>,
}

/// A lane is a puller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub epoch: Epoch,
    pub until_at: Timestamp,
}

/// How a pop stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its puller may acknowledge what lies before this offset.
    Open { end: Offset },
    /// Its time is over, and nobody has freed the lane yet.
    Expired { end: Offset },
    /// It is over.
    Over,
}

/// A lane under the lock of its pop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoppedLane {
    pub at: ResumeAt,
    pub standing: Standing,
    /// When it was popped, as this process counts.
    pub delivered_at: Instant,
    /// The number of the newest commit of this epoch.
    pub commits: i64,
}

/// What becomes of a pop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// What lies from this offset on comes again.
    EndsAt(Offset),
    /// The lane is free; below this offset one message at a time is in flight from now on.
    Free { suspect_until: Offset },
}

/// What is written down, and what is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided<T> {
    /// `None`: nothing has to be written.
    pub effect: Option<(Settlement, Change)>,
    pub answer: T,
}

impl Store {
    /// Pullers are a member of a group for a while. `true`: it is worth deciding anew who gets which lane.
    pub async fn pullers_touch(&self, group_id: GroupId, pause: Duration) -> Result<bool, Error> {
        let connection = self.connection().await?;
        Ok(connection.execute(&PULLERS_TOUCH, &[&group_id.0, &millis(pause)]).await? > 0)
    }

    /// Lanes that can be popped, apart from some, the longest wait first.
    pub async fn pops_find(
        &self,
        group_id: GroupId,
        left_out: &[PartitionId],
        limit: usize,
    ) -> Result<Vec<FreeLane>, Error> {
        let left_out: Vec<i64> = left_out.iter().map(|partition_id| partition_id.0).collect();
        let connection = self.connection().await?;
        let params: Params<'_> = &[&group_id.0, &PULLERS.0, &left_out, &(limit as i64)];
        let rows = connection.query(&POPS_FIND, params, Effect::None).await?;
        let mut lanes: Vec<FreeLane> = rows.iter().map(free_lane).collect();
        let found: Vec<i64> = lanes.iter().map(|lane| lane.at.partition_id.0).collect();
        if !found.is_empty() {
            for row in connection.query(&ATTEMPTS_LIST, &[&group_id.0, &found], Effect::None).await? {
                let partition_id = PartitionId(row.get("partition_id"));
                if let Some(lane) = lanes.iter_mut().find(|lane| lane.at.partition_id == partition_id) {
                    lane.at.failed.push(failed(&row));
                }
            }
        }
        Ok(lanes)
    }

    /// Gives a lane to a puller. `None`: somebody was faster, or has moved it past what has expired since it was seen.
    pub async fn pops_take(&self, take: &Take<'_>) -> Result<Option<Taken>, Error> {
        let PopKey { group_id, partition_id, epoch } = take.key;
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let now = Instant::now();
            let transaction = connection.begin().await?;
            let deadline_ms = millis(take.deadline);
            let params: Params<'_> = &[
                &group_id.0,
                &partition_id.0,
                &epoch.0,
                &PULLERS.0,
                &take.end.0,
                &deadline_ms,
                &take.open_until.0,
            ];
            let Some(row) = transaction.query_opt(&POPS_TAKE, params, Effect::Possible).await? else {
                transaction.rollback().await?;
                return Ok(None);
            };
            // What has expired is settled on a free lane, under the epoch that it has: then others are next by now.
            if newest_commit(&transaction, &take.key).await? != take.newest_commit {
                transaction.rollback().await?;
                return Ok(None);
            }
            let taken = Taken { epoch: Epoch(row.get("epoch")), until_at: row.get("popped_until_at") };
            if let Some(commit) = take.commit {
                let settlement = Settlement { commit: Some(commit.clone()), ..Settlement::default() };
                let fence = fence(&PopKey { epoch: taken.epoch, ..take.key });
                settle(&transaction, &fence, &settlement, now, &self.vault).await?;
                transaction.execute(&POPS_FREE, &[&group_id.0, &partition_id.0, &0_i64]).await?;
            }
            transaction.commit().await?;
            Ok(Some(taken))
        })
        .await
    }

    /// Settles a pop under its fence, as is decided on the lane as it is then: all of it, or nothing. `None`: the lane has another
    /// epoch, or a session holds it, and nothing happened.
    pub async fn pops_settle<T, E>(
        &self,
        key: &PopKey,
        decide: impl Fn(&PoppedLane) -> Result<Decided<T>, E>,
    ) -> Result<Option<Result<T, E>>, Error> {
        let PopKey { group_id, partition_id, epoch } = *key;
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let now = Instant::now();
            let transaction = connection.begin().await?;
            let params: Params<'_> = &[&group_id.0, &partition_id.0, &epoch.0];
            if transaction.query_opt(&POPS_LOCK, params, Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(None);
            }
            let Some((lane, wanted)) = show(&transaction, key).await? else {
                transaction.rollback().await?;
                return Ok(None);
            };
            match decide(&lane) {
                Ok(Decided { effect: Some((settlement, change)), answer }) => {
                    settle(&transaction, &fence(key), &settlement, now, &self.vault).await?;
                    apply(&transaction, key, change, wanted).await?;
                    transaction.commit().await?;
                    Ok(Some(Ok(answer)))
                }
                Ok(Decided { effect: None, answer }) => {
                    transaction.rollback().await?;
                    Ok(Some(Ok(answer)))
                }
                Err(refusal) => {
                    transaction.rollback().await?;
                    Ok(Some(Err(refusal)))
                }
            }
        })
        .await
    }

    /// The time of a pop counts from now. `None`: it is over.
    pub async fn pops_extend(&self, key: &PopKey, deadline: Duration) -> Result<Option<Timestamp>, Error> {
        let connection = self.connection().await?;
        let deadline_ms = millis(deadline);
        let params: Params<'_> = &[&key.group_id.0, &key.partition_id.0, &key.epoch.0, &deadline_ms];
        let row = connection.query_opt(&POPS_EXTEND, params, Effect::Possible).await?;
        Ok(row.map(|row| row.get("popped_until_at")))
    }

    /// Pops of a group whose time is over.
    pub async fn pops_expired(&self, group_id: GroupId) -> Result<Vec<PopKey>, Error> {
        let connection = self.connection().await?;
        let rows = connection.query(&POPS_EXPIRED, &[&group_id.0], Effect::None).await?;
        let key = |row: &Row| PopKey {
            group_id,
            partition_id: PartitionId(row.get("partition_id")),
            epoch: Epoch(row.get("epoch")),
        };
        Ok(rows.iter().map(key).collect())
    }
}

/// Epoch and number of the newest commit of a lane that is locked; zeros: there is none.
async fn newest_commit(transaction: &Connection, key: &PopKey) -> Result<(Epoch, i64), Error> {
    let params: Params<'_> = &[&key.group_id.0, &key.partition_id.0];
    let row = transaction.query_opt(&POPS_NEWEST, params, Effect::None).await?;
    Ok(row.map_or((Epoch(0), 0), |row| (Epoch(row.get("epoch")), row.get("number"))))
}

/// Whether pullers are a member of a group now.
pub(super) async fn pullers_live(transaction: &Connection, group_id: GroupId) -> Result<bool, Error> {
    let params: Params<'_> = &[&group_id.0, &millis(PULLERS_TTL)];
    let row = transaction.query_opt(&PULLERS_FIND, params, Effect::None).await?;
    Ok(row.is_some_and(|row| row.get("live")))
}

/// What [`settle`] looks at: the lock is taken already.
fn fence(key: &PopKey) -> Fence {
    let PopKey { group_id, partition_id, epoch } = *key;
    Fence { group_id, partition_id, epoch, session_id: PULLERS }
}

async fn show(
    transaction: &Connection,
    key: &PopKey,
) -> Result<Option<(PoppedLane, Option<SessionId>)>, Error> {
    let (group, partition) = (&key.group_id.0, &key.partition_id.0);
    let Some(row) = transaction.query_opt(&POPS_SHOW, &[group, partition], Effect::None).await? else {
        return Ok(None);
    };
    let mut lane = popped_lane(&row);
    for row in transaction.query(&ATTEMPTS_LIST, &[group, &vec![*partition]], Effect::None).await? {
        lane.at.failed.push(failed(&row));
    }
    Ok(Some((lane, row.get::<_, Option<Uuid>>("wanted_session").map(SessionId))))
}

/// A lane that a session is to have is told about; pullers look by themselves.
async fn apply(
    transaction: &Connection,
    key: &PopKey,
    change: Change,
    wanted: Option<SessionId>,
) -> Result<(), Error> {
    let (group, partition) = (&key.group_id.0, &key.partition_id.0);
    match change {
        Change::Keep => {}
        Change::EndsAt(end) => {
            transaction.execute(&POPS_CUT, &[group, partition, &end.0]).await?;
        }
        Change::Free { suspect_until } => {
            transaction.execute(&POPS_FREE, &[group, partition, &suspect_until.0]).await?;
            if wanted != Some(PULLERS) {
                transaction.query(&GROUPS_HINT, &[&vec![*group]], Effect::Possible).await?;
            }
        }
    }
    Ok(())
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Where a lane goes on, without what has failed there.
fn resume_at(row: &Row) -> ResumeAt {
    ResumeAt {
        parked: Vec::new(),
        partition_id: PartitionId(row.get("partition_id")),
        epoch: Epoch(row.get("epoch")),
        session_id: None,
        committed: Offset(row.get("committed_offset")),
        acked: ranges(row.get("acked")),
        start_offset: Offset(row.get("start_offset")),
        suspect_until: Offset(row.get("suspect_until")),
        failed: Vec::new(),
    }
}

fn free_lane(row: &Row) -> FreeLane {
    FreeLane {
        number: row.get::<_, i32>("number") as u32,
        next_offset: Offset(row.get("next_offset")),
        open_until: Offset(row.get("open_until_offset")),
        newest_commit: (Epoch(row.get("commit_epoch")), row.get("commit_number")),
        at: resume_at(row),
    }
}

fn popped_lane(row: &Row) -> PoppedLane {
    let end = row.get::<_, Option<i64>>("popped_end_offset").map(Offset);
    let now = Instant::now();
    let age = Duration::from_micros(row.get::<_, i64>("age_us").max(0) as u64);
    PoppedLane {
        at: resume_at(row),
        standing: match end {
            None => Standing::Over,
            Some(end) if row.get("open") => Standing::Open { end },
            Some(end) => Standing::Expired { end },
        },
        delivered_at: now.checked_sub(age).unwrap_or(now),
        commits: row.get("commits"),
    }
}
