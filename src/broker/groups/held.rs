//! A lane in the hands of a session of this broker: the lane itself, and what its group remembers about it.
//!
//! Owned by the task of the group. What is durable about it stands in the tables; everything here can be lost.

use std::sync::Arc;
use std::time::Instant;

use prometheus_client::metrics::gauge::Gauge;

use super::credit::Room;
use super::flights::Flights;
use super::keyed::Keyed;
use super::lane::keys::Keys;
use super::lane::{Gate, Lane};
use super::purse::{Place, PublishedAt};
use super::ranges::Ranges;
use super::stepping::Reservation;
use super::windows::LaneWindow;
use crate::broker::metrics::Share;
use crate::broker::outbox::WriteLog;
use crate::broker::slab::Slab;
use crate::ids::Offset;
use crate::limits::CATCH_UP_IN_A_ROW;
use crate::store::lanes::{Fence, Release};

/// A lane in the hands of a session of this broker.
#[derive(Debug)]
pub(super) struct Held {
    pub fence: Fence,
    /// The number of the partition, which people see.
    pub number: u32,
    pub lane: Lane,
    pub log: Arc<WriteLog>,
    /// Read from the segments, because the lane is behind the hot tail.
    pub fetched: Option<Arc<Slab>>,
    pub fetching: bool,
    /// A look at the segments has found nothing from here on; only growth makes another look worth it.
    pub dry_at: Option<Offset>,
    /// Since when fewer messages than a batch should have are waiting.
    pub short_since: Option<Instant>,
    pub committing: bool,
    /// What steps under way acknowledge: nobody else may do it with another step.
    pub reserved: Vec<Reservation>,
    /// Acks that are to be confirmed with the commit of this number or a later one.
    pub confirms: Vec<(i64, u64)>,
    /// What is stored for certain: the committed offset, and what is acknowledged beyond it.
    pub durable: (Offset, Ranges),
    /// The same of the commit that is on its way.
    pub committing_at: (Offset, Ranges),
    /// When it was read for last, behind the hot tail.
    pub fetched_at: Option<Instant>,
    /// Whether all that is not committed yet came with steps, which are durable without it.
    pub dirty_by_steps: bool,
    /// To be released as soon as what is being written down is written.
    pub release_later: Option<(&'static str, Release)>,
    /// Whether the client was told that the lane has too many gaps, or too much that waits.
    pub told_bound: bool,
    /// Where it was said that a message does not open.
    pub told_sealed: Option<Offset>,
    /// Another session is to have it, or this one is leaving: acks still count until this moment.
    pub drain_until: Option<Instant>,
    /// It is being released: nothing else is done with it.
    pub releasing: bool,
    /// A read has failed and is not tried before this moment.
    pub retry_at: Option<Instant>,
    /// Commits below this are gone.
    pub thinned_to: i64,
    /// The moment it is listed under in the timers.
    pub timer: Option<Instant>,
    /// Its place among the lanes that wait for credit.
    pub place: Option<Place>,
    /// When the newest message that was sent was published: the next one is not older.
    pub sent_at: PublishedAt,
    /// What was read for it was dropped, because others went first: it waits for the next read in its place.
    pub reread: bool,
    /// What was delivered and is not done, if anybody wants spans.
    pub flights: Flights,
    pub window: LaneWindow,
    /// Present if order is kept by key.
    pub keyed: Option<Box<Keyed>>,
    /// Of the keys that are blocked here.
    blocked: Share,
}

impl Held {
    pub fn new(fence: Fence, number: u32, lane: Lane, blocked_keys: &Gauge) -> Self {
        Self {
            fence,
            number,
            log: Arc::default(),
            fetched: None,
            fetching: false,
            dry_at: None,
            short_since: None,
            committing: false,
            reserved: Vec::new(),
            confirms: Vec::new(),
            durable: lane.position(),
            committing_at: lane.position(),
            fetched_at: None,
            dirty_by_steps: false,
            release_later: None,
            told_bound: false,
            told_sealed: None,
            drain_until: None,
            releasing: false,
            retry_at: None,
            thinned_to: 0,
            timer: None,
            place: None,
            sent_at: PublishedAt::MIN,
            reread: false,
            flights: Flights::default(),
            window: LaneWindow::default(),
            keyed: lane.keys().is_some().then(Box::default),
            blocked: Share::of(blocked_keys),
            lane,
        }
    }

    /// What to read for it now: some ahead, if its client comes again and again.
    pub fn room_to_read(&mut self, room: Room, now: Instant) -> Room {
        let before = self.fetched_at.replace(now);
        match before.is_some_and(|before| now - before <= CATCH_UP_IN_A_ROW) {
            true => room.with_some_ahead(),
            false => room,
        }
    }

    /// Keys of it may be blocked by now, or go on.
    pub fn tell_blocked(&mut self) {
        self.blocked.tell(self.lane.keys().map_or(0, Keys::blocked));
    }

    /// Something about the group has changed: blocked keys get another try.
    pub fn unblock_keys(&mut self) {
        if let Some(keys) = self.lane.keys_mut() {
            keys.unblock();
        }
        self.tell_blocked();
    }

    /// What was on its way is stored.
    pub fn on_stored(&mut self) {
        self.durable.clone_from(&self.committing_at);
    }

    /// Nothing in flight, and nothing being written down.
    pub fn is_idle(&self) -> bool {
        !self.releasing
            && self.lane.in_flight() == 0
            && self.lane.gate != Gate::Settling
            && self.reserved.is_empty()
    }

    /// Fewer messages wait than a batch should have; whether it is still worth waiting for more.
    pub fn is_short(&mut self, now: Instant, max_wait: std::time::Duration) -> bool {
        now < *self.short_since.get_or_insert(now) + max_wait
    }

    /// When the oldest message in flight is overdue, as far as is known now.
    pub fn overdue_at(&self, ack_deadline: std::time::Duration, now: Instant) -> Option<Instant> {
        let oldest = self.lane.oldest_in_flight()?;
        if self.keyed.is_some() && self.reserves(oldest, oldest.plus(1)) {
            return None; // the step under way is its ack
        }
        Some(match self.written_at(oldest) {
            Some(written_at) => self.lane.deadline(written_at, ack_deadline),
            None => now + ack_deadline, // it waits in the outbox
        })
    }
}
