//! `laneway top`: a screen that refreshes itself, or one plain picture where there is no terminal.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use clap::Args;
use laneway_client::Admin;
use laneway_client::admin::AdminError;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::Failure;
use super::access::{Access, print_table};
use crate::cli::output::println;
use crate::limits::TOP_INTERVAL_MIN;
use crate::top::draw::{Pane, Screen, Status, draw, life, per_second};
use crate::top::model::{Sort, View};
use crate::top::sample::Sample;
use crate::top::terminal::FullScreen;

/// Keys that wait for the screen; more than anybody types between two frames.
const KEYS_MAX: usize = 64;
/// How often the keyboard thread looks whether it is still wanted.
const KEYS_LOOK: Duration = Duration::from_millis(100);
/// An answer that takes longer is worth a word.
const SLOW_AFTER: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  laneway top\n  laneway top --interval 5s\n  laneway top --once\n  \
    laneway top --json | jq .groups\n\nKeys: q, Esc and Ctrl-C quit; s sorts by name, rate or lag; Tab chooses a table, the \
    arrows scroll it.\nWithout a terminal, with --once and with --json it looks twice, --interval apart, prints once and ends.")]
pub(super) struct Top {
    #[command(flatten)]
    access: Access,
    /// How often to look, at least 100ms
    #[arg(long, default_value = "1s", value_name = "DURATION", value_parser = interval)]
    interval: Duration,
    /// Print one picture and end
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match interval >= TOP_INTERVAL_MIN {
        true => Ok(interval),
        false => Err("it must be at least 100ms".to_owned()),
    }
}

impl Top {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let admin = self.access.admin()?;
        let first = Sample::take(&admin).await?;
        if self.once || self.access.json() || !std::io::stdout().is_terminal() {
            return self.picture(&admin, &first).await;
        }
        let mut endings = Endings::watch()?;
        let mut watch = Watch::new(self.access.url(), self.interval, admin, first);
        let mut screen = FullScreen::enter()?;
        watch.run(&mut screen, &mut endings).await
    }

    async fn picture(&self, admin: &Admin, first: &Sample) -> Result<(), Failure> {
        tokio::time::sleep(self.interval).await;
        let second = Sample::take(admin).await?;
        self.access.print(&View::new(Some(first), &second), print)
    }
}

/// What is on the screen, and the question that is on its way.
struct Watch<'a> {
    url: &'a str,
    interval: Duration,
    admin: Admin,
    last: Sample,
    view: View,
    asked: Option<(Instant, JoinHandle<Result<Sample, AdminError>>)>,
    /// Since when there is no good answer, and why.
    away: Option<(Instant, String)>,
    sort: Sort,
    pane: Pane,
    scrolled: [usize; 2],
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Go,
    Quit,
}

impl<'a> Watch<'a> {
    fn new(url: &'a str, interval: Duration, admin: Admin, first: Sample) -> Self {
        let view = View::new(None, &first);
        let (sort, pane) = (Sort::default(), Pane::default());
        Self {
            url,
            interval,
            admin,
            last: first,
            view,
            asked: None,
            away: None,
            sort,
            pane,
            scrolled: [0, 0],
        }
    }

    /// Cancel safety: none. Runs until somebody wants it to end.
    async fn run(&mut self, screen: &mut FullScreen, endings: &mut Endings) -> Result<(), Failure> {
        let mut keys = keyboard();
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await; // the first one comes at once, and the first sample is there
        loop {
            let shown = self.screen();
            screen.terminal.draw(|frame| draw(frame, &shown))?;
            tokio::select! {
                biased; // who wants to leave goes first
                () = endings.came() => return Ok(()),
                event = keys.recv() => match event {
                    Some(Event::Key(key)) if self.on_key(key) == Next::Quit => return Ok(()),
                    Some(_) => {}
                    None => return Ok(()), // the terminal is gone
                },
                answer = answered(&mut self.asked) => self.on_answer(answer?),
                _ = ticks.tick() => self.ask(),
            }
        }
    }

    /// One question at a time: a broker that is slow is not asked more often.
    fn ask(&mut self) {
        if self.asked.is_none() {
            let admin = self.admin.clone();
            self.asked = Some((Instant::now(), tokio::spawn(async move { Sample::take(&admin).await })));
        }
    }

    fn on_answer(&mut self, answer: Result<Sample, AdminError>) {
        match answer {
            Ok(sample) => {
                self.view = View::new(Some(&self.last), &sample);
                self.view.sort(self.sort);
                self.last = sample;
                self.away = None;
            }
            Err(error) => {
                let since = self.away.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                self.away = Some((since, error.to_string()));
            }
        }
    }

