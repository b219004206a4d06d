//! Appends messages to their partitions when they are due, if this broker is the first to do it.
//!
//! Every broker has one such task and any of them may do all the work: what is due is taken under the lock of its partition,
//! by the transaction that appends it. It sleeps until something is due that it knows of; the alarm tells it of what was
//! scheduled here, and a bounded poll finds what others have scheduled and died over.
//! Why a floor: under somebody's old snapshot, what was taken stays in the index of due times, and a look from the very first
//! would take longer with every message. Nothing that waits is due before the floor, but for what the margin, the alarm and a
//! look from the very first now and then find.
//! Why apart: whatever makes the database refuse one message, or takes it too long, holds up no partition but its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rand::Rng as _;
use tokio_util::sync::CancellationToken;

use crate::broker::announce::Announcer;
use crate::broker::schedules::After;
use crate::broker::schedules::alarm::Alarm;
use crate::broker::schedules::queueing::Queueing;
use crate::broker::schedules::room::{Apart, Lot, Room};
use crate::broker::thinning::Thinning;
use crate::ids::PartitionId;
use crate::limits::{
    EFFECT_RETRY_PAUSE, LAG_PAUSE_FACTOR, REPLAY_TRIES_MAX, SCHEDULE_COMMIT_MAX, SCHEDULE_FIRE_PAUSE,
    SCHEDULE_FULL_LOOK_INTERVAL, SCHEDULE_HELD_PAUSE, SCHEDULE_POLL_INTERVAL, SCHEDULE_YIELD_PAUSE,
    SCHEDULES_PER_FIRE_MAX,
};
use crate::store::fires::{FireOutcome, Fired, Look, Portion};
use crate::store::flush::LockMode;
use crate::store::segments::Extended;
use crate::store::{Connection, Error, Role, Store};

/// Before anything that can wait: a due time is never before the moment of scheduling.
const THE_VERY_FIRST: Timestamp = Timestamp::UNIX_EPOCH;
/// Pause while another broker makes the same tables.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Who is told that a partition has grown.
#[derive(Debug)]
pub struct Told {
    pub announcer: Announcer,
    pub thinning: Thinning,
}

struct Firing {
    store: Store,
    connection: Option<Connection>,
    /// Nothing that waits is due before, as far as is known.
    floor: Timestamp,
    /// When it looks again if nothing comes sooner, on the database clock; the first of all times while it does not listen.
    wakes_at: Timestamp,
    /// Partitions that somebody else held a moment ago: the next look leaves them out.
    busy: Vec<PartitionId>,
    /// Failed turns in a row.
    failures: u32,
    told: Told,
    after: After,
    room: Room,
    /// Partitions of topics that are full, and those that have failed alone: what is due there waits until the moment.
    held: BTreeMap<PartitionId, Instant>,
    /// Partitions that were part of a fire that failed, until one succeeds.
    apart: BTreeMap<PartitionId, Apart>,
    queueing: Queueing,
}

/// Runs until stopped. An error is logged and the next turn tries again: what is due stays due.
pub async fn run(store: Store, told: Told, after: After, room: Room, stop: CancellationToken) {
    let alarm = after.alarm.clone();
    let work =
        async { tokio::join!(fire(&store, told, after, room), look_from_the_very_first(&store, &alarm)) };
    stop.run_until_cancelled(work).await;
}

/// Cancel safety: a transaction that is dropped half-way takes its connection with it, and happens whole or not at all.
async fn fire(store: &Store, told: Told, after: After, room: Room) {
    let alarm = &after.alarm.clone();
    let mut firing = Firing {
        store: store.clone(),
        connection: None,
        floor: THE_VERY_FIRST,
        wakes_at: Timestamp::MIN,
        busy: Vec::new(),
        failures: 0,
        told,
        after,
        room,
        held: BTreeMap::new(),
        apart: BTreeMap::new(),
        queueing: Queueing::default(),
    };
    loop {
        firing.hear(alarm);
        let pause = match firing.turn().await {
            Ok(pause) => {
                firing.failures = 0;
                pause
            }
            Err(error) => firing.on_failed(&error),
        };
        let until = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = alarm.rung() => if firing.hear(alarm) { break },
                () = tokio::time::sleep_until(until) => break,
            }
        }
    }
}

