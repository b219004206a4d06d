//! The bounds of delivery: groups, lanes, pulling, schedules, selections. Part of `limits`, which names all of them.

use std::time::Duration;

// Subscriptions to several topics.

/// Messages that were published so close together count as equally old: lanes that take turns send some of them at once.
pub const FAIRNESS_SLACK: Duration = Duration::from_millis(5);
/// How late a topic joins at most if its hint is lost.
pub const CATALOGUE_INTERVAL: Duration = Duration::from_secs(1);
/// Topics that one subscription joins at once: each takes a connection of the pool for a moment.
pub const JOINS_AT_ONCE: usize = 4;
/// How long a subscribe waits for a broker that is registering.
pub const LEASE_PATIENCE: Duration = Duration::from_secs(5);

// Groups and lanes.

/// A broker that is not heard of for this long is buried; long enough for a pause of the machine, short enough to wait for.
pub const BROKER_TTL_DEFAULT: Duration = Duration::from_secs(10);
/// Shorter, and a busy database would bury the living.
pub const BROKER_TTL_MIN: Duration = Duration::from_secs(1);
/// Longer, and a crash would stop its lanes for minutes.
pub const BROKER_TTL_MAX: Duration = Duration::from_secs(300);
/// Heartbeats per ttl: two may be lost.
pub const HEARTBEATS_PER_TTL: u32 = 4;
/// How long a holder may finish what is in flight before its lane moves to another session.
pub const LANE_DRAIN_DEFAULT: Duration = Duration::from_secs(5);
/// Credit of one subscription, in messages.
pub const CREDIT_MESSAGES_MAX: i64 = 1_000_000;
/// Credit of one subscription, in bytes: what a client may have to hold.
pub const CREDIT_BYTES_MAX: i64 = 256 << 20;
/// Messages of one batch unless the subscriber says otherwise.
pub const BATCH_MESSAGES_DEFAULT: u32 = 500;
/// Most messages of one batch.
pub const BATCH_MESSAGES_MAX: u32 = 10_000;
/// Bytes of one batch unless the subscriber says otherwise.
pub const BATCH_BYTES_DEFAULT: u64 = 1 << 20;
/// Most bytes of one batch: a frame of the default size holds it in either encoding.
pub const BATCH_BYTES_MAX: u64 = 16 << 20;
/// How long a batch may wait for more messages.
pub const BATCH_WAIT_MAX: Duration = Duration::from_secs(60);
/// Messages of one lane in flight: more would only wait in the client, and be void after a nack.
pub const LANE_IN_FLIGHT_MAX: i64 = 10_000;
/// Messages of a lane ordered by key that are below its cursor and not done, in flight or waiting for their key: as much memory
/// as messages in flight take.
pub const LANE_UNDONE_MAX: usize = LANE_IN_FLIGHT_MAX as usize;
/// Parked keys of one lane: its holder has all of them in memory. The next one that fails is blocked, and that is told.
pub const PARKED_KEYS_MAX: usize = 10_000;
/// Messages behind parked keys that are copied aside in one transaction.
pub const PARK_BATCH_MESSAGES: usize = 500;
/// Bytes of such messages at which they are copied aside at once.
pub const PARK_BATCH_BYTES: u64 = 1 << 20;
/// How long such messages wait for others, so that a busy key does not cost a transaction per message.
pub const PARK_PAUSE: Duration = Duration::from_millis(100);
/// Messages of other keys that are read along between two that are copied aside: about what another read costs.
pub const READ_THROUGH_MAX: i64 = 64;
/// Copies of a released key that are read at once.
pub const COPIES_READ_MAX: i64 = 100;
/// Bytes of them; the first comes whatever its size.
pub const COPIES_READ_BYTES: i64 = 1 << 20;
/// Copies of released keys that a lane holds before it reads more: what a busy consumer takes while the next are read.
pub const COPIES_HELD_MAX: usize = 2_000;
/// Bytes of them: what released keys may take of the memory of a broker, however many they are.
pub const COPIES_HELD_BYTES_MAX: u64 = 16 << 20;
/// Parked keys of one page.
pub const PARKED_PAGE_MAX: u32 = 1_000;
/// Ranges of single acks beyond the committed offset at which a lane stops sending: each is stored with every commit.
pub const LANE_GAPS_MAX: usize = 1_000;
/// Rounds of a lane whose late acks can still be told apart.
pub const LANE_ROUNDS_REMEMBERED: usize = 16;
/// What a lane sends within this time is one delivery: closer than anybody looks, and a row less.
pub const DELIVERED_TOGETHER: Duration = Duration::from_millis(1);
/// What is acknowledged of a delivery within this time, before it is committed, is acknowledged together: about what a commit takes.
pub const ACKED_TOGETHER: Duration = Duration::from_millis(10);
/// Deliveries that a lane remembers; of more, neighbours that are closest in time become one.
pub const LANE_DELIVERIES_MAX: usize = 1_000;
/// Ranges of times that wait for a commit of a lane; of more, neighbours that are closest in time become one. Ranges that do not
/// touch each other stay; there are at most half as many as messages in flight.
pub const LANE_TIMES_MAX: usize = 64;
/// Shortest ack deadline: below it the network alone would miss it.
pub const ACK_DEADLINE_MIN: Duration = Duration::from_millis(100);
/// Longest ack deadline; who needs longer sends `progress`.
pub const ACK_DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest delay, window and age of a group, and ttl of a message: a year, as good as for ever for a queue.
pub const AGE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Shortest window: below it the look at the end of the partition alone would take longer.
pub const WINDOW_MIN: Duration = Duration::from_millis(10);
/// Windows that a message waits for at most, unless its group says otherwise: long enough to gather a burst, and not for ever.
pub const WINDOW_MAX_FACTOR: u32 = 10;
/// Ranges that one eviction writes down: they are kept beside the commit until the messages between them are done.
pub const EVICTED_RANGES_MAX: usize = 256;
/// Gaps at which a lane waits for acks before more is evicted: the others are for single acks.
pub const EVICTION_GAPS_MAX: usize = LANE_GAPS_MAX / 2;
/// How much faster our clock may run than the database's: twice what a clock is slewed by.
pub const CLOCK_DRIFT_MAX: f64 = 0.001;
/// Most attempts that a group may allow.
pub const ATTEMPTS_MAX: u32 = 1_000_000;
/// Steepest backoff.
pub const BACKOFF_FACTOR_MAX: f64 = 100.0;
/// Longest pause between two tries of a message.
pub const BACKOFF_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest delay that a nack may ask for.
pub const NACK_DELAY_MAX: Duration = Duration::from_secs(24 * 3600);
/// Characters of a nack's reason that are kept.
pub const NACK_REASON_CHARS_MAX: usize = 1_000;
/// Requests on their way to one group.
pub const GROUP_REQUESTS_MAX: usize = 1_024;
/// Requests that a group takes before it looks at anything else.
pub const GROUP_TURN_REQUESTS: usize = 256;
/// Results on their way back to one group.
pub const GROUP_EVENTS_MAX: usize = 1_024;
/// Members that come and go together are assigned together.
pub const ASSIGN_PAUSE: Duration = Duration::from_millis(5);
/// How often a group looks at its lanes without a hint: how late a lost one is noticed.
pub const RECONCILE_INTERVAL: Duration = Duration::from_secs(5);
/// Reads of lanes that are behind the hot tail, at once: they must not starve publishes.
pub const CATCH_UP_READS_MAX: usize = 4;
/// Messages of one such read.
pub const CATCH_UP_MESSAGES: u32 = 2_000;
/// Bytes of one such read.
pub const CATCH_UP_BYTES: u64 = 2 << 20;
/// Reads of a lane that follow each other within this time read ahead: its client is at work, and comes again for the rest.
pub const CATCH_UP_IN_A_ROW: Duration = Duration::from_millis(100);
/// Messages that such a read ahead has at least, if they are there: a client that gives credit one by one must not cost a read each.
pub const CATCH_UP_MESSAGES_MIN: usize = 64;
/// Bytes of them: with what the encodings add, a lane still keeps them, see [`FETCHED_BYTES_KEPT`].
pub const CATCH_UP_BYTES_MIN: u64 = 16 << 10;
/// Settlements of lanes and moves of members at once: half of a small pool, so that a crowd that leaves does not keep those
/// out who come.
pub const SETTLEMENTS_MAX: usize = 4;
/// What was read for a lane and could not be sent at once is kept up to this size.
pub const FETCHED_BYTES_KEPT: usize = 64 << 10;
/// Longest pause before something that the database did not take is tried again.
pub const EFFECT_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The first one: a connection that somebody has ended is no sign that the database is away.
pub const EFFECT_RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);
/// Pause before a commit or a read of a lane is tried again.
pub const COMMIT_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Pause before a commit that carries on what steps have done: they are durable by themselves, and it makes them cheap to find.
pub const STEP_COMMIT_PAUSE: Duration = Duration::from_millis(500);
/// Commits of a lane between two cleanings of the older ones.
pub const COMMITS_PER_THINNING: i64 = 256;
/// Lanes of one flush: each is one row lock and one row.
pub const FLUSH_LANES_MAX: usize = 1_000;

