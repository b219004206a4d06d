//! `laneway popped`: what becomes of messages that were popped and kept, at any broker. A pop is known by its partition and epoch.

use clap::{ArgGroup, Args, Subcommand};
use laneway_client::pull_api::{PopAck, PopAcked, PopExtend, PopNack, PopNacked, PopVerdict};

use super::Failure;
use super::access::Access;
use super::group_settings::ms;
use crate::cli::output::println;

#[derive(Debug, Args)]
pub(super) struct Popped {
    #[command(flatten)]
    access: Access,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Acknowledge messages of a pop; the same again does no harm
    #[command(after_help = "Examples:\n  \
        laneway popped ack orders --group billing --partition 3 --epoch 7 --next 42\n  \
        laneway popped ack orders --group billing --partition 3 --epoch 7 --offset 39 --offset 41")]
    Ack(Ack),
    /// Refuse a message of a pop: an attempt is counted, and it comes again or is given up, as the group says
    #[command(after_help = "Examples:\n  \
        laneway popped nack orders --group billing --partition 3 --epoch 7 --offset 40 --reason 'no stock'\n  \
        laneway popped nack orders --group billing --partition 3 --epoch 7 --offset 40 --until 2026-11-16T07:00:00Z")]
    Nack(Nack),
    /// Give a pop more time, counted from now
    #[command(after_help = "Example:\n  \
        laneway popped extend orders --group billing --partition 3 --epoch 7 --ack-deadline 10m")]
    Extend(Extend),
}

/// A pop.
#[derive(Debug, Args)]
struct Which {
    /// What was popped from
    topic: String,
    /// By this group
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// The partition, as `pop --keep` told it
    #[arg(long, value_name = "N")]
    partition: u32,
    /// The epoch, as `pop --keep` told it
    #[arg(long, value_name = "N")]
    epoch: i64,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("done").required(true).multiple(true).args(["next", "offsets"]))]
struct Ack {
    #[command(flatten)]
    which: Which,
    /// Everything below this offset
    #[arg(long, value_name = "OFFSET")]
    next: Option<i64>,
    /// A single message; may be given more than once
    #[arg(long = "offset", value_name = "OFFSET")]
    offsets: Vec<i64>,
}

#[derive(Debug, Args)]
struct Nack {
    #[command(flatten)]
    which: Which,
    /// The message that failed; those after it come again, too
    #[arg(long, value_name = "OFFSET")]
    offset: i64,
    /// Why, for people
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Try it again after so long, instead of the backoff of the group
    #[arg(long, value_name = "DURATION", conflicts_with = "until")]
    delay: Option<humantime::Duration>,
    /// Try it again at this time, up to a day ahead
    #[arg(long, value_name = "TIME")]
    until: Option<jiff::Timestamp>,
}

#[derive(Debug, Args)]
struct Extend {
    #[command(flatten)]
    which: Which,
    /// How long from now on, 100ms to 24h. [default: as the group says]
    #[arg(long, value_name = "DURATION")]
    ack_deadline: Option<humantime::Duration>,
}

impl Popped {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (access, admin) = (&self.access, self.access.admin()?);
        match self.action {
            Action::Ack(Ack { which: Which { topic, group, partition, epoch }, next, offsets }) => {
                let ack = PopAck { partition, epoch, offsets, next };
                access.print(&admin.ack(&topic, &group, &ack).await?, print_acked)
            }
            Action::Nack(Nack { which, offset, reason, delay, until }) => {
                let Which { topic, group, partition, epoch } = which;
                let until = until.map(|until| until.to_string());
                let nack = PopNack { partition, epoch, offset, reason, delay_ms: ms(delay), until };
                access.print(&admin.nack(&topic, &group, &nack).await?, |nacked| print_nacked(offset, nacked))
            }
            Action::Extend(Extend { which: Which { topic, group, partition, epoch }, ack_deadline }) => {
                let extend = PopExtend { partition, epoch, ack_deadline_ms: ms(ack_deadline) };
                access.print(&admin.extend(&topic, &group, &extend).await?, |extended| {
                    println!("kept until {}", extended.expires_at);
                })
            }
        }
    }
}

fn print_acked(acked: &PopAcked) {
    println!("done up to {}, {}", acked.committed_offset, left(acked.remaining));
}

fn print_nacked(offset: i64, nacked: &PopNacked) {
    let fate = match nacked.verdict {
        PopVerdict::Retry => "comes again",
        PopVerdict::DeadLetter => "is a dead letter",
        PopVerdict::Skip => "is skipped",
        PopVerdict::Block => "stops its lane",
    };
    let failures =
        if nacked.attempts == 1 { "once".to_owned() } else { format!("{} times", nacked.attempts) };
    println!("message {offset} has failed {failures} and {fate}; {}", left(nacked.remaining));
}

fn left(remaining: u32) -> String {
    match remaining {
        0 => "the pop is over".to_owned(),
        1 => "1 message of the pop is left".to_owned(),
        many => format!("{many} messages of the pop are left"),
    }
}
