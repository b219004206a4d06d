//! `laneway dead replay` and `drop`: some dead letters by id, or all of a group, one after the other, each reported.
//!
//! The ids of a group are read before the first is touched: a message that is replayed and fails again is a new dead letter,
//! and must not be replayed for ever. A broker that is away ends the work; what was not tried is said.

use std::time::Duration;

use clap::{ArgGroup, Args};
use indicatif::{ProgressBar, ProgressStyle};
use laneway_client::Admin;
use laneway_client::admin::AdminError;
use laneway_client::dead_letter::DeadLetterQuery;
use serde::Serialize;

use super::Failure;
use super::access::{Access, ask};
use crate::cli::output::println;

/// Ids that a sentence names.
const NAMED_MAX: usize = 10;
/// From this many on a terminal shows how far it is.
const BAR_MIN: usize = 20;
/// How often it is drawn anew.
const BAR_TICK: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["ids", "all"]))]
pub(super) struct Which {
    /// As `dead list` names them
    #[arg(value_name = "ID", conflicts_with_all = ["all", "group", "topic"])]
    ids: Vec<i64>,
    /// All of a group
    #[arg(long, requires = "group")]
    all: bool,
    /// The group, with --all
    #[arg(long, requires = "all")]
    group: Option<String>,
    /// Of this topic only, with --all
    #[arg(long, requires = "all")]
    topic: Option<String>,
}

/// What is done to each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Replay,
    Drop,
}

/// What became of all of them.
#[derive(Debug, Default, Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<Vec<Done>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<Vec<Done>>,
    failed: Vec<Failed>,
    /// Those after the one at which the broker was away.
    not_tried: Vec<i64>,
}

/// A dead letter that is none any more, and where its message is if it was published again.
#[derive(Debug, Serialize)]
struct Done {
    id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Failed {
    id: i64,
    error: String,
}

impl Which {
    /// Replays them all.
    pub(super) async fn replay(&self, access: &Access, admin: &Admin) -> Result<(), Failure> {
        let ids = self.resolve(admin).await?;
        conclude(access, work(access, admin, Deed::Replay, &ids).await, ids.len())
    }

    /// Drops them all, after a question.
    pub(super) async fn drop_all(&self, access: &Access, admin: &Admin, yes: bool) -> Result<(), Failure> {
        if !yes && !self.all {
            confirm(&self.ids)?; // nothing to look up
        }
        let ids = self.resolve(admin).await?;
        if !yes && self.all && !ids.is_empty() {
            confirm(&ids)?;
        }
        conclude(access, work(access, admin, Deed::Drop, &ids).await, ids.len())
    }

    /// Those that are meant, as of now, each once.
    async fn resolve(&self, admin: &Admin) -> Result<Vec<i64>, AdminError> {
        if !self.all {
            let mut seen = std::collections::HashSet::new();
            return Ok(self.ids.iter().copied().filter(|id| seen.insert(*id)).collect());
        }
        let (topic, group) = (self.topic.clone(), self.group.clone());
        let mut query = DeadLetterQuery { topic, group, ..DeadLetterQuery::default() };
        let mut ids = Vec::new();
        loop {
            let page = admin.list_dead_letters(&query).await?;
            ids.extend(page.dead_letters.iter().map(|letter| letter.id));
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(ids),
            }
        }
    }
}

fn confirm(ids: &[i64]) -> Result<(), Failure> {
    let what = match ids {
        [id] => format!("dead letter {id}"),
        ids => format!("{} dead letters", ids.len()),
    };
    let verb = if ids.len() == 1 { "goes" } else { "go" };
    ask(&format!("Drop {what} for good?"), &format!("{what} {verb} for good"))
}

async fn work(access: &Access, admin: &Admin, deed: Deed, ids: &[i64]) -> Report {
    let bar = bar(ids.len());
    let (mut done, mut report) = (Vec::new(), Report::default());
    for (place, id) in ids.iter().copied().enumerate() {
        match once(admin, deed, id).await {
            Ok(one) => {
                if !access.json() {
                    bar.suspend(|| println!("{}", one.sentence()));
                }
                done.push(one);
            }
            Err(error) => {
                let away = matches!(error, AdminError::Unreachable { .. });
                report.failed.push(Failed { id, error: error.to_string() });
                if away {
                    report.not_tried = ids[place + 1..].to_vec();
                    break;
                }
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    match deed {
        Deed::Replay => report.replayed = Some(done),
        Deed::Drop => report.dropped = Some(done),
    }
    report
}

async fn once(admin: &Admin, deed: Deed, id: i64) -> Result<Done, AdminError> {
    match deed {
        Deed::Replay => {
            let at = admin.replay_dead_letter(id).await?;
            Ok(Done { id, partition: Some(at.partition), offset: Some(at.offset) })
        }
        Deed::Drop => {
            admin.delete_dead_letter(id).await?;
            Ok(Done { id, partition: None, offset: None })
        }
    }
}

impl Done {
    fn sentence(&self) -> String {
        match (self.partition, self.offset) {
            (Some(partition), Some(offset)) => {
                format!("published dead letter {} again: partition {partition}, offset {offset}", self.id)
            }
            _ => format!("dropped dead letter {}", self.id),
        }
    }
}

/// Prints what is left to print, and fails if anything did.
fn conclude(access: &Access, report: Report, count: usize) -> Result<(), Failure> {
    if access.json() && (report.failed.is_empty() || count > 1) {
        super::print_json(&report)?;
    } else if count == 0 {
        println!("no dead letters");
    }
    let Some(first) = report.failed.first() else { return Ok(()) };
    if count == 1 {
        return Err(first.error.clone().into());
    }
    for Failed { id, error } in &report.failed {
        eprintln!("dead letter {id}: {error}");
    }
    let ids: Vec<i64> =
        report.failed.iter().map(|failed| failed.id).chain(report.not_tried.iter().copied()).collect();
    let tried = match report.not_tried.len() {
        0 => String::new(),
        rest => format!(" ({rest} of them were not tried)"),
    };
    Err(format!("{} of {count} dead letters failed{tried}: {}", ids.len(), named(&ids)).into())
}

fn named(ids: &[i64]) -> String {
    let mut names: Vec<String> = ids.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    if ids.len() > NAMED_MAX {
        names.push("…".into());
    }
    names.join(", ")
}

/// A bar on a terminal if it takes long, nothing elsewhere.
fn bar(count: usize) -> ProgressBar {
    if count < BAR_MIN {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} dead letters, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(count as u64).with_style(style);
    bar.enable_steady_tick(BAR_TICK); // also while the first one takes its time
    bar
}
