//! Lanes: acquired by compare-and-set on the epoch, fenced by the lock of their row, released with the last commit.
//!
//! Invariant: every effect of a holder happens in a transaction that has locked the lane's row with its epoch and session
//! in the `WHERE`. No row, no effect: the lease is lost. The lock is one statement, what depends on it the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use uuid::Uuid;

use super::error::{Effect, Error};
use super::groups::GROUPS_HINT;
use super::groups::Ordering;
use super::messages::Message;
use super::parked::{KnownKey, Parking};
use super::query::query;
use super::times::{FailedAttempt, LaneTime, TimesUnderWay};
use super::vault::{Vault, stored};
use super::windows::Eviction;
use super::{Connection, Store, retry};
use crate::ids::{BrokerId, Epoch, GroupId, Offset, PartitionId, SessionId};

query!(BROKERS_HOLD = "brokers_hold"[UUID]);
query!(SESSIONS_HOLD = "sessions_hold"[UUID_ARRAY, UUID]);
query!(LANES_ACQUIRE = "lanes_acquire"[INT8, INT8_ARRAY, INT8_ARRAY, UUID_ARRAY, UUID]);
query!(LANES_RESUME_AT = "lanes_resume_at"[INT8, INT8_ARRAY, UUID]);
query!(LANES_LOCK_WAITING = "lanes_lock_waiting"[INT8, INT8, INT8, UUID]);
query!(LANES_RELEASE = "lanes_release"[INT8, INT8, INT8, UUID]);
query!(LANES_COUNT = "lanes_count"[]);
query!(LANE_COMMITS_RECORD = "lane_commits_record"[INT8, INT8, INT8, INT8, INT8, TEXT]);
query!(LANE_COMMITS_THIN = "lane_commits_thin"[INT8, INT8, INT8, INT8, INT8]);
query!(ATTEMPTS_LIST = "attempts_list"[INT8, INT8_ARRAY]);
query!(ATTEMPTS_CHARGE = "attempts_charge"[INT8, INT8, INT8, INT4, TEXT, INT8]);
query!(ATTEMPTS_FORGET = "attempts_forget"[INT8, INT8, INT8, TEXT]);
query!(
    DEAD_LETTERS_INSERT = "dead_letters_insert"[
        INT8, INT8, INT8, INT4, TEXT, TIMESTAMPTZ, UUID, INT8, INT8, BYTEA, TEXT, TEXT, TEXT, BYTEA, TEXT, UUID
    ]
);

/// A lane as it is stored: who holds it and who is to have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneRow {
    pub partition_id: PartitionId,
    /// The number of the partition, which people see.
    pub number: u32,
    pub epoch: Epoch,
    pub holder: Option<SessionId>,
    pub holder_broker: Option<BrokerId>,
    pub wanted: Option<SessionId>,
    /// Whether that is a member whose broker lives.
    pub wanted_lives: bool,
    pub avoided: Option<SessionId>,
    /// How much longer the holder may finish, if another is wanted.
    pub drain: Option<Duration>,
    pub pop: PopState,
}

/// Whether a puller has a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PopState {
    /// None has.
    None,
    /// One has: the lane is not free.
    Open,
    /// Its time is over: somebody has to free the lane.
    Expired,
}

/// A lane that its holder has, by everything a fence looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fence {
    pub group_id: GroupId,
    pub partition_id: PartitionId,
    pub epoch: Epoch,
    pub session_id: SessionId,
}

/// Where a lane goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeAt {
    pub partition_id: PartitionId,
    pub epoch: Epoch,
    pub session_id: Option<SessionId>,
    pub committed: Offset,
    /// Half-open ranges that are acknowledged beyond it.
    pub acked: Vec<(Offset, Offset)>,
    /// What retention has left begins here.
    pub start_offset: Offset,
    pub suspect_until: Offset,
    pub failed: Vec<Failed>,
    /// Keys whose messages are copied aside.
    pub parked: Vec<KnownKey>,
}

/// A message that has failed and is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    pub offset: Offset,
    pub attempts: u32,
    pub reason: String,
    pub retry_in: Duration,
}

/// What is done of a lane, numbered by its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub number: i64,
    pub committed: Offset,
    /// As a multirange.
    pub acked: String,
    /// When what is new in it was delivered and acknowledged.
    pub times: Arc<[LaneTime]>,
}

/// One more failure of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    pub offset: Offset,
    pub attempts: u32,
    pub reason: String,
    pub delay: Duration,
}

