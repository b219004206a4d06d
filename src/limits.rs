//! Every bound of the broker, by name, with its reason. Sizes are bytes, half-open ranges, maxima last in the name.

use std::time::Duration;

// What one message may be. The same for every topic, apart from the payload, whose bound is a setting of the topic.

/// Payload of a message unless its topic says otherwise: large enough for documents, small enough for a batch in memory.
pub const PAYLOAD_BYTES_MAX_DEFAULT: u32 = 1 << 20;
/// Largest bound a topic may set: a row of Postgres ends at 1 GiB, and a flush must stay a small part of memory.
pub const PAYLOAD_BYTES_MAX_MAX: u32 = 64 << 20;
/// Keys are hashed and compared per message.
pub const KEY_BYTES_MAX: usize = 1 << 10;
/// All headers of a message together, as the JSON text that is stored.
pub const HEADERS_BYTES_MAX: usize = 8 << 10;
/// As Kafka bounds a transactional id in practice; it is an index key of ours.
pub const TRANSACTION_ID_CHARS_MAX: usize = 255;
/// Sequences of a producer end here: nobody gets so far, and a publish can be added without an overflow.
pub const SEQUENCE_MAX: i64 = i64::MAX / 2;
/// The longest media type that registries know is half of it.
pub const CONTENT_TYPE_CHARS_MAX: usize = 255;

// Topics.

/// Messages of a segment unless the topic says otherwise; about 300 MB of 200-byte messages.
pub const SEGMENT_MESSAGES_DEFAULT: u32 = 1_000_000;
/// Fewer, and a busy partition would do nothing but make tables.
pub const SEGMENT_MESSAGES_MIN: u32 = 16;
/// More, and retention could hardly ever drop one.
pub const SEGMENT_MESSAGES_MAX: u32 = 100_000_000;
/// What a segment should hold at most: large messages make shorter segments, so that retention stays fine-grained.
pub const SEGMENT_BYTES_TARGET: i64 = 512 << 20;
/// Longest retention by age; beyond it the arithmetic of PostgreSQL's timestamps ends.
pub const RETENTION_AGE_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Largest retention by size: numbers up to here are exact in every reader of JSON, and no disk is as large.
pub const RETENTION_BYTES_MAX: u64 = 1 << 53;
/// How long a transaction id is remembered unless the topic says otherwise.
pub const DEDUP_WINDOW_DEFAULT: Duration = Duration::from_secs(3600);
/// Longer windows make an index that no longer fits in memory.
pub const DEDUP_WINDOW_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Largest limit of a topic in messages or bytes: numbers up to here are exact in every reader of JSON.
pub const TOPIC_LIMIT_MAX: u64 = 1 << 53;
/// Longest grace before completed segments go.
pub const RETENTION_GRACE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Shorter, and a group could go while its first subscriber joins.
pub const GROUP_EXPIRY_MIN: Duration = Duration::from_secs(1);
/// Longest time that a group may be unused; who wants more keeps it.
pub const GROUP_EXPIRY_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How long it is kept what retention has dropped: a quarter, for those who ask late.
pub const RETENTION_HISTORY_KEPT: Duration = Duration::from_secs(92 * 24 * 3600);
/// Events of one page of that history.
pub const RETENTION_EVENTS_PAGE_MAX: u32 = 1_000;

// Capacity of topics.

/// How often it is looked how deep a topic with limits is, while it is published to: how old the floor may be.
pub const CAPACITY_INTERVAL: Duration = Duration::from_millis(100);
/// A look is followed by a pause of so many times its length: a large topic takes a quarter of a connection at most.
pub const CAPACITY_PAUSE_FACTOR: u32 = 3;
/// How often a topic is looked at that is nearly full while nobody publishes: how late it is told that there is room again.
pub const CAPACITY_HIGH_INTERVAL: Duration = Duration::from_secs(1);
/// How often a topic is looked at that has room while nobody publishes, for `/metrics`.
pub const CAPACITY_IDLE_INTERVAL: Duration = Duration::from_secs(5);
/// A topic to which nobody has published for so long is not looked at any more.
pub const CAPACITY_FORGET_AFTER: Duration = Duration::from_secs(600);
/// How long a publish waits for a look before it is refused as `overloaded`: the database is slow, not the topic full.
pub const CAPACITY_LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Part of a limit, in percent, at which a topic is said to be nearly full.
pub const CAPACITY_HIGH_PERCENT: u64 = 80;
/// It is said to have room again below this: a topic that stays at its mark would be news with every look otherwise.
pub const CAPACITY_LOW_PERCENT: u64 = 75;
/// Topics with limits that have series of their own in `/metrics`, up to six each.
pub const CAPACITY_TOPICS_MAX: usize = 500;
/// Longest time that a refused publish is asked to stay away: as long as a topic may take to be looked at again.
pub const CAPACITY_RETRY_MAX: Duration = Duration::from_secs(1);

