//! Keys of encrypted topics, as HTTP carries them: which the broker has, and which are still needed. Never the keys themselves.

use serde::{Deserialize, Serialize};

use crate::admin::{Admin, AdminError};

/// What a broker can seal and open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyList {
    /// How many topics are encrypted.
    pub encrypted_topics: u64,
    /// Those of the ring of this broker, the one that seals first, and then those that it lacks.
    pub keys: Vec<KeyDescription>,
}

/// A key of a ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeyDescription {
    /// What it is called.
    pub name: String,
    /// Which key it is, whatever it is called: 16 hexadecimal digits that do not lead back to it.
    pub fingerprint: String,
    /// What the broker that was asked does with it.
    pub role: KeyRole,
    /// Data keys that were derived from it and are still needed; 0: it may leave the rings.
    pub data_keys: u64,
    /// Those of them that some broker seals with now.
    pub open_data_keys: u64,
    /// Topics that they belong to.
    pub topics: u64,
    /// When the first of them was made (RFC 3339), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub first_made_at: Option<String>,
    /// When the last of them was made (RFC 3339), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::Moment>))]
    pub last_made_at: Option<String>,
}

/// What a broker does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeyRole {
    /// Seals new messages, and opens.
    Seals,
    /// Opens what was sealed with it.
    Opens,
    /// Nothing: its ring lacks it, and what was sealed with it stays closed here.
    Missing,
}

impl KeyRole {
    /// As it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seals => "seals",
            Self::Opens => "opens",
            Self::Missing => "missing",
        }
    }
}

impl Admin {
    /// Which keys the broker has, and which are still needed.
    pub async fn list_keys(&self) -> Result<KeyList, AdminError> {
        self.answer(self.http.get(self.url(&["v1", "keys"]))).await
    }
}
