//! Which topics a subscription is about: some by name, or those that match a pattern and labels. Pure.
//!
//! A pattern is a topic name in which `*` stands for any characters, dots too, also for none: `orders.*` matches `orders.eu`
//! and `orders.eu.vip`, but not `orders`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::labels::{InvalidLabel, Labels, check_labels};
use crate::topic::{InvalidTopicName, TOPIC_NAME_CHARS_MAX, TopicName};

/// Topics of one subscription: each is a membership with lanes of its own, in the database and in the memory of a broker.
pub const SELECTION_TOPICS_MAX: usize = 1_000;

/// Named topics, or a pattern, or labels, or both of these.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Selection {
    /// By name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<String>,
    /// A name with `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// All of them must match.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// A selection that selects nothing, or contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelection {
    /// Neither names nor a pattern nor labels.
    #[error("a selection has topics, or a pattern, or labels, or a pattern and labels")]
    Empty,
    /// Names, and something else.
    #[error("a selection has topics by name, or a pattern and labels, not both")]
    Contradictory,
    /// A name that is none.
    #[error("topics[{index}]: {error}")]
    Name {
        /// Its place.
        index: usize,
        /// What is wrong.
        error: InvalidTopicName,
    },
    /// The same name again.
    #[error("topic {name} is named twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// More names than one subscription may have.
    #[error("a subscription has at most {SELECTION_TOPICS_MAX} topics, and this one names {count}")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// Not a name with `*`.
    #[error(
        "a pattern has 1 to {TOPIC_NAME_CHARS_MAX} characters of a-z, A-Z, 0-9, '.', '_', '-' and '*', and no two '*' in a row"
    )]
    Pattern,
    /// A label that is none.
    #[error(transparent)]
    Label(#[from] InvalidLabel),
}

impl Selection {
    /// Checks that it selects something, without contradiction.
    pub fn check(&self) -> Result<(), InvalidSelection> {
        let by_match = self.pattern.is_some() || !self.labels.is_empty();
        match (self.topics.is_empty(), by_match) {
            (true, false) => return Err(InvalidSelection::Empty),
            (false, true) => return Err(InvalidSelection::Contradictory),
            (true, true) | (false, false) => {}
        }
        if self.topics.len() > SELECTION_TOPICS_MAX {
            return Err(InvalidSelection::TooMany { count: self.topics.len() });
        }
        let mut names = BTreeSet::new();
        for (index, name) in self.topics.iter().enumerate() {
            TopicName::new(name.clone()).map_err(|error| InvalidSelection::Name { index, error })?;
            if !names.insert(name) {
                return Err(InvalidSelection::Twice { name: name.clone() });
            }
        }
        if self.pattern.as_deref().is_some_and(|pattern| !is_pattern(pattern)) {
            return Err(InvalidSelection::Pattern);
        }
        Ok(check_labels(&self.labels)?)
    }

    /// Whether it selects a topic.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        if !self.topics.is_empty() {
            return self.topics.iter().any(|topic| topic == name);
        }
        let has = |(wanted, value): (&String, &String)| labels.get(wanted) == Some(value);
        self.pattern.as_deref().is_none_or(|pattern| is_match(pattern, name)) && self.labels.iter().all(has)
    }
}

fn is_pattern(pattern: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-*".contains(&byte);
    (1..=TOPIC_NAME_CHARS_MAX).contains(&pattern.len())
        && pattern.bytes().all(is_known)
        && !pattern.contains("**")
}

/// Whether a name matches a pattern. The pieces between the stars are found from the left, each as early as possible: an early
/// piece leaves the most to those behind it.
fn is_match(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(last) = pieces.next_back() else { return pattern == name }; // no star
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(pattern: &str) -> Selection {
        Selection { pattern: Some(pattern.to_owned()), ..Selection::default() }
    }

    fn topics(names: &[&str]) -> Selection {
        Selection { topics: names.iter().map(|name| (*name).to_owned()).collect(), ..Selection::default() }
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (text, name, matches) in [
            ("orders.*", "orders.eu", true),
            ("orders.*", "orders.eu.vip", true),
            ("orders.*", "orders.", true),
            ("orders.*", "orders", false),
            ("orders.*", "my.orders.eu", false),
            ("*.eu", "orders.eu", true),
            ("*.eu", ".eu", true),
            ("*.eu", "orders.eu.vip", false),
            ("o*s.*u", "orders.eu", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*", "anything", true),
            ("orders", "orders", true),
            ("orders", "orders2", false),
        ] {
            assert_eq!(pattern(text).matches(name, &Labels::new()), matches, "{text} {name}");
        }
    }

    #[test]
    fn labels_must_all_match_and_patterns_too() {
        let both = Selection { labels: labels(&[("task", "ship"), ("namespace", "shop")]), ..pattern("a*") };
        assert!(both.matches("ab", &labels(&[("task", "ship"), ("namespace", "shop"), ("more", "x")])));
        assert!(!both.matches("b", &labels(&[("task", "ship"), ("namespace", "shop")])));
        assert!(!both.matches("ab", &labels(&[("task", "ship")])));
        assert!(!both.matches("ab", &labels(&[("task", "ship"), ("namespace", "other")])));
    }

    #[test]
    fn bad_selections_are_refused_with_their_reason() {
        assert_eq!(Selection::default().check(), Err(InvalidSelection::Empty));
        let both = Selection { pattern: Some("a*".into()), ..topics(&["a"]) };
        assert_eq!(both.check(), Err(InvalidSelection::Contradictory));
        let both = Selection { labels: labels(&[("task", "ship")]), ..topics(&["a"]) };
        assert_eq!(both.check(), Err(InvalidSelection::Contradictory));
        assert!(matches!(topics(&["a", "b c"]).check(), Err(InvalidSelection::Name { index: 1, .. })));
        assert_eq!(topics(&["a", "a"]).check(), Err(InvalidSelection::Twice { name: "a".into() }));
        let many: Vec<String> = (0..=SELECTION_TOPICS_MAX).map(|n| format!("t{n}")).collect();
        let many = Selection { topics: many, ..Selection::default() };
        assert!(matches!(many.check(), Err(InvalidSelection::TooMany { .. })));
        for bad in ["", "a b", "a**", "a?", "[a]", &"x".repeat(TOPIC_NAME_CHARS_MAX + 1)] {
            assert_eq!(pattern(bad).check(), Err(InvalidSelection::Pattern), "{bad}");
        }
        let label = Selection { labels: labels(&[("task", "*")]), ..Selection::default() };
        assert!(matches!(label.check(), Err(InvalidSelection::Label(_))));
        assert_eq!(Selection { labels: labels(&[("a", "b")]), ..pattern("x.*") }.check(), Ok(()));
    }

    /// The rule as its definition has it: every way to fill the stars is tried.
    fn by_definition(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|taken| by_definition(rest, &name[taken..])),
            Some((byte, rest)) => {
                name.split_first().is_some_and(|(first, name)| first == byte && by_definition(rest, name))
            }
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_as_its_definition_says(text in "[ab.*]{1,10}", name in "[ab.]{0,14}") {
            prop_assert_eq!(is_match(&text, &name), by_definition(text.as_bytes(), name.as_bytes()));
        }

        #[test]
        fn a_name_with_pieces_cut_out_matches(name in "[a-z.]{1,20}", from in 0_usize..20, len in 0_usize..20) {
            let from = from.min(name.len());
            let to = (from + len).min(name.len());
            let text = format!("{}*{}", &name[..from], &name[to..]);
            prop_assert!(is_match(&text, &name));
        }
    }
}
