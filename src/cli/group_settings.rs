//! Settings of a group as flags: for those who make groups (`subscribe`, `pop`), and for `laneway group alter`.

use clap::Args;
use laneway_client::wire::{GroupCapacity, GroupOrdering, OnFailure, WantedSettings};

use super::windows::Windows;

/// All of them.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Settings {
    /// How long the oldest unacknowledged message of a lane may take, like 60s
    #[arg(long, value_name = "DURATION")]
    ack_deadline: Option<humantime::Duration>,
    /// partition: all messages of a partition are in order; key: those of each key. Altered only while nobody consumes
    #[arg(long, value_name = "partition|key", value_parser = ordering)]
    ordering: Option<GroupOrdering>,
    #[command(flatten)]
    delivery: Delivery,
}

/// Those that hold for pops, too.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Delivery {
    /// Attempts before --on-failure decides
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Pause after the first failure, like 500ms
    #[arg(long, value_name = "DURATION")]
    backoff_base: Option<humantime::Duration>,
    /// By how much the pause grows with each further failure
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    backoff_factor: Option<f64>,
    /// Longest pause, like 1m
    #[arg(long, value_name = "DURATION")]
    backoff_cap: Option<humantime::Duration>,
    /// dead_letter: keep the message aside; skip: go on without it; block: stop the lane; park: set its key aside (ordering key)
    #[arg(long, value_name = "POLICY", value_parser = on_failure)]
    on_failure: Option<OnFailure>,
    /// counted: what it has not done counts against the limits of its topic; excluded: it does not
    #[arg(long, value_name = "counted|excluded", value_parser = capacity)]
    capacity: Option<GroupCapacity>,
    #[command(flatten)]
    windows: Windows,
}

impl Settings {
    pub(super) fn request(&self) -> WantedSettings {
        let (ack_deadline_ms, ordering) = (ms(self.ack_deadline), self.ordering);
        WantedSettings { ack_deadline_ms, ordering, ..self.delivery.request() }
    }
}

impl Delivery {
    pub(super) fn request(&self) -> WantedSettings {
        let wanted = WantedSettings {
            max_attempts: self.max_attempts,
            backoff_base_ms: ms(self.backoff_base),
            backoff_factor: self.backoff_factor,
            backoff_cap_ms: ms(self.backoff_cap),
            on_failure: self.on_failure,
            capacity: self.capacity,
            ..WantedSettings::default()
        };
        self.windows.add_to(wanted)
    }
}

/// As the wire has it. What is longer than a number of milliseconds can say is refused there, like all that is too long.
pub(super) fn ms(duration: Option<humantime::Duration>) -> Option<u64> {
    duration.map(millis)
}

/// As [`ms`].
pub(super) fn millis(duration: humantime::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "it is a number".to_owned())?;
    if factor.is_finite() { Ok(factor) } else { Err("it is a finite number".into()) }
}

fn capacity(text: &str) -> Result<GroupCapacity, String> {
    let all = [GroupCapacity::Counted, GroupCapacity::Excluded];
    let found = all.into_iter().find(|capacity| capacity.as_str() == text);
    found.ok_or_else(|| "say counted or excluded".into())
}

fn on_failure(text: &str) -> Result<OnFailure, String> {
    let all = [OnFailure::DeadLetter, OnFailure::Skip, OnFailure::Block, OnFailure::Park];
    let found = all.into_iter().find(|policy| policy.as_str() == text);
    found.ok_or_else(|| "say dead_letter, skip, block or park".into())
}

fn ordering(text: &str) -> Result<GroupOrdering, String> {
    let all = [GroupOrdering::Partition, GroupOrdering::Key];
    let found = all.into_iter().find(|ordering| ordering.as_str() == text);
    found.ok_or_else(|| "say partition or key".into())
}
