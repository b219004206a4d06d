//! The bytes of a sealed payload: a version, the counter that its nonce is made of, the ciphertext, the tag.
//!
//! Bound to it, so that it opens nowhere else: the place, topic, partition and data key, the fingerprint of the ring key, the trace id
//! and the key of the message. Not bound: offset, time, headers, content type, which are not known or not needed when it is sealed.

use std::sync::Arc;

use aws_lc_rs::aead::{Aad, Nonce};
use bytes::Bytes;

use super::data_key::{DataKey, Exhausted, Place, WritingKey};
use crate::ids::{DataKeyId, PartitionId, TraceId};

/// The only form there is.
const VERSION: u8 = 1;
const COUNTER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// By how much a sealed payload is longer.
pub(super) const OVERHEAD_BYTES: usize = 1 + COUNTER_BYTES + TAG_BYTES;

/// What of a message its payload is bound to, and where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound<'a> {
    pub partition_id: PartitionId,
    pub place: Place,
    pub trace_id: TraceId,
    pub key: Option<&'a [u8]>,
}

/// What was stored is not what was sealed, or was sealed for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAuthentic;

/// A payload as it is stored, and what has sealed it: the key stays open for as long as somebody may write this.
#[derive(Clone)]
pub struct Sealed {
    pub key: Arc<WritingKey>,
    pub envelope: Bytes,
}

impl Sealed {
    pub fn data_key_id(&self) -> DataKeyId {
        self.key.data_key.id
    }
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealed({} bytes by {})", self.envelope.len(), self.data_key_id())
    }
}

impl PartialEq for Sealed {
    fn eq(&self, other: &Self) -> bool {
        self.data_key_id() == other.data_key_id() && self.envelope == other.envelope
    }
}

impl Eq for Sealed {}

impl WritingKey {
    /// Seals a payload for the one who writes it.
    pub fn sealed(self: &Arc<Self>, bound: &Bound<'_>, payload: &[u8]) -> Result<Sealed, Exhausted> {
        Ok(Sealed { key: self.clone(), envelope: self.seal(bound, payload)?.into() })
    }

    /// Seals a payload, under a counter that no other has.
    fn seal(&self, bound: &Bound<'_>, payload: &[u8]) -> Result<Vec<u8>, Exhausted> {
        let counter = self.count()?;
        let mut sealed = Vec::with_capacity(payload.len() + OVERHEAD_BYTES);
        sealed.push(VERSION);
        sealed.extend_from_slice(&counter.to_be_bytes());
        sealed.extend_from_slice(payload);
        let text = &mut sealed[1 + COUNTER_BYTES..];
        let (nonce, about) = (nonce(counter), about(&self.data_key, bound));
        let tag = self.data_key.key.seal_in_place_separate_tag(nonce, Aad::from(about), text);
        sealed.extend_from_slice(tag.expect("a payload is shorter than AES-GCM takes").as_ref());
        Ok(sealed)
    }
}

impl DataKey {
    /// Opens what was sealed with it, for the same message at the same place.
    pub fn open(&self, bound: &Bound<'_>, sealed: &[u8]) -> Result<Vec<u8>, NotAuthentic> {
        let Some((&[VERSION], rest)) = sealed.split_first_chunk::<1>() else { return Err(NotAuthentic) };
        let (counter, text) = rest.split_first_chunk::<COUNTER_BYTES>().ok_or(NotAuthentic)?;
        let mut text = text.to_vec();
        let about = about(self, bound);
        let opened = self.key.open_in_place(nonce(u64::from_be_bytes(*counter)), Aad::from(about), &mut text);
        let bytes = opened.map_err(|_| NotAuthentic)?.len();
        text.truncate(bytes);
        Ok(text)
    }
}

/// 96 bits: a counter never comes near them.
fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// The associated data. Parts of fixed length, then the one that is not: no two messages give the same bytes.
fn about(key: &DataKey, bound: &Bound<'_>) -> Vec<u8> {
    let mut about = Vec::with_capacity(80 + bound.key.map_or(0, <[u8]>::len));
    about.extend_from_slice(match bound.place {
        Place::Message => b"laneway 1 m",
        Place::Copy => b"laneway 1 c",
    });
    about.extend_from_slice(&key.home.topic_id.0.to_be_bytes());
    about.extend_from_slice(&bound.partition_id.0.to_be_bytes());
    about.extend_from_slice(key.id.0.as_bytes());
    about.extend_from_slice(&key.ring_key.0);
    about.extend_from_slice(bound.trace_id.0.as_bytes());
    about.push(u8::from(bound.key.is_some()));
    about.extend_from_slice(bound.key.unwrap_or_default());
    about
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::super::data_key::tests::{home, writing_key};
    use super::*;

    fn bound(key: Option<&[u8]>) -> Bound<'_> {
        let home = home(7);
        let trace_id = TraceId(Uuid::from_u128(9));
        Bound { partition_id: home.partition_id, place: home.place, trace_id, key }
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..300)
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens_as_it_was_and_does_not_contain_it(
            payload in bytes(), key in proptest::option::of(bytes())
        ) {
            let writing = writing_key();
            let bound = bound(key.as_deref());
            let sealed = writing.seal(&bound, &payload).unwrap();
            prop_assert_eq!(sealed.len(), payload.len() + OVERHEAD_BYTES);
            prop_assert_eq!(writing.data_key.open(&bound, &sealed), Ok(payload.clone()));
            if payload.len() > 8 {
                prop_assert!(!sealed.windows(payload.len()).any(|part| part == payload));
            }
            let again = writing.seal(&bound, &payload).unwrap();
            prop_assert_ne!(&again[..9], &sealed[..9], "another counter");
        }

        #[test]
        fn a_changed_bit_anywhere_is_noticed(payload in bytes(), place in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let writing = writing_key();
            let mut sealed = writing.seal(&bound(None), &payload).unwrap();
            let place = place.index(sealed.len());
            sealed[place] ^= 1_u8 << bit;
            prop_assert_eq!(writing.data_key.open(&bound(None), &sealed), Err(NotAuthentic));
        }

        #[test]
        fn anything_else_does_not_open(garbage in bytes()) {
            prop_assert_eq!(writing_key().data_key.open(&bound(None), &garbage), Err(NotAuthentic));
        }
    }

    #[test]
    fn what_was_sealed_opens_nowhere_else() {
        let writing = writing_key();
        let here = bound(Some(b"k"));
        let sealed = writing.seal(&here, b"secret").unwrap();
        let elsewhere = [
            Bound { partition_id: PartitionId(8), ..here },
            Bound { place: Place::Copy, ..here },
            Bound { trace_id: TraceId(Uuid::from_u128(10)), ..here },
            Bound { key: Some(b"l"), ..here },
            Bound { key: None, ..here },
        ];
        for bound in elsewhere {
            assert_eq!(writing.data_key.open(&bound, &sealed), Err(NotAuthentic), "{bound:?}");
        }
        assert_eq!(writing_key().data_key.open(&here, &sealed), Err(NotAuthentic), "another key");
        assert_eq!(writing.data_key.open(&here, &sealed[..sealed.len() - 1]), Err(NotAuthentic), "cut");
        assert_eq!(writing.data_key.open(&here, &sealed).as_deref(), Ok(&b"secret"[..]));
    }

    #[test]
    fn a_missing_key_is_not_an_empty_one() {
        let writing = writing_key();
        let sealed = writing.seal(&bound(None), b"secret").unwrap();
        assert_eq!(writing.data_key.open(&bound(Some(b"")), &sealed), Err(NotAuthentic));
    }
}
