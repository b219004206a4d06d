//! The rule for the names of topics and groups: one rule, so that a name that is good for one is good for the other.
//!
//! [`TopicName`](crate::TopicName) and [`GroupName`](crate::GroupName) say it in their own words.

/// Longest name; the same as Kafka's for topics, so that names survive a move.
pub(crate) const NAME_CHARS_MAX: usize = 249;

/// Which part of the rule a name breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokenRule {
    Empty,
    TooLong {
        chars: usize,
    },
    /// `.` or `..`: in an address these lead elsewhere.
    Dots,
    Character {
        character: char,
    },
}

/// 1 to 249 characters of `[a-zA-Z0-9._-]`, and not a directory.
pub(crate) fn check(name: &str) -> Result<(), BrokenRule> {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if let Some(character) = name.chars().find(|c| !allowed(c)) {
        return Err(BrokenRule::Character { character });
    }
    match name.len() {
        0 => Err(BrokenRule::Empty),
        _ if name == "." || name == ".." => Err(BrokenRule::Dots),
        1..=NAME_CHARS_MAX => Ok(()),
        chars => Err(BrokenRule::TooLong { chars }),
    }
}
