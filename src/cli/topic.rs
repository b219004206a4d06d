//! `laneway topic`: make, list, show, alter, pause, purge and delete topics, through the broker's HTTP API.

use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use laneway_client::Admin;
use laneway_client::labels::Labels;
use laneway_client::topic::{
    AlterTopic, CreateTopic, Encryption, PartitionDescription, Retention, TopicDescription, TopicDetail,
};

use super::Failure;
use super::access::{Access, ask, print_table};
use super::group_settings::ms;
use super::labels;
use super::management::{self, PurgeTopic};
use super::topic_capacity::{self, bound, duration};
use crate::cli::output::println;

#[derive(Debug, Args)]
pub(super) struct Topic {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a topic
    #[command(after_help = "Examples:\n  laneway topic create orders --partitions 8\n  \
        laneway topic create audit --retention-age 30d --retention-bytes 50000000000\n  \
        laneway topic create jobs --max-backlog-messages 100000 --retention-completed 1h\n  \
        laneway topic create orders --label namespace=shop --label task=ship")]
    Create(Create),
    /// List all topics
    #[command(
        after_help = "Examples:\n  laneway topic list\n  laneway topic list --label namespace=shop\n  \
        laneway topic list --json | jq -r '.[].name'"
    )]
    List {
        /// Only those with this label, and this one
        #[arg(long = "label", value_name = "NAME=VALUE", value_parser = labels::label)]
        labels: Vec<(String, String)>,
    },
    /// Show a topic and where its partitions stand
    #[command(after_help = "Example:\n  laneway topic show orders")]
    Show {
        /// Its name
        name: String,
    },
    /// Show what retention has dropped of a topic, when and why, newest first
    #[command(
        after_help = "Examples:\n  laneway topic history orders\n  laneway topic history orders --limit 5 --json"
    )]
    History {
        /// Its name
        name: String,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Change settings of a topic, or add partitions
    #[command(after_help = "Examples:\n  laneway topic alter orders --partitions 16\n  \
        laneway topic alter audit --retention-age 30d --retention-bytes none\n  \
        laneway topic alter clicks --delivery-times off\n  \
        laneway topic alter jobs --max-backlog-messages none --group-expiry 30d\n  \
        laneway topic alter orders --label task=pack --unlabel namespace")]
    Alter(Alter),
    /// Stop a topic: it takes no messages and delivers none until it is resumed
    #[command(after_help = "Example:\n  laneway topic pause orders")]
    Pause {
        /// Its name
        name: String,
    },
    /// Let a paused topic go on
    #[command(after_help = "Example:\n  laneway topic resume orders")]
    Resume {
        /// Its name
        name: String,
    },
    /// Drop messages of a topic for good; groups that are behind are told
    #[command(after_help = "Examples:\n  laneway topic purge orders --all\n  \
        laneway topic purge orders --before 2026-11-16T06:00:00Z\n  \
        laneway topic purge orders --before-offset 1042 --partition 3 --yes")]
    Purge(PurgeTopic),
    /// Count what each partition holds, and how far each group is
    #[command(after_help = "Examples:\n  laneway topic partitions orders\n  \
        laneway topic partitions orders --json | jq '.[].stored_messages'")]
    Partitions {
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
    /// Whether it is kept when messages were delivered and done [default: on]
    #[arg(long, value_name = "on|off", value_parser = BoolishValueParser::new())]
    delivery_times: Option<bool>,
    /// Refuse publishes while the slowest counted group would be more messages behind [default: never]
    #[arg(long, value_name = "N")]
    max_backlog_messages: Option<u64>,
    /// Refuse publishes while the slowest counted group would be more bytes behind [default: never]
    #[arg(long, value_name = "BYTES")]
    max_backlog_bytes: Option<u64>,
    /// Refuse publishes while the topic would store more [default: never]
    #[arg(long, value_name = "BYTES")]
    max_stored_bytes: Option<u64>,
    /// Drop segments this long after every group has committed past them, like 1h or 0s [default: keep]
    #[arg(long, value_name = "GRACE")]
    retention_completed: Option<humantime::Duration>,
    /// Delete groups that nobody has used for so long, like 30d [default: keep]
    #[arg(long, value_name = "DURATION")]
    group_expiry: Option<humantime::Duration>,
    /// A word that subscriptions can match, like task=ship; may be given again
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = labels::label)]
    labels: Vec<(String, String)>,
    /// Seal payloads before they are stored, with keys from the key ring of the brokers [default: none]
    #[arg(long, value_name = "aes_256_gcm|none")]
    encryption: Option<Encryption>,
}

