//! Whether a broker has the keys that its encrypted topics need.

use laneway_client::keys::{KeyDescription, KeyList, KeyRole};

use super::Finding;

/// `keys`: what the broker says about its ring, or why it does not.
pub(super) fn keys(keys: &Result<KeyList, String>) -> Finding {
    const CHECK: &str = "encryption";
    let list = match keys {
        Ok(list) => list,
        Err(reason) => {
            let found = format!("the broker does not say which keys it has: {reason}");
            return Finding::warn(CHECK, found, "ask again once it is ready");
        }
    };
    let of = |role| list.keys.iter().filter(move |key: &&KeyDescription| key.role == role);
    let missing: Vec<String> =
        of(KeyRole::Missing).map(|key| format!("{} ({})", key.name, key.fingerprint)).collect();
    if !missing.is_empty() {
        return Finding::wrong(
            CHECK,
            format!("the key ring of the broker lacks {}, and stored messages need it", missing.join(", ")),
            "put it into the ring below the one that seals, and restart the broker",
        );
    }
    match (list.encrypted_topics, of(KeyRole::Seals).next()) {
        (0, None) => Finding::ok(CHECK, "no topic is encrypted"),
        (topics, None) => Finding::wrong(
            CHECK,
            format!(
                "{topics} topics are encrypted, and the broker has no key ring: it refuses their messages"
            ),
            "start it with --key-ring-file or LANEWAY_KEY_RING",
        ),
        (topics, Some(key)) => {
            let found = format!("{topics} topics are encrypted; new messages are sealed under {}", key.name);
            Finding::ok(CHECK, found)
        }
    }
}
