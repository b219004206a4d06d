//! The messages that are sent: 200 random bytes, an 8-byte key, a UUIDv7 as trace id.

use bytes::Bytes;
use rand::RngCore as _;

/// Payload of every message.
pub(super) const PAYLOAD_BYTES: usize = 200;
/// Random payloads are made once and used in turn: making them is not what is measured.
const POOL: usize = 4_096;

/// A supply of payloads and keys.
#[derive(Debug)]
pub(super) struct Supply {
    payloads: Vec<Bytes>,
    keys: Vec<Bytes>,
    next: usize,
}

impl Supply {
    pub fn new() -> Self {
        let mut random = rand::rng();
        let mut bytes = |length: usize| {
            let mut bytes = vec![0; length];
            random.fill_bytes(&mut bytes);
            Bytes::from(bytes)
        };
        let payloads = (0..POOL).map(|_| bytes(PAYLOAD_BYTES)).collect();
        let keys = (0..POOL).map(|_| bytes(8)).collect();
        Self { payloads, keys, next: 0 }
    }

    /// The next payload and key.
    pub fn draw(&mut self) -> (Bytes, Bytes) {
        self.next = (self.next + 1) % POOL;
        (self.payloads[self.next].clone(), self.keys[self.next].clone())
    }
}