// The appender.

/// Messages of one flush: beyond some thousands a flush gets longer but not cheaper per message.
pub const FLUSH_MESSAGES_MAX: usize = 4_000;
/// Bytes of one flush: what a connection buffers, twice.
pub const FLUSH_BYTES_MAX: usize = 8 << 20;
/// Partitions of one flush: each costs three table locks, and a server with stock settings has some 7,000 for everybody.
pub const FLUSH_PARTITIONS_MAX: usize = 256;
/// Partitions of which an appender remembers how far their producers have come: those of the largest topics, some hundred bytes each.
pub const REMEMBERED_PARTITIONS_MAX: usize = 10_000;
/// Producers of a partition that it remembers; further ones are looked up in the database.
pub const REMEMBERED_PRODUCERS_MAX: usize = 16;
/// How long a flush waits for partitions that other brokers write to, too: some flushes of theirs. A broker that is frozen holds up
/// the neighbours of its partitions for so long, once in a [`FLUSH_IMPATIENCE`].
pub const FLUSH_PATIENCE: Duration = Duration::from_millis(100);
/// For how long an appender that met another broker waits for locks instead of leaving partitions out.
pub const FLUSH_COMPANY: Duration = Duration::from_secs(1);
/// For how long an appender that has waited in vain leaves partitions out again.
pub const FLUSH_IMPATIENCE: Duration = Duration::from_secs(5);
/// Messages that wait for a flush in one broker; a few flushes' worth per connection.
pub const APPENDER_MESSAGES_MAX: usize = 200_000;
/// Bytes that wait for a flush in one broker.
pub const APPENDER_BYTES_MAX: usize = 128 << 20;
/// Units queued to one appender task; the budget above is reached first unless units are tiny.
pub const APPENDER_UNITS_MAX: usize = 16_384;
/// A partition left out of this many flushes is flushed alone, waiting for its lock.
pub const FLUSH_SKIPS_MAX: u32 = 8;
/// Pause before a partition that was locked by another broker is tried again: about one commit.
pub const FLUSH_SKIP_PAUSE: Duration = Duration::from_millis(1);
/// The pause grows with each time in a row, up to this many times its length.
pub const FLUSH_SKIP_PAUSES_MAX: u32 = 50;
/// Partitions that one appender flushes alone at once: each takes a connection.
pub const FLUSHES_ALONE_MAX: usize = 2;
/// Flushes in a row that may find no table for a partition; each asks for it and connects anew before the next.
pub const FLUSH_MISSES_MAX: u32 = 20;
/// How long the broker itself repeats what is idempotent, before it admits that the outcome is unknown.
pub const APPEND_PATIENCE: Duration = Duration::from_secs(15);
/// Tries of a flush that lost a deadlock or a serialization race.
pub const FLUSH_CONTENTION_TRIES: u32 = 5;
/// The appender connections set this for idle-in-transaction and the TCP timeouts: a frozen broker frees its locks in time.
pub const APPENDER_STALL_TIMEOUT: Duration = Duration::from_millis(1_000);
/// The same for connections of the pool: a broker that freezes while it decides about lanes lets go of them in time.
pub const POOL_STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Silence after which a connection is given up, beyond what the server was told to allow.
pub const SILENCE_SLACK: Duration = Duration::from_secs(3);
/// One flush may take this long in the database before it is cancelled.
pub const FLUSH_STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

// Reading.

/// Messages of one read: bounded memory per reader.
pub const READ_MESSAGES_MAX: u32 = 10_000;
/// Bytes of one read, unless a single message is larger.
pub const READ_BYTES_MAX: u64 = 8 << 20;
/// Messages of a partition that one page of a search looks at: a fraction of a second of the database.
pub const SEARCH_MESSAGES_MAX: i64 = 200_000;
/// Messages that one page of a search holds.
pub const SEARCH_PAGE_MAX: u32 = 1_000;
/// Watches that one broker runs: each of them reads its traces again and again.
pub const WATCHES_MAX: usize = 32;
/// Between two looks of a watch: what people take for at once.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Hops that one frame of a watch tells of.
pub const WATCH_HOPS_MAX: usize = 100;
/// Traces of a topic that one watch follows at a time.
pub const WATCH_TRACES_MAX: usize = 16;
/// Looks after which a trace of a topic in which nothing happens is let go.
pub const WATCH_QUIET_LOOKS: u32 = 50;
/// Messages of a partition that one look takes in.
pub const WATCH_MESSAGES_MAX: i64 = 100;
/// Other traces that one message may name.
pub const LINKS_MAX: usize = 16;
/// Other traces that a trace is shown with, each way.
pub const TRACE_LINKS_MAX: usize = 1_000;
/// Blocks of a trace that are read at the same time: half of a small pool, so that others get their connections too.
pub const TRACE_READS_AT_ONCE: usize = 4;
/// Hops of one trace that a look-up returns.
pub const TRACE_HOPS_MAX: usize = 10_000;
/// Bytes of one trace that a look-up returns, unless a single message is larger.
pub const TRACE_BYTES_MAX: u64 = 64 << 20;
/// Messages read from the segments whose traces a broker remembers, 16 bytes each.
pub const RECENT_TRACES_MAX: usize = 262_144;
/// Partitions whose segments a broker remembers.
pub const CATALOGUE_PARTITIONS_MAX: usize = 100_000;

