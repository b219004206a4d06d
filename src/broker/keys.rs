//! Which keys this broker has, which are still needed, and whether it lacks one: for operators, and for the log at the start.

use laneway_client::ErrorCode;

use super::Broker;
use crate::encryption::{Fingerprint, RingKey};
use crate::store::data_keys::RingKeyUse;
use crate::store::{Error, Store};

/// The ring of a broker beside what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysShown {
    pub encrypted_topics: u64,
    /// Those of the ring in its order, then those that it lacks.
    pub keys: Vec<KeyShown>,
}

/// A key by its names, and how far it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyShown {
    pub name: String,
    pub fingerprint: Fingerprint,
    pub role: Role,
    /// Absent: nothing was sealed with it that is still there.
    pub used: Option<RingKeyUse>,
}

/// What a broker does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Seals,
    Opens,
    Missing,
}

impl Broker {
    pub async fn list_keys(&self) -> Result<KeysShown, Error> {
        keys(&self.store).await
    }
}

async fn keys(store: &Store) -> Result<KeysShown, Error> {
    let (encrypted_topics, used) = (store.topics_encrypted().await?, store.data_keys_list().await?);
    Ok(KeysShown { encrypted_topics, keys: beside(store.vault().ring().keys(), used) })
}

/// A ring beside what is in use. Pure.
fn beside(ring: &[RingKey], used: Vec<RingKeyUse>) -> Vec<KeyShown> {
    let mut keys: Vec<KeyShown> = Vec::new();
    for (place, key) in ring.iter().enumerate() {
        keys.push(KeyShown {
            name: key.name().to_owned(),
            fingerprint: key.fingerprint(),
            role: if place == 0 { Role::Seals } else { Role::Opens },
            used: None,
        });
    }
    for used in used {
        match keys.iter_mut().find(|key| key.fingerprint == used.fingerprint) {
            Some(key) => key.used = Some(used.and(key.used.take())),
            None => {
                let (name, fingerprint) = (used.name.clone(), used.fingerprint);
                keys.push(KeyShown { name, fingerprint, role: Role::Missing, used: Some(used) });
            }
        }
    }
    keys
}

/// Says at the start what this broker will refuse; it starts all the same, for the other topics.
pub async fn warn_of_missing(store: &Store) -> Result<(), Error> {
    let shown = keys(store).await?;
    if shown.encrypted_topics > 0 && shown.keys.iter().all(|key| key.role != Role::Seals) {
        tracing::warn!(
            topics = shown.encrypted_topics,
            "topics are encrypted and this broker has no key ring: it refuses what is published to them"
        );
    }
    for key in shown.keys.iter().filter(|key| key.role == Role::Missing) {
        let (name, fingerprint) = (&key.name, key.fingerprint);
        tracing::warn!(key = %name, %fingerprint, "stored messages are encrypted under a key that the ring of this broker lacks: it does not deliver them");
    }
    Ok(())
}

/// Whether it is the payload that cannot be opened, and as what that is told.
pub fn unopened(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::KeyMissing(_) => Some(ErrorCode::KeyMissing),
        Error::NotAuthentic { .. } => Some(ErrorCode::NotAuthentic),
        Error::Unavailable { .. }
        | Error::OutcomeUnknown { .. }
        | Error::Contended { .. }
        | Error::ReadOnly
        | Error::Refused { .. }
        | Error::NoSegment { .. }
        | Error::TableGone { .. }
        | Error::Untrusted { .. }
        | Error::Forbidden { .. }
        | Error::KeyClosed
        | Error::Unexpected { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::encryption::KeyRing;
    use crate::encryption::ring::generate;

    fn used(name: &str, fingerprint: Fingerprint) -> RingKeyUse {
        let at = Timestamp::UNIX_EPOCH;
        let (name, first_made_at, last_made_at) = (name.to_owned(), at, at);
        RingKeyUse { name, fingerprint, data_keys: 2, open_keys: 1, topics: 1, first_made_at, last_made_at }
    }

    #[test]
    fn a_ring_is_shown_beside_what_is_needed_by_fingerprint_not_by_name() {
        let ring = KeyRing::parse(&format!("{}\n{}", &*generate("new"), &*generate("old"))).unwrap();
        let old = ring.keys()[1].fingerprint();
        let other = Fingerprint([9; 8]);
        let shown = beside(ring.keys(), vec![used("new", other), used("once", old), used("old", old)]);
        let roles: Vec<(&str, Role, Option<u64>)> = shown
            .iter()
            .map(|key| (key.name.as_str(), key.role, key.used.as_ref().map(|used| used.data_keys)))
            .collect();
        let expected =
            [("new", Role::Seals, None), ("old", Role::Opens, Some(4)), ("new", Role::Missing, Some(2))];
        assert_eq!(roles, expected);
    }
}
