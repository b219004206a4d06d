//! Appends messages to their partitions when they are due, if this broker is the first to do it.
//!
//! Every broker has one such task and any of them may do all the work: what is due is taken under the lock of its partition,
//! by the transaction that appends it. It sleeps until something is due that it knows of; the alarm tells it of what was
//! scheduled here, and a bounded poll finds what others have scheduled and died over.
//! Why a floor: under somebody's old snapshot, what was taken stays in the index of due times, and a look from the very first
//! would take longer with every message. Nothing that waits is due before the floor, but for what the margin, the alarm and a
//! look from the very first now and then find.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rand::Rng as _;
use tokio_util::sync::CancellationToken;

use crate::broker::announce::Announcer;
use crate::broker::schedules::After;
use crate::broker::schedules::alarm::Alarm;
use crate::broker::schedules::room::{Room, TopicDue};
use crate::ids::PartitionId;
use crate::limits::{
    EFFECT_RETRY_PAUSE, LAG_PAUSE_FACTOR, REPLAY_TRIES_MAX, SCHEDULE_COMMIT_MAX, SCHEDULE_FIRE_PAUSE,
    SCHEDULE_FULL_LOOK_INTERVAL, SCHEDULE_HELD_PAUSE, SCHEDULE_POLL_INTERVAL, SCHEDULE_YIELD_PAUSE,
    SCHEDULES_PER_FIRE_MAX,
};
use crate::store::schedules::{FireOutcome, Fired, Look};
use crate::store::segments::Extended;
use crate::store::{Connection, Error, Role, Store};

/// Before anything that can wait: a due time is never before the moment of scheduling.
const THE_VERY_FIRST: Timestamp = Timestamp::UNIX_EPOCH;
/// Pause while another broker makes the same tables.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

struct Firing {
    store: Store,
    connection: Option<Connection>,
    /// Nothing that waits is due before, as far as is known.
    floor: Timestamp,
    /// What is due first, as far as is known.
    first_due: Option<Timestamp>,
    /// Partitions that somebody else held a moment ago: the next look leaves them out.
    busy: Vec<PartitionId>,
    /// Failed turns in a row.
    failures: u32,
    announcer: Announcer,
    after: After,
    room: Room,
    /// Partitions of topics that are full: what is due there waits, and is looked at again after this moment.
    held: Vec<PartitionId>,
    held_until: Instant,
}

/// Runs until stopped. An error is logged and the next turn tries again: what is due stays due.
pub async fn run(store: Store, announcer: Announcer, after: After, room: Room, stop: CancellationToken) {
    let alarm = after.alarm.clone();
    let work = async {
        tokio::join!(fire(&store, announcer, after, room), look_from_the_very_first(&store, &alarm))
    };
    stop.run_until_cancelled(work).await;
}

