//! `laneway publish`: lines of a file or of standard input as messages, many under way, one copy each.
//!
//! `input` reads in a thread; this file lets messages in as long as there is room and collects their receipts beside it;
//! `summary` counts. Memory is bounded by the room, whatever the input has.

mod input;
mod summary;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use laneway_client::capacity::OnFull;
use laneway_client::client::Pending;
use laneway_client::{Client, NewMessage, Options, traceparent};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use uuid::Uuid;

use self::input::{Cut, Input, Line};
use self::summary::Summary;
use super::access::Access;
use super::group_settings::ms;
use super::signals::Signals;
use super::{Failure, news, wrong_usage};

/// Messages under way: enough to fill many batches.
const MESSAGES_MAX: usize = 10_000;
/// Bytes of messages under way: what the command takes of memory, give or take.
const BYTES_MAX: usize = 32 << 20;
/// A message is tried for no longer: whoever waits for days wants to be told.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long receipts are waited for after Ctrl-C.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "A line ends with LF or CRLF and may have any bytes; an empty line is an empty message. \
With --transaction-id T the first line is named T, the second T-2, the third T-3 and so on: the same command again stores \
nothing twice. Ctrl-C ends the input: what was read is published.\n\n\
Examples:\n  laneway publish orders orders.ndjson\n  \
echo '{\"order\": 17}' | laneway publish orders --key customer-17\n  \
laneway publish invoices --whole invoice.pdf --header kind=pdf --transaction-id invoice-2026-17\n  \
laneway publish orders --transaction-id import-7 --json < orders.ndjson\n  \
echo 'call back' | laneway publish reminders --delay 2h\n  \
laneway publish prices --ttl 30s < ticks.ndjson";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Publish {
    /// Where to
    topic: String,
    /// The file to read; - is standard input
    #[arg(default_value = "-", value_name = "FILE")]
    file: PathBuf,
    /// Messages of one key stay in order
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// This partition, whatever the key says
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    partition: Option<u32>,
    /// The trace of all messages: a UUID, 32 hexadecimal digits, or a W3C traceparent, which is sent along as a header
    #[arg(long, value_name = "ID", value_parser = trace)]
    trace: Option<GivenTrace>,
    /// Names the message, so that it is stored once however often it is published
    #[arg(long, value_name = "ID")]
    transaction_id: Option<String>,
    /// A header of all messages; may be given more than once, with another name
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Append the messages so long after they are published, such as 90s, 2h or 3days
    #[arg(long, value_name = "DURATION", conflicts_with = "at")]
    delay: Option<humantime::Duration>,
    /// Append the messages at this time, such as 2026-12-24T18:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<jiff::Timestamp>,
    /// What to do while the topic is full: wait, or fail at once
    #[arg(long, value_name = "wait|fail", default_value = "wait", value_parser = on_full)]
    on_full: OnFull,
    /// How long each message is tried, while the topic is full or no broker is there; up to 24h
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    timeout: humantime::Duration,
    /// Not worth delivering when it is older than this, like 10m, counted from when it is appended
    #[arg(long, value_name = "DURATION")]
    ttl: Option<humantime::Duration>,
    /// The whole input is one message
    #[arg(long)]
    whole: bool,
    #[command(flatten)]
    access: Access,
}

/// How reading ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Input,
    Signal,
    Failure,
}

