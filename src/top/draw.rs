//! Draws one view. Knows nothing of where it comes from.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, TableState};

use super::model::{BrokerRow, GroupRow, Sort, TopicRow, View};

/// Brokers that have room; the others are counted.
const BROKER_ROWS_MAX: usize = 5;
/// A border with a title above and one below, and the names of the columns.
const FRAME_ROWS: u16 = 3;

/// Everything that is to be seen.
#[derive(Debug, Clone)]
pub struct Screen<'a> {
    pub url: &'a str,
    pub interval: Duration,
    pub view: &'a View,
    pub status: Status,
    pub sort: Sort,
    pub pane: Pane,
    /// Rows of topics and of groups that are above the window.
    pub scrolled: [usize; 2],
}

/// Whether the view is of now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    Live,
    /// The broker has not answered the last question yet.
    Slow {
        waited: Duration,
    },
    /// It did not answer, for so long.
    Away {
        since: Duration,
        reason: String,
    },
}

/// Which table the arrows move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pane {
    #[default]
    Topics,
    Groups,
}

pub fn draw(frame: &mut Frame<'_>, screen: &Screen<'_>) {
    let brokers = screen.view.brokers.len().clamp(1, BROKER_ROWS_MAX) as u16 + FRAME_ROWS;
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Length(brokers),
        Constraint::Length(1),
    ];
    let [title, status, topics, groups, lanes, brokers, keys] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(headline(screen), title);
    frame.render_widget(status_line(screen), status);
    draw_topics(frame, topics, screen);
    draw_groups(frame, groups, screen);
    frame.render_widget(lanes_line(screen.view), lanes);
    draw_brokers(frame, brokers, &screen.view.brokers);
    let help = "q quit   s sort   Tab topics/groups   ↑ ↓ scroll";
    frame.render_widget(Paragraph::new(help).style(Style::new().add_modifier(Modifier::DIM)), keys);
}

fn headline<'a>(screen: &Screen<'a>) -> Paragraph<'a> {
    let interval = humantime::format_duration(screen.interval);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Paragraph::new(Line::from(vec![
        Span::styled("laneway top", bold),
        Span::raw(format!("  {}  every {interval}  by {}", screen.url, screen.sort.as_str())),
    ]))
}

fn status_line<'a>(screen: &Screen<'a>) -> Paragraph<'a> {
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    match &screen.status {
        Status::Live => Paragraph::new(screen.view.notes.join("; ")),
        Status::Slow { waited } => {
            let text = format!("no answer for {} s; what follows is older", waited.as_secs());
            Paragraph::new(text).style(reversed)
        }
        Status::Away { since, reason } => {
            let text = format!("broker away for {} s, trying again: {reason}", since.as_secs());
            Paragraph::new(text).style(reversed)
        }
    }
}

fn draw_topics(frame: &mut Frame<'_>, area: Rect, screen: &Screen<'_>) {
    let cells = |topic: &TopicRow| {
        Row::new([
            topic.topic.clone(),
            topic.partitions.to_string(),
            topic.published.to_string(),
            per_second(topic.rate),
        ])
    };
    let widths =
        [Constraint::Fill(1), Constraint::Length(10), Constraint::Length(14), Constraint::Length(14)];
    let table = Table::new(screen.view.topics.iter().map(cells), widths)
        .header(names(["TOPIC", "PARTITIONS", "PUBLISHED", "RATE"]))
        .block(framed("topics", screen.view.topics.len(), screen.pane == Pane::Topics));
    render(frame, area, table, screen.scrolled[0]);
}

fn draw_groups(frame: &mut Frame<'_>, area: Rect, screen: &Screen<'_>) {
    let cells = |group: &GroupRow| {
        Row::new([
            group.topic.clone(),
            group.group.clone(),
            group.members.to_string(),
            per_second(group.rate),
            group.lag_messages.to_string(),
            format!("{:.1}s", group.lag_seconds),
        ])
    };
    let widths = [
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(14),
        Constraint::Length(12),
        Constraint::Length(10),
    ];
    let table = Table::new(screen.view.groups.iter().map(cells), widths)
        .header(names(["TOPIC", "GROUP", "MEMBERS", "RATE", "LAG", "WAITING"]))
        .block(framed("groups", screen.view.groups.len(), screen.pane == Pane::Groups));
    render(frame, area, table, screen.scrolled[1]);
}

fn draw_brokers(frame: &mut Frame<'_>, area: Rect, brokers: &[BrokerRow]) {
    let cells = |broker: &BrokerRow| {
        Row::new([broker.broker.clone(), life(broker), broker.sessions.to_string(), broker.lanes.to_string()])
    };
    let widths =
        [Constraint::Fill(1), Constraint::Length(24), Constraint::Length(10), Constraint::Length(10)];
    let table = Table::new(brokers.iter().map(cells), widths)
        .header(names(["BROKER", "STATE", "SESSIONS", "LANES"]))
        .block(framed("brokers", brokers.len(), false));
    render(frame, area, table, 0);
}

fn render(frame: &mut Frame<'_>, area: Rect, table: Table<'_>, scrolled: usize) {
    frame.render_stateful_widget(table, area, &mut TableState::new().with_offset(scrolled));
}