#[derive(Debug, Args)]
struct Alter {
    /// Its name
    name: String,
    #[command(flatten)]
    changes: Changes,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Changes {
    /// More than it has; keys may land in other partitions from then on
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// Largest payload of one message, in bytes
    #[arg(long, value_name = "BYTES")]
    payload_bytes_max: Option<u32>,
    /// Drop segments whose messages are all older, like 7d or 12h; none: keep for ever
    #[arg(long, value_name = "DURATION|none", value_parser = duration)]
    retention_age: Option<Retention>,
    /// Drop the oldest segments while the topic stores more; none: keep
    #[arg(long, value_name = "BYTES|none", value_parser = bound)]
    retention_bytes: Option<Retention>,
    /// How long a transaction id is remembered, like 1h
    #[arg(long, value_name = "DURATION")]
    dedup_window: Option<humantime::Duration>,
    /// Whether it is kept when messages were delivered and done
    #[arg(long, value_name = "on|off", value_parser = BoolishValueParser::new())]
    delivery_times: Option<bool>,
    /// Refuse publishes while the slowest counted group would be more messages behind; none: never
    #[arg(long, value_name = "N|none", value_parser = bound)]
    max_backlog_messages: Option<Retention>,
    /// Refuse publishes while the slowest counted group would be more bytes behind; none: never
    #[arg(long, value_name = "BYTES|none", value_parser = bound)]
    max_backlog_bytes: Option<Retention>,
    /// Refuse publishes while the topic would store more; none: never
    #[arg(long, value_name = "BYTES|none", value_parser = bound)]
    max_stored_bytes: Option<Retention>,
    /// Drop segments this long after every group has committed past them, like 1h or 0s; none: keep
    #[arg(long, value_name = "GRACE|none", value_parser = duration)]
    retention_completed: Option<Retention>,
    /// Delete groups that nobody has used for so long, like 30d; none: keep
    #[arg(long, value_name = "DURATION|none", value_parser = duration)]
    group_expiry: Option<Retention>,
    /// Set a label, like task=ship; others stay
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = labels::label)]
    labels: Vec<(String, String)>,
    /// Take a label away
    #[arg(long = "unlabel", value_name = "NAME")]
    unlabels: Vec<String>,
    /// Seal the payloads of new messages, or none; stored ones stay as they are
    #[arg(long, value_name = "aes_256_gcm|none")]
    encryption: Option<Encryption>,
}

impl Topic {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (access, admin) = (&self.access, self.access.admin()?);
        match self.action {
            Action::Create(create) => {
                let made = admin.create_topic(&create.request()).await?;
                access.print(&made, |made| {
                    println!("made topic {} with {}", made.topic.name, partitions(&made.topic))
                })
            }
            Action::List { labels } => {
                let labels = labels::given(&labels);
                access.print(&list(&admin, &labels).await?, |topics| print_list(topics, &labels))
            }
            Action::Show { name } => access.print(&admin.show_topic(&name).await?, print_detail),
            Action::History { name, limit } => {
                let events = topic_capacity::history(&admin, &name, limit).await?;
                access.print(&events, |events| topic_capacity::print_history(&name, events))
            }
            Action::Alter(Alter { name, changes }) => {
                access.print(&admin.alter_topic(&name, &changes.request()).await?, print_detail)
            }
            Action::Pause { name } => access.print(&admin.pause_topic(&name).await?, print_detail),
            Action::Resume { name } => access.print(&admin.resume_topic(&name).await?, print_detail),
            Action::Purge(purge) => purge.run(access, &admin).await,
            Action::Partitions { name } => access
                .print(&management::partitions(&admin, &name).await?, |all| {
                    management::print_partitions(all)
                }),
            Action::Delete { name, yes } => {
                if !yes {
                    ask(
                        &format!("Delete topic {name} with everything in it?"),
                        &format!("topic {name} goes with everything in it"),
                    )?;
                }
                admin.delete_topic(&name).await?;
                let deleted = serde_json::json!({ "deleted": name });
                access.print(&deleted, |_| println!("deleted topic {name}"))
            }
        }
    }
}