impl Publish {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let mut headers = distinct(&self.header)?;
        if let Some(parent) = self.trace.as_ref().and_then(|trace| trace.parent.clone()) {
            headers.entry(traceparent::HEADER.to_owned()).or_insert(parent);
        }
        if self.timeout.is_zero() || *self.timeout > TIMEOUT_MAX {
            return Err(wrong_usage("publish", "--timeout is more than 0s and at most 24h"));
        }
        let signals = Signals::watch()?;
        let (source, size) =
            input::open(&self.file).map_err(|error| format!("cannot read {}: {error}", self.name()))?;
        let Some(client) = signals.unless(self.connect()).await.transpose()? else {
            return Err("stopped before anything was published".into());
        };
        let topic = self.access.admin()?.show_topic(&self.topic).await?;
        let bar = self.bar(size);
        let beside = bar.clone();
        news::tell(&client, move |news| beside.suspend(|| eprintln!("{news}")));
        if self.is_stdin() && std::io::stdin().is_terminal() {
            eprintln!("laneway: one message per line; Ctrl-D ends");
        }
        let cut = if self.whole { Cut::Whole } else { Cut::Lines };
        let input = Input::start(source, cut, topic.topic.payload_bytes_max as usize);
        let summary = Arc::new(Mutex::new(Summary::new(&self.topic)));
        let job = Job { headers, summary: summary.clone(), bar: bar.clone(), publish: &self };
        let too_late = async {
            signals.stopped().await;
            tokio::time::sleep(STOP_PATIENCE).await;
        };
        let end = tokio::select! {
            end = job.publish_all(&client, input, &signals) => Some(end),
            () = too_late => None,
        };
        bar.finish_and_clear();
        client.close().await;
        self.conclude(end, &summary)
    }

    async fn connect(&self) -> Result<Client, Failure> {
        let options = Options {
            name: Some("laneway publish".to_owned()),
            publish_messages_max: MESSAGES_MAX,
            publish_bytes_max: BYTES_MAX,
            publish_timeout: *self.timeout,
            on_full: self.on_full,
            close_timeout: Duration::from_secs(1), // every receipt has been waited for
            ..Options::default()
        };
        news::connect(&self.access.address, options).await
    }

    fn is_stdin(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    fn name(&self) -> String {
        match self.is_stdin() {
            true => "standard input".to_owned(),
            false => self.file.display().to_string(),
        }
    }

    /// On a terminal only; standard error, because standard output is the summary.
    fn bar(&self, size: Option<u64>) -> ProgressBar {
        if !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let (bar, template) = match size {
            Some(size) => (ProgressBar::new(size), "{wide_bar} {bytes}/{total_bytes} {msg}, {eta} left"),
            None => (ProgressBar::new_spinner(), "{spinner} {bytes} {msg}"),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is written right"));
        bar
    }

    fn conclude(&self, end: Option<End>, summary: &Mutex<Summary>) -> Result<(), Failure> {
        let mut summary = summary.lock();
        summary.finish();
        let stopped = match end {
            None => Some("stopped: not every receipt came in time, so some messages may be stored or not"),
            Some(End::Signal) if self.whole || !self.is_stdin() => {
                Some("stopped before the end of the input")
            }
            Some(End::Input | End::Signal | End::Failure) => None,
        };
        if let Some(stopped) = stopped {
            summary.on_stopped(stopped.to_owned());
        }
        self.access.print(&*summary, Summary::print)?;
        summary.failure().map_or(Ok(()), |reason| Err(reason.into()))
    }
}

/// A message that waits for its receipt. Without its payload, so that what is stored takes no room here.
struct UnderWay {
    number: u64,
    bytes: u64,
    pending: Pending,
}

/// One run: what all messages share, and where their fates are counted.
struct Job<'a> {
    publish: &'a Publish,
    headers: BTreeMap<String, String>,
    summary: Arc<Mutex<Summary>>,
    bar: ProgressBar,
}