// Pulling.

/// For how long pullers are a member of their group after the last pull: longer than a client takes between two, short enough that
/// lanes do not wait long for pullers that have gone.
pub const PULLERS_TTL: Duration = Duration::from_secs(30);
/// How often it is written down that somebody pulls, per group: several times per [`PULLERS_TTL`].
pub const PULLERS_TOUCH_PAUSE: Duration = Duration::from_secs(5);
/// Messages of a pop unless it says otherwise.
pub const POP_MESSAGES_DEFAULT: u32 = 100;
/// Messages of a pop: acknowledged one by one, they leave fewer gaps than a lane may have.
pub const POP_MESSAGES_MAX: u32 = 1_000;
/// Longest wait of a pop: below what a request may take.
pub const POP_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often waiting pops of a group look without a hint, all together: how late a lane that another broker has freed is noticed.
pub const POP_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Pops of a group that ask the database at once, per broker: a small part of a small pool.
pub const POPS_AT_ONCE: usize = 4;
/// A lane with nothing due is left out of looks for so long at once: then somebody may have moved it.
pub const POP_HELD_BACK_LOOK: Duration = Duration::from_secs(1);
/// Lanes that are looked at together: if another is faster with the first, the next is tried.
pub const POPS_FOUND_MAX: usize = 8;
/// For how long growth is still followed after the last wait, so that a client that asks again and again costs nothing.
pub const POP_LINGER: Duration = Duration::from_secs(10);
/// Groups that a broker remembers pullers of: those that nobody has pulled from for a while are forgotten first.
pub const PULLED_GROUPS_MAX: usize = 1_000;
/// Pops of a lane between two cleanings of its older commits.
pub const POPS_PER_THINNING: i64 = 64;
/// Bytes of the newest messages of one partition in memory.
pub const TAIL_BYTES_MAX: usize = 4 << 20;
/// Bytes of all of them; above, each partition keeps an eighth.
pub const TAILS_BYTES_MAX: usize = 64 << 20;
/// Gaps that wait to be read into hot tails.
pub const GAPS_MAX: usize = 1_024;
/// What grows within this time is announced together.
pub const ANNOUNCE_PAUSE: Duration = Duration::from_millis(2);
/// How often the heads of followed partitions are looked at without a hint: how late a lost hint is noticed.
pub const HEADS_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Frames that wait for one socket.
pub const OUTBOX_FRAMES_MAX: usize = 1_024;
/// Of those, frames that batches leave to answers and news.
pub const OUTBOX_FRAMES_RESERVED: usize = 512;
/// Bytes of batches that wait for one socket; one batch more may join them.
pub const OUTBOX_BYTES_MAX: usize = 4 << 20;

