//! Labels of topics: short words by name (`namespace`, `task`) that people give them and subscriptions match.
//!
//! Both the broker and its clients check them here, so that a label means the same everywhere.

use std::collections::BTreeMap;

/// Labels by name.
pub type Labels = BTreeMap<String, String>;

/// Labels that change: a value, or `None` to take a label away.
pub type LabelChanges = BTreeMap<String, Option<String>>;

/// Labels of one topic: all topics with their labels are in the memory of every broker that serves a selection.
pub const TOPIC_LABELS_MAX: usize = 16;
/// Longest name of a label: a word, as long as the names of columns.
pub const LABEL_NAME_CHARS_MAX: usize = 63;
/// Longest value of a label: as long as the names of topics.
pub const LABEL_VALUE_CHARS_MAX: usize = 249;

/// A label that breaks the rule, with the rule in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLabel {
    /// The name is not one.
    #[error(
        "the name of a label has 1 to {LABEL_NAME_CHARS_MAX} characters of a-z, A-Z, 0-9, '.', '_' and '-', unlike {name:?}"
    )]
    Name {
        /// As it was given, cut.
        name: String,
    },
    /// The value is not one.
    #[error(
        "the value of label {name} has 1 to {LABEL_VALUE_CHARS_MAX} characters of a-z, A-Z, 0-9, '.', '_' and '-', unlike {value:?}"
    )]
    Value {
        /// Whose.
        name: String,
        /// As it was given, cut.
        value: String,
    },
    /// More than a topic may have.
    #[error("a topic has at most {TOPIC_LABELS_MAX} labels")]
    TooMany,
}

fn is_word(text: &str, chars_max: usize) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=chars_max).contains(&text.len()) && text.bytes().all(is_known)
}

/// The beginning of a text, for messages about it.
fn cut(text: &str) -> String {
    text.chars().take(LABEL_NAME_CHARS_MAX).collect()
}

/// Checks the name and the value of one label.
pub fn check_label(name: &str, value: Option<&str>) -> Result<(), InvalidLabel> {
    if !is_word(name, LABEL_NAME_CHARS_MAX) {
        return Err(InvalidLabel::Name { name: cut(name) });
    }
    match value.filter(|value| !is_word(value, LABEL_VALUE_CHARS_MAX)) {
        Some(value) => Err(InvalidLabel::Value { name: name.to_owned(), value: cut(value) }),
        None => Ok(()),
    }
}

/// Checks all labels that a topic is to have.
pub fn check_labels(labels: &Labels) -> Result<(), InvalidLabel> {
    labels.iter().try_for_each(|(name, value)| check_label(name, Some(value)))?;
    if labels.len() > TOPIC_LABELS_MAX { Err(InvalidLabel::TooMany) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_few_short_words() {
        assert!(check_label("namespace", Some("shop.eu")).is_ok());
        assert!(check_label("task", None).is_ok());
        for name in ["", "a b", "ä", &"x".repeat(LABEL_NAME_CHARS_MAX + 1)] {
            assert!(matches!(check_label(name, Some("x")), Err(InvalidLabel::Name { .. })), "{name}");
        }
        for value in ["", "a b", "*", &"x".repeat(LABEL_VALUE_CHARS_MAX + 1)] {
            assert!(matches!(check_label("task", Some(value)), Err(InvalidLabel::Value { .. })), "{value}");
        }
        let many = |count: usize| (0..count).map(|n| (format!("l{n}"), "x".to_owned())).collect::<Labels>();
        assert!(check_labels(&many(TOPIC_LABELS_MAX)).is_ok());
        assert_eq!(check_labels(&many(TOPIC_LABELS_MAX + 1)), Err(InvalidLabel::TooMany));
    }
}
