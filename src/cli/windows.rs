//! When a group delivers, as flags of `group_settings` and as text.

use clap::Args;
use laneway_client::wire::{GroupSettings, OnExpiry, WantedSettings};

use super::group_settings::ms;
use crate::cli::output::println;

#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct Windows {
    /// Deliver messages when they are at least so old, like 30s; 0s: at once
    #[arg(long, value_name = "DURATION")]
    delay: Option<humantime::Duration>,
    /// Deliver a partition when it has been quiet for so long, like 5s; 0s: at once
    #[arg(long, value_name = "DURATION")]
    window: Option<humantime::Duration>,
    /// Let no message wait longer for that; 0s: ten times the window
    #[arg(long, value_name = "DURATION")]
    window_max: Option<humantime::Duration>,
    /// Do not deliver older messages, like 1h; 0s: deliver them whatever their age
    #[arg(long, value_name = "DURATION")]
    max_age: Option<humantime::Duration>,
    /// What becomes of messages that are older than that or than their own ttl. evict: go on without them; dead_letter: keep them
    /// aside
    #[arg(long, value_name = "POLICY", value_parser = on_expiry)]
    on_expiry: Option<OnExpiry>,
}

impl Windows {
    /// Wishes with these among them.
    pub(super) fn add_to(self, wanted: WantedSettings) -> WantedSettings {
        WantedSettings {
            delay_ms: ms(self.delay),
            window_ms: ms(self.window),
            window_max_ms: ms(self.window_max),
            max_age_ms: ms(self.max_age),
            on_expiry: self.on_expiry,
            ..wanted
        }
    }
}

/// Says when a group delivers, if that is not at once.
pub(super) fn print(settings: &GroupSettings) {
    let GroupSettings { delay_ms, window_ms, window_max_ms, max_age_ms, on_expiry, .. } = *settings;
    if delay_ms > 0 {
        println!("  delivers after {delay_ms} ms");
    }
    match (window_ms, window_max_ms) {
        (0, _) => {}
        (window, 0) => println!("  delivers a partition when it has been quiet for {window} ms"),
        (window, max) => {
            println!(
                "  delivers a partition when it has been quiet for {window} ms, after {max} ms at the latest"
            );
        }
    }
    match max_age_ms {
        0 if on_expiry == OnExpiry::Evict => {}
        0 => println!("  what has outlived its ttl: {}", on_expiry.as_str()),
        max_age => {
            println!("  what is older than {max_age} ms, or has outlived its ttl: {}", on_expiry.as_str())
        }
    }
}

fn on_expiry(text: &str) -> Result<OnExpiry, String> {
    let all = [OnExpiry::Evict, OnExpiry::DeadLetter];
    let found = all.into_iter().find(|policy| policy.as_str() == text);
    found.ok_or_else(|| "say evict or dead_letter".into())
}
