//! Every bound of the broker, by name, with its reason. Sizes are bytes, half-open ranges, maxima last in the name.

mod delivery;
mod encryption;

use std::time::Duration;

pub use delivery::*;
pub use encryption::*;

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
/// A topic to which nobody has published for so long is not looked at any more, unless it is nearly full: then it is still to be told
/// that it has room again.
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
/// Partitions of one flush, where the server has room for their locks: more would not be cheaper for each.
pub const FLUSH_PARTITIONS_MAX: usize = 512;
/// A flush has a partition for so many locks that the server has room for: each costs three table locks, and a server with stock
/// settings has some 6,400 for everybody, several brokers with two flushes at a time among them.
pub const FLUSH_LOCKS_PER_PARTITION: i64 = 25;
/// Partitions of a flush from which on what each of them costs is worth waiting for more messages.
pub const GATHER_PARTITIONS_MIN: usize = 64;
/// Messages for each partition from which on a flush is not thin: by then they cost more than their partition.
pub const GATHER_THIN_MESSAGES: usize = 12;
/// Silence after which nothing more is expected: several frames of a busy producer.
pub const GATHER_QUIET: Duration = Duration::from_millis(2);
/// A flush after a thin one waits no longer, whatever that one took.
pub const GATHER_MAX: Duration = Duration::from_millis(20);
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
/// Reads that all watches of a broker do at a time. One of them takes up to half of a small pool, and catch-up and settlements need the
/// rest.
pub const WATCH_READS_AT_ONCE: usize = 1;
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
/// Blocks that one look-up goes through. Many of them hold nothing of a trace only if its id shares its first half with many others.
pub const TRACE_BLOCKS_MAX: usize = 100_000;
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
/// Pages of a table without an index over time that one statement looks through, all of whose rows it may delete: some 13,000, a short transaction.
pub const WALK_PAGES_MAX: i64 = 128;
/// Pages that one pass looks through at least: a small table is walked in some passes.
pub const WALK_PAGES_PER_PASS_MIN: i64 = 256;
/// Passes in which a large table is walked: with one every ten seconds, what is late is late by an hour.
pub const WALK_PASSES: i64 = 360;
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
