//! Small values that stand in several frames: ranges, where to start, credit, what follows a failure, secrets.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Offsets from `from` up to, not including, `to`. On the wire: `[from, to]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(i64, i64)", into = "(i64, i64)")]
pub struct OffsetRange {
    /// The first one.
    pub from: i64,
    /// The first one that no longer belongs.
    pub to: i64,
}

impl From<(i64, i64)> for OffsetRange {
    fn from((from, to): (i64, i64)) -> Self {
        Self { from, to }
    }
}

impl From<OffsetRange> for (i64, i64) {
    fn from(range: OffsetRange) -> Self {
        (range.from, range.to)
    }
}

/// Messages and bytes that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreditGrant {
    /// This many messages.
    pub messages: u32,
    /// This many bytes of payloads, keys and headers.
    pub bytes: u64,
}

/// A secret as text. It is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Takes the secret as it is written on the wire.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The secret itself: not for logs.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// As it is written on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        // By hand: the derived one also takes the number of a variant from MessagePack.
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match String::deserialize(deserializer)?.as_str() {
                    $($text => Ok($name::$variant),)*
                    other => Err(D::Error::unknown_variant(other, &[$($text),*])),
                }
            }
        }
    };
}

words! {
    /// What becomes of a message that has failed for good.
    OnFailure {
        /// It is kept as a dead letter, and the lane goes on.
        DeadLetter = "dead_letter",
        /// The lane stops at it.
        Block = "block",
        /// The lane goes on without it.
        Skip = "skip",
        /// Its key is set aside with everything behind it, and all other keys go on; only where order is kept by key.
        Park = "park",
    }
}

words! {
    /// What keeps its order in a group.
    GroupOrdering {
        /// All messages of a partition.
        Partition = "partition",
        /// The messages of each key; different keys do not wait for each other.
        Key = "key",
    }
}

impl GroupOrdering {
    /// Whether it is what holds if nothing is said.
    pub fn is_partition(&self) -> bool {
        *self == Self::Partition
    }
}

// By hand: the words of an enum are listed without attributes.
#[allow(clippy::derivable_impls)]
impl Default for GroupOrdering {
    fn default() -> Self {
        Self::Partition
    }
}

words! {
    /// Whether what a group has not done counts against the limits of its topic.
    GroupCapacity {
        /// It does.
        Counted = "counted",
        /// It does not: the topic may fill up for it.
        Excluded = "excluded",
    }
}

impl GroupCapacity {
    /// Whether it is what holds if nothing is said.
    pub fn is_counted(&self) -> bool {
        *self == Self::Counted
    }
}

// By hand: the words of an enum are listed without attributes.
#[allow(clippy::derivable_impls)]
impl Default for GroupCapacity {
    fn default() -> Self {
        Self::Counted
    }
}

words! {
    /// What becomes of a message that has expired: it is older than its group delivers, or than its own `ttl_ms`.
    OnExpiry {
        /// The lane goes on without it; the trace says so.
        Evict = "evict",
        /// It is kept as a dead letter, and the lane goes on.
        DeadLetter = "dead_letter",
    }
}

impl OnExpiry {
    /// What a group does that says nothing else.
    pub(crate) const fn usual() -> Self {
        Self::Evict
    }

    pub(crate) const fn is_usual(&self) -> bool {
        matches!(self, Self::Evict)
    }
}

words! {
    /// What became of a session or lane that a client came back for.
    ResumeOutcome {
        /// It continues: the epoch is kept.
        Resumed = "resumed",
        /// It does not; the reason is beside it.
        Reset = "reset",
    }
}

/// Where to begin. On the wire: `"earliest"`, `"latest"`, `{"at": time}` or `{"offset": offset}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// With the first message that can still be read.
    Earliest,
    /// With the next message to be published.
    Latest,
    /// With the first message published at or after this moment (RFC 3339).
    At(String),
    /// With this offset, in every partition.
    Offset(i64),
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StartVisitor)
    }
}

struct StartVisitor;

impl<'de> Visitor<'de> for StartVisitor {
    type Value = Start;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#""earliest", "latest", {"at": time} or {"offset": offset}"#)
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Start, E> {
        match word {
            "earliest" => Ok(Start::Earliest),
            "latest" => Ok(Start::Latest),
            other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Start, A::Error> {
        let start = match map.next_key::<String>()?.as_deref() {
            Some("at") => Start::At(map.next_value()?),
            Some("offset") => Start::Offset(map.next_value()?),
            Some(other) => return Err(A::Error::unknown_field(other, &["at", "offset"])),
            None => return Err(A::Error::invalid_length(0, &self)),
        };
        match map.next_key::<String>()? {
            None => Ok(start),
            Some(_) => Err(A::Error::invalid_length(2, &self)),
        }
    }
}