// Lag in `/metrics`.

/// How often the eldest broker looks how far groups are behind: as often as most Prometheus servers ask.
pub const LAG_INTERVAL: Duration = Duration::from_secs(5);
/// A look is followed by a pause of so many times its length: a twentieth of a connection at most.
pub const LAG_PAUSE_FACTOR: u32 = 20;
/// Lanes of one look; each costs some index descents, so together about a second.
pub const LAG_LOOK_LANES_MAX: usize = 20_000;
/// Lanes that have series of their own in `/metrics`, two each: what a scrape and a Prometheus server take without pain.
pub const LAG_LANES_MAX: usize = 2_000;

// Schedules.

/// How far ahead a message may be scheduled: "up to years", and far within what timestamps hold.
pub const SCHEDULE_AHEAD_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A time that is past by no more than this is due at once: clocks differ, and a publish may be long under way. What is older is
/// refused as a mistake.
pub const SCHEDULE_PAST_MAX: Duration = Duration::from_secs(60);
/// Messages of one transaction that writes schedules down; it holds the locks of their partitions.
pub const SCHEDULES_PER_WRITE_MAX: usize = 1_000;
/// Units that wait to be written down; more are refused as `overloaded`.
pub const SCHEDULE_UNITS_MAX: usize = 4_096;
/// Messages that one transaction appends because they are due: it is over in some milliseconds, and flushes wait for it no longer.
pub const SCHEDULES_PER_FIRE_MAX: i64 = 1_000;
/// How often it is looked for what other brokers have scheduled, if nothing is known to be due sooner: how late a message may be
/// whose broker has died between writing it down and its time.
pub const SCHEDULE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between two fires while there is something to fire: what is due together is appended together.
pub const SCHEDULE_FIRE_PAUSE: Duration = Duration::from_millis(10);
/// What is due in a topic that is full waits for so long before it is looked at again: as often as capacity is.
pub const SCHEDULE_HELD_PAUSE: Duration = Duration::from_millis(100);
/// Pause of a broker that finds others at work on all that is due: one of them does, the rest look on.
pub const SCHEDULE_YIELD_PAUSE: Duration = Duration::from_millis(30);
/// Messages that are so late are worth queueing for the lock of their partition, if somebody had it at the last try: brokers that take turns
/// to fire leave nothing for as long, and then there is time left to be no later than 100 ms.
pub const SCHEDULE_LATE_MIN: Duration = Duration::from_millis(40);
/// So many partitions are queued for in one turn: each may take a [`super::FLUSH_PATIENCE`], and the others are late meanwhile.
pub const SCHEDULE_QUEUES_MAX: usize = 4;
/// How long a schedule may take from its due time being set to its commit being seen: looks begin this long before the last one.
pub const SCHEDULE_COMMIT_MAX: Duration = Duration::from_secs(2);
/// How often a look begins from the very first all the same, for a commit that took longer; at most a twentieth of the time.
pub const SCHEDULE_FULL_LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Schedules of one page; their bytes are bounded like those of a read.
pub const SCHEDULES_PAGE_MAX: u32 = 1_000;
