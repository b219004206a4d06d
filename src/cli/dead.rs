//! `laneway dead`: list, show, replay and drop what groups have given up, through the broker's HTTP API.

use clap::{Args, Subcommand};
use laneway_client::ErrorCode;
use laneway_client::dead_letter::{DeadLetter, DeadLetterList, DeadLetterQuery};
use laneway_client::message::Encoding;
use serde_json::value::RawValue;

use super::Failure;
use super::access::{Access, print_table};
use super::dead_each::Which;
use crate::cli::output::println;

/// Characters of a reason in a table.
const REASON_CHARS: usize = 60;

#[derive(Debug, Args)]
pub(super) struct Dead {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List dead letters, oldest first
    #[command(after_help = "Examples:\n  laneway dead list --group billing\n  \
        laneway dead list --topic orders --limit 10 --after 4711")]
    List(List),
    /// Show a dead letter, whole
    #[command(after_help = "Example:\n  laneway dead show 4711")]
    Show {
        /// As `dead list` names it
        id: i64,
    },
    /// Publish dead letters to their partitions again; they are none any more from then on
    #[command(after_help = "Examples:\n  laneway dead replay 4711 4712\n  \
        laneway dead replay --group billing --topic orders --all")]
    Replay(Which),
    /// Drop dead letters for good
    #[command(after_help = "Examples:\n  laneway dead drop 4711 --yes\n  \
        laneway dead drop --group billing --all")]
    Drop {
        #[command(flatten)]
        which: Which,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct List {
    /// Of this topic only
    #[arg(long)]
    topic: Option<String>,
    /// Of this group only
    #[arg(long)]
    group: Option<String>,
    /// After this id
    #[arg(long, value_name = "ID")]
    after: Option<i64>,
    /// At most this many, 1 to 1,000
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: u32,
}

impl Dead {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (access, admin) = (&self.access, self.access.admin()?);
        match self.action {
            Action::List(List { topic, group, after, limit }) => {
                let query = DeadLetterQuery { topic, group, after, limit: Some(limit) };
                access.print(&admin.list_dead_letters(&query).await?, print_list)
            }
            Action::Show { id } => access.print(&admin.show_dead_letter(id).await?, print_detail),
            Action::Replay(which) => which.replay(access, &admin).await,
            Action::Drop { which, yes } => which.drop_all(access, &admin, yes).await,
        }
    }
}

fn print_list(list: &DeadLetterList) {
    if list.dead_letters.is_empty() {
        return println!("no dead letters");
    }
    let row = |letter: &DeadLetter| {
        let line = letter.reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut reason: String = line.chars().take(REASON_CHARS).collect();
        if reason.len() < line.len() {
            reason.push('…');
        }
        let (partition, offset) = (letter.partition.to_string(), letter.offset.to_string());
        let (id, attempts) = (letter.id.to_string(), letter.attempts.to_string());
        let (topic, group) = (letter.topic.clone(), letter.group.clone());
        [id, topic, partition, offset, group, attempts, letter.dead_at.clone(), reason]
    };
    let names = ["ID", "TOPIC", "PARTITION", "OFFSET", "GROUP", "ATTEMPTS", "DEAD SINCE", "REASON"];
    print_table(names, list.dead_letters.iter().map(row));
    warn_unopened("dead letter", list.dead_letters.iter().map(|letter| (letter.id, letter.error)));
    if let Some(next) = list.next {
        eprintln!("there are more: --after {next}");
    }
}

fn print_detail(letter: &DeadLetter) {
    let DeadLetter { id, topic, partition, offset, group, attempts, .. } = letter;
    println!("dead letter {id}: topic {topic}, partition {partition}, offset {offset}");
    let plural = if *attempts == 1 { "" } else { "s" };
    println!(
        "  given up by group {group} after {attempts} attempt{plural}, {}: {}",
        letter.dead_at, letter.reason
    );
    println!("  published {}, trace {}", letter.published_at, letter.trace_id);
    if let Some(key) = &letter.key {
        println!("  key {key}");
    }
    for (name, value) in &letter.headers {
        println!("  header {name}: {value}");
    }
    println!();
    println!("{}", readable(&letter.payload, letter.encoding));
}

/// Says below a list which of its payloads do not open at the broker; nothing if all do.
pub(super) fn warn_unopened(what: &str, rows: impl Iterator<Item = (i64, Option<ErrorCode>)>) {
    for (id, error) in rows {
        if let Some(code) = error {
            eprintln!("the payload of {what} {id} does not open at this broker: {}", code.as_str());
        }
    }
}

/// Text as it is; anything else as JSON carries it.
pub(super) fn readable(payload: &RawValue, encoding: Encoding) -> String {
    match encoding {
        Encoding::Text => serde_json::from_str(payload.get()).unwrap_or_else(|_| payload.get().to_owned()),
        Encoding::Json | Encoding::Base64 => payload.get().to_owned(),
    }
}
