//! Being told to stop. Watched from the first moment on, so that a signal during a start is not lost.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::Failure;

/// SIGTERM and Ctrl-C: the first asks to stop, the second ends the process at once.
#[derive(Debug)]
pub(super) struct Signals {
    asked: watch::Receiver<bool>,
}

impl Signals {
    pub fn watch() -> Result<Self, Failure> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (sender, asked) = watch::channel(false);
        tokio::spawn(async move {
            for round in 0..2 {
                tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
                if round == 1 {
                    tracing::warn!("told twice: ending at once");
                    tokio::time::sleep(Duration::from_millis(10)).await; // the log line
                    std::process::exit(1);
                }
                sender.send_replace(true);
            }
        });
        Ok(Self { asked })
    }

    pub async fn stopped(&self) {
        let mut asked = self.asked.clone();
        // The sender lives as long as the process.
        let _ended = asked.wait_for(|asked| *asked).await;
    }

    /// Whether it was asked for.
    pub fn are_stopped(&self) -> bool {
        *self.asked.borrow()
    }

    /// Runs something unless a signal comes first, or came already.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.stopped() => None,
            result = work => Some(result),
        }
    }
}
