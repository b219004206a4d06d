//! Labels on the command line: `--label name=value`, and `--unlabel name` to take one away.

use laneway_client::labels::{LabelChanges, Labels, check_label};

/// `name=value`, both within their rules.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a label is written as name=value, like task=ship")?;
    check_label(name, Some(value)).map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Labels that were given one by one; the last of a name counts.
pub(super) fn given(labels: &[(String, String)]) -> Labels {
    labels.iter().cloned().collect()
}

/// What is to change.
pub(super) fn changes(set: &[(String, String)], taken_away: &[String]) -> LabelChanges {
    let set = set.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
    taken_away.iter().map(|name| (name.clone(), None)).chain(set).collect()
}

/// As people read them.
pub(super) fn shown(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(" ")
}
