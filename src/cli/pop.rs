//! `laneway pop`: takes messages of a group without a connection of its own, prints them, and acknowledges or keeps them.

use std::io::{ErrorKind, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use laneway_client::message::StoredMessage;
use laneway_client::pull_api::{Pop as Popped, PopAck, PopRequest};
use laneway_client::{Admin, Start};

use super::access::Address;
use super::group_settings::{Delivery, ms};
use super::reading::Form;
use super::signals::Signals;
use super::{Failure, place, wrong_usage};

/// Messages that are popped together.
const TOGETHER_MAX: u32 = 100;
/// One request waits no longer; a longer wait is several.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(20);

const EXAMPLES: &str = "Takes what is there, lane by lane, and ends when there is nothing more. Messages are acknowledged when \
they are printed. What was popped and not printed comes again when its deadline is over, for this group, one by one.\n\n\
With --auto-ack messages are done when they are popped: none is printed twice, and one may be lost with the command.\n\n\
With --keep they stay popped until their deadline, for `laneway popped ack`, `nack` and `extend`, which want the partition and the \
epoch of the pop: standard error tells them. With --format json each line is then a whole pop, with its partition, epoch and \
end_offset.\n\n\
--max-attempts and what follows it are settings of the group: the first consumer decides them, the others must agree, and `laneway \
group alter` changes them.\n\n\
Examples:\n  laneway pop orders --group billing\n  laneway pop orders --group billing --count 1 --wait 1m\n  \
laneway pop orders --group audit --from latest --wait 10s --auto-ack --format raw\n  \
laneway pop orders --group billing --count 10 --keep --format json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Pop {
    /// What to consume
    topic: String,
    /// The group; the first consumer makes it
    #[arg(long, value_name = "GROUP")]
    group: String,
    /// Where a new group begins: earliest, latest, a time like 2026-11-16T06:00:00Z, or an offset. A group that exists goes
    /// on where it is. [default: earliest]
    #[arg(long, value_name = "WHERE", value_parser = place::start, allow_negative_numbers = true)]
    from: Option<Start>,
    /// End after so many messages. [default: all that are there]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// How long to wait for messages when there are none
    #[arg(long, value_name = "TIME", default_value = "0s")]
    wait: humantime::Duration,
    /// How long the messages of one pop may take, 100ms to 24h. [default: as the group says]
    #[arg(long, value_name = "TIME", conflicts_with = "auto_ack")]
    ack_deadline: Option<humantime::Duration>,
    /// Messages are done when they are popped, not when they are printed
    #[arg(long)]
    auto_ack: bool,
    /// Acknowledge nothing: say with `laneway popped` what becomes of them
    #[arg(long, conflicts_with = "auto_ack")]
    keep: bool,
    /// How messages are printed. [default: pretty on a terminal, else json]
    #[arg(long, value_enum)]
    format: Option<Form>,
    #[command(flatten)]
    settings: Delivery,
    #[command(flatten)]
    address: Address,
}

/// Whether anybody reads what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

impl Pop {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let (signals, admin) = (Signals::watch()?, self.address.admin()?);
        let form = Form::or_default(self.format);
        let mut left = self.count;
        while left != Some(0) {
            let together = left.map_or(TOGETHER_MAX, |left| left.min(u64::from(TOGETHER_MAX)) as u32);
            let Some(pop) = signals.unless(self.next(&admin, together)).await else { break };
            let Some(pop) = pop? else { break };
            left = left.map(|left| left.saturating_sub(pop.messages.len() as u64));
            let (printed, reader) = match self.keep {
                true => print_kept(&pop, form)?,
                false => print(&pop, form)?,
            };
            if !self.auto_ack && !self.keep && printed > 0 {
                let next = pop.messages[printed - 1].offset + 1;
                let ack = PopAck { next: Some(next), ..PopAck::all(&pop) };
                admin.ack(&self.topic, &self.group, &ack).await?;
            }
            if reader == Reader::Gone {
                break;
            }
        }
        Ok(())
    }

    /// The next messages, or none within the wait.
    async fn next(&self, admin: &Admin, messages: u32) -> Result<Option<Popped>, Failure> {
        let Some(until) = Instant::now().checked_add(*self.wait) else {
            return Err(wrong_usage("pop", "--wait is longer than any clock counts"));
        };
        loop {
            let wait = until.saturating_duration_since(Instant::now()).min(REQUEST_WAIT_MAX);
            let wish = PopRequest {
                max_messages: Some(messages),
                wait_ms: Some(wait.as_millis() as u32),
                ack_deadline_ms: ms(self.ack_deadline),
                auto_ack: self.auto_ack,
                start: self.from.clone(),
                settings: Some(self.settings.request()),
            };
            let pop = admin.pop(&self.topic, &self.group, &wish).await?;
            if pop.is_some() || Instant::now() >= until {
                return Ok(pop);
            }
        }
    }
}

/// How many were printed in full, and whether it is worth going on.
fn print(pop: &Popped, form: Form) -> Result<(usize, Reader), Failure> {
    for (printed, message) in pop.messages.iter().enumerate() {
        if write(&line(message, form)?)? == Reader::Gone {
            return Ok((printed, Reader::Gone));
        }
    }
    Ok((pop.messages.len(), Reader::There))
}

/// With what names the pop: in the line of a program, or beside the messages.
fn print_kept(pop: &Popped, form: Form) -> Result<(usize, Reader), Failure> {
    let printed = match form {
        Form::Json => {
            let mut line = serde_json::to_vec(pop)?;
            line.push(b'\n');
            (pop.messages.len(), write(&line)?)
        }
        Form::Raw | Form::Pretty => print(pop, form)?,
    };
    let until = pop.expires_at.as_deref().unwrap_or("now");
    eprintln!(
        "laneway: kept until {until}: partition {}, epoch {}, next {}",
        pop.partition, pop.epoch, pop.end_offset
    );
    Ok(printed)
}

fn write(line: &[u8]) -> Result<Reader, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(line).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(format!("cannot write to standard output: {error}").into()),
    }
}

fn line(message: &StoredMessage, form: Form) -> Result<Vec<u8>, Failure> {
    let payload = || message.encoding.decode(&message.payload);
    let mut line = match form {
        Form::Json => serde_json::to_vec(message)?,
        Form::Raw => payload()?,
        Form::Pretty => {
            let key = message.key.as_ref().map(|key| message.key_encoding.decode(key)).transpose()?;
            let place = format!("{}/{}", message.partition, message.offset);
            let named = message.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            Form::for_people(&place, &message.published_at, key.as_deref(), named, &payload()?)
        }
    };
    line.push(b'\n');
    Ok(line)
}
