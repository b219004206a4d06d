//! The messages that are sent: 200 random bytes, an 8-byte key, a UUIDv7 as trace id. A message may carry the moment at which it was
//! due in its first bytes.

use bytes::Bytes;
use rand::RngCore as _;

/// Payload of every message.
pub(super) const PAYLOAD_BYTES: usize = 200;
/// Random payloads are made once and used in turn: making them is not what is measured.
const POOL: usize = 4_096;
/// For producers that are many.
const POOL_SMALL: usize = 64;
/// What a payload with a moment begins with; random bytes do not.
const STAMP: [u8; 8] = *b"due at: ";

/// A supply of payloads and keys.
#[derive(Debug)]
pub(super) struct Supply {
    payloads: Vec<Bytes>,
    keys: Vec<Bytes>,
    next: usize,
}

impl Supply {
    pub fn new() -> Self {
        Self::of(POOL)
    }

    pub fn small() -> Self {
        Self::of(POOL_SMALL)
    }

    fn of(pool: usize) -> Self {
        let mut random = rand::rng();
        let mut bytes = |length: usize| {
            let mut bytes = vec![0; length];
            random.fill_bytes(&mut bytes);
            Bytes::from(bytes)
        };
        let payloads = (0..pool).map(|_| bytes(PAYLOAD_BYTES)).collect();
        let keys = (0..pool).map(|_| bytes(8)).collect();
        Self { payloads, keys, next: 0 }
    }

    /// The next payload and key.
    pub fn draw(&mut self) -> (Bytes, Bytes) {
        self.next = (self.next + 1) % self.payloads.len();
        (self.payloads[self.next].clone(), self.keys[self.next].clone())
    }
}

/// The clock that all processes of one machine share, in microseconds.
pub(super) fn now_us() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

/// The same payload with a moment in its first bytes.
pub(super) fn stamped(payload: &Bytes, due_us: i64) -> Bytes {
    let mut bytes = payload.to_vec();
    bytes[..8].copy_from_slice(&STAMP);
    bytes[8..16].copy_from_slice(&due_us.to_le_bytes());
    Bytes::from(bytes)
}

/// The moment that a payload carries.
pub(super) fn stamp(payload: &[u8]) -> Option<i64> {
    let (moment, _) = payload.strip_prefix(&STAMP)?.split_first_chunk()?;
    Some(i64::from_le_bytes(*moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_tells_its_moment_and_others_have_none() {
        let (payload, _) = Supply::small().draw();
        let stamped = stamped(&payload, 1_763_424_000_123_456);
        assert_eq!((stamped.len(), stamp(&stamped)), (PAYLOAD_BYTES, Some(1_763_424_000_123_456)));
        assert_eq!((stamp(&payload), stamp(b"due at: ")), (None, None));
    }
}
