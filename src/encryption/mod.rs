//! Encryption at rest, without a database: the keys that operators give, and how a payload is sealed. Pure.
//!
//! | file | owns |
//! |---|---|
//! | `ring` | the key ring: read from a file or a variable, checked, never shown |
//! | `data_key` | keys that are derived from it, each for one place and a bounded number of messages |
//! | `envelope` | the bytes of a sealed payload |
//!
//! Who makes data keys, remembers them and lets them go is the store (`store::vault`). Decisions: `docs/adr/0014-encryption.md`.
//! Invariant: no key and no payload is ever part of a `Debug`, an error or a log line.

pub mod data_key;
pub mod envelope;
pub mod ring;

pub use data_key::{DataKey, Exhausted, Home, Place, Salt, WritingKey};
pub use envelope::{Bound, NotAuthentic, Sealed};
pub use ring::{Fingerprint, KeyRing, RingError, RingKey};
