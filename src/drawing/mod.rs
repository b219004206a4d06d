//! A trace as lines of text: the tree at the left, a bar of time at the right, what failed below. Pure.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | lines: the tree, the columns, what failed |
//! | `bar` | a message on the axis of time |

mod bar;

use std::collections::BTreeSet;

use laneway_client::trace::{GroupHop, Hop, HopState, Trace};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

use bar::{Axis, Cell, of_group, of_hop};

/// Levels of the tree that are drawn at most; deeper ones stand at the last of them.
const DEPTH_MAX: usize = 16;
/// Columns of a level.
const LEVEL: usize = 3;
/// Cells of a bar; with fewer it says nothing and is left out.
const BAR_MIN: usize = 12;
/// Columns of a key or a reason that are shown.
const TEXT_MAX: usize = 60;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// One line of the table: a message in a group.
struct Row<'a> {
    label: String,
    about: String,
    hop: &'a Hop,
    group: Option<&'a GroupHop>,
    is_critical: bool,
    /// What stands before the notes of the message.
    below: String,
}

/// The whole drawing.
pub fn lines(trace: &Trace, width: usize, colour: bool) -> Vec<String> {
    let rows = rows(trace, levels(width));
    let widest =
        |texts: &mut dyn Iterator<Item = &str>| texts.map(UnicodeWidthStr::width).max().unwrap_or_default();
    let about_width = widest(&mut rows.iter().map(|row| row.about.as_str())).min(width / 3);
    let label_width = widest(&mut rows.iter().map(|row| row.label.as_str()))
        .min(width.saturating_sub(about_width + 2) / 2 + BAR_MIN);
    let bar_width = width.saturating_sub(label_width + about_width + 2);
    let axis = Axis::of(&trace.hops, if bar_width < BAR_MIN { 0 } else { bar_width });
    let mut lines = vec![paint(&fit(&format!("trace {}", trace.trace_id), width), BOLD, colour)];
    lines.push(fit(&summary(trace, &axis), width));
    lines.extend(linked(trace).into_iter().map(|line| fit(&line, width)));
    lines.push(String::new());
    for row in &rows {
        let label = pad(&fit(&row.label, label_width), label_width);
        let label = if row.is_critical { paint(&label, BOLD, colour) } else { label };
        let about = pad(&fit(&row.about, about_width), about_width);
        lines.push(format!("{label} {about} {}", bar(row, &axis, colour)).trim_end().to_owned());
        lines.extend(notes(row).map(|note| paint(&fit(&note, width), DIM, colour)));
    }
    lines.push(String::new());
    lines.push(paint(&fit(LEGEND, width), DIM, colour));
    lines
}

const LEGEND: &str =
    "• published  ░ waiting  █ handling  ▒ failed  · pause before a retry  ▌ acked  ✗ dead  * critical path";

fn summary(trace: &Trace, axis: &Axis) -> String {
    let topics: BTreeSet<&str> = trace.hops.iter().map(|hop| hop.topic.as_str()).collect();
    let more = if trace.truncated { " and more" } else { "" };
    format!(
        "{}{more} in {}, {}: waiting {}, handling {}",
        counted(trace.hops.len(), "message"),
        counted(topics.len(), "topic"),
        took(axis.end_us - axis.start_us),
        took(trace.waiting_us),
        took(trace.handling_us),
    )
}

fn linked(trace: &Trace) -> Vec<String> {
    let line = |what: &str, ids: &[String]| (!ids.is_empty()).then(|| format!("{what} {}", ids.join(", ")));
    [line("links to", &trace.links), line("linked by", &trace.linked_by)].into_iter().flatten().collect()
}

