//! `laneway tail`: prints messages without a group. Nothing is committed, and nobody else notices.

use std::time::Duration;

use clap::Args;
use laneway_client::{Client, Delivery, Options, Start};
use uuid::Uuid;

use super::access::Address;
use super::reading::{End, Form, Reading, Settle, pace};
use super::signals::Signals;
use super::{Failure, news, place};

/// What is accepted at once: enough to keep a pipe busy, little enough to hold in memory.
const CREDIT: (u32, u64) = (4_000, 8 << 20);
/// There is no deadline in a tail: the printing only has to look around now and then.
const PROGRESS: Duration = Duration::from_secs(60);

const EXAMPLES: &str = "With --key or --trace all messages are read and those that match are printed and counted. After a \
lost connection it goes on where it was.\n\nThe object of --format json has the names of the HTTP API. `payload` is text, or \
base64 if it is no text, which `encoding` says (`text`, `base64`); the same holds for `key` and `key_encoding`.\n\n\
Examples:\n  laneway tail orders\n  laneway tail orders --from earliest --key customer-17\n  \
laneway tail orders --from 2026-11-16T06:00:00Z --trace 0198f5a01c2d7e3f8a4b5c6d7e8f9a0b --format json\n  \
laneway tail orders --from 1042 --count 1 --format raw";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Tail {
    /// What to read
    topic: String,
    /// Where to begin: earliest, latest, a time like 2026-11-16T06:00:00Z, or an offset
    #[arg(long, value_name = "WHERE", value_parser = place::start, default_value = "latest", allow_negative_numbers = true)]
    from: Start,
    /// Only messages of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only messages of this trace: a UUID or 32 hexadecimal digits
    #[arg(long, value_name = "ID")]
    trace: Option<Uuid>,
    /// End after so many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// How messages are printed. [default: pretty on a terminal, else json]
    #[arg(long, value_enum)]
    format: Option<Form>,
    #[command(flatten)]
    address: Address,
}

impl Tail {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let signals = Signals::watch()?;
        let options = Options { name: Some("laneway tail".to_owned()), ..Options::default() };
        let Some(client) = signals.unless(news::connect(&self.address, options)).await.transpose()? else {
            return Ok(());
        };
        news::tell(&client, |news| eprintln!("{news}"));
        let result = self.print(&client, &signals).await;
        client.close().await;
        result
    }

    async fn print(&self, client: &Client, signals: &Signals) -> Result<(), Failure> {
        let tailing = client.tail(&self.topic, self.from.clone()).credit(CREDIT.0, CREDIT.1);
        let Some(tail) = signals.unless(tailing.into_future()).await else { return Ok(()) };
        let mut tail = tail?;
        let (form, count, settle) = (Form::or_default(self.format), self.count, Settle::Nothing);
        let reading = Reading { form, count, settle, progress: pace(PROGRESS), signals };
        match reading.print(&mut tail, |message| self.is_wanted(message)).await? {
            End::Count | End::Signal | End::Pipe => Ok(()),
            End::Stream => Err(tail.error().map_or("the stream has ended".into(), Into::into)),
        }
    }

    fn is_wanted(&self, message: &Delivery) -> bool {
        let key = self.key.as_ref().is_none_or(|key| message.key.as_deref() == Some(key.as_bytes()));
        key && self.trace.is_none_or(|trace| message.trace_id == trace)
    }
}
