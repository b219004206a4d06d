//! `laneway group`: list, show, alter, move, pause and delete groups, through the broker's HTTP API.

use clap::{Args, Subcommand};
use laneway_client::group_api::{GroupDescription, GroupDetail, GroupQuery, Seek, Sought};
use laneway_client::wire::{GroupOrdering, Start};
use laneway_client::{Admin, admin::AdminError};

use super::Failure;
use super::access::{Access, ask, print_table};
use super::group_settings::Settings;
use super::{lane, management, place, windows};
use crate::cli::output::println;

#[derive(Debug, Args)]
pub(super) struct Group {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List groups
    #[command(after_help = "Examples:\n  laneway group list\n  laneway group list --topic orders --json")]
    List {
        /// Of this topic only
        #[arg(long)]
        topic: Option<String>,
    },
    /// Show a group: its settings, its members, its lanes and how far they are behind
    #[command(after_help = "Example:\n  laneway group show orders billing")]
    Show(Which),
    /// Change settings of a group, for all its members, at once
    #[command(
        after_help = "Examples:\n  laneway group alter orders billing --max-attempts 10 --ack-deadline 2m\n  \
        laneway group alter orders billing --on-failure skip\n  \
        laneway group alter orders billing --ordering key --on-failure park\n  \
        laneway group alter orders audit --capacity excluded\n  \
        laneway group alter orders digest --window 5s --window-max 1m\n  \
        laneway group alter orders billing --max-age 1h --on-expiry dead_letter"
    )]
    Alter {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        altered: Altered,
    },
    /// Move a group to another place; members go on from there at once
    #[command(after_help = "Examples:\n  laneway group seek orders billing --to earliest\n  \
        laneway group seek orders billing --to 2026-11-16T06:00:00Z\n  \
        laneway group seek orders billing --to 1042 --partition 3 --partition 7")]
    Seek {
        #[command(flatten)]
        which: Which,
        /// earliest, latest, a time like 2026-11-16T06:00:00Z, or an offset
        #[arg(long, value_name = "WHERE", value_parser = place::start)]
        to: Start,
        /// Only this partition; may be given more than once
        #[arg(long, value_name = "N")]
        partition: Vec<u32>,
    },
    /// Deliver nothing to a group until it is resumed; its members keep their lanes
    #[command(after_help = "Example:\n  laneway group pause orders billing")]
    Pause(Which),
    /// Let a paused group go on
    #[command(after_help = "Example:\n  laneway group resume orders billing")]
    Resume(Which),
    /// Delete a group with everything that it has committed; its dead letters stay
    #[command(after_help = "Examples:\n  laneway group delete orders billing --yes\n  \
        laneway group delete orders billing --yes --force")]
    Delete {
        #[command(flatten)]
        which: Which,
        /// Even if it has members, which are told that it is gone, or parked keys, which go with it
        #[arg(long)]
        force: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
struct Which {
    /// The topic that it consumes
    topic: String,
    /// Its name
    group: String,
}

#[derive(Debug, Args)]
#[group(
    required = true,
    multiple = true,
    // Named, because clap counts no flattened ones.
    args = [
        "ack_deadline", "max_attempts", "backoff_base", "backoff_factor", "backoff_cap", "on_failure", "capacity", "delay",
        "window", "window_max", "max_age", "on_expiry", "ordering",
    ]
)]
struct Altered {
    #[command(flatten)]
    settings: Settings,
}

