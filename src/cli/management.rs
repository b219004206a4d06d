//! `laneway topic purge` and `laneway topic partitions`: what is asked before messages go, and how the answers are printed.

use std::io::{BufRead, IsTerminal as _};

use clap::Args;
use laneway_client::Admin;
use laneway_client::management::{LaneStatistics, PartitionStatistics, Purge, Purged, PurgedPartition};

use super::Failure;
use super::access::{Access, print_table};
use crate::cli::output::println;

#[derive(Debug, Args)]
pub(super) struct PurgeTopic {
    /// Its name
    name: String,
    #[command(flatten)]
    bound: Bound,
    /// With --before-offset: the partition that it is about
    #[arg(long, value_name = "N", requires = "before_offset")]
    partition: Option<u32>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Bound {
    /// Everything that it holds now
    #[arg(long)]
    all: bool,
    /// What was published before a time like 2026-11-16T06:00:00Z
    #[arg(long, value_name = "TIME")]
    before: Option<jiff::Timestamp>,
    /// What lies below an offset of one partition
    #[arg(long, value_name = "OFFSET", requires = "partition")]
    before_offset: Option<i64>,
}

impl PurgeTopic {
    pub(super) async fn run(self, access: &Access, admin: &Admin) -> Result<(), Failure> {
        let Self { name, bound, partition, yes } = self;
        let (purge, what) = match (bound.before, bound.before_offset.zip(partition)) {
            (Some(at), _) => (Purge::BeforeAt(at.to_string()), format!("what was published before {at}")),
            (None, Some((before_offset, partition))) => (
                Purge::BeforeOffset { partition, before_offset },
                format!("what lies below offset {before_offset} of partition {partition}"),
            ),
            (None, None) => (Purge::All, "everything that it holds".to_owned()),
        };
        if !yes {
            confirm(&name, &what)?;
        }
        let purged = admin.purge_topic(&name, &purge).await?;
        access.print(&purged, |purged| print_purged(&name, purged))
    }
}

/// Asks for the name on the terminal; without one there is nobody to ask.
fn confirm(name: &str, what: &str) -> Result<(), Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(
            format!("topic {name} loses {what}, for good: say --yes, or use a terminal to be asked").into()
        );
    }
    eprint!("Topic {name} loses {what}, for good. Type its name to go on: ");
    match names(input.lock(), name)? {
        true => Ok(()),
        false => Err("nothing was purged".into()),
    }
}

/// Only the name itself is a yes.
fn names(mut input: impl BufRead, name: &str) -> std::io::Result<bool> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(line.trim() == name)
}

fn print_purged(name: &str, purged: &Purged) {
    println!("purged {} messages of topic {name}", purged.messages);
    let row = |one: &PurgedPartition| {
        [one.partition.to_string(), one.messages.to_string(), one.start_offset.to_string()]
    };
    print_table(["PARTITION", "PURGED", "STARTS AT"], purged.partitions.iter().map(row));
}

/// Says below a list which of its rows are paused; nothing if none is.
pub(super) fn print_paused(paused: Vec<String>) {
    if !paused.is_empty() {
        println!("paused: {}", paused.join(", "));
    }
}

/// All partitions of a topic in numbers.
pub(super) async fn partitions(admin: &Admin, topic: &str) -> Result<Vec<PartitionStatistics>, Failure> {
    let mut partitions = Vec::new();
    let mut after = None;
    loop {
        let page = admin.list_partitions(topic, after).await?;
        partitions.extend(page.partitions);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(partitions),
        }
    }
}

pub(super) fn print_partitions(partitions: &[PartitionStatistics]) {
    let row = |partition: &PartitionStatistics, lane: Option<&LaneStatistics>| {
        [
            partition.partition.to_string(),
            partition.stored_messages.to_string(),
            partition.stored_bytes.to_string(),
            partition.scheduled_messages.to_string(),
            partition.oldest_seconds.map_or_else(|| "-".into(), |seconds| format!("{seconds:.0} s")),
            lane.map_or_else(|| "-".into(), |lane| lane.group.clone()),
            lane.map_or_else(|| "-".into(), |lane| lane.lag_messages.to_string()),
            lane.map_or_else(|| "-".into(), |lane| format!("{:.0} s", lane.lag_seconds)),
            lane.and_then(|lane| lane.in_flight).map_or_else(|| "-".into(), |count| count.to_string()),
        ]
    };
    let rows = partitions.iter().flat_map(|partition| match partition.groups.is_empty() {
        true => vec![row(partition, None)],
        false => partition.groups.iter().map(|lane| row(partition, Some(lane))).collect(),
    });
    print_table(
        ["PARTITION", "MESSAGES", "BYTES", "SCHEDULED", "OLDEST", "GROUP", "LAG", "FOR", "IN FLIGHT"],
        rows,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_itself_purges() {
        for (line, expected) in
            [("orders\n", true), (" orders \r\n", true), ("", false), ("y\n", false), ("Orders", false)]
        {
            assert_eq!(names(line.as_bytes(), "orders").unwrap(), expected, "{line:?}");
        }
    }
}