/// A message that the group gives up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    pub message: Message,
    pub attempts: u32,
    pub reason: String,
}

/// How a holder lets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// Below this offset one message at a time is in flight from now on.
    pub suspect_until: Offset,
    /// Who must not get it back, unless nobody else can take it.
    pub avoided: Option<SessionId>,
}

/// Everything that one transaction does to a lane, under its fence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settlement {
    pub commit: Option<Commit>,
    pub charge: Option<Charge>,
    pub dead_letter: Option<DeadLetter>,
    /// Told with the commit, and only if that is new.
    pub failure: Option<FailedAttempt>,
    /// What has expired; told as a failure is.
    pub eviction: Option<Eviction>,
    /// What becomes of parked keys. Boxed: it is rare.
    pub parking: Option<Box<Parking>>,
    /// Times of a commit that a release may overtake: it tells them in its place.
    pub under_way: Option<TimesUnderWay>,
    pub release: Option<Release>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// Done, but a parked key that was to go on has copies, or is not released: it stays.
    KeyKept,
    /// The lane has another holder or epoch: nothing happened.
    LeaseLost,
}

impl Store {
    /// How many there are.
    pub async fn lanes_count(&self) -> Result<i64, Error> {
        let connection = self.connection().await?;
        let row = connection.query_opt(&LANES_COUNT, &[], Effect::None).await?;
        Ok(row.map_or(0, |row| row.get("lanes")))
    }

    /// Acquires free lanes for the sessions that are to have them. Returns those obtained, with where they go on.
    pub async fn lanes_acquire(
        &self,
        group_id: GroupId,
        broker_id: BrokerId,
        wanted: &[LaneRow],
        ordering: Ordering,
    ) -> Result<Vec<ResumeAt>, Error> {
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let transaction = connection.begin().await?;
            if transaction.query_opt(&BROKERS_HOLD, &[&broker_id.0], Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(Vec::new());
            }
            let here = sessions_here(&transaction, broker_id, wanted).await?;
            let wanted: Vec<&LaneRow> = wanted
                .iter()
                .filter(|lane| lane.wanted.is_some_and(|wanted| here.contains(&wanted.0)))
                .collect();
            let partition_ids: Vec<i64> = wanted.iter().map(|lane| lane.partition_id.0).collect();
            let epochs: Vec<i64> = wanted.iter().map(|lane| lane.epoch.0).collect();
            let sessions: Vec<Option<Uuid>> =
                wanted.iter().map(|lane| lane.wanted.map(|session_id| session_id.0)).collect();
            let params: super::connection::Params<'_> =
                &[&group_id.0, &partition_ids, &epochs, &sessions, &broker_id.0];
            let rows = transaction.query(&LANES_ACQUIRE, params, Effect::Possible).await?;
            let obtained: Vec<i64> = rows.iter().map(|row| row.get("partition_id")).collect();
            let resumed = resume_at(&transaction, group_id, broker_id, &obtained, ordering).await?;
            transaction.commit().await?;
            Ok(resumed)
        })
        .await
    }

    /// Where lanes go on that somebody holds already: after their session has come to this broker.
    pub async fn lanes_resume_at(
        &self,
        group_id: GroupId,
        broker_id: BrokerId,
        partition_ids: &[PartitionId],
        ordering: Ordering,
    ) -> Result<Vec<ResumeAt>, Error> {
        let partition_ids: Vec<i64> = partition_ids.iter().map(|partition_id| partition_id.0).collect();
        let connection = self.connection().await?;
        resume_at(&connection, group_id, broker_id, &partition_ids, ordering).await
    }

    /// Settles a lane under its fence: all of it, or nothing.
    pub async fn lane_settle(&self, fence: &Fence, settlement: &Settlement) -> Result<Settled, Error> {
        retry::contended(retry::Policy::CONTENDED, || async {
            let mut connection = self.connection().await?;
            let now = Instant::now();
            let transaction = connection.begin().await?;
            let params: super::connection::Params<'_> =
                &[&fence.group_id.0, &fence.partition_id.0, &fence.epoch.0, &fence.session_id.0];
            if transaction.query_opt(&LANES_LOCK_WAITING, params, Effect::None).await?.is_none() {
                transaction.rollback().await?;
                return Ok(Settled::LeaseLost);
            }
            let settled = settle(&transaction, fence, settlement, now, &self.vault).await?;
            transaction.commit().await?;
            Ok(settled)
        })
        .await
    }

    /// Drops commits of a lane that the one numbered `before` has replaced.
    pub async fn lane_commits_thin(&self, fence: &Fence, since: i64, before: i64) -> Result<(), Error> {
        let connection = self.connection().await?;
        let params: super::connection::Params<'_> =
            &[&fence.group_id.0, &fence.partition_id.0, &fence.epoch.0, &since, &before];
        connection.execute(&LANE_COMMITS_THIN, params).await.map(|_| ())
    }
}

