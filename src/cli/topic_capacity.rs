//! What `laneway topic` says about limits, about how full a topic is, and about what retention has dropped.

use std::time::Duration;

use laneway_client::Admin;
use laneway_client::capacity::RetentionEvent;
use laneway_client::topic::{Retention, TopicDetail};

use super::Failure;
use super::access::print_table;
use super::group_settings::millis;
use crate::cli::output::println;

/// `none`, or a duration.
pub(super) fn duration(text: &str) -> Result<Retention, String> {
    match text {
        "none" => Ok(Retention::None),
        text => match text.parse::<humantime::Duration>() {
            Ok(age) => Ok(Retention::Bound(millis(age))),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// `none`, or a number.
pub(super) fn bound(text: &str) -> Result<Retention, String> {
    match text {
        "none" => Ok(Retention::None),
        text => {
            text.parse().map(Retention::Bound).map_err(|error: std::num::ParseIntError| error.to_string())
        }
    }
}

/// How long completed segments are kept.
pub(super) fn until_completed(grace_ms: u64) -> String {
    match grace_ms {
        0 => "until every group is past it".to_owned(),
        ms => format!("until {} after every group is past it", human(ms)),
    }
}

fn human(ms: u64) -> String {
    humantime::format_duration(Duration::from_millis(ms)).to_string()
}

/// Limits, how much of them is used, and who keeps them so.
pub(super) fn print_capacity(detail: &TopicDetail) {
    let topic = &detail.topic;
    if let Some(expiry_ms) = topic.group_expiry_ms {
        println!("  groups that nobody has used for {} are deleted", human(expiry_ms));
    }
    let Some(depth) = &detail.depth else { return };
    let slowest = depth.slowest_group.as_ref().map(|group| format!(", by group {group}")).unwrap_or_default();
    if let Some(limit) = topic.max_backlog_messages {
        println!("  backlog {} of {limit} messages{slowest}", depth.backlog_messages);
    }
    if let Some(limit) = topic.max_backlog_bytes {
        println!("  backlog {} of {limit} bytes{slowest}", depth.backlog_bytes);
    }
    if let Some(limit) = topic.max_stored_bytes {
        println!("  stored {} of {limit} bytes", depth.stored_bytes);
    }
    if let Some(group) = &depth.retention_waits_for {
        println!("  retention waits for group {group}");
    }
}

/// The newest events, page by page.
pub(super) async fn history(admin: &Admin, name: &str, limit: u32) -> Result<Vec<RetentionEvent>, Failure> {
    Ok(admin.show_retention(name, None, Some(limit)).await?.events)
}

pub(super) fn print_history(name: &str, events: &[RetentionEvent]) {
    if events.is_empty() {
        return println!("nothing was dropped of topic {name}");
    }
    let row = |event: &RetentionEvent| {
        let what = match (&event.group, event.partition) {
            (Some(group), _) => format!("group {group}"),
            (None, Some(partition)) => format!("partition {partition}"),
            (None, None) => String::new(),
        };
        let offsets = event.from_offset.zip(event.to_offset);
        let offsets = offsets.map(|(from, to)| format!("{from}..{to}")).unwrap_or_default();
        let bytes = event.bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        [event.dropped_at.clone(), what, event.reason.as_str().to_owned(), offsets, bytes]
    };
    print_table(["DROPPED", "WHAT", "WHY", "OFFSETS", "BYTES"], events.iter().map(row));
}