/// How far ahead of the broker's clock a purge by time may name its moment: clocks differ, years are mistakes.
pub const PURGE_AHEAD_MAX: Duration = Duration::from_secs(60);

// Chores.

/// Offsets between the heads that are kept as time index: what a look-up by time walks at most.
pub const HEAD_SPACING: i64 = 4_096;
/// How often segments are made ahead, sealed and frozen, heads thinned and the trace index tidied.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often retention looks for segments to drop.
pub const RETENTION_INTERVAL: Duration = Duration::from_secs(10);
/// Rows that one expiry statement deletes: a short transaction.
pub const EXPIRE_ROWS_MAX: i64 = 10_000;
/// Steps that wait for their flush; more are refused as `overloaded`.
pub const STEPS_WAITING_MAX: usize = 4_096;
/// Steps of one flush.
pub const STEPS_PER_FLUSH_MAX: usize = 512;
/// How long a step is remembered: a client that asks again later finds its messages acknowledged.
pub const STEP_WINDOW: Duration = Duration::from_secs(24 * 3600);
/// How old acks of steps are before it is looked whether a commit knows them.
pub const STEP_ACK_AGE_MIN: Duration = Duration::from_secs(30);
/// How long it is kept when messages were delivered and done, and what has failed, unless the broker is told otherwise.
pub const TIMES_RETENTION_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Shorter, and nobody could look at a trace before it is gone.
pub const TIMES_RETENTION_MIN: Duration = Duration::from_secs(60);
/// Pages of such a table that one statement looks through, all of whose rows it may delete: some 13,000, a short transaction.
pub const TIMES_PAGES_MAX: i64 = 128;
/// Pages that one pass looks through at least: a small table is walked in some passes.
pub const TIMES_PAGES_PER_PASS_MIN: i64 = 256;
/// Passes in which a large table is walked: with one every ten seconds, what is late is late by an hour.
pub const TIMES_PASSES_PER_WALK: i64 = 360;
/// DDL waits this long for a lock; a waiting exclusive lock queues every flush behind it.
pub const DDL_LOCK_TIMEOUT: Duration = Duration::from_millis(25);
/// Tries of a schema change that did not get its lock.
pub const DDL_TRIES: usize = 50;
/// Connections for schema changes; they meet at the parent's lock anyway.
pub const DDL_CONCURRENCY: u32 = 2;
/// Connections of a broker beside its pool and its appenders: schema changes, upkeep, LISTEN, heartbeat, a flush that waits for a
/// lock alone, and schedules, as they are written down and as they are due.
pub const BROKER_CONNECTIONS_BESIDE: u32 = DDL_CONCURRENCY + 6;
/// Clocks further apart than this make times of logs and metrics lie; NTP keeps them within milliseconds.
pub const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(1);
/// Log that an inactive replication slot may keep before the disk is at risk: that of a standby that only restarts is less.
pub const SLOT_HELD_BYTES_MAX: i64 = 1 << 30;

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
/// How long a schedule may take from its due time being set to its commit being seen: looks begin this long before the last one.
pub const SCHEDULE_COMMIT_MAX: Duration = Duration::from_secs(2);
/// How often a look begins from the very first all the same, for a commit that took longer; at most a twentieth of the time.
pub const SCHEDULE_FULL_LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// Schedules of one page; their bytes are bounded like those of a read.
pub const SCHEDULES_PAGE_MAX: u32 = 1_000;

// HTTP.

