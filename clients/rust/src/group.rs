//! Groups as people name them. The rule is the one for topics.

use serde::Serialize;

use crate::name::{self, BrokenRule, NAME_CHARS_MAX};

/// Longest group name.
pub const GROUP_NAME_CHARS_MAX: usize = NAME_CHARS_MAX;

/// The name of a group: 1 to 249 characters of `[a-zA-Z0-9._-]`. A group belongs to a topic; its name is its own there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct GroupName(String);

/// A name that breaks the rule, with the rule in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGroupName {
    /// Nothing between the quotes.
    #[error(
        "a group name must not be empty: it has 1 to {GROUP_NAME_CHARS_MAX} characters of a-z, A-Z, 0-9, '.', '_' and '-'"
    )]
    Empty,
    /// More characters than a name may have.
    #[error("a group name has at most {GROUP_NAME_CHARS_MAX} characters, this one has {chars}")]
    TooLong {
        /// How many it has.
        chars: usize,
    },
    /// `.` or `..`: in an address these lead elsewhere.
    #[error("a group cannot be named '.' or '..', because addresses take '.' and '..' for directories")]
    Dots,
    /// A character outside the set.
    #[error("a group name consists of a-z, A-Z, 0-9, '.', '_' and '-', but this one contains {character:?}")]
    Character {
        /// The first one at fault.
        character: char,
    },
}

impl From<BrokenRule> for InvalidGroupName {
    fn from(broken: BrokenRule) -> Self {
        match broken {
            BrokenRule::Empty => Self::Empty,
            BrokenRule::TooLong { chars } => Self::TooLong { chars },
            BrokenRule::Dots => Self::Dots,
            BrokenRule::Character { character } => Self::Character { character },
        }
    }
}

impl GroupName {
    /// Checks a name against the rule.
    ///
    /// ```
    /// use laneway_client::GroupName;
    /// assert!(GroupName::new("billing").is_ok());
    /// assert!(GroupName::new("billing/eu").is_err());
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidGroupName> {
        let name = name.into();
        name::check(&name)?;
        Ok(Self(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for GroupName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_obeys_the_rule_of_topics_and_says_group() {
        assert!(GroupName::new("x".repeat(249)).is_ok());
        assert_eq!(GroupName::new("x".repeat(250)), Err(InvalidGroupName::TooLong { chars: 250 }));
        assert_eq!(GroupName::new(".."), Err(InvalidGroupName::Dots));
        assert_eq!(GroupName::new("é"), Err(InvalidGroupName::Character { character: 'é' }));
        assert!(GroupName::new("").unwrap_err().to_string().starts_with("a group name"));
    }
}