/// What took longer to commit than the margin allows is found now and then, beside the firing: under somebody's old snapshot
/// this look may take long.
async fn look_from_the_very_first(store: &Store, alarm: &Alarm) {
    let mut pause = SCHEDULE_FULL_LOOK_INTERVAL;
    loop {
        tokio::time::sleep(pause).await;
        let started = Instant::now();
        let look = async { store.connection().await?.schedules_look(THE_VERY_FIRST, &[], &[]).await };
        match look.await {
            Ok(look) => look.first_due_at.into_iter().for_each(|due_at| alarm.ring(due_at)),
            Err(error) => tracing::debug!(%error, "a look from the very first failed; the next one comes"),
        }
        pause = SCHEDULE_FULL_LOOK_INTERVAL.max(started.elapsed() * LAG_PAUSE_FACTOR);
    }
}

impl Firing {
    /// Something was scheduled or moved. Returns whether it is due before the next look.
    fn hear(&mut self, alarm: &Alarm) -> bool {
        let Some(due_at) = alarm.take() else { return false };
        self.floor = self.floor.min(due_at);
        due_at < self.wakes_at
    }

    /// Appends what is due now. Returns how long to wait for the next turn.
    async fn turn(&mut self) -> Result<Duration, Error> {
        self.wakes_at = Timestamp::MIN;
        let busy = std::mem::take(&mut self.busy);
        self.connect().await?; // which may lower the floor
        let from = self.floor;
        self.release();
        let held: Vec<PartitionId> = self.held.keys().copied().collect();
        let look = self.connect().await?.schedules_look(from, &busy, &held).await?;
        self.floor = floor_after(&look);
        if look.due.is_empty() && !busy.is_empty() {
            return Ok(SCHEDULE_YIELD_PAUSE);
        }
        if look.due.is_empty() {
            let pause = self.pause_before(look.first_in);
            self.wakes_at = look.looked_at.checked_add(pause).unwrap_or(Timestamp::MAX);
            return Ok(pause);
        }
        let mut pause = None;
        let queued = self.queueing.chosen(&look.due);
        let mut apart = self.apart.clone();
        queued.iter().for_each(|partition_id| _ = apart.entry(*partition_id).or_insert(Apart::Alone));
        for lot in Lot::of(&look, &apart) {
            let Some(grant) = self.room.admit(&lot).await else {
                self.hold(&lot);
                continue;
            };
            let is_all = grant.portion.messages() == lot.rows.len() as u64;
            let mode = if lot.partitions().is_subset(&queued) { LockMode::Queue } else { LockMode::Skip };
            let next = match self.fire(&grant.portion, mode).await? {
                SCHEDULE_FIRE_PAUSE if !is_all => Duration::ZERO,
                next => next,
            };
            pause = Some(pause.map_or(next, |pause: Duration| pause.min(next)));
        }
        match pause {
            Some(SCHEDULE_FIRE_PAUSE) if look.due.len() as i64 >= SCHEDULES_PER_FIRE_MAX => {
                Ok(Duration::ZERO)
            }
            pause => Ok(pause.unwrap_or(Duration::ZERO)), // what was held is left out by the next look
        }
    }

