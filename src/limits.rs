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
/// How long a transaction id is remembered unless the topic says otherwise.
pub const DEDUP_WINDOW_DEFAULT: Duration = Duration::from_secs(3600);
/// Longer windows make an index that no longer fits in memory.
pub const DEDUP_WINDOW_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

// The appender.

/// Messages of one flush: beyond some thousands a flush gets longer but not cheaper per message.
pub const FLUSH_MESSAGES_MAX: usize = 4_000;
/// Bytes of one flush: what a connection buffers, twice.
pub const FLUSH_BYTES_MAX: usize = 8 << 20;
/// Partitions of one flush: each costs three table locks, and a server with stock settings has some 7,000 for everybody.
pub const FLUSH_PARTITIONS_MAX: usize = 256;
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
/// Silence after which a connection is given up, beyond what the server was told to allow.
pub const SILENCE_SLACK: Duration = Duration::from_secs(3);
/// One flush may take this long in the database before it is cancelled.
pub const FLUSH_STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

// Reading.

/// Messages of one read: bounded memory per reader.
pub const READ_MESSAGES_MAX: u32 = 10_000;
/// Bytes of one read, unless a single message is larger.
pub const READ_BYTES_MAX: u64 = 8 << 20;
/// Hops of one trace that a look-up returns.
pub const TRACE_HOPS_MAX: usize = 10_000;
/// Bytes of one trace that a look-up returns, unless a single message is larger.
pub const TRACE_BYTES_MAX: u64 = 64 << 20;
/// Partitions whose segments a broker remembers.
pub const CATALOGUE_PARTITIONS_MAX: usize = 100_000;

// Chores.

/// Offsets between the heads that are kept as time index: what a look-up by time walks at most.
pub const HEAD_SPACING: i64 = 4_096;
/// How often segments are made ahead, sealed and frozen, heads thinned and the trace index tidied.
pub const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How often retention looks for segments to drop.
pub const RETENTION_INTERVAL: Duration = Duration::from_secs(10);
/// Rows that one expiry statement deletes: a short transaction.
pub const EXPIRE_ROWS_MAX: i64 = 10_000;
/// DDL waits this long for a lock; a waiting exclusive lock queues every flush behind it.
pub const DDL_LOCK_TIMEOUT: Duration = Duration::from_millis(25);
/// Tries of a schema change that did not get its lock.
pub const DDL_TRIES: usize = 50;
/// Connections for schema changes; they meet at the parent's lock anyway.
pub const DDL_CONCURRENCY: u32 = 2;

// HTTP.

/// Body of one request.
pub const HTTP_BODY_BYTES_MAX: usize = 16 << 20;
/// Bytes of a body that is too large, read only so that its sender hears the answer.
pub const HTTP_DISCARD_BYTES_MAX: usize = 128 << 20;
/// A request that takes longer is answered with an error.
pub const HTTP_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Topics of one page.
pub const TOPICS_PAGE_MAX: i64 = 500;
/// How long a stopping broker waits for requests under way.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
