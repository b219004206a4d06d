//! The messages that are sent: 200 random bytes, an 8-byte key, a UUIDv7 as trace id. A message that is timed begins with the moment
//! at which it was due.

use bytes::Bytes;
use rand::RngCore as _;

use crate::clock::Nanos;

const PAYLOAD_BYTES: usize = 200;
const KEY_BYTES: usize = 8;
/// Random payloads are made once and used in turn: making them is not what is measured.
const POOL: usize = 4_096;

/// A supply of payloads and keys.
#[derive(Debug)]
pub struct Supply {
    payloads: Vec<Bytes>,
    keys: Vec<Bytes>,
    next: usize,
}

impl Supply {
    pub fn new() -> Self {
        let payloads = (0..POOL).map(|_| random(PAYLOAD_BYTES)).collect();
        let keys = (0..POOL).map(|_| random(KEY_BYTES)).collect();
        Self { payloads, keys, next: 0 }
    }

    /// The next payload and key.
    pub fn draw(&mut self) -> (Bytes, Bytes) {
        self.next = (self.next + 1) % POOL;
        (self.payloads[self.next].clone(), self.keys[self.next].clone())
    }

    /// The next payload, with a moment in its first bytes, and key.
    pub fn draw_due(&mut self, due_ns: Nanos) -> (Bytes, Bytes) {
        let (payload, key) = self.draw();
        let mut bytes = payload.to_vec();
        bytes[..8].copy_from_slice(&due_ns.to_le_bytes());
        (bytes.into(), key)
    }
}

/// The moment in the first bytes of a payload.
pub fn due_ns(payload: &[u8]) -> Nanos {
    payload.first_chunk().map_or(0, |bytes| Nanos::from_le_bytes(*bytes))
}

fn random(length: usize) -> Bytes {
    let mut bytes = vec![0; length];
    rand::rng().fill_bytes(&mut bytes);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_tells_when_it_was_due_and_keeps_its_size() {
        let (payload, key) = Supply::new().draw_due(1_763_424_000_123_456_789);
        assert_eq!((payload.len(), key.len()), (PAYLOAD_BYTES, KEY_BYTES));
        assert_eq!(due_ns(&payload), 1_763_424_000_123_456_789);
        assert_eq!(due_ns(b"short"), 0);
    }
}
