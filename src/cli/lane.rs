//! `laneway lane`: who holds which partition for which group, and how far behind it is.

use clap::{Args, Subcommand};
use laneway_client::Admin;
use laneway_client::admin::AdminError;
use laneway_client::group_api::{LaneDescription, LaneQuery};

use super::Failure;
use super::access::{Access, print_table};
use crate::cli::output::println;

#[derive(Debug, Args)]
pub(super) struct Lane {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List lanes with their holder, epoch, state and lag
    #[command(
        after_help = "Examples:\n  laneway lane list\n  laneway lane list --topic orders --group billing"
    )]
    List {
        /// Of this topic only
        #[arg(long)]
        topic: Option<String>,
        /// Of groups of this name only
        #[arg(long)]
        group: Option<String>,
    },
}

impl Lane {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let Action::List { topic, group } = self.action;
        let lanes = list(&self.access.admin()?, topic, group).await?;
        self.access.print(&lanes, |lanes| print_lanes(lanes))
    }
}

async fn list(
    admin: &Admin,
    topic: Option<String>,
    group: Option<String>,
) -> Result<Vec<LaneDescription>, AdminError> {
    let mut query = LaneQuery { topic, group, ..LaneQuery::default() };
    let mut lanes = Vec::new();
    loop {
        let page = admin.list_lanes(&query).await?;
        lanes.extend(page.lanes);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(lanes),
        }
    }
}

pub(super) fn print_lanes(lanes: &[LaneDescription]) {
    if lanes.is_empty() {
        return println!("no lanes: no group consumes anything there");
    }
    let row = |lane: &LaneDescription| {
        [
            lane.topic.clone(),
            lane.group.clone(),
            lane.partition.to_string(),
            lane.state.to_string(),
            lane.epoch.to_string(),
            lane.committed_offset.to_string(),
            lane.next_offset.to_string(),
            lane.lag_messages.to_string(),
            format!("{:.1}s", lane.lag_seconds),
            lane.holder.clone().unwrap_or_else(|| "-".into()),
        ]
    };
    let names =
        ["TOPIC", "GROUP", "PARTITION", "STATE", "EPOCH", "COMMITTED", "NEXT", "LAG", "WAITING", "HOLDER"];
    print_table(names, lanes.iter().map(row));
}
