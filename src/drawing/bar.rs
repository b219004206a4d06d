//! A message on the axis of time, as one group had it. Pure.

use jiff::Timestamp;
use laneway_client::trace::{GroupHop, Hop, HopState};

/// What a cell of a bar stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    Empty,
    Published,
    Waiting,
    Handling,
    Failed,
    Pause,
    Done,
    Dead,
}

impl Cell {
    pub const fn glyph(self) -> char {
        match self {
            Cell::Empty => ' ',
            Cell::Published => '•',
            Cell::Waiting => '░',
            Cell::Handling => '█',
            Cell::Failed => '▒',
            Cell::Pause => '·',
            Cell::Done => '▌',
            Cell::Dead => '✗',
        }
    }

    /// As a terminal paints it.
    pub const fn colour(self) -> Option<&'static str> {
        match self {
            Cell::Empty | Cell::Published => None,
            Cell::Waiting => Some("\x1b[33m"),
            Cell::Handling | Cell::Done => Some("\x1b[32m"),
            Cell::Failed => Some("\x1b[31m"),
            Cell::Pause => Some("\x1b[35m"),
            Cell::Dead => Some("\x1b[1;31m"),
        }
    }
}

/// From when to when a drawing goes, and over how many cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    pub start_us: i64,
    pub end_us: i64,
    pub cells: usize,
}

impl Axis {
    /// The axis of a whole trace.
    pub fn of(hops: &[Hop], cells: usize) -> Self {
        let moments = || hops.iter().flat_map(moments);
        let (start_us, end_us) = (moments().min().unwrap_or(0), moments().max().unwrap_or(0));
        Self { start_us, end_us, cells }
    }

    fn cell(&self, us: i64) -> usize {
        let span = (self.end_us - self.start_us).max(1) as u128;
        let at = (us - self.start_us).clamp(0, self.end_us - self.start_us) as u128;
        (at * (self.cells.max(1) - 1) as u128 / span) as usize
    }
}

/// Every moment that is known of a message.
fn moments(hop: &Hop) -> impl Iterator<Item = i64> {
    let groups = hop.groups.iter().flat_map(|group| {
        let failures = group.failures.iter();
        let failures =
            failures.flat_map(|failure| [failure.delivered_at.as_deref(), Some(failure.failed_at.as_str())]);
        failures.chain([group.delivered_at.as_deref(), group.acked_at.as_deref()]).flatten().filter_map(us)
    });
    us(&hop.published_at).into_iter().chain(groups)
}

/// A moment of the wire, in microseconds.
fn us(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
}

/// The bar of a message that no group has.
pub fn of_hop(hop: &Hop, axis: &Axis) -> Vec<Cell> {
    let mut cells = vec![Cell::Empty; axis.cells];
    paint(&mut cells, axis, us(&hop.published_at), us(&hop.published_at), Cell::Published);
    cells
}

/// The bar of a message in a group. What nobody knows is left empty.
pub fn of_group(hop: &Hop, group: &GroupHop, axis: &Axis) -> Vec<Cell> {
    let mut cells = vec![Cell::Empty; axis.cells];
    let published = us(&hop.published_at);
    let mut since = published;
    for failure in &group.failures {
        let (delivered, failed) = (failure.delivered_at.as_deref().and_then(us), us(&failure.failed_at));
        let before = if since == published { Cell::Waiting } else { Cell::Pause };
        paint(&mut cells, axis, since, delivered.or(failed), before);
        paint(&mut cells, axis, delivered.or(failed), failed, Cell::Failed);
        since = failed;
    }
    let before = if since == published { Cell::Waiting } else { Cell::Pause };
    let (delivered, acked) =
        (group.delivered_at.as_deref().and_then(us), group.acked_at.as_deref().and_then(us));
    match group.state {
        HopState::Acked => {
            paint(&mut cells, axis, since.filter(|_| delivered.is_some()), delivered, before);
            paint(&mut cells, axis, delivered, acked, Cell::Handling);
            paint(&mut cells, axis, acked, acked, Cell::Done);
        }
        HopState::Waiting | HopState::Retrying => {
            paint(&mut cells, axis, since, Some(axis.end_us), before);
        }
        HopState::DeadLettered
        | HopState::Skipped
        | HopState::Evicted
        | HopState::Parked
        | HopState::Dropped => paint(&mut cells, axis, since, since, Cell::Dead),
    }
    if let Some(published) = published {
        let place = axis.cell(published);
        if cells.get(place) == Some(&Cell::Empty) {
            cells[place] = Cell::Published;
        }
    }
    cells
}

/// Paints from one moment to another, both cells included; nothing if one of them is not known.
fn paint(cells: &mut [Cell], axis: &Axis, from: Option<i64>, to: Option<i64>, cell: Cell) {
    let (Some(from), Some(to)) = (from, to) else { return };
    let (first, last) = (axis.cell(from), axis.cell(to.max(from)));
    for painted in cells.iter_mut().take(last + 1).skip(first) {
        *painted = cell;
    }
}
