//! `laneway subscribe`: a member of a group that prints what it is delivered.

use std::time::Duration;

use clap::Args;
use laneway_client::admin::AdminError;
use laneway_client::selection::Selection;
use laneway_client::{Client, ErrorCode, Options, Start};

use super::access::Address;
use super::group_settings::Settings;
use super::reading::{End, Form, Reading, Settle, pace};
use super::signals::Signals;
use super::{Failure, labels, news, place};

/// What is accepted at once: enough to keep a pipe busy, little enough to hold in memory.
const CREDIT: (u32, u64) = (4_000, 8 << 20);
/// How long lanes wait for a command that has vanished: a restart of a broker fits in, and nobody waits long at a terminal.
const RESUME_GRACE: Duration = Duration::from_secs(5);
/// Lanes are told three times per ack deadline that their messages are still in work.
const PROGRESS_PARTS: u32 = 3;

const EXAMPLES: &str = "A message is acknowledged when its line is written, and not before. Ctrl-C and SIGTERM commit what \
was printed and end; a second one ends at once. Delivery is at least once: after a lost connection a message may be printed \
again.\n\nWith --no-ack nothing is committed, and the next subscriber gets the same messages; a partition shows at most as \
many as may be in flight (10,000).\n\nThe object of --format json has the names of the HTTP API. `payload` is text, or base64 \
if it is no text, which `encoding` says (`text`, `base64`); the same holds for `key` and `key_encoding`.\n\n\
--ack-deadline, --ordering, --max-attempts and what follows it are settings of the group: the first subscriber decides them, the \
others must agree, and `laneway group alter` changes them.\n\n\
Of several topics, the message that has waited longest is printed first. Topics that match a pattern or labels later join by \
themselves, from their first message on. A pattern wants quotes: * is for laneway, not for the shell.\n\n\
Examples:\n  laneway subscribe orders --group billing\n  \
laneway subscribe orders --group audit --from latest --format json | jq .payload\n  \
laneway subscribe orders --group peek --no-ack --count 10\n  \
laneway subscribe orders --group digest --window 5s --max-age 1h\n  \
laneway subscribe orders --group shipping --ordering key --on-failure park\n  \
laneway subscribe orders refunds --group billing\n  \
laneway subscribe --pattern 'orders.*' --group billing\n  \
laneway subscribe --label namespace=shop --label task=ship --group shipping";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Subscribe {
    /// What to consume: one topic or several
    #[arg(value_name = "TOPIC", required_unless_present_any = ["pattern", "labels"], conflicts_with_all = ["pattern", "labels"])]
    topics: Vec<String>,
    /// Topics whose names match, now and later: * stands for any characters
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<String>,
    /// Topics that have this label, and this one, now and later
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = labels::label)]
    labels: Vec<(String, String)>,
    /// The group; the first subscriber makes it
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// Where a new group begins: earliest, latest, a time like 2026-11-16T06:00:00Z, or an offset. A group that exists goes
    /// on where it is. [default: earliest]
    #[arg(long, value_name = "WHERE", value_parser = place::start, allow_negative_numbers = true)]
    from: Option<Start>,
    /// End after so many messages, with exactly these committed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// How messages are printed. [default: pretty on a terminal, else json]
    #[arg(long, value_enum)]
    format: Option<Form>,
    /// Acknowledge nothing
    #[arg(long)]
    no_ack: bool,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    address: Address,
}

impl Subscribe {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let signals = Signals::watch()?;
        let name = Some("laneway subscribe".to_owned());
        let options = Options { name, resume_grace: RESUME_GRACE, ..Options::default() };
        let Some(client) = signals.unless(news::connect(&self.address, options)).await.transpose()? else {
            return Ok(());
        };
        news::tell(&client, |news| eprintln!("{news}"));
        self.warn_of_group().await?;
        let result = self.print(&client, &signals).await;
        client.close().await;
        result
    }

    async fn print(&self, client: &Client, signals: &Signals) -> Result<(), Failure> {
        let subscribing = match (&self.topics[..], self.selects()) {
            ([topic], false) => client.subscribe(topic, &self.group),
            (_, _) => client.select(self.selection(), &self.group),
        };
        let mut subscribing = subscribing.credit(CREDIT.0, CREDIT.1);
        subscribing = subscribing.settings(self.settings.request());
        if let Some(from) = &self.from {
            subscribing = subscribing.start(from.clone());
        }
        let Some(subscription) = signals.unless(subscribing.into_future()).await else { return Ok(()) };
        let mut subscription = subscription?;
        let deadline = Duration::from_millis(subscription.settings().ack_deadline_ms);
        let settle = if self.no_ack { Settle::Nothing } else { Settle::Ack };
        let (form, count) = (Form::or_default(self.format), self.count);
        let reading = Reading { form, count, settle, progress: pace(deadline / PROGRESS_PARTS), signals };
        match reading.print(&mut subscription, |_| true).await? {
            End::Count | End::Signal | End::Pipe => {}
            End::Stream => {
                return Err(subscription.error().map_or("the stream has ended".into(), Into::into));
            }
        }
        // Order: while it is a member, its acks count; leaving is the last word of the connection.
        match client.close().await.lanes {
            0 => Ok(()),
            lanes => Err(format!(
                "acks are not confirmed (lanes: {lanes}): what was printed last may be delivered again"
            )
            .into()),
        }
    }

    /// Whether topics are matched rather than named.
    fn selects(&self) -> bool {
        self.pattern.is_some() || !self.labels.is_empty()
    }

    fn selection(&self) -> Selection {
        let (topics, pattern) = (self.topics.clone(), self.pattern.clone());
        Selection { topics, pattern, labels: labels::given(&self.labels) }
    }

    /// `--from` is for new groups: who asks for a place and does not get it is told.
    async fn warn_of_group(&self) -> Result<(), Failure> {
        if self.from.is_none() {
            return Ok(());
        }
        let admin = self.address.admin()?;
        for topic in &self.topics {
            match admin.show_group(topic, &self.group).await {
                Ok(_) => {
                    eprintln!(
                        "laneway: group {} exists and goes on where it is: `laneway group seek` moves it",
                        self.group
                    );
                    return Ok(());
                }
                Err(AdminError::Refused(problem)) if problem.code == ErrorCode::UnknownGroup => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
