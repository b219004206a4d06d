//! The key ring: named keys of 32 bytes. The first seals, all of them open.
//!
//! Written as `name:key`, one per line or separated by commas, the key in base64 or as 64 hexadecimal digits; what follows a `#` is a
//! remark. Errors name the place and the name, never what stands there as a key: it may be one, with a typing error.

use aws_lc_rs::hkdf;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

use crate::limits::{RING_KEY_NAME_CHARS_MAX, RING_KEYS_MAX};

/// The variable that may hold a ring.
pub const VARIABLE: &str = "LANEWAY_KEY_RING";
/// Bytes of every key.
pub const KEY_BYTES: usize = 32;

/// What a key is known by beside its name: it does not lead back to the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 8]);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A key that an operator has given.
pub struct RingKey {
    name: String,
    fingerprint: Fingerprint,
    secret: Zeroizing<[u8; KEY_BYTES]>,
}

impl std::fmt::Debug for RingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingKey({} {})", self.name, self.fingerprint)
    }
}

/// The keys of a broker. Empty: it can neither seal nor open.
#[derive(Debug, Default)]
pub struct KeyRing {
    keys: Vec<RingKey>,
}

/// Why a ring is not taken. `entry` counts from 1, remarks and empty lines left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    #[error("the key ring has no key: write one as name:key (`laneway keys generate NAME` makes one)")]
    Empty,
    #[error("the key ring has more than {RING_KEYS_MAX} keys")]
    TooMany,
    #[error("entry {entry} of the key ring is not of the form name:key")]
    Form { entry: usize },
    #[error(
        "entry {entry} of the key ring: a name has 1 to {RING_KEY_NAME_CHARS_MAX} characters of a-z, A-Z, 0-9, '.', '_' and '-'"
    )]
    Name { entry: usize },
    #[error(
        "entry {entry} of the key ring ({name}): a key is 32 bytes, in base64 (with padding) or as 64 hexadecimal digits"
    )]
    Key { entry: usize, name: String },
    #[error("entry {entry} of the key ring ({name}): all bytes of the key are the same, so it is none")]
    Weak { entry: usize, name: String },
    #[error("entry {entry} of the key ring: the name {name} is there already")]
    NameTwice { entry: usize, name: String },
    #[error("entry {entry} of the key ring ({name}) is the same key as {other}")]
    KeyTwice { entry: usize, name: String, other: String },
}

impl RingKey {
    pub fn new(name: String, secret: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        let mut print = [0; 8];
        // Derived apart from every data key, so that it says nothing about them.
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"laneway ring key").extract(&*secret);
        let okm = prk.expand(&[b"fingerprint"], Bytes(print.len())).expect("eight bytes can be derived");
        okm.fill(&mut print).expect("eight bytes were asked for");
        Self { name, fingerprint: Fingerprint(print), secret }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    pub(super) fn secret(&self) -> &[u8] {
        &*self.secret
    }
}

/// How many bytes are derived.
#[derive(Debug, Clone, Copy)]
struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

impl KeyRing {
    /// Reads a ring as it is written.
    pub fn parse(text: &str) -> Result<Self, RingError> {
        let mut ring = Self::default();
        let bare = |line| str::split(line, '#').next().unwrap_or_default();
        let entries = text.lines().map(bare).flat_map(|line| line.split(',')).map(str::trim);
        for (index, text) in entries.filter(|text| !text.is_empty()).enumerate() {
            ring.add(index + 1, text)?;
        }
        if ring.keys.is_empty() { Err(RingError::Empty) } else { Ok(ring) }
    }

    fn add(&mut self, entry: usize, text: &str) -> Result<(), RingError> {
        if self.keys.len() >= RING_KEYS_MAX {
            return Err(RingError::TooMany);
        }
        let (name, key) = text.split_once(':').ok_or(RingError::Form { entry })?;
        let name = check_name(name.trim()).ok_or(RingError::Name { entry })?;
        let secret = read_key(key.trim()).ok_or_else(|| RingError::Key { entry, name: name.clone() })?;
        if secret.iter().all(|byte| *byte == secret[0]) {
            return Err(RingError::Weak { entry, name });
        }
        if self.keys.iter().any(|other| other.name == name) {
            return Err(RingError::NameTwice { entry, name });
        }
        let key = RingKey::new(name, secret);
        if let Some(other) = self.find(key.fingerprint) {
            return Err(RingError::KeyTwice { entry, name: key.name, other: other.name.clone() });
        }
        self.keys.push(key);
        Ok(())
    }

