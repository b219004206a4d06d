//! Bounds of encryption at rest.

use std::time::Duration;

/// Keys of a ring: a year of monthly rotation, several times over; each is looked through per data key, not per message.
pub const RING_KEYS_MAX: usize = 64;
/// Characters of the name of a ring key: it stands in tables and errors.
pub const RING_KEY_NAME_CHARS_MAX: usize = 64;
/// Bytes of a file that holds a ring; one that is larger is another file.
pub const RING_FILE_BYTES_MAX: u64 = 64 << 10;
/// Messages under one data key: far below what AES-GCM allows with counters, and where random nonces would have ended.
pub const DATA_KEY_MESSAGES_MAX: u64 = 1 << 32;
/// Data keys that a broker remembers, to open with or to seal with; about 1 KB each. All are forgotten together: they are read again.
pub const DATA_KEYS_REMEMBERED_MAX: usize = 16_384;
/// Data keys that one round drops.
pub const DATA_KEYS_FORGET_MAX: i64 = 1_000;
/// How long a publish waits for the broker's registration, under which its data keys are made.
pub const DATA_KEY_PATIENCE: Duration = Duration::from_secs(5);
/// Before a lane looks again whether a message opens: only an operator can change it.
pub const SEALED_RETRY_PAUSE: Duration = Duration::from_secs(5);
