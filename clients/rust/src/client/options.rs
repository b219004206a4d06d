//! What a user may choose, and what holds if nothing is chosen. Every bound has a reason.

use std::path::PathBuf;
use std::time::Duration;

use crate::capacity::OnFull;
use crate::client::error::Error;
use crate::wire::Subprotocol;

/// Choices of a client. `Options::default()` is right for most.
#[derive(Debug, Clone)]
pub struct Options {
    /// Further brokers of the same bus: tried in turn when one does not answer.
    pub more_urls: Vec<String>,
    /// With `wss://`: a PEM file of authorities to believe beside those of the machine.
    pub ca_file: Option<PathBuf>,
    /// As `ca_file`, as text.
    pub ca_pem: Option<String>,
    /// How frames are written.
    pub subprotocol: Subprotocol,
    /// A name for the broker's logs.
    pub name: Option<String>,
    /// How long lanes wait for this client after its connection is lost.
    pub resume_grace: Duration,
    /// How long a side may be silent.
    pub heartbeat: Duration,
    /// How long one attempt to connect may take, `welcome` included.
    pub connect_timeout: Duration,
    /// How long a publish is tried, over all connections.
    pub publish_timeout: Duration,
    /// What becomes of messages for a topic that is full.
    pub on_full: OnFull,
    /// Messages that may wait for their receipts, those of steps included.
    pub publish_messages_max: usize,
    /// Bytes of messages that may wait for their receipts.
    pub publish_bytes_max: usize,
    /// Messages of one publish frame: large enough that a commit is shared, small enough that its answer comes soon.
    pub batch_messages_max: usize,
    /// Bytes of one publish frame; a single message may have more.
    pub batch_bytes_max: usize,
    /// Publish frames without an answer yet.
    pub publishes_in_flight_max: usize,
    /// How long acks are collected before they are sent together.
    pub ack_pause: Duration,
    /// First pause before connecting again; it doubles with each failure, and is cut at random by up to a half.
    pub backoff_min: Duration,
    /// Longest pause before connecting again.
    pub backoff_max: Duration,
    /// How long [`close`](crate::Client::close) waits for receipts, steps and confirmations.
    pub close_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            more_urls: Vec::new(),
            ca_file: None,
            ca_pem: None,
            subprotocol: Subprotocol::MessagePack,
            name: None,
            resume_grace: Duration::from_secs(30),
            heartbeat: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(10),
            publish_timeout: Duration::from_secs(30),
            on_full: OnFull::Wait,
            publish_messages_max: 10_000,
            publish_bytes_max: 64 << 20,
            batch_messages_max: 500,
            batch_bytes_max: 1 << 20,
            publishes_in_flight_max: 8,
            ack_pause: Duration::from_millis(5),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            close_timeout: Duration::from_secs(10),
        }
    }
}

/// Builds a client step by step. Made by [`Client::builder`](crate::Client::builder).
#[derive(Debug, Clone)]
pub struct Builder {
    url: String,
    options: Options,
}

impl Builder {
    pub(super) fn new(url: String) -> Self {
        Self { url, options: Options::default() }
    }

    /// A further broker of the same bus.
    pub fn also(mut self, url: impl Into<String>) -> Self {
        self.options.more_urls.push(url.into());
        self
    }

    /// With `wss://`: a PEM file of authorities to believe beside those of the machine.
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.options.ca_file = Some(file.into());
        self
    }

    /// Frames as JSON text instead of MessagePack.
    pub fn json(mut self) -> Self {
        self.options.subprotocol = Subprotocol::Json;
        self
    }

    /// A name for the broker's logs.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// What becomes of messages for a topic that is full.
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.options.on_full = on_full;
        self
    }

    /// Everything else.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// Connects.
    pub async fn connect(self) -> Result<super::Client, Error> {
        super::Client::connect(&self.url, self.options).await
    }
}

/// The pause before attempt number `tries` (from 0): doubles from `min` to `max`, cut at random by up to a half.
pub(super) fn backoff(tries: u32, min: Duration, max: Duration, chance: f64) -> Duration {
    let full = min.saturating_mul(1_u32.checked_shl(tries.min(20)).unwrap_or(u32::MAX)).min(max);
    full.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_bound_and_is_cut_by_at_most_a_half() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(30));
        assert_eq!(backoff(0, min, max, 0.0), min);
        assert_eq!(backoff(3, min, max, 0.0), min * 8);
        assert_eq!(backoff(3, min, max, 1.0), min * 4);
        assert_eq!(backoff(u32::MAX, min, max, 0.0), max);
    }
}
