//! The sessions that this broker knows: live ones, and lost ones that may still come back.
//!
//! A lost session is parked with its subscriptions until its grace is over. A client that comes back proves itself by its
//! token and claims them; if the old connection still stands, it is told to let go first.
//! Locks: the slot of one session, for a few instructions, never across an await.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dashmap::DashMap;
use parking_lot::Mutex;
use rand::RngCore as _;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::members::GroupMember;
use crate::ids::SessionId;
use crate::limits::TAKEOVER_TIMEOUT;

/// Bytes of a resume token: nobody guesses it.
const TOKEN_BYTES: usize = 32;

/// A new resume token, as text.
pub(super) fn token() -> String {
    let mut bytes = [0; TOKEN_BYTES];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is kept of a resume token, here and in the database.
pub(super) fn token_hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Where a session is.
#[derive(Debug)]
enum Slot {
    Live,
    Parked(Vec<GroupMember>),
    Over,
}

/// One session that this broker knows.
#[derive(Debug)]
pub(super) struct Known {
    pub session_id: SessionId,
    pub token_hash: [u8; 32],
    slot: Mutex<(Slot, Tenure)>,
    changed: Notify,
    /// Whether the database may know it.
    joined: AtomicBool,
}

/// One connection's time as the owner of a session; another one ends it.
#[derive(Debug, Clone)]
pub(super) struct Tenure {
    number: u64,
    /// Cancelled when another connection wants the session.
    pub wanted: CancellationToken,
}

/// What a client that comes back finds.
#[derive(Debug)]
pub(super) enum Claim {
    /// The session is its own again.
    Claimed { known: Arc<Known>, tenure: Tenure, members: Vec<GroupMember> },
    /// This broker knows the session, and that it is over.
    Expired,
    /// It is known here, but the token is wrong, or its old connection does not let go.
    Refused,
    /// Not known here; another broker may.
    Unknown,
}

/// All sessions of a broker.
#[derive(Debug, Default)]
pub(super) struct Registry {
    sessions: DashMap<SessionId, Arc<Known>>,
}

impl Registry {
    /// Enters a live session.
    pub fn enter(&self, session_id: SessionId, token_hash: [u8; 32]) -> (Arc<Known>, Tenure) {
        let tenure = Tenure { number: 0, wanted: CancellationToken::new() };
        let slot = Mutex::new((Slot::Live, tenure.clone()));
        let joined = AtomicBool::new(false);
        let known = Arc::new(Known { session_id, token_hash, slot, changed: Notify::new(), joined });
        self.sessions.insert(session_id, known.clone());
        (known, tenure)
    }

    /// Forgets a session, unless another one of the same id was entered since.
    pub fn forget(&self, known: &Arc<Known>) {
        self.sessions.remove_if(&known.session_id, |_, entered| Arc::ptr_eq(entered, known));
    }

    /// How many it knows.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Claims a session for a new connection; waits for the old one to let go.
    pub async fn claim(&self, session_id: SessionId, token_hash: &[u8; 32]) -> Claim {
        let Some(known) = self.sessions.get(&session_id).map(|known| known.value().clone()) else {
            return Claim::Unknown;
        };
        if !bool::from(known.token_hash.ct_eq(token_hash)) {
            return Claim::Refused;
        }
        match tokio::time::timeout(TAKEOVER_TIMEOUT, known.claimed()).await {
            Ok(Some((tenure, members))) => Claim::Claimed { known, tenure, members },
            Ok(None) => Claim::Expired,
            Err(_) => Claim::Refused,
        }
    }
}

impl Known {
    /// Cancel safety: safe; it is claimed in the last poll or not at all.
    async fn claimed(&self) -> Option<(Tenure, Vec<GroupMember>)> {
        loop {
            let changed = self.changed.notified(); // from here on no change is missed
            {
                let (slot, tenure) = &mut *self.slot.lock();
                match slot {
                    Slot::Over => return None,
                    Slot::Live => tenure.wanted.cancel(),
                    Slot::Parked(members) => {
                        let members = std::mem::take(members);
                        let next = Tenure { number: tenure.number + 1, wanted: CancellationToken::new() };
                        (*slot, *tenure) = (Slot::Live, next.clone());
                        self.changed.notify_waiters();
                        return Some((next, members));
                    }
                }
            }
            changed.await;
        }
    }

    /// It has asked to join a group, so the database may know it from now on.
    pub fn on_joined(&self) {
        self.joined.store(true, Ordering::Relaxed);
    }

    pub fn has_joined(&self) -> bool {
        self.joined.load(Ordering::Relaxed)
    }

    /// Lets go of a session: it waits for its client.
    pub fn park(&self, tenure: &Tenure, members: Vec<GroupMember>) {
        let (slot, current) = &mut *self.slot.lock();
        if current.number == tenure.number {
            *slot = Slot::Parked(members);
        }
        self.changed.notify_waiters();
    }

    /// Waits until somebody has claimed it. Cancel safety: safe.
    pub async fn claimed_from(&self, tenure: &Tenure) {
        loop {
            let changed = self.changed.notified();
            if self.slot.lock().1.number != tenure.number {
                return;
            }
            changed.await;
        }
    }

    /// Ends it, unless somebody has claimed it since: then there is nothing to do any more. Returns what was parked.
    pub fn end(&self, tenure: &Tenure) -> Option<Vec<GroupMember>> {
        let (slot, current) = &mut *self.slot.lock();
        if current.number != tenure.number {
            return None;
        }
        let parked = std::mem::replace(slot, Slot::Over);
        self.changed.notify_waiters();
        match parked {
            Slot::Parked(members) => Some(members),
            Slot::Live | Slot::Over => Some(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> (Registry, Arc<Known>, Tenure, [u8; 32]) {
        let registry = Registry::default();
        let hash = token_hash(&token());
        let (known, tenure) = registry.enter(SessionId(uuid::Uuid::new_v4()), hash);
        (registry, known, tenure, hash)
    }

    #[tokio::test]
    async fn a_live_session_is_claimed_once_its_connection_lets_go() {
        let (registry, known, tenure, hash) = session();
        let letting_go = async {
            tenure.wanted.cancelled().await;
            known.park(&tenure, Vec::new());
            known.claimed_from(&tenure).await;
        };
        let (claim, ()) = tokio::join!(registry.claim(known.session_id, &hash), letting_go);
        assert!(matches!(claim, Claim::Claimed { .. }), "{claim:?}");
        assert!(known.end(&tenure).is_none(), "it is no longer its own");
    }

    #[tokio::test]
    async fn a_wrong_token_disturbs_nobody_and_an_ended_session_is_expired() {
        let (registry, known, tenure, hash) = session();
        let wrong = token_hash("guess");
        assert!(matches!(registry.claim(known.session_id, &wrong).await, Claim::Refused));
        assert!(!tenure.wanted.is_cancelled());
        assert!(known.end(&tenure).is_some());
        assert!(matches!(registry.claim(known.session_id, &hash).await, Claim::Expired));
        registry.forget(&known);
        assert!(matches!(registry.claim(known.session_id, &hash).await, Claim::Unknown));
    }
}
