//! `laneway parked`: list, show, replay and drop keys that groups have parked, through the broker's HTTP API.

use clap::{ArgGroup, Args, Subcommand};
use laneway_client::Admin;
use laneway_client::admin::AdminError;
use laneway_client::parked::{ParkedKey, ParkedList, ParkedQuery, ParkedState};

use super::Failure;
use super::access::{Access, ask, print_table};
use super::dead::{readable, warn_unopened};
use crate::cli::output::println;
use crate::limits::PARKED_PAGE_MAX;

/// Characters of a reason in a table.
const REASON_CHARS: usize = 60;

#[derive(Debug, Args)]
pub(super) struct Parked {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List parked keys, oldest first
    #[command(after_help = "Examples:\n  laneway parked list --group billing\n  \
        laneway parked list --topic orders --limit 10 --after 12")]
    List(List),
    /// Show a parked key with the message that it failed at, whole
    #[command(after_help = "Example:\n  laneway parked show 12")]
    Show {
        /// As `parked list` names it
        id: i64,
    },
    /// Deliver the messages of parked keys again, in order
    #[command(after_help = "Examples:\n  laneway parked replay 12 13\n  \
        laneway parked replay --group billing --topic orders --all")]
    Replay(Which),
    /// Drop the message that a parked key failed at for good, and deliver the others, in order
    #[command(after_help = "Example:\n  laneway parked drop 12 --yes")]
    Drop {
        /// As `parked list` names them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<i64>,
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

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which_keys").required(true).args(["ids", "all"]))]
struct Which {
    /// As `parked list` names them
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

impl Parked {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (access, admin) = (&self.access, self.access.admin()?);
        match self.action {
            Action::List(List { topic, group, after, limit }) => {
                let query = ParkedQuery { topic, group, after, limit: Some(limit) };
                access.print(&admin.list_parked(&query).await?, print_list)
            }
            Action::Show { id } => access.print(&admin.show_parked(id).await?, print_detail),
            Action::Replay(which) => {
                let mut released = Vec::new();
                for id in which.ids(&admin).await? {
                    released.push(admin.replay_parked(id).await?);
                }
                access.print(&released, |released| print_released(released, "replayed"))
            }
            Action::Drop { ids, yes } => {
                if !yes {
                    let question =
                        format!("drop the message that {} failed at for good?", counted(ids.len()));
                    ask(&question, "It is gone then; what stands behind it is delivered.")?;
                }
                let mut released = Vec::new();
                for id in ids {
                    released.push(admin.drop_parked(id).await?);
                }
                access.print(&released, |released| {
                    print_released(released, "dropped the message that it failed at")
                })
            }
        }
    }
}

impl Which {
    /// Read before the first is touched: a key that is parked again must not be replayed for ever.
    async fn ids(&self, admin: &Admin) -> Result<Vec<i64>, AdminError> {
        let (mut ids, mut after) = (self.ids.clone(), None);
        if !self.all {
            return Ok(ids);
        }
        loop {
            let (topic, group) = (self.topic.clone(), self.group.clone());
            let query = ParkedQuery { topic, group, after, limit: Some(PARKED_PAGE_MAX) };
            let page = admin.list_parked(&query).await?;
            let parked = page.parked.iter().filter(|key| key.state == ParkedState::Parked);
            ids.extend(parked.map(|key| key.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(ids)
    }
}

fn counted(keys: usize) -> String {
    if keys == 1 { "one key".to_owned() } else { format!("{keys} keys") }
}

fn print_released(released: &Vec<ParkedKey>, what: &str) {
    if released.is_empty() {
        return println!("no parked keys");
    }
    for ParkedKey { id, topic, group, partition, .. } in released {
        println!(
            "parked key {id}: {what}; group {group} goes on with it in partition {partition} of {topic}"
        );
    }
}

fn name(parked: &ParkedKey) -> String {
    parked.key.as_ref().map_or_else(|| "-".to_owned(), |key| readable(key, parked.key_encoding))
}

const fn state(parked: &ParkedKey) -> &'static str {
    match parked.state {
        ParkedState::Parked => "parked",
        ParkedState::Released => "released",
    }
}

fn print_list(list: &ParkedList) {
    if list.parked.is_empty() {
        return println!("no parked keys");
    }
    let row = |parked: &ParkedKey| {
        let reason = parked.first.as_ref().map_or("", |first| first.reason.as_str());
        let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut reason: String = line.chars().take(REASON_CHARS).collect();
        if reason.len() < line.len() {
            reason.push('…');
        }
        let offset = parked.first.as_ref().map_or_else(String::new, |first| first.message.offset.to_string());
        let (id, partition) = (parked.id.to_string(), parked.partition.to_string());
        let (topic, group) = (parked.topic.clone(), parked.group.clone());
        let (state, messages) = (state(parked).to_owned(), parked.messages.to_string());
        [id, topic, partition, group, name(parked), state, messages, offset, parked.parked_at.clone(), reason]
    };
    let names =
        ["ID", "TOPIC", "PARTITION", "GROUP", "KEY", "STATE", "MESSAGES", "OFFSET", "PARKED SINCE", "REASON"];
    print_table(names, list.parked.iter().map(row));
    let errors = list.parked.iter().map(|key| (key.id, key.first.as_ref().and_then(|first| first.error)));
    warn_unopened("the first message of parked key", errors);
    if let Some(next) = list.next {
        eprintln!("there are more: --after {next}");
    }
}

fn print_detail(parked: &ParkedKey) {
    let ParkedKey { id, topic, group, partition, messages, parked_at, .. } = parked;
    let (key, state) = (name(parked), state(parked));
    println!("parked key {id}: key {key} of topic {topic}, partition {partition}");
    println!("  {state} by group {group} since {parked_at}, with {messages} message(s)");
    let Some(first) = &parked.first else { return };
    let message = &first.message;
    println!("  failed at offset {}, {} attempt(s): {}", message.offset, first.attempts, first.reason);
    println!("  published {}, trace {}", message.published_at, message.trace_id);
    for (name, value) in &message.headers {
        println!("  header {name}: {value}");
    }
    println!();
    println!("{}", readable(&message.payload, message.encoding));
}