/// The wanted sessions that live at a broker, kept there until the transaction ends.
async fn sessions_here(
    transaction: &Connection,
    broker_id: BrokerId,
    wanted: &[LaneRow],
) -> Result<Vec<Uuid>, Error> {
    let sessions: Vec<Uuid> =
        wanted.iter().filter_map(|lane| lane.wanted).map(|session_id| session_id.0).collect();
    let rows = transaction.query(&SESSIONS_HOLD, &[&sessions, &broker_id.0], Effect::None).await?;
    Ok(rows.iter().map(|row| row.get("session_id")).collect())
}

async fn resume_at(
    connection: &Connection,
    group_id: GroupId,
    broker_id: BrokerId,
    partition_ids: &[i64],
    ordering: Ordering,
) -> Result<Vec<ResumeAt>, Error> {
    let held: super::connection::Params<'_> = &[&group_id.0, &partition_ids, &broker_id.0];
    let rows = connection.query(&LANES_RESUME_AT, held, Effect::None).await?;
    let params: super::connection::Params<'_> = &[&group_id.0, &partition_ids];
    let mut lanes: Vec<ResumeAt> = rows.iter().map(resume_row).collect();
    for row in connection.query(&ATTEMPTS_LIST, params, Effect::None).await? {
        let partition_id = PartitionId(row.get("partition_id"));
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.partition_id == partition_id) {
            lane.failed.push(failed(&row));
        }
    }
    if ordering == Ordering::Key {
        for key in connection.parked_keys_of(group_id, partition_ids).await? {
            if let Some(lane) = lanes.iter_mut().find(|lane| lane.partition_id == key.partition_id) {
                lane.parked.push(key);
            }
        }
    }
    Ok(lanes)
}

/// `now`: the moment right before the transaction was begun.
pub(super) async fn settle(
    transaction: &Connection,
    fence: &Fence,
    settlement: &Settlement,
    now: Instant,
    vault: &Vault,
) -> Result<Settled, Error> {
    let (group, partition) = (&fence.group_id.0, &fence.partition_id.0);
    // Order: the commit first. Its number tells whether all of this was stored before, and only the answer was lost: then somebody may
    // have replayed or dropped what it has put aside, and that stands.
    let settled = match record_commit(transaction, fence, settlement.commit.as_ref()).await? {
        Recorded::Now => take_effect(transaction, fence, settlement, now, vault).await?,
        Recorded::Before => Settled::Done,
    };
    if let Some(Commit { committed, acked, .. }) = &settlement.commit {
        transaction.execute(&ATTEMPTS_FORGET, &[group, partition, &committed.0, acked]).await?;
    }
    if let Some(Release { suspect_until, avoided }) = settlement.release {
        let avoided = avoided.map(|session_id| session_id.0);
        transaction.execute(&LANES_RELEASE, &[group, partition, &suspect_until.0, &avoided]).await?;
        transaction.query(&GROUPS_HINT, &[&vec![fence.group_id.0]], Effect::Possible).await?;
    }
    Ok(settled)
}

/// Whether a settlement is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorded {
    Now,
    Before,
}

/// Stores the commit of a settlement. One without is new each time: nothing of it is known to be there.
async fn record_commit(
    transaction: &Connection,
    fence: &Fence,
    commit: Option<&Commit>,
) -> Result<Recorded, Error> {
    let Some(Commit { number, committed, acked, .. }) = commit else { return Ok(Recorded::Now) };
    let Fence { group_id, partition_id, epoch, .. } = fence;
    let params: super::connection::Params<'_> =
        &[&group_id.0, &partition_id.0, &epoch.0, number, &committed.0, acked];
    Ok(match transaction.execute(&LANE_COMMITS_RECORD, params).await? {
        0 => Recorded::Before,
        _ => Recorded::Now,
    })
}