/// Body of one request.
pub const HTTP_BODY_BYTES_MAX: usize = 16 << 20;
/// Bytes of a body that is too large, read only so that its sender hears the answer.
pub const HTTP_DISCARD_BYTES_MAX: usize = 128 << 20;
/// A request that takes longer is answered with an error.
pub const HTTP_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Topics of one page.
pub const TOPICS_PAGE_MAX: i64 = 500;
/// Dead letters of one page; their bytes are bounded like those of a read.
pub const DEAD_LETTERS_PAGE_MAX: u32 = 1_000;
/// Groups of one page; each is counted for its members, and for the lag of its lanes.
pub const GROUPS_PAGE_MAX: u32 = 1_000;
/// Lanes of one page: those of the largest topic in one group. Each costs some index descents.
pub const LANES_PAGE_MAX: u32 = 1_000;
/// Partitions of one page that are told in numbers; each brings its groups, which each cost some index descents.
pub const PARTITIONS_PAGE_MAX: u32 = 100;
/// Brokers that are listed: far more than one database carries, the buried of the last hour included.
pub const BROKERS_LISTED_MAX: u32 = 1_000;
/// Topics that `laneway top` shows; each is a request per refresh, and a screen has no more rows.
pub const TOP_TOPICS_MAX: usize = 32;
/// Groups that `laneway top` shows: one page.
pub const TOP_GROUPS_MAX: u32 = 100;
/// Pages of lanes that `laneway top` reads per refresh.
pub const TOP_LANE_PAGES_MAX: usize = 4;
/// Requests for topics that `laneway top` has under way; a broker has few connections to its database.
pub const TOP_REQUESTS_AT_ONCE: usize = 4;
/// `laneway top` does not ask more often: people cannot read faster.
pub const TOP_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Looks for tables before a replay gives up; each lets a busy neighbour finish.
pub const REPLAY_TRIES_MAX: u32 = 100;
/// How long a stopping broker waits for requests under way.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

// Sessions.

/// Connections of one broker, sockets and plain HTTP together: 20 KB each is 400 MB, and as many file descriptors.
pub const CONNECTIONS_MAX: usize = 20_000;
/// Connections beyond, at once, that are told so in an answer; further ones are just closed.
pub const CONNECTIONS_REFUSED_MAX: usize = 64;
/// The headers of a request, the first bytes of a connection included, come within this time.
pub const HTTP_HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
/// One frame from a client, as one body over HTTP.
pub const FRAME_BYTES_MAX: usize = HTTP_BODY_BYTES_MAX;
/// What a socket reads at once, allocated per connection: a small part of what an idle session may cost.
pub const SOCKET_READ_BYTES: usize = 4 << 10;
/// What a socket collects before it writes: a few small frames.
pub const SOCKET_WRITE_BYTES: usize = 8 << 10;
/// What a socket holds at most: one frame with the largest payload, each byte of it escaped. The next one waits.
pub const SOCKET_WRITE_BYTES_MAX: usize = 512 << 20;
/// Frames between the reader of a socket and the owner of its session: enough to keep both busy.
pub const INBOX_FRAMES_MAX: usize = 32;
/// A frame larger than this goes into an empty inbox only, so that an inbox never holds two of them.
pub const INBOX_LARGE_BYTES: usize = 64 << 10;
/// Frames in a row that cannot be read before the client is given up: it speaks another language.
pub const BAD_FRAMES_MAX: u32 = 100;
/// Subscriptions of one session, tails counted: each has a credit, and a tail a task.
pub const SUBSCRIPTIONS_MAX: usize = 64;
/// Publishes of one session without an answer: enough to fill every flush, few enough to hold in memory.
pub const PUBLISHES_IN_FLIGHT_MAX: usize = 256;
/// Bytes of publishes that wait for their topic to be looked up; above, the session reads no further frame.
pub const PUBLISHES_WAITING_BYTES_MAX: usize = 16 << 20;
/// A socket that takes nothing for so long is given up: its client does not read.
pub const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are written before a flush; about what a socket buffers.
pub const WRITE_TURN_BYTES: usize = 256 << 10;
/// How long the other side may take to answer a close frame.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a resumed session waits for its old connection to let go.
pub const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(5);
/// Characters of a client's name in the log.
pub const CLIENT_NAME_CHARS_MAX: usize = 100;
/// Sessions that have to be gone by then when the broker drains; lanes that are not drained are taken by others.
pub const SESSIONS_DRAIN_TIMEOUT: Duration = Duration::from_secs(12);
/// Clients of a draining broker come back spread over this time per session, so that its neighbours keep up.
pub const DRAIN_SPREAD_PER_SESSION: Duration = Duration::from_millis(2);
/// Longest delay that a draining broker asks for.
pub const DRAIN_SPREAD_MAX: Duration = Duration::from_secs(10);

// Tails.

/// Reads of tails that are behind, at once, all tails together: they must not starve lanes and publishes.
pub const TAIL_READS_MAX: usize = 2;
/// Credits on their way to a tail.
pub const TAIL_REQUESTS_MAX: usize = 16;
/// Before a tail tries again whose outbox was full.
pub const TAIL_FULL_PAUSE: Duration = Duration::from_millis(5);
/// Messages that a tail remembers per partition, to find its place again after a failover of the database.
pub const TAIL_MARKS_MAX: usize = 32;
/// Before a tail tries again whose read failed.
pub const TAIL_FAILURE_PAUSE: Duration = Duration::from_millis(500);