impl Group {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (access, admin) = (&self.access, self.access.admin()?);
        match self.action {
            Action::List { topic } => access.print(&list(&admin, topic).await?, |groups| print_list(groups)),
            Action::Show(Which { topic, group }) => {
                access.print(&admin.show_group(&topic, &group).await?, print_detail)
            }
            Action::Alter { which: Which { topic, group }, altered } => {
                let altered = admin.alter_group(&topic, &group, &altered.settings.request()).await?;
                access.print(&altered, |altered| print_settings(&altered.group))
            }
            Action::Seek { which: Which { topic, group }, to, partition } => {
                let partitions = (!partition.is_empty()).then_some(partition);
                let sought = admin.seek_group(&topic, &group, &Seek { to, partitions }).await?;
                access.print(&sought, print_sought)
            }
            Action::Pause(Which { topic, group }) => {
                let paused = admin.pause_group(&topic, &group).await?;
                access.print(&paused, |paused| print_settings(&paused.group))
            }
            Action::Resume(Which { topic, group }) => {
                let resumed = admin.resume_group(&topic, &group).await?;
                access.print(&resumed, |resumed| print_settings(&resumed.group))
            }
            Action::Delete { which: Which { topic, group }, force, yes } => {
                if !yes {
                    ask(
                        &format!(
                            "Delete group {group} of topic {topic} with everything that it has committed?"
                        ),
                        &format!("group {group} goes with everything that it has committed"),
                    )?;
                }
                match force {
                    true => admin.delete_group_with_members(&topic, &group).await?,
                    false => admin.delete_group(&topic, &group).await?,
                }
                let deleted = serde_json::json!({ "topic": topic, "deleted": group });
                access.print(&deleted, |_| println!("deleted group {group} of topic {topic}"))
            }
        }
    }
}

async fn list(admin: &Admin, topic: Option<String>) -> Result<Vec<GroupDescription>, AdminError> {
    let mut query = GroupQuery { topic, ..GroupQuery::default() };
    let mut groups = Vec::new();
    loop {
        let page = admin.list_groups(&query).await?;
        groups.extend(page.groups);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(groups),
        }
    }
}

fn print_list(groups: &[GroupDescription]) {
    if groups.is_empty() {
        return println!("no groups yet: the first subscriber of a group makes it");
    }
    let row = |group: &GroupDescription| {
        let (members, lag) = (group.members.to_string(), group.lag_messages.to_string());
        let policy = group.settings.on_failure.as_str().to_owned();
        [group.topic.clone(), group.group.clone(), members, lag, policy, group.created_at.clone()]
    };
    print_table(["TOPIC", "GROUP", "MEMBERS", "LAG", "ON FAILURE", "CREATED"], groups.iter().map(row));
    let paused = groups.iter().filter(|group| group.paused_at.is_some());
    management::print_paused(paused.map(|group| format!("{}/{}", group.topic, group.group)).collect());
}

fn print_settings(group: &GroupDescription) {
    let settings = &group.settings;
    println!("group {} of topic {}, made {}", group.group, group.topic, group.created_at);
    if let Some(paused_at) = &group.paused_at {
        println!("  paused since {paused_at}: nothing is delivered");
    }
    println!(
        "  ack within {} ms, at most {} attempt{}, then {}",
        settings.ack_deadline_ms,
        settings.max_attempts,
        if settings.max_attempts == 1 { "" } else { "s" },
        settings.on_failure.as_str()
    );
    if settings.ordering == GroupOrdering::Key {
        println!("  in order by key");
    }
    println!(
        "  backoff {} ms, times {}, at most {} ms",
        settings.backoff_base_ms, settings.backoff_factor, settings.backoff_cap_ms
    );
    windows::print(settings);
}

fn print_detail(detail: &GroupDetail) {
    print_settings(&detail.group);
    println!();
    match detail.member_details.is_empty() {
        true => println!("no members"),
        false => print_table(
            ["MEMBER", "BROKER", "JOINED", "PARTITIONS"],
            detail.member_details.iter().map(|member| {
                let partitions: Vec<String> = member.partitions.iter().map(ToString::to_string).collect();
                let (session, broker) = (member.session.clone(), member.broker.clone());
                [session, broker, member.joined_at.clone(), partitions.join(",")]
            }),
        ),
    }
    println!();
    lane::print_lanes(&detail.lanes);
}

fn print_sought(sought: &Sought) {
    let row = |lane: &laneway_client::group_api::SoughtLane| {
        [lane.partition.to_string(), lane.committed_offset.to_string(), lane.epoch.to_string()]
    };
    print_table(["PARTITION", "GOES ON AT", "EPOCH"], sought.lanes.iter().map(row));
}