/// What follows from a settlement beside its commit and its release.
async fn take_effect(
    transaction: &Connection,
    fence: &Fence,
    settlement: &Settlement,
    now: Instant,
    vault: &Vault,
) -> Result<Settled, Error> {
    if let Some(Charge { offset, attempts, reason, delay }) = &settlement.charge {
        let (attempts, delay_ms) = (*attempts as i32, delay.as_millis() as i64);
        let params: super::connection::Params<'_> =
            &[&fence.group_id.0, &fence.partition_id.0, &offset.0, &attempts, reason, &delay_ms];
        transaction.execute(&ATTEMPTS_CHARGE, params).await?;
    }
    if let Some(dead_letter) = &settlement.dead_letter {
        bury_message(transaction, fence, dead_letter, vault).await?;
    }
    if let Some(eviction) = &settlement.eviction {
        transaction.collect_dead_letters(fence, &eviction.dead_letters, vault).await?;
        transaction.record_eviction(fence, eviction).await?;
    }
    let mut settled = Settled::Done;
    if let Some(parking) = &settlement.parking {
        settled = transaction.settle_parking(fence, parking, vault).await?;
        transaction.record_parks(fence, parking).await?;
    }
    if settlement.commit.is_some() {
        transaction.settle_times(fence, settlement, now).await?;
    }
    Ok(settled)
}

async fn bury_message(
    transaction: &Connection,
    fence: &Fence,
    dead: &DeadLetter,
    vault: &Vault,
) -> Result<(), Error> {
    let message = &dead.message;
    let copies = transaction.seal_copies(vault, fence.partition_id, &[message]).await?;
    let copy = &copies[0];
    let attempts = dead.attempts as i32;
    let cause_partition_id = message.cause.map(|cause| cause.partition_id.0);
    let cause_offset = message.cause.map(|cause| cause.offset.0);
    let key = message.key.as_deref();
    let payload = stored(message, copy);
    let data_key_id = copy.as_ref().map(|copy| copy.data_key_id().0);
    let params: super::connection::Params<'_> = &[
        &fence.group_id.0,
        &fence.partition_id.0,
        &message.offset.0,
        &attempts,
        &dead.reason,
        &message.published_at,
        &message.trace_id.0,
        &cause_partition_id,
        &cause_offset,
        &key,
        &message.transaction_id,
        &message.headers,
        &message.content_type,
        &payload,
        &message.producer,
        &data_key_id,
    ];
    transaction.execute(&DEAD_LETTERS_INSERT, params).await.map(|_| ())
}

pub(super) fn lane_row(row: &Row) -> LaneRow {
    let session = |name| row.get::<_, Option<Uuid>>(name).map(SessionId);
    LaneRow {
        partition_id: PartitionId(row.get("partition_id")),
        number: row.get::<_, i32>("number") as u32,
        epoch: Epoch(row.get("epoch")),
        holder: session("session_id"),
        holder_broker: row.get::<_, Option<Uuid>>("broker_id").map(BrokerId),
        wanted: session("wanted_session"),
        wanted_lives: row.get("wanted_lives"),
        avoided: session("avoided_session"),
        drain: row.get::<_, Option<i64>>("drain_ms").map(|ms| Duration::from_millis(ms.max(0) as u64)),
        pop: match row.get("pop") {
            "none" => PopState::None,
            "open" => PopState::Open,
            _ => PopState::Expired,
        },
    }
}

fn resume_row(row: &Row) -> ResumeAt {
    ResumeAt {
        partition_id: PartitionId(row.get("partition_id")),
        epoch: Epoch(row.get("epoch")),
        session_id: row.get::<_, Option<Uuid>>("session_id").map(SessionId),
        committed: Offset(row.get("committed_offset")),
        acked: ranges(row.get("acked")),
        start_offset: Offset(row.get("start_offset")),
        suspect_until: Offset(row.get("suspect_until")),
        failed: Vec::new(),
        parked: Vec::new(),
    }
}

pub(super) fn failed(row: &Row) -> Failed {
    Failed {
        offset: Offset(row.get("offset")),
        attempts: row.get::<_, i32>("attempts") as u32,
        reason: row.get("reason"),
        retry_in: Duration::from_millis(row.get::<_, i64>("retry_in_ms") as u64),
    }
}

/// Reads a multirange of bigints as Postgres writes it: `{[1,3),[7,8)}`.
pub(super) fn ranges(text: &str) -> Vec<(Offset, Offset)> {
    let numbers: Vec<i64> =
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
    numbers.chunks_exact(2).map(|pair| (Offset(pair[0]), Offset(pair[1]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multirange_is_read_as_postgres_writes_it() {
        assert_eq!(ranges("{}"), []);
        assert_eq!(ranges("{[1,3),[7,8)}"), [(Offset(1), Offset(3)), (Offset(7), Offset(8))]);
    }
}
