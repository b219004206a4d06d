//! `laneway topic`: make, list, show and delete topics, through the broker's HTTP API.

use std::io::{BufRead, IsTerminal as _};

use clap::{Args, Subcommand};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use laneway_client::Admin;
use laneway_client::admin::DEFAULT_URL;
use laneway_client::topic::{CreateTopic, TopicDescription, TopicDetail};

use super::{Failure, print_json};

#[derive(Debug, Args)]
pub(super) struct Topic {
    /// The broker
    #[arg(long, global = true, env = "LANEWAY_URL", default_value = DEFAULT_URL, value_name = "URL")]
    url: String,
    /// One JSON document on standard output
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a topic
    #[command(after_help = "Examples:\n  laneway topic create orders --partitions 8\n  \
        laneway topic create audit --retention-age 30d --retention-bytes 50000000000")]
    Create(Create),
    /// List all topics
    List,
    /// Show a topic and where its partitions stand
    #[command(after_help = "Example:\n  laneway topic show orders")]
    Show {
        /// Its name
        name: String,
    },
    /// Delete a topic with everything in it
    #[command(after_help = "Examples:\n  laneway topic delete orders\n  laneway topic delete orders --yes")]
    Delete {
        /// Its name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'
    name: String,
    /// 1 to 1,000
    #[arg(long, default_value_t = 1, value_name = "N")]
    partitions: u32,
    /// Largest payload of one message, in bytes [default: 1 MiB]
    #[arg(long, value_name = "BYTES")]
    payload_bytes_max: Option<u32>,
    /// Most messages of one segment; retention drops whole segments [default: 1,000,000]
    #[arg(long, value_name = "N")]
    segment_messages: Option<u32>,
    /// Drop segments whose messages are all older, like 7d or 12h [default: keep for ever]
    #[arg(long, value_name = "DURATION")]
    retention_age: Option<humantime::Duration>,
    /// Drop the oldest segments while the topic stores more [default: keep]
    #[arg(long, value_name = "BYTES")]
    retention_bytes: Option<u64>,
    /// How long a transaction id is remembered, like 1h [default: 1h]
    #[arg(long, value_name = "DURATION")]
    dedup_window: Option<humantime::Duration>,
}

impl Topic {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let admin = Admin::new(&self.url)?;
        match self.action {
            Action::Create(create) => {
                let made = admin.create_topic(&create.request()).await?;
                match self.json {
                    true => print_json(&made)?,
                    false => println!("made topic {} with {}", made.topic.name, partitions(&made.topic)),
                }
            }
            Action::List => {
                let topics = list(&admin).await?;
                match self.json {
                    true => print_json(&topics)?,
                    false => print_list(&topics),
                }
            }
            Action::Show { name } => {
                let detail = admin.show_topic(&name).await?;
                match self.json {
                    true => print_json(&detail)?,
                    false => print_detail(&detail),
                }
            }
            Action::Delete { name, yes } => {
                if !yes {
                    ask(&name)?;
                }
                admin.delete_topic(&name).await?;
                match self.json {
                    true => print_json(&serde_json::json!({ "deleted": name }))?,
                    false => println!("deleted topic {name}"),
                }
            }
        }
        Ok(())
    }
}

impl Create {
    fn request(self) -> CreateTopic {
        CreateTopic {
            name: self.name,
            partitions: self.partitions,
            payload_bytes_max: self.payload_bytes_max,
            segment_messages: self.segment_messages,
            retention_age_ms: self.retention_age.map(|age| age.as_millis() as u64),
            retention_bytes: self.retention_bytes,
            dedup_window_ms: self.dedup_window.map(|window| window.as_millis() as u64),
        }
    }
}

/// Asks on the terminal; without one there is nobody to ask.
fn ask(name: &str) -> Result<(), Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        let refusal =
            format!("topic {name} goes with everything in it: say --yes, or use a terminal to be asked");
        return Err(refusal.into());
    }
    eprint!("Delete topic {name} with everything in it? [y/N] ");
    match agrees(input.lock())? {
        true => Ok(()),
        false => Err("nothing was deleted".into()),
    }
}

/// Only a clear yes is one.
fn agrees(mut input: impl BufRead) -> std::io::Result<bool> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

async fn list(admin: &Admin) -> Result<Vec<TopicDescription>, Failure> {
    let mut topics = Vec::new();
    let mut after = None;
    loop {
        let page = admin.list_topics(after.as_deref()).await?;
        topics.extend(page.topics);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(topics),
        }
    }
}

fn print_list(topics: &[TopicDescription]) {
    if topics.is_empty() {
        return println!("no topics yet: make one with `laneway topic create NAME`");
    }
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(["TOPIC", "PARTITIONS", "RETENTION", "CREATED"]);
    for topic in topics {
        table.add_row([
            topic.name.clone(),
            topic.partitions.to_string(),
            retention(topic),
            topic.created_at.clone(),
        ]);
    }
    println!("{table}");
}

fn partitions(topic: &TopicDescription) -> String {
    match topic.partitions {
        1 => "1 partition".into(),
        partitions => format!("{partitions} partitions"),
    }
}

fn retention(topic: &TopicDescription) -> String {
    let age = topic
        .retention_age_ms
        .map(|ms| humantime::format_duration(std::time::Duration::from_millis(ms)).to_string());
    let bytes = topic.retention_bytes.map(|bytes| format!("{bytes} bytes"));
    match (age, bytes) {
        (None, None) => "for ever".into(),
        (age, bytes) => age.into_iter().chain(bytes).collect::<Vec<_>>().join(", "),
    }
}

fn print_detail(detail: &TopicDetail) {
    let topic = &detail.topic;
    println!("topic {}, made {}", topic.name, topic.created_at);
    println!("  payload at most {} bytes, kept {}", topic.payload_bytes_max, retention(topic));
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header(["PARTITION", "START", "NEXT", "BYTES", "LAST PUBLISHED"]);
    for partition in &detail.partition_details {
        table.add_row([
            partition.partition.to_string(),
            partition.start_offset.to_string(),
            partition.next_offset.to_string(),
            partition.stored_bytes.to_string(),
            partition.last_published_at.clone().unwrap_or_else(|| "never".into()),
        ]);
    }
    println!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_deletes() {
        for (line, expected) in [
            ("y\n", true),
            ("YES\n", true),
            (" y \r\n", true),
            ("", false),
            ("\n", false),
            ("n\n", false),
            ("yep", false),
        ] {
            assert_eq!(agrees(line.as_bytes()).unwrap(), expected, "{line:?}");
        }
    }
}