    fn on_key(&mut self, key: KeyEvent) -> Next {
        let pane = match self.pane {
            Pane::Topics => 0,
            Pane::Groups => 1,
        };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Next::Quit,
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.view.sort(self.sort);
            }
            KeyCode::Tab => {
                self.pane = match self.pane {
                    Pane::Topics => Pane::Groups,
                    Pane::Groups => Pane::Topics,
                }
            }
            KeyCode::Up | KeyCode::Char('k') => self.scrolled[pane] = self.scrolled[pane].saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scrolled[pane] += 1,
            _ => {}
        }
        let last = [self.view.topics.len(), self.view.groups.len()].map(|rows| rows.saturating_sub(1));
        self.scrolled = [self.scrolled[0].min(last[0]), self.scrolled[1].min(last[1])];
        Next::Go
    }

    fn screen(&self) -> Screen<'_> {
        let waited = self.asked.as_ref().map_or(Duration::ZERO, |(since, _)| since.elapsed());
        let status = match &self.away {
            Some((since, reason)) => Status::Away { since: since.elapsed(), reason: reason.clone() },
            None if waited >= SLOW_AFTER => Status::Slow { waited },
            None => Status::Live,
        };
        let (url, interval, view) = (self.url, self.interval, &self.view);
        Screen { url, interval, view, status, sort: self.sort, pane: self.pane, scrolled: self.scrolled }
    }
}

/// The answer to the question that is on its way; never, if none is.
///
/// Cancel safety: yes. The question stays until its answer is taken.
async fn answered(
    asked: &mut Option<(Instant, JoinHandle<Result<Sample, AdminError>>)>,
) -> Result<Result<Sample, AdminError>, Failure> {
    let Some((_, question)) = asked else { return std::future::pending().await };
    let answer = question.await;
    *asked = None;
    Ok(answer?)
}

/// Keys and changes of size, read by a thread of its own, which ends with the receiver.
fn keyboard() -> mpsc::Receiver<Event> {
    let (sender, keys) = mpsc::channel(KEYS_MAX);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            match event::poll(KEYS_LOOK).and_then(|ready| ready.then(event::read).transpose()) {
                Ok(None) => {}
                Ok(Some(event)) => match sender.blocking_send(event) {
                    Ok(()) => {}
                    Err(_) => return, // nobody wants it any more
                },
                Err(_) => return, // the terminal is gone, and the screen ends with the sender
            }
        }
    });
    keys
}

/// The signals that end it, so that the terminal is given back first.
struct Endings {
    signals: [Signal; 4],
}

impl Endings {
    fn watch() -> Result<Self, Failure> {
        let kinds =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        let [a, b, c, d] = kinds.map(signal);
        Ok(Self { signals: [a?, b?, c?, d?] })
    }

    /// Cancel safety: yes. A signal that came is told by the next call.
    async fn came(&mut self) {
        let [a, b, c, d] = &mut self.signals;
        tokio::select! { _ = a.recv() => {}, _ = b.recv() => {}, _ = c.recv() => {}, _ = d.recv() => {} }
    }
}

/// The picture as tables.
fn print(view: &View) {
    print_table(
        ["TOPIC", "PARTITIONS", "PUBLISHED", "RATE"],
        view.topics.iter().map(|topic| {
            let (partitions, published) = (topic.partitions.to_string(), topic.published.to_string());
            [topic.topic.clone(), partitions, published, per_second(topic.rate)]
        }),
    );
    println!();
    print_table(
        ["TOPIC", "GROUP", "MEMBERS", "RATE", "LAG", "WAITING"],
        view.groups.iter().map(|group| {
            let (members, lag) = (group.members.to_string(), group.lag_messages.to_string());
            let waiting = format!("{:.1}s", group.lag_seconds);
            [group.topic.clone(), group.group.clone(), members, per_second(group.rate), lag, waiting]
        }),
    );
    println!();
    let states = view.lanes.by_state();
    print_table(["LANES", "STATE"], states.map(|(state, count)| [count.to_string(), state.to_owned()]));
    println!();
    print_table(
        ["BROKER", "STATE", "SESSIONS", "LANES"],
        view.brokers.iter().map(|broker| {
            let (sessions, lanes) = (broker.sessions.to_string(), broker.lanes.to_string());
            [broker.broker.clone(), life(broker), sessions, lanes]
        }),
    );
    view.notes.iter().for_each(|note| eprintln!("{note}"));
}