    /// Appends some of what is due. Returns how long to wait for the next turn.
    async fn fire(&mut self, portion: &Portion, mode: LockMode) -> Result<Duration, Error> {
        let (sent, from) = (Instant::now(), self.floor);
        match self.connect().await?.schedules_fire(from, portion, mode).await {
            FireOutcome::Committed(fired) => Ok(self.on_fired(portion, fired, sent.elapsed())),
            FireOutcome::NothingHappened(Error::NoSegment { relation }) => {
                tracing::debug!(relation, "a table is missing");
                self.connection = None; // a session may have missed a table that was attached meanwhile
                self.extend(portion).await?;
                Ok(Duration::ZERO)
            }
            FireOutcome::NothingHappened(Error::Contended { .. }) => {
                if mode == LockMode::Queue {
                    let now = Instant::now();
                    portion.partitions.keys().for_each(|id| self.queueing.on_waited_in_vain(*id, now));
                }
                Ok(SCHEDULE_YIELD_PAUSE)
            }
            FireOutcome::NothingHappened(error) | FireOutcome::Unknown(error) => {
                self.on_not_fired(portion, error, sent.elapsed())
            }
        }
    }

    /// What was to go together goes apart from now on: first each partition, then each message.
    fn on_not_fired(&mut self, portion: &Portion, error: Error, took: Duration) -> Result<Duration, Error> {
        let is_usable = self.connection.as_ref().is_some_and(Connection::is_usable);
        let mut partitions = portion.partitions.keys().copied();
        match (partitions.next(), partitions.next()) {
            (Some(partition_id), None) if is_usable => {
                let pause = match self.apart.insert(partition_id, Apart::Single) {
                    Some(Apart::Single) => took * LAG_PAUSE_FACTOR,
                    Some(Apart::Alone) | None => {
                        tracing::warn!(%error, partition = %partition_id, "what is due in a partition cannot be appended");
                        Duration::ZERO
                    }
                };
                let pause = pause.clamp(EFFECT_RETRY_PAUSE, SCHEDULE_FULL_LOOK_INTERVAL);
                self.held.insert(partition_id, Instant::now() + pause);
                Ok(Duration::ZERO)
            }
            (Some(_), None) | (None, _) => Err(error), // the connection, and not what was sent
            (Some(_), Some(_)) => {
                for partition_id in portion.partitions.keys() {
                    self.apart.entry(*partition_id).or_insert(Apart::Alone);
                }
                Err(error)
            }
        }
    }

    /// The topic is full: what is due there waits.
    fn hold(&mut self, lot: &Lot) {
        tracing::debug!(topic.name = lot.topic, messages = lot.rows.len(), "what is due waits for room");
        let until = Instant::now() + SCHEDULE_HELD_PAUSE;
        self.held.extend(lot.partitions().into_iter().map(|partition_id| (partition_id, until)));
        self.after.metrics.schedules_held.set(self.held.len() as i64);
    }

    /// What was held for long enough is looked at again.
    fn release(&mut self) {
        let now = Instant::now();
        self.held.retain(|_, until| *until > now);
        self.after.metrics.schedules_held.set(self.held.len() as i64);
    }

    /// Until what is due first, or what is held is looked at again.
    fn pause_before(&self, first_in: Option<Duration>) -> Duration {
        let now = Instant::now();
        let held = self.held.values().min().map(|until| until.saturating_duration_since(now));
        held.into_iter().fold(pause_before(first_in), Duration::min)
    }