fn framed(name: &str, count: usize, is_chosen: bool) -> Block<'static> {
    let mark = if is_chosen { ">" } else { " " };
    Block::new().borders(Borders::TOP | Borders::BOTTOM).title(format!("{mark}{name} ({count}) "))
}

fn names<const N: usize>(names: [&'static str; N]) -> Row<'static> {
    Row::new(names).style(Style::new().add_modifier(Modifier::BOLD))
}

fn lanes_line(view: &View) -> Paragraph<'static> {
    let counts = view.lanes.by_state().map(|(state, count)| format!("{count} {state}"));
    Paragraph::new(format!("lanes: {}", counts.join(", ")))
}

/// `12.5/s`, or a dash before there is anything to compare with.
pub fn per_second(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}/s"))
}

/// Whether a broker lives, and how long it may be silent.
pub fn life(broker: &BrokerRow) -> String {
    match (broker.alive, broker.ttl_seconds) {
        (false, _) => "dead".to_owned(),
        (true, ttl) if ttl < 0.0 => format!("overdue for {:.0}s", -ttl),
        (true, ttl) => format!("alive, ttl {ttl:.0}s"),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::model::LaneCounts;

    fn view(topics: usize) -> View {
        let topic =
            |n| TopicRow { topic: format!("topic-{n:02}"), partitions: 3, published: 42, rate: Some(12.5) };
        View {
            topics: (0..topics).map(topic).collect(),
            groups: vec![GroupRow {
                topic: "topic-00".into(),
                group: "billing".into(),
                members: 2,
                rate: None,
                lag_messages: 77,
                lag_seconds: 3.25,
            }],
            lanes: LaneCounts { held: 3, blocked: 1, ..LaneCounts::default() },
            brokers: vec![BrokerRow {
                broker: "b-1".into(),
                alive: true,
                ttl_seconds: 8.2,
                sessions: 4,
                lanes: 3,
            }],
            notes: vec!["only the first 32 topics are shown".into()],
        }
    }

    fn screen(view: &View, status: Status) -> Screen<'_> {
        let interval = Duration::from_secs(1);
        let (sort, pane) = (Sort::Lag, Pane::Groups);
        Screen { url: "ws://here", interval, view, status, sort, pane, scrolled: [0, 0] }
    }

    /// What a terminal of a size would show.
    fn drawn(width: u16, height: u16, screen: &Screen<'_>) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        let buffer = terminal.backend().buffer();
        let cells = buffer.content().chunks(usize::from(width));
        cells
            .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned())
            .collect()
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn everything_has_its_place() {
        let lines = drawn(100, 30, &screen(&view(2), Status::Live));
        assert_eq!(lines[0], "laneway top  ws://here  every 1s  by lag");
        assert_eq!(lines[1], "only the first 32 topics are shown");
        assert!(lines[2].starts_with(" topics (2) "), "{}", lines[2]);
        assert_eq!(words(&lines[3]), ["TOPIC", "PARTITIONS", "PUBLISHED", "RATE"]);
        assert_eq!(words(&lines[5]), ["topic-01", "3", "42", "12.5/s"]);
        let groups = lines.iter().position(|line| line.starts_with(">groups (1) ")).unwrap();
        assert_eq!(words(&lines[groups + 2]), ["topic-00", "billing", "2", "-", "77", "3.2s"]);
        assert!(lines.contains(
            &"lanes: 3 held, 0 popped, 0 suspect, 1 blocked, 0 draining, 0 waiting, 0 free".to_owned()
        ));
        assert!(lines.iter().any(|line| words(line) == ["b-1", "alive,", "ttl", "8s", "4", "3"]));
        assert!(lines[29].starts_with("q quit"), "{}", lines[29]);
    }

    #[test]
    fn a_broker_that_is_away_or_slow_is_said_above_what_is_old() {
        let (view, since) = (view(1), Duration::from_secs(7));
        let away = Status::Away { since, reason: "no broker answers".into() };
        let lines = drawn(80, 24, &screen(&view, away));
        assert_eq!(lines[1], "broker away for 7 s, trying again: no broker answers");
        assert!(lines.iter().any(|line| line.starts_with("topic-00")), "what was seen stays");
        let lines = drawn(80, 24, &screen(&view, Status::Slow { waited: since }));
        assert_eq!(lines[1], "no answer for 7 s; what follows is older");
    }

    #[test]
    fn a_list_that_is_longer_than_the_screen_scrolls() {
        let view = view(40);
        let mut screen = screen(&view, Status::Live);
        assert!(drawn(80, 24, &screen)[4].starts_with("topic-00"));
        screen.scrolled = [25, 0];
        assert!(drawn(80, 24, &screen)[4].starts_with("topic-25"));
    }

    #[test]
    fn no_size_is_too_small() {
        let view = view(5);
        for (width, height) in [(1, 1), (5, 3), (20, 8), (200, 2)] {
            drawn(width, height, &screen(&view, Status::Live));
        }
    }

    #[test]
    fn lives_are_told_in_words() {
        let broker = |alive, ttl_seconds| BrokerRow {
            broker: String::new(),
            alive,
            ttl_seconds,
            sessions: 0,
            lanes: 0,
        };
        assert_eq!(life(&broker(true, 9.6)), "alive, ttl 10s");
        assert_eq!(life(&broker(true, -3.0)), "overdue for 3s");
        assert_eq!(life(&broker(false, 0.0)), "dead");
    }
}
