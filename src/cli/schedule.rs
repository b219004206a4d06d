//! `laneway schedule`: list, show, move and cancel messages that wait for their time, through the broker's HTTP API.

use clap::{ArgGroup, Args, Subcommand};
use laneway_client::schedule::{MoveSchedule, Schedule, ScheduleList, ScheduleQuery};

use super::Failure;
use super::access::{Access, print_table};
use super::dead::{readable, warn_unopened};
use super::group_settings::ms;
use crate::cli::output::println;

#[derive(Debug, Args)]
pub(super) struct Schedules {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List messages that wait, in the order in which they were published
    #[command(after_help = "Examples:\n  laneway schedule list\n  \
        laneway schedule list --topic reminders --limit 10 --after 4711")]
    List(List),
    /// Show a message that waits, whole
    #[command(after_help = "Example:\n  laneway schedule show 4711")]
    Show {
        /// As `schedule list` names it
        id: i64,
    },
    /// Give a message that waits another time
    #[command(after_help = "Examples:\n  laneway schedule move 4711 --delay 2h\n  \
        laneway schedule move 4711 --at 2026-12-24T18:00:00Z")]
    Move(Move),
    /// Cancel messages that wait: they are never appended
    #[command(after_help = "Example:\n  laneway schedule cancel 4711 4712")]
    Cancel {
        /// As `schedule list` names them
        #[arg(required = true, value_name = "ID")]
        ids: Vec<i64>,
    },
}

#[derive(Debug, Args)]
struct List {
    /// Of this topic only
    #[arg(long)]
    topic: Option<String>,
    /// After this id
    #[arg(long, value_name = "ID")]
    after: Option<i64>,
    /// At most this many, 1 to 1,000
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: u32,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("time").required(true).args(["delay", "at"]))]
struct Move {
    /// As `schedule list` names it
    id: i64,
    /// So long from now, such as 90s, 2h or 3days
    #[arg(long, value_name = "DURATION")]
    delay: Option<humantime::Duration>,
    /// At this time, such as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<jiff::Timestamp>,
}

impl Schedules {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (access, admin) = (&self.access, self.access.admin()?);
        match self.action {
            Action::List(List { topic, after, limit }) => {
                let query = ScheduleQuery { topic, after, limit: Some(limit) };
                access.print(&admin.list_schedules(&query).await?, print_list)
            }
            Action::Show { id } => access.print(&admin.show_schedule(id).await?, print_detail),
            Action::Move(Move { id, delay, at }) => {
                let to = MoveSchedule { deliver_at: at.map(|at| at.to_string()), delay_ms: ms(delay) };
                access.print(&admin.move_schedule(id, &to).await?, |schedule| {
                    println!("schedule {} is due at {}", schedule.id, schedule.due_at);
                })
            }
            Action::Cancel { ids } => {
                for id in &ids {
                    admin.cancel_schedule(*id).await?;
                    if !access.json() {
                        println!("cancelled schedule {id}");
                    }
                }
                if access.json() {
                    super::print_json(&serde_json::json!({ "cancelled": ids }))?;
                }
                Ok(())
            }
        }
    }
}

fn print_list(list: &ScheduleList) {
    if list.schedules.is_empty() {
        return println!("no schedules");
    }
    let row = |schedule: &Schedule| {
        let name = schedule.transaction_id.clone().unwrap_or_else(|| "-".to_owned());
        let (id, partition) = (schedule.id.to_string(), schedule.partition.to_string());
        [id, schedule.topic.clone(), partition, schedule.due_at.clone(), schedule.scheduled_at.clone(), name]
    };
    let names = ["ID", "TOPIC", "PARTITION", "DUE AT", "SCHEDULED AT", "TRANSACTION ID"];
    print_table(names, list.schedules.iter().map(row));
    warn_unopened("schedule", list.schedules.iter().map(|schedule| (schedule.id, schedule.error)));
    if let Some(next) = list.next {
        eprintln!("there are more: --after {next}");
    }
}

fn print_detail(schedule: &Schedule) {
    let Schedule { id, topic, partition, due_at, scheduled_at, trace_id, .. } = schedule;
    println!("schedule {id}: topic {topic}, partition {partition}, due at {due_at}");
    println!("  scheduled {scheduled_at}, trace {trace_id}");
    if let Some(name) = &schedule.transaction_id {
        println!("  transaction id {name}");
    }
    if let Some(key) = &schedule.key {
        println!("  key {key}");
    }
    for (name, value) in &schedule.headers {
        println!("  header {name}: {value}");
    }
    println!();
    println!("{}", readable(&schedule.payload, schedule.encoding));
}