fn counted(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A span of time as people say it.
pub fn took(us: i64) -> String {
    match us {
        ..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..60_000_000 => format!("{:.2} s", us as f64 / 1e6),
        _ => format!("{:.1} min", us as f64 / 6e7),
    }
}

/// Levels of the tree that leave room for the place of a message, however deep it stands: a label has a third of the width and a little
/// more.
fn levels(width: usize) -> usize {
    (width / 3 / LEVEL).saturating_sub(1).clamp(2, DEPTH_MAX)
}

fn rows(trace: &Trace, levels: usize) -> Vec<Row<'_>> {
    let lasts = last_siblings(&trace.hops);
    let critical: BTreeSet<usize> = trace.critical_path.iter().copied().collect();
    let mut rows = Vec::new();
    for (place, hop) in trace.hops.iter().enumerate() {
        let (before, below) = branches(&trace.hops, &lasts, place, levels);
        let is_critical = critical.contains(&place);
        let mark = if is_critical { "*" } else { "" };
        let key = hop.key.as_deref().map(|key| format!(" {}", shown(key))).unwrap_or_default();
        let label = format!("{before}{}/{}@{}{mark}{key}", hop.topic, hop.partition, hop.offset);
        match hop.groups.split_first() {
            None => {
                let about = "no group".to_owned();
                rows.push(Row { label, about, hop, group: None, is_critical, below });
            }
            Some((first, others)) => {
                let row = |label, group| Row {
                    label,
                    about: about(group),
                    hop,
                    group: Some(group),
                    is_critical,
                    below: below.clone(),
                };
                rows.push(row(label, first));
                rows.extend(others.iter().map(|group| row(below.clone(), group)));
            }
        }
    }
    rows
}

/// Whether each message is the last effect of its cause.
fn last_siblings(hops: &[Hop]) -> Vec<bool> {
    let mut seen = BTreeSet::new();
    let mut lasts: Vec<bool> = hops.iter().rev().map(|hop| seen.insert(hop.parent)).collect();
    lasts.reverse();
    lasts
}

/// What stands before a message, and before what belongs to it on the lines below.
fn branches(hops: &[Hop], lasts: &[bool], place: usize, levels: usize) -> (String, String) {
    let ancestors = std::iter::successors(hops[place].parent, |parent| hops[*parent].parent);
    let mut above: Vec<usize> = ancestors.take(levels).collect();
    above.pop(); // roots have no branch
    let trunk: String = above.iter().rev().map(|at| if lasts[*at] { "   " } else { "│  " }).collect();
    let has_effects = hops.get(place + 1).is_some_and(|next| next.parent == Some(place));
    let own = if has_effects { "│  " } else { "   " };
    match (hops[place].parent, lasts[place]) {
        (None, _) => (String::new(), own.to_owned()),
        (Some(_), true) => (format!("{trunk}└─ "), format!("{trunk}   {own}")),
        (Some(_), false) => (format!("{trunk}├─ "), format!("{trunk}│  {own}")),
    }
}

fn about(group: &GroupHop) -> String {
    let state = match (group.state, group.ahead) {
        (HopState::Waiting | HopState::Retrying, Some(ahead)) if ahead > 0 => {
            format!("{}, {ahead} ahead", group.state.as_str())
        }
        (HopState::DeadLettered, _) => "dead letter".to_owned(),
        (state, _) => state.as_str().to_owned(),
    };
    let tries = if group.attempts > 1 { format!(" ×{}", group.attempts) } else { String::new() };
    format!("{} {state}{tries}", group.group)
}

/// What failed, one line each.
fn notes<'a>(row: &'a Row<'_>) -> impl Iterator<Item = String> + 'a {
    let failures = row.group.into_iter().flat_map(|group| &group.failures);
    failures.map(|failure| match failure.attempt {
        0 => format!("{}  not delivered: {}", row.below, shown(&failure.reason)),
        _ => format!("{}  attempt {} failed: {}", row.below, failure.attempt, shown(&failure.reason)),
    })
}

/// Text of others: short, on one line, and without a say in what the terminal does.
fn shown(text: &str) -> String {
    let clean = text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char });
    fit(&clean.collect::<String>(), TEXT_MAX)
}

fn bar(row: &Row<'_>, axis: &Axis, colour: bool) -> String {
    let cells = match row.group {
        Some(group) => of_group(row.hop, group, axis),
        None => of_hop(row.hop, axis),
    };
    let cells = if axis.cells == 0 { Vec::new() } else { cells };
    let mut out = String::new();
    for run in cells.chunk_by(|a, b| a == b) {
        let text: String = run.iter().map(|cell: &Cell| cell.glyph()).collect();
        match run.first().and_then(|cell| cell.colour()) {
            Some(code) => out.push_str(&paint(&text, code, colour)),
            None => out.push_str(&text),
        }
    }
    out
}

fn paint(text: &str, code: &str, colour: bool) -> String {
    if colour { format!("{code}{text}{PLAIN}") } else { text.to_owned() }
}

/// Cuts a line that takes more columns than there are, and says so. A character may take two of them, or none.
fn fit(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut taken = 0;
    let fits = |char: &char| {
        taken += char.width().unwrap_or_default();
        taken < width
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.width());
    format!("{text}{}", " ".repeat(missing))
}

#[cfg(test)]
mod tests;
