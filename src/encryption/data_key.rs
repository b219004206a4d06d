//! Data keys: derived from a key of the ring and a stored salt, each for one partition, one place and a bounded number of messages.
//!
//! Why derived: a key of the ring seals nothing itself, so that none of them comes near the bound of one key under AES-GCM, and what is
//! stored about a data key is no secret.
//! Invariant: a counter is given once. It begins at 0, lives in the process that made the key, and is stored nowhere it could be
//! read from again; a process that starts makes keys of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf;

use super::ring::{Fingerprint, RingKey};
use crate::ids::{BrokerId, DataKeyId, Offset, PartitionId, TopicId};
use crate::limits::DATA_KEY_MESSAGES_MAX;

/// What is stored of a data key beside its identity.
pub type Salt = [u8; 32];

/// Where something sealed is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Among the messages of a partition, or waiting to get there.
    Message,
    /// Aside: a copy of a message, such as a dead letter.
    Copy,
}

impl Place {
    /// As it is stored, and bound to what is sealed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Place::Message => "message",
            Place::Copy => "copy",
        }
    }
}

/// Which partition a data key belongs to, and which place there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Home {
    pub topic_id: TopicId,
    pub partition_id: PartitionId,
    pub place: Place,
}

/// A key that seals and opens payloads.
pub struct DataKey {
    pub id: DataKeyId,
    pub home: Home,
    /// Of the ring key that it is derived from.
    pub ring_key: Fingerprint,
    pub(super) key: LessSafeKey,
}

impl std::fmt::Debug for DataKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DataKey({} under {})", self.id, self.ring_key)
    }
}

impl DataKey {
    /// Derives the key of an identity and a salt.
    pub fn derive(ring_key: &RingKey, id: DataKeyId, home: Home, salt: &Salt) -> Self {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(ring_key.secret());
        let [topic, partition] = [home.topic_id.0, home.partition_id.0].map(i64::to_be_bytes);
        let info: [&[u8]; 5] =
            [b"laneway data key 1", id.0.as_bytes(), &topic, &partition, home.place.as_str().as_bytes()];
        let okm = prk.expand(&info, &AES_256_GCM).expect("the length of a key can be derived");
        let key = LessSafeKey::new(UnboundKey::from(okm));
        Self { id, home, ring_key: ring_key.fingerprint(), key }
    }
}

/// A data key that this process has made, with the counter of what it has sealed.
#[derive(Debug)]
pub struct WritingKey {
    pub data_key: Arc<DataKey>,
    /// In whose life it was made: another one makes its own.
    pub broker_id: Option<BrokerId>,
    /// Where the segment ends that was written when it was made: from there on another one is due.
    pub segment_end: Offset,
    next: AtomicU64,
    /// Something that it has sealed stands in the next segment.
    is_past: AtomicBool,
}

/// A data key has sealed as many messages as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

impl WritingKey {
    pub fn new(data_key: Arc<DataKey>, broker_id: Option<BrokerId>, segment_end: Offset) -> Self {
        Self { data_key, broker_id, segment_end, next: AtomicU64::new(0), is_past: AtomicBool::new(false) }
    }

    /// A counter that nobody has had.
    pub(super) fn count(&self) -> Result<u64, Exhausted> {
        let step = |next: u64| (next < DATA_KEY_MESSAGES_MAX).then_some(next + 1);
        self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).map_err(|_| Exhausted)
    }

    /// What it has sealed stands in its partition, up to here.
    pub fn on_stored(&self, next_offset: Offset) {
        if next_offset > self.segment_end {
            self.is_past.store(true, Ordering::Relaxed);
        }
    }

    /// Whether so many more messages may be sealed with it.
    pub fn has_room(&self, messages: usize) -> bool {
        let sealed = self.next.load(Ordering::Relaxed).saturating_add(messages as u64);
        sealed <= DATA_KEY_MESSAGES_MAX && !self.is_past.load(Ordering::Relaxed)
    }
}

/// Random bytes for a new data key.
pub fn new_salt() -> Salt {
    let mut salt = [0; 32];
    aws_lc_rs::rand::fill(&mut salt).expect("the system gives random bytes");
    salt
}

#[cfg(test)]
pub(super) mod tests {
    use uuid::Uuid;

    use super::super::ring::{KeyRing, generate};
    use super::*;

    pub fn home(partition: i64) -> Home {
        Home { topic_id: TopicId(3), partition_id: PartitionId(partition), place: Place::Message }
    }

    pub fn writing_key() -> WritingKey {
        let ring = KeyRing::parse(&generate("a")).unwrap();
        let key = DataKey::derive(ring.active().unwrap(), DataKeyId(Uuid::now_v7()), home(7), &new_salt());
        WritingKey::new(Arc::new(key), None, Offset(10))
    }

    #[test]
    fn a_data_key_counts_without_giving_a_number_twice_and_ends_at_its_bound() {
        let key = Arc::new(writing_key());
        let count = |key: Arc<WritingKey>| (0..1_000).map(|_| key.count().unwrap()).collect::<Vec<u64>>();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn({
                    let key = key.clone();
                    move || count(key)
                })
            })
            .collect();
        let mut counters: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        counters.sort_unstable();
        assert_eq!(counters, (0..4_000).collect::<Vec<u64>>());
        key.next.store(DATA_KEY_MESSAGES_MAX - 1, Ordering::Relaxed);
        assert!(key.has_room(1) && !key.has_room(2));
        assert_eq!(key.count(), Ok(DATA_KEY_MESSAGES_MAX - 1));
        assert_eq!((key.count(), key.count()), (Err(Exhausted), Err(Exhausted)), "never begun anew");
    }

    #[test]
    fn a_data_key_is_done_when_its_segment_is() {
        let key = writing_key();
        key.on_stored(Offset(10));
        assert!(key.has_room(1), "the segment is just full");
        key.on_stored(Offset(11));
        assert!(!key.has_room(1));
    }

    #[test]
    fn a_data_key_does_not_show_itself() {
        let shown = format!("{:?}", writing_key());
        assert!(shown.contains("DataKey(") && !shown.contains("LessSafe"), "{shown}");
    }
}