/// Cancel safety: a transaction that is dropped half-way takes its connection with it, and happens whole or not at all.
async fn fire(store: &Store, announcer: Announcer, after: After, room: Room) {
    let alarm = &after.alarm.clone();
    let mut firing = Firing {
        store: store.clone(),
        connection: None,
        floor: THE_VERY_FIRST,
        first_due: None,
        busy: Vec::new(),
        failures: 0,
        announcer,
        after,
        room,
        held: Vec::new(),
        held_until: Instant::now(),
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
    /// Something was scheduled or moved. Returns whether it is due sooner than anything that is known.
    fn hear(&mut self, alarm: &Alarm) -> bool {
        let Some(due_at) = alarm.take() else { return false };
        self.floor = self.floor.min(due_at);
        self.first_due.is_none_or(|first| due_at < first)
    }

    /// Appends what is due now. Returns how long to wait for the next turn.
    async fn turn(&mut self) -> Result<Duration, Error> {
        let busy = std::mem::take(&mut self.busy);
        self.connect().await?; // which may lower the floor
        let from = self.floor;
        if self.held_until <= Instant::now() {
            self.release();
        }
        let held = self.held.clone();
        let look = self.connect().await?.schedules_look(from, &busy, &held).await?;
        self.floor = floor_after(&look);
        self.first_due = look.first_due_at;
        if look.partitions.is_empty() {
            return Ok(self.pause_before(look.first_in));
        }
        let is_limited = |id: &PartitionId| look.limited.iter().any(|limited| limited.partition_id == *id);
        let free: Vec<PartitionId> = look.partitions.iter().copied().filter(|id| !is_limited(id)).collect();
        let mut pause = match free.is_empty() {
            true => None,
            false => Some(self.fire(free, SCHEDULES_PER_FIRE_MAX).await?),
        };
        for due in TopicDue::by_topic(&look.limited) {
            match self.room.admit(&due).await {
                Some(grant) => {
                    let next = self.fire(grant.partitions.clone(), grant.messages).await?;
                    pause = Some(pause.map_or(next, |pause| pause.min(next)));
                }
                None => self.hold(due),
            }
        }
        Ok(pause.unwrap_or(Duration::ZERO)) // what was held is left out by the next look
    }

    /// Appends what is due in these partitions, up to so many messages. Returns how long to wait for the next turn.
    async fn fire(&mut self, partitions: Vec<PartitionId>, messages_max: i64) -> Result<Duration, Error> {
        let (sent, from) = (Instant::now(), self.floor);
        match self.connect().await?.schedules_fire(from, &partitions, messages_max).await {
            FireOutcome::Committed(fired) => {
                Ok(self.on_fired(partitions, fired, messages_max, sent.elapsed()))
            }
            FireOutcome::NothingHappened(Error::NoSegment { relation }) => {
                tracing::debug!(relation, "a table is missing");
                self.connection = None; // a session may have missed a table that was attached meanwhile
                self.extend(&partitions).await?;
                Ok(Duration::ZERO)
            }
            FireOutcome::NothingHappened(Error::Contended { .. }) => Ok(SCHEDULE_YIELD_PAUSE),
            FireOutcome::NothingHappened(error) | FireOutcome::Unknown(error) => Err(error),
        }
    }

    /// The topic is full: what is due there waits.
    fn hold(&mut self, due: TopicDue) {
        tracing::debug!(topic.name = due.topic, messages = due.messages, "what is due waits for room");
        self.held_until = Instant::now() + SCHEDULE_HELD_PAUSE;
        self.held.extend(due.partitions);
        self.after.metrics.schedules_held.set(self.held.len() as i64);
    }

    /// What was held is looked at again.
    fn release(&mut self) {
        self.held.clear();
        self.after.metrics.schedules_held.set(0);
    }

    /// Until what is due first, or what is held is looked at again.
    fn pause_before(&self, first_in: Option<Duration>) -> Duration {
        let pause = pause_before(first_in);
        match self.held.is_empty() {
            true => pause,
            false => pause.min(self.held_until.saturating_duration_since(Instant::now())),
        }
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

    fn on_fired(
        &mut self,
        asked: Vec<PartitionId>,
        fired: Vec<Fired>,
        messages_max: i64,
        took: Duration,
    ) -> Duration {
        let mut messages = 0;
        for Fired { partition_id, next_offset, messages: some, bytes, lateness } in &fired {
            self.announcer.on_appended(*partition_id, *next_offset);
            self.after.tables.on_fired(*partition_id, *next_offset);
            self.after.metrics.published_messages.inc_by(*some);
            self.after.metrics.published_bytes.inc_by(*bytes);
            lateness
                .iter()
                .for_each(|late| self.after.metrics.schedule_lateness.observe((*late + took).as_secs_f64()));
            messages += *some;
        }
        self.after.metrics.schedules_fired.inc_by(messages);
        let is_fired = |partition_id: &PartitionId| fired.iter().any(|one| one.partition_id == *partition_id);
        self.busy.extend(asked.into_iter().filter(|partition_id| !is_fired(partition_id)));
        match messages {
            0 => SCHEDULE_YIELD_PAUSE.mul_f64(rand::rng().random_range(0.5..1.0)),
            many if many >= messages_max.unsigned_abs() => Duration::ZERO,
            _ => SCHEDULE_FIRE_PAUSE,
        }
    }

    /// Makes tables for as much as one fire appends.
    async fn extend(&self, partitions: &[PartitionId]) -> Result<(), Error> {
        for partition_id in partitions {
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

/// Until what is due first, and not for ever: others schedule, too. What is due and cannot be fired is looked at in a moment.
fn pause_before(first_in: Option<Duration>) -> Duration {
    match first_in {
        Some(Duration::ZERO) => SCHEDULE_YIELD_PAUSE,
        Some(first_in) => first_in.min(SCHEDULE_POLL_INTERVAL),
        None => SCHEDULE_POLL_INTERVAL,
    }
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
        Look { looked_at, first_due_at, first_in: None, partitions: Vec::new(), limited: Vec::new() }
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
        assert_eq!(pause_before(Some(Duration::ZERO)), SCHEDULE_YIELD_PAUSE);
    }
}