impl Job<'_> {
    /// Publishes until the input ends, a signal comes or something fails; returns when every receipt is there.
    async fn publish_all(&self, client: &Client, input: Input, signals: &Signals) -> End {
        let (to, from) = mpsc::channel(MESSAGES_MAX);
        let (end, ()) = tokio::join!(self.let_in(client, input, signals, to), self.collect(from));
        end
    }

    async fn let_in(
        &self,
        client: &Client,
        mut input: Input,
        signals: &Signals,
        to: mpsc::Sender<UnderWay>,
    ) -> End {
        let mut end = End::Input;
        loop {
            let part = match signals.unless(input.next()).await {
                Some(part) => part,
                None => {
                    end = End::Signal;
                    input.rest()
                }
            };
            let lines = match part {
                None => return end,
                Some(Ok(lines)) => lines,
                Some(Err(error)) => {
                    self.summary.lock().on_stopped(error.to_string());
                    return End::Failure;
                }
            };
            for line in lines {
                if self.summary.lock().failure().is_some() {
                    return End::Failure; // nothing behind a message that failed is let in
                }
                match client.publish_later(&self.publish.topic, self.message(&line)).await {
                    Ok(pending) => {
                        let Line { number, bytes, payload: _ } = line;
                        self.summary.lock().on_let_in();
                        drop(to.send(UnderWay { number, bytes, pending }).await); // `collect` lives as long
                    }
                    Err(error) => self.summary.lock().on_error(line.number, &error),
                }
            }
        }
    }

    async fn collect(&self, mut from: mpsc::Receiver<UnderWay>) {
        while let Some(UnderWay { number, bytes, pending }) = from.recv().await {
            let result = pending.receipt().await;
            let mut summary = self.summary.lock();
            match result {
                Ok(receipt) => summary.on_receipt(receipt),
                Err(error) => summary.on_lost(number, &error),
            }
            self.bar.inc(bytes);
            self.bar.set_message(format!("{} messages", summary.messages));
        }
    }

    fn message(&self, line: &Line) -> NewMessage {
        let publish = self.publish;
        let id = publish.transaction_id.as_deref();
        NewMessage {
            payload: line.payload.clone(),
            key: publish.key.clone().map(Into::into),
            partition: publish.partition,
            trace_id: publish.trace.as_ref().map(|trace| trace.id),
            transaction_id: id.map(|id| transaction_id(id, line.number)),
            headers: self.headers.clone(),
            deliver_at: publish.at.map(|at| at.to_string()),
            delay_ms: ms(publish.delay),
            ttl_ms: ms(publish.ttl),
            ..NewMessage::default()
        }
    }
}

/// The first message has the id itself, so that a single one is named as it was asked for.
fn transaction_id(id: &str, line: u64) -> String {
    if line <= 1 { id.to_owned() } else { format!("{id}-{line}") }
}

/// A trace as it was given on the command line.
#[derive(Debug, Clone)]
struct GivenTrace {
    id: Uuid,
    /// The `traceparent` that names it.
    parent: Option<String>,
}

fn trace(text: &str) -> Result<GivenTrace, String> {
    if let Ok(id) = traceparent::parse(text) {
        return Ok(GivenTrace { id, parent: Some(text.to_owned()) });
    }
    match Uuid::parse_str(text) {
        Ok(id) if !id.is_nil() => Ok(GivenTrace { id, parent: None }),
        Ok(_) | Err(_) => {
            Err("it is a UUID or 32 hexadecimal digits, not all of them 0, or a traceparent".to_owned())
        }
    }
}

fn on_full(text: &str) -> Result<OnFull, String> {
    match text {
        "wait" => Ok(OnFull::Wait),
        "fail" => Ok(OnFull::Fail),
        _ => Err("say wait or fail".into()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("a header is NAME=VALUE".to_owned()),
    }
}

fn distinct(headers: &[(String, String)]) -> Result<BTreeMap<String, String>, Failure> {
    let mut distinct = BTreeMap::new();
    for (name, value) in headers {
        if distinct.insert(name.clone(), value.clone()).is_some() {
            let sentence = format!("header {name} is given twice; a message has one value for each name");
            return Err(wrong_usage("publish", sentence));
        }
    }
    Ok(distinct)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_named_by_their_number_and_the_first_by_the_id_itself() {
        let ids: Vec<String> = [0, 1, 2, 3].map(|line| transaction_id("import-7", line)).to_vec();
        assert_eq!(ids, ["import-7", "import-7", "import-7-2", "import-7-3"]);
    }

    #[test]
    fn a_header_is_a_name_and_a_value() {
        assert_eq!(header("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(header("a="), Ok(("a".into(), String::new())));
        assert!(header("a").is_err() && header("=b").is_err());
    }
}
