//! What a broker counts. Registered once, written by whoever does the work, read by `/metrics`.
//!
//! Cardinality: labels have few, known values; nothing is counted per topic, group or session, apart from `lag`, which has
//! bounds of its own.

use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::capacity::counts::Counts;
use super::lag::Lag;
use crate::store::windows::{Eviction, ExpiryPolicy};

/// A count that only grows.
pub type Count = Counter<u64, AtomicU64>;

/// Why something was refused or failed, as a stable word.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reason {
    pub reason: &'static str,
}

/// In which state a lane is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LaneState {
    pub state: &'static str,
}

/// One in a gauge, until it is dropped.
#[derive(Debug)]
pub struct Counted(Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// What its owner adds to a gauge, until it is dropped.
#[derive(Debug)]
pub struct Share {
    gauge: Gauge,
    told: i64,
}

impl Share {
    pub fn of(gauge: &Gauge) -> Self {
        Self { gauge: gauge.clone(), told: 0 }
    }

    /// It is so large from now on.
    pub fn tell(&mut self, now: usize) {
        let now = now as i64;
        self.gauge.inc_by(now - std::mem::replace(&mut self.told, now));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.gauge.dec_by(self.told);
    }
}

/// Everything that a broker counts.
#[derive(Debug)]
pub struct Metrics {
    pub published_messages: Count,
    pub published_bytes: Count,
    pub publish_failures: Family<Reason, Count>,
    pub flushes: Count,
    pub flush_messages: Histogram,
    pub flush_seconds: Histogram,
    pub lane_commits: Count,
    pub steps: Count,
    pub step_flushes: Count,
    pub schedules: Count,
    pub schedules_held: Gauge,
    pub schedules_fired: Count,
    pub schedules_cancelled: Count,
    pub schedules_moved: Count,
    pub schedule_lateness: Histogram,
    pub delivered_messages: Count,
    pub delivered_bytes: Count,
    pub delivered_batches: Count,
    pub end_to_end: Histogram,
    pub acked_messages: Count,
    pub nacks: Count,
    pub retries: Count,
    pub dead_letters: Count,
    pub purged_messages: Count,
    pub given_up: Family<Reason, Count>,
    pub parked_messages: Count,
    pub expired_messages: Family<Reason, Count>,
    pub deadlines_missed: Count,
    pub lanes_granted: Count,
    pub takeovers: Count,
    pub lanes_revoked: Family<Reason, Count>,
    pub lanes: Family<LaneState, Gauge>,
    pub blocked_keys: Gauge,
    pub rebalances: Count,
    pub burials: Count,
    pub credit_stalls: Count,
    pub selections: Gauge,
    pub selection_topics: Gauge,
    pub selection_refusals: Count,
    pub outbox_stalls: Count,
    pub hot_tail_hits: Count,
    pub catch_up_reads: Count,
    pub pops: Count,
    pub pops_empty: Count,
    pub pops_expired: Count,
    pub pops_waiting: Gauge,
    pub sessions: Gauge,
    pub sessions_resumed: Count,
    /// Of all groups, if this broker tells it.
    pub lag: Lag,
    /// Of topics with limits.
    pub capacity: Counts,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        Self {
            published_messages: Count::default(),
            published_bytes: Count::default(),
            publish_failures: Family::default(),
            flushes: Count::default(),
            flush_messages: Histogram::new(exponential_buckets(1.0, 2.0, 14)),
            flush_seconds: Histogram::new(exponential_buckets(0.000_5, 2.0, 14)),
            lane_commits: Count::default(),
            steps: Count::default(),
            step_flushes: Count::default(),
            schedules: Count::default(),
            schedules_held: Gauge::default(),
            schedules_fired: Count::default(),
            schedules_cancelled: Count::default(),
            schedules_moved: Count::default(),
            schedule_lateness: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            delivered_messages: Count::default(),
            delivered_bytes: Count::default(),
            delivered_batches: Count::default(),
            end_to_end: Histogram::new(exponential_buckets(0.000_5, 2.0, 20)),
            acked_messages: Count::default(),
            nacks: Count::default(),
            retries: Count::default(),
            dead_letters: Count::default(),
            purged_messages: Count::default(),
            given_up: Family::default(),
            parked_messages: Count::default(),
            expired_messages: Family::default(),
            deadlines_missed: Count::default(),
            lanes_granted: Count::default(),
            takeovers: Count::default(),
            lanes_revoked: Family::default(),
            lanes: Family::default(),
            blocked_keys: Gauge::default(),
            rebalances: Count::default(),
            burials: Count::default(),
            credit_stalls: Count::default(),
            selections: Gauge::default(),
            selection_topics: Gauge::default(),
            selection_refusals: Count::default(),
            outbox_stalls: Count::default(),
            hot_tail_hits: Count::default(),
            catch_up_reads: Count::default(),
            pops: Count::default(),
            pops_empty: Count::default(),
            pops_expired: Count::default(),
            pops_waiting: Gauge::default(),
            sessions: Gauge::default(),
            sessions_resumed: Count::default(),
            lag: Lag::default(),
            capacity: Counts::default(),
        }
    }

    /// A batch goes out. How long its messages were under way, from the publish on the database clock to now on ours, is
    /// looked at once per moment of publishing: a flush shares one, and counting each of its messages costs too much.
    pub fn on_delivered(&self, published_at: impl Iterator<Item = Timestamp>, bytes: u64) {
        let now = Timestamp::now();
        let (mut messages, mut last) = (0, None);
        for at in published_at {
            messages += 1;
            if last.replace(at) != Some(at) {
                self.end_to_end.observe(now.duration_since(at).as_secs_f64().max(0.0));
            }
        }
        self.delivered_messages.inc_by(messages);
        self.delivered_bytes.inc_by(bytes);
        self.delivered_batches.inc();
    }

    /// A unit was not stored.
    pub fn on_publish_failure(&self, reason: &'static str) {
        self.publish_failures.get_or_create(&Reason { reason }).inc();
    }

    /// A group has given a message up.
    pub fn on_given_up(&self, policy: &'static str) {
        self.given_up.get_or_create(&Reason { reason: policy }).inc();
        self.dead_letters.inc_by(u64::from(policy == "dead_letter"));
    }

    /// Messages were copied aside with their keys.
    pub fn on_parked(&self, messages: usize) {
        self.parked_messages.inc_by(messages as u64);
    }

    /// Messages have expired, and that is written down.
    pub fn on_evicted(&self, eviction: &Eviction) {
        for range in &eviction.ranges {
            let reason = range.why.as_str();
            self.expired_messages.get_or_create(&Reason { reason }).inc_by(range.messages());
            let is_kept = eviction.policy == ExpiryPolicy::DeadLetter;
            self.dead_letters.inc_by(if is_kept { range.messages() } else { 0 });
        }
    }

    /// The gauge of lanes in a state.
    pub fn lanes_in(&self, state: &'static str) -> Gauge {
        self.lanes.get_or_create(&LaneState { state }).clone()
    }

    /// Counts a pop that waits, for as long as the answer lives.
    pub fn waits_for_pops(&self) -> Counted {
        self.pops_waiting.inc();
        Counted(self.pops_waiting.clone())
    }

    /// Publishes them all.
    pub fn register(&self, registry: &mut Registry) {
        self.register_publishing(registry);
        self.register_delivery(registry);
        self.register_lanes(registry);
        self.register_schedules(registry);
        self.register_pulling(registry);
        registry.register("sessions", "Sessions with a connection", self.sessions.clone());
        registry.register("sessions_resumed", "Sessions that came back", self.sessions_resumed.clone());
        registry.register_collector(Box::new(self.lag.clone()));
        self.capacity.register(registry);
    }

    fn register_publishing(&self, registry: &mut Registry) {
        for reason in ["overloaded", "unavailable", "outcome_unknown"] {
            self.publish_failures.get_or_create(&Reason { reason }).inc_by(0); // a rate needs a zero to begin with
        }
        registry.register(
            "published_messages",
            "Messages stored by this broker",
            self.published_messages.clone(),
        );
        registry.register("published_bytes", "Bytes of those messages", self.published_bytes.clone());
        registry.register(
            "publish_failures",
            "Units that were not stored, by reason",
            self.publish_failures.clone(),
        );
        registry.register("flushes", "Flushes that were committed", self.flushes.clone());
        registry.register("flush_messages", "Messages per flush", self.flush_messages.clone());
        registry.register_with_unit("flush", "Time per flush", Unit::Seconds, self.flush_seconds.clone());
        registry.register(
            "lane_commits",
            "Commits of lanes that rode along with flushes",
            self.lane_commits.clone(),
        );
        registry.register("steps", "Steps of pipelines that were done", self.steps.clone());
        registry.register("step_flushes", "Transactions that did them", self.step_flushes.clone());
    }

    fn register_delivery(&self, registry: &mut Registry) {
        for reason in ["dead_letter", "skip", "park"] {
            self.given_up.get_or_create(&Reason { reason }).inc_by(0); // a rate needs a zero to begin with
        }
        for reason in ["max_age", "ttl"] {
            self.expired_messages.get_or_create(&Reason { reason }).inc_by(0);
        }
        registry.register(
            "expired_messages",
            "Messages that groups have not delivered because they were too old, by reason",
            self.expired_messages.clone(),
        );
        registry.register(
            "delivered_messages",
            "Messages handed to sessions",
            self.delivered_messages.clone(),
        );
        registry.register("delivered_bytes", "Bytes of those messages", self.delivered_bytes.clone());
        registry.register("delivered_batches", "Batches handed to sessions", self.delivered_batches.clone());
        registry.register_with_unit(
            "end_to_end",
            "From publish to delivery",
            Unit::Seconds,
            self.end_to_end.clone(),
        );
        registry.register("acked_messages", "Messages that groups have done", self.acked_messages.clone());
        registry.register("nacks", "Messages that consumers have refused", self.nacks.clone());
        registry.register("retries", "Failures after which a message is tried again", self.retries.clone());
        registry.register("dead_letters", "Messages kept aside as dead letters", self.dead_letters.clone());
        registry.register(
            "purged_messages",
            "Messages that operators have purged",
            self.purged_messages.clone(),
        );
        registry.register("given_up", "Messages that groups have given up, by policy", self.given_up.clone());
        registry.register(
            "parked_messages",
            "Messages that were copied aside because their key was parked",
            self.parked_messages.clone(),
        );
        registry.register("deadlines_missed", "Ack deadlines that passed", self.deadlines_missed.clone());
        registry.register("credit_stalls", "Times a lane waited for credit", self.credit_stalls.clone());
        registry.register("selections", "Subscriptions that select their topics", self.selections.clone());
        registry.register(
            "selection_topics",
            "Topics that take part in such subscriptions",
            self.selection_topics.clone(),
        );
        registry.register(
            "selection_refusals",
            "Topics that were selected and could not join",
            self.selection_refusals.clone(),
        );
        registry.register(
            "outbox_stalls",
            "Times a lane waited for a slow socket",
            self.outbox_stalls.clone(),
        );
        registry.register("hot_tail_hits", "Batches fed from memory", self.hot_tail_hits.clone());
        registry.register(
            "catch_up_reads",
            "Reads of segments for lanes that were behind",
            self.catch_up_reads.clone(),
        );
    }

    fn register_schedules(&self, registry: &mut Registry) {
        registry.register(
            "schedules_held",
            "Partitions where messages are due and wait, because their topic is full",
            self.schedules_held.clone(),
        );
        registry.register(
            "schedules",
            "Messages written down to wait for their time",
            self.schedules.clone(),
        );
        registry.register(
            "schedules_fired",
            "Messages that this broker has appended when they were due",
            self.schedules_fired.clone(),
        );
        registry.register(
            "schedules_cancelled",
            "Messages that were cancelled before they were due",
            self.schedules_cancelled.clone(),
        );
        registry.register(
            "schedules_moved",
            "Times that a message which waited was given another time",
            self.schedules_moved.clone(),
        );
        registry.register_with_unit(
            "schedule_lateness",
            "From when a message was due to its commit",
            Unit::Seconds,
            self.schedule_lateness.clone(),
        );
    }

    fn register_pulling(&self, registry: &mut Registry) {
        registry.register("pops", "Pops that brought messages", self.pops.clone());
        registry.register("pops_empty", "Pops for which nothing has come in time", self.pops_empty.clone());
        registry.register(
            "pops_expired",
            "Pops that were not acknowledged in time",
            self.pops_expired.clone(),
        );
        registry.register("pops_waiting", "Pops that wait for messages", self.pops_waiting.clone());
    }

    fn register_lanes(&self, registry: &mut Registry) {
        for state in ["held", "draining", "blocked", "paused"] {
            self.lanes_in(state).inc_by(0); // none is a number, too
        }
        registry.register("lanes", "Lanes held by sessions of this broker, by state", self.lanes.clone());
        registry.register(
            "blocked_keys",
            "Keys that have failed too often and stand still, in lanes held by sessions of this broker",
            self.blocked_keys.clone(),
        );
        registry.register("lanes_granted", "Lanes granted", self.lanes_granted.clone());
        registry.register(
            "takeovers",
            "Lanes granted that another session had before",
            self.takeovers.clone(),
        );
        registry.register(
            "lanes_revoked",
            "Lanes that sessions have lost or left, by reason",
            self.lanes_revoked.clone(),
        );
        registry.register("rebalances", "Assignments that moved lanes", self.rebalances.clone());
        registry.register("burials", "Silent brokers buried by this one", self.burials.clone());
    }
}