impl Changes {
    fn request(&self) -> AlterTopic {
        AlterTopic {
            partitions: self.partitions,
            payload_bytes_max: self.payload_bytes_max,
            retention_age_ms: self.retention_age.unwrap_or_default(),
            retention_bytes: self.retention_bytes.unwrap_or_default(),
            dedup_window_ms: ms(self.dedup_window),
            delivery_times: self.delivery_times,
            max_backlog_messages: self.max_backlog_messages.unwrap_or_default(),
            max_backlog_bytes: self.max_backlog_bytes.unwrap_or_default(),
            max_stored_bytes: self.max_stored_bytes.unwrap_or_default(),
            retention_completed_ms: self.retention_completed.unwrap_or_default(),
            group_expiry_ms: self.group_expiry.unwrap_or_default(),
            labels: labels::changes(&self.labels, &self.unlabels),
            encryption: self.encryption,
        }
    }
}

impl Create {
    fn request(self) -> CreateTopic {
        CreateTopic {
            name: self.name,
            partitions: self.partitions,
            payload_bytes_max: self.payload_bytes_max,
            segment_messages: self.segment_messages,
            retention_age_ms: ms(self.retention_age),
            retention_bytes: self.retention_bytes,
            dedup_window_ms: ms(self.dedup_window),
            delivery_times: self.delivery_times,
            max_backlog_messages: self.max_backlog_messages,
            max_backlog_bytes: self.max_backlog_bytes,
            max_stored_bytes: self.max_stored_bytes,
            retention_completed_ms: ms(self.retention_completed),
            group_expiry_ms: ms(self.group_expiry),
            labels: labels::given(&self.labels),
            encryption: self.encryption,
        }
    }
}

async fn list(admin: &Admin, labels: &Labels) -> Result<Vec<TopicDescription>, Failure> {
    let mut topics = Vec::new();
    let mut after = None;
    loop {
        let page = admin.list_labelled_topics(after.as_deref(), labels).await?;
        topics.extend(page.topics);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(topics),
        }
    }
}

fn print_list(topics: &[TopicDescription], labels: &Labels) {
    if topics.is_empty() && !labels.is_empty() {
        return println!("no topic has all of these labels: {}", labels::shown(labels));
    }
    if topics.is_empty() {
        return println!("no topics yet: make one with `laneway topic create NAME`");
    }
    let row = |topic: &TopicDescription| {
        let (partitions, labels) = (topic.partitions.to_string(), labels::shown(&topic.labels));
        [topic.name.clone(), partitions, retention(topic), topic.created_at.clone(), labels]
    };
    match topics.iter().any(|topic| !topic.labels.is_empty()) {
        true => {
            print_table(["TOPIC", "PARTITIONS", "RETENTION", "CREATED", "LABELS"], topics.iter().map(row))
        }
        false => {
            let without = |topic| {
                let [name, partitions, retention, created, _] = row(topic);
                [name, partitions, retention, created]
            };
            print_table(["TOPIC", "PARTITIONS", "RETENTION", "CREATED"], topics.iter().map(without));
        }
    }
    let paused = topics.iter().filter(|topic| topic.paused_at.is_some());
    management::print_paused(paused.map(|topic| topic.name.clone()).collect());
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
    let completed = topic.retention_completed_ms.map(topic_capacity::until_completed);
    let kept: Vec<String> = [age, bytes, completed].into_iter().flatten().collect();
    if kept.is_empty() { "for ever".into() } else { kept.join(", ") }
}

fn print_detail(detail: &TopicDetail) {
    let topic = &detail.topic;
    println!("topic {}, made {}", topic.name, topic.created_at);
    println!("  payload at most {} bytes, kept {}", topic.payload_bytes_max, retention(topic));
    if let Some(paused_at) = &topic.paused_at {
        println!("  paused since {paused_at}: takes no messages and delivers none");
    }
    if !topic.labels.is_empty() {
        println!("  labels {}", labels::shown(&topic.labels));
    }
    println!("  delivery times {}", if topic.delivery_times { "kept" } else { "not kept" });
    if !topic.encryption.is_none() {
        println!("  payloads encrypted ({})", topic.encryption.as_str());
    }
    topic_capacity::print_capacity(detail);
    let row = |partition: &PartitionDescription| {
        [
            partition.partition.to_string(),
            partition.start_offset.to_string(),
            partition.next_offset.to_string(),
            partition.stored_bytes.to_string(),
            partition.last_published_at.clone().unwrap_or_else(|| "never".into()),
        ]
    };
    let names = ["PARTITION", "START", "NEXT", "BYTES", "LAST PUBLISHED"];
    print_table(names, detail.partition_details.iter().map(row));
}