    /// A connection that is new begins from the very first: it may lead to another timeline.
    async fn connect(&mut self) -> Result<&Connection, Error> {
        if !self.connection.as_ref().is_some_and(Connection::is_usable) {
            self.connection = None;
        }
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => {
                self.floor = THE_VERY_FIRST;
                Ok(none.insert(self.store.dedicated(Role::Appender).await?))
            }
        }
    }

    /// Says so once, until it works again.
    fn on_failed(&mut self, error: &Error) -> Duration {
        match self.failures {
            0 => tracing::warn!(%error, "what is due waits for the database"),
            _ => tracing::debug!(%error, "what is due still waits for the database"),
        }
        self.failures = self.failures.saturating_add(1);
        self.connection = None;
        EFFECT_RETRY_PAUSE.mul_f64(rand::rng().random_range(0.5..1.0))
    }

    fn on_fired(&mut self, asked: &Portion, fired: Vec<Fired>, took: Duration) -> Duration {
        let mut messages = 0;
        for Fired { partition_id, next_offset, messages: some, bytes, lateness } in &fired {
            self.told.announcer.on_appended(*partition_id, *next_offset);
            self.told.thinning.on_wrote(*partition_id);
            self.after.tables.on_fired(*partition_id, *next_offset);
            self.after.metrics.published_messages.inc_by(*some);
            self.after.metrics.published_bytes.inc_by(*bytes);
            lateness
                .iter()
                .for_each(|late| self.after.metrics.schedule_lateness.observe((*late + took).as_secs_f64()));
            messages += *some;
            self.queueing.on_fired(*partition_id);
            // A message that went by itself says nothing about the next one.
            if self.apart.remove(partition_id) == Some(Apart::Single) {
                self.apart.insert(*partition_id, Apart::Alone);
            }
        }
        self.after.metrics.schedules_fired.inc_by(messages);
        let is_fired = |partition_id: &PartitionId| fired.iter().any(|one| one.partition_id == *partition_id);
        for partition_id in asked.partitions.keys().filter(|partition_id| !is_fired(partition_id)) {
            self.busy.push(*partition_id);
            self.queueing.on_skipped(*partition_id, Instant::now());
        }
        match messages {
            0 => SCHEDULE_YIELD_PAUSE.mul_f64(rand::rng().random_range(0.5..1.0)),
            _ => SCHEDULE_FIRE_PAUSE,
        }
    }

    /// Makes tables for as much as one fire appends.
    async fn extend(&self, portion: &Portion) -> Result<(), Error> {
        for partition_id in portion.partitions.keys() {
            for _ in 0..REPLAY_TRIES_MAX {
                match self.store.tables_extend(*partition_id, SCHEDULES_PER_FIRE_MAX as usize).await? {
                    Extended::Covered { .. } | Extended::Gone => break,
                    Extended::Busy => tokio::time::sleep(BUSY_PAUSE).await,
                }
            }
        }
        Ok(())
    }
}

/// Where the next look begins: at what waits first, but for what may be on its way to be committed.
fn floor_after(look: &Look) -> Timestamp {
    let margin = SignedDuration::try_from(SCHEDULE_COMMIT_MAX).unwrap_or(SignedDuration::ZERO);
    let settled = look.looked_at.checked_sub(margin).unwrap_or(THE_VERY_FIRST);
    look.first_due_at.map_or(settled, |first| first.min(settled))
}

/// Until what is due first, and not for ever: others schedule, too.
fn pause_before(first_in: Option<Duration>) -> Duration {
    first_in.map_or(SCHEDULE_POLL_INTERVAL, |first_in| first_in.min(SCHEDULE_POLL_INTERVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn look(first_due_at: Option<&str>) -> Look {
        let looked_at = at("2026-11-16T12:00:10Z");
        let first_due_at = first_due_at.map(at);
        Look { looked_at, first_due_at, first_in: None, due: Vec::new(), limited: Vec::new() }
    }

    #[test]
    fn the_floor_rises_to_what_waits_first_or_to_what_may_still_be_committed() {
        let settled = at("2026-11-16T12:00:08Z");
        assert_eq!(floor_after(&look(None)), settled);
        assert_eq!(floor_after(&look(Some("2026-11-16T13:00:00Z"))), settled);
        let overdue = "2026-11-16T12:00:01Z";
        assert_eq!(floor_after(&look(Some(overdue))), at(overdue));
    }

    #[test]
    fn it_sleeps_until_something_is_due_but_never_long() {
        assert_eq!(pause_before(None), SCHEDULE_POLL_INTERVAL);
        assert_eq!(pause_before(Some(Duration::from_millis(40))), Duration::from_millis(40));
        assert_eq!(pause_before(Some(Duration::from_secs(86_400))), SCHEDULE_POLL_INTERVAL);
        assert_eq!(pause_before(Some(Duration::ZERO)), Duration::ZERO, "it is due by now");
    }
}
