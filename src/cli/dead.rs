//! `laneway dead`: list, show, replay and drop what groups have given up, through the broker's HTTP API.

use clap::{Args, Subcommand};
use laneway_client::dead_letter::{DeadLetter, DeadLetterList, DeadLetterQuery};
use laneway_client::message::Encoding;
use serde_json::value::RawValue;

use super::Failure;
use super::access::{Access, ask, print_table};

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
    /// Publish a dead letter to its partition again; it is none any more from then on
    #[command(after_help = "Example:\n  laneway dead replay 4711")]
    Replay {
        /// As `dead list` names it
        id: i64,
    },
    /// Drop a dead letter for good
    #[command(after_help = "Example:\n  laneway dead drop 4711 --yes")]
    Drop {
        /// As `dead list` names it
        id: i64,
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
            Action::Replay { id } => {
                let replayed = admin.replay_dead_letter(id).await?;
                access.print(&replayed, |at| {
                    println!(
                        "published dead letter {id} again: partition {}, offset {}",
                        at.partition, at.offset
                    );
                })
            }
            Action::Drop { id, yes } => {
                if !yes {
                    ask(
                        &format!("Drop dead letter {id} for good?"),
                        &format!("dead letter {id} goes for good"),
                    )?;
                }
                admin.delete_dead_letter(id).await?;
                access.print(&serde_json::json!({ "dropped": id }), |_| println!("dropped dead letter {id}"))
            }
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
    if let Some(next) = list.next {
        eprintln!("there are more: --after {next}");
    }
}

fn print_detail(letter: &DeadLetter) {
    let DeadLetter { id, topic, partition, offset, group, attempts, .. } = letter;
    println!("dead letter {id}: topic {topic}, partition {partition}, offset {offset}");
    println!("  given up by group {group} after {attempts} attempts, {}: {}", letter.dead_at, letter.reason);
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

/// Text as it is; anything else as JSON carries it.
fn readable(payload: &RawValue, encoding: Encoding) -> String {
    match encoding {
        Encoding::Text => serde_json::from_str(payload.get()).unwrap_or_else(|_| payload.get().to_owned()),
        Encoding::Json | Encoding::Base64 => payload.get().to_owned(),
    }
}
