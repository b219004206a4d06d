//! `laneway trace`: a trace as a tree, with a bar of time for every message; once, or again and again.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use clap::Args;
use laneway_client::admin::AdminError;
use laneway_client::trace::Trace as TraceTree;
use laneway_client::{Admin, Class, ErrorCode, traceparent};
use ratatui::crossterm::terminal;
use uuid::Uuid;

use super::Failure;
use super::access::Access;
use super::signals::Signals;
use crate::cli::output::println;
use crate::drawing;

/// Between two looks with `--follow`.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(250);
/// Where there is no terminal whose width would count.
const WIDTH_DEFAULT: usize = 100;

const EXAMPLES: &str = "A bar is drawn for every group that a message goes to: it waits, it is handled, it fails and pauses, it is \
done or dead. Messages of the critical path, which decides how long the whole takes, are marked with *.\n\nExamples:\n  \
laneway trace 0198f5a0-1c2d-7e3f-8a4b-5c6d7e8f9a0b\n  laneway trace 0af7651916cd43dd8448eb211c80319c --follow\n  \
laneway trace 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 --json";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Trace {
    /// A UUID, 32 hexadecimal digits, or a W3C traceparent
    #[arg(value_name = "ID", value_parser = trace_id)]
    id: Uuid,
    /// Stay, and draw it again whenever something has happened; a trace that nobody has published to yet is waited for
    #[arg(long)]
    follow: bool,
    /// Columns to draw in [default: those of the terminal]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..=1000))]
    width: Option<u16>,
    #[command(flatten)]
    access: Access,
}

fn trace_id(text: &str) -> Result<Uuid, String> {
    let id = traceparent::parse(text).or_else(|_| Uuid::parse_str(text));
    match id {
        Ok(id) if id.is_nil() => Err("it is all zero, which stands for no trace".to_owned()),
        Ok(id) => Ok(id),
        Err(_) => Err("it is neither a UUID, nor 32 hexadecimal digits, nor a traceparent".to_owned()),
    }
}

impl Trace {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let admin = self.access.admin()?;
        if self.follow {
            return self.follow(&admin).await;
        }
        let trace = admin.show_trace(self.id).await?;
        let (width, colour) = (self.columns(), colours());
        self.access.print(&trace, |trace| {
            drawing::lines(trace, width, colour).iter().for_each(|line| println!("{line}"));
        })
    }

    /// Until the user has seen enough.
    async fn follow(&self, admin: &Admin) -> Result<(), Failure> {
        let signals = Signals::watch()?;
        let mut screen = Screen::default();
        let mut told: Option<TraceTree> = None;
        let mut has_answered = false;
        while let Some(found) = signals.unless(admin.show_trace(self.id)).await {
            match found {
                Ok(trace) if told.as_ref() != Some(&trace) => {
                    self.show(&mut screen, &trace)?;
                    told = Some(trace);
                }
                Ok(_) => {}
                Err(error) if is_unknown(&error) && told.is_none() => {
                    screen.say_once("nobody has published to this trace yet: waiting");
                }
                Err(error) if is_unknown(&error) => {} // retention has dropped it: what was drawn stays
                Err(error) if has_answered && may_pass(&error) => {
                    screen.say_once("the broker does not answer: trying again");
                }
                Err(error) => return Err(error.into()),
            }
            has_answered = true;
            if signals.unless(tokio::time::sleep(FOLLOW_INTERVAL)).await.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn show(&self, screen: &mut Screen, trace: &TraceTree) -> Result<(), Failure> {
        match self.access.json() {
            true => println!("{}", serde_json::to_string(trace)?),
            false => screen.draw(&drawing::lines(trace, self.columns(), colours())),
        }
        Ok(())
    }

    fn columns(&self) -> usize {
        let terminal = || terminal::size().ok().filter(|_| std::io::stdout().is_terminal());
        match self.width {
            Some(width) => usize::from(width),
            None => terminal().map_or(WIDTH_DEFAULT, |(columns, _)| usize::from(columns).max(40)),
        }
    }
}

fn is_unknown(error: &AdminError) -> bool {
    matches!(error, AdminError::Refused(problem) if problem.code == ErrorCode::UnknownTrace)
}

/// A broker that is restarted, or waits for its database.
fn may_pass(error: &AdminError) -> bool {
    match error {
        AdminError::Unreachable { .. } => true,
        AdminError::Refused(problem) => matches!(problem.code.class(), Class::Retry | Class::Unknown),
        AdminError::Address { .. } | AdminError::Certificates(_) | AdminError::Foreign { .. } => false,
    }
}

/// As <https://no-color.org> asks.
fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What was drawn last, so that it can be drawn over.
#[derive(Debug, Default)]
struct Screen {
    lines: usize,
    /// What was said last beside it.
    said: Option<&'static str>,
}

impl Screen {
    fn draw(&mut self, lines: &[String]) {
        if std::io::stdout().is_terminal() && self.lines > 0 {
            // Up to where it began, and clear. If nobody reads it, the lines below say so.
            let _nobody_reads = write!(std::io::stdout(), "\x1b[{}A\x1b[J", self.lines);
        } else if self.lines > 0 {
            println!();
        }
        lines.iter().for_each(|line| println!("{line}"));
        (self.lines, self.said) = (lines.len(), None);
    }

    /// Says something beside the drawing, unless it was said already since something was drawn.
    fn say_once(&mut self, sentence: &'static str) {
        if self.said.replace(sentence) != Some(sentence) {
            eprintln!("{sentence}");
        }
    }
}