    /// The key that seals: the first.
    pub fn active(&self) -> Option<&RingKey> {
        self.keys.first()
    }

    /// The key that has sealed something.
    pub fn find(&self, fingerprint: Fingerprint) -> Option<&RingKey> {
        self.keys.iter().find(|key| key.fingerprint == fingerprint)
    }

    /// All of them, the one that seals first.
    pub fn keys(&self) -> &[RingKey] {
        &self.keys
    }
}

/// A name, if it keeps the rule.
pub fn check_name(name: &str) -> Option<String> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fits = (1..=RING_KEY_NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_fine);
    fits.then(|| name.to_owned())
}

fn read_key(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let bytes = Zeroizing::new(match text.len() {
        64 if text.is_ascii() => read_hex(text)?,
        _ => BASE64.decode(text).ok()?,
    });
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    (bytes.len() == KEY_BYTES).then(|| key.copy_from_slice(&bytes))?;
    Some(key)
}

fn read_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8);
    text.as_bytes().chunks_exact(2).map(pair).collect()
}

/// A new entry of a ring: for whoever sets one up.
pub fn generate(name: &str) -> Zeroizing<String> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    aws_lc_rs::rand::fill(&mut *key).expect("the system gives random bytes");
    Zeroizing::new(format!("{name}:{}", &*Zeroizing::new(BASE64.encode(*key))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
    const TWO: &str = "202122232425262728292a2b2c2d2e2f303132333435363738393A3B3C3D3E3F";

    #[test]
    fn the_first_key_seals_and_all_of_them_open() {
        let ring = KeyRing::parse(&format!("# of this year\n new : {ONE} # remark\n\nold:{TWO}")).unwrap();
        let names: Vec<&str> = ring.keys().iter().map(RingKey::name).collect();
        assert_eq!(names, ["new", "old"]);
        assert_eq!(ring.active().map(RingKey::name), Some("new"));
        let old = ring.keys()[1].fingerprint();
        assert_eq!(ring.find(old).map(RingKey::name), Some("old"));
        let other = KeyRing::parse(&format!("renamed:{TWO},second:{ONE}")).unwrap();
        assert_eq!(other.active().map(RingKey::fingerprint), Some(old), "a name is for people");
    }

    #[test]
    fn a_ring_that_is_wrong_is_refused_and_its_keys_are_not_repeated() {
        let refused = |text: &str| KeyRing::parse(text).unwrap_err();
        assert_eq!(refused(" # nothing\n,"), RingError::Empty);
        assert_eq!(refused(ONE), RingError::Form { entry: 1 });
        assert_eq!(refused(&format!("a b:{ONE}")), RingError::Name { entry: 1 });
        assert_eq!(refused(&format!(":{ONE}")), RingError::Name { entry: 1 });
        for short in ["", "c2hvcnQ=", "abcd", &ONE[1..], &TWO[2..], "0xzz"] {
            assert_eq!(refused(&format!("a:{short}")), RingError::Key { entry: 1, name: "a".into() });
        }
        let zeroes = "00".repeat(32);
        assert_eq!(refused(&format!("a:{zeroes}")), RingError::Weak { entry: 1, name: "a".into() });
        assert_eq!(refused(&format!("a:{ONE},a:{TWO}")), RingError::NameTwice { entry: 2, name: "a".into() });
        let twice = refused(&format!("a:{ONE},b:{ONE}"));
        assert_eq!(twice, RingError::KeyTwice { entry: 2, name: "b".into(), other: "a".into() });
        let many: Vec<String> = (0..=RING_KEYS_MAX).map(|n| generate(&format!("k{n}")).to_string()).collect();
        assert_eq!(refused(&many.join("\n")), RingError::TooMany);
        for error in [refused(&format!("a:{}", &ONE[1..])), twice] {
            assert!(!format!("{error} {error:?}").contains(&ONE[2..10]));
        }
    }

    #[test]
    fn a_ring_does_not_show_its_keys() {
        let ring = KeyRing::parse(&format!("a:{ONE}")).unwrap();
        let shown = format!("{ring:?}");
        assert!(
            shown.contains("RingKey(a ") && !shown.contains(ONE) && !shown.contains("1, 2, 3"),
            "{shown}"
        );
    }

    #[test]
    fn what_is_generated_is_a_ring() {
        let (one, two) = (generate("2026-11"), generate("2026-11"));
        assert_ne!(one, two);
        assert_eq!(KeyRing::parse(&one).unwrap().active().map(RingKey::name), Some("2026-11"));
    }
}
