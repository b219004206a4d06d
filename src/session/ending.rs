//! How a session ends: what its client is told, and what its groups conclude.

use laneway_client::wire::{CloseCode, ErrorFrame};

/// What the end of a connection says about its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is over in order: the client has closed it, or was asked to go. Lanes move at once.
    Gone,
    /// The client was lost, fell silent, does not read or talks nonsense. It may come back within its grace; else it has
    /// crashed, and what was in flight is suspect: it may be what broke the client.
    Lost,
    /// Another connection has taken the session over, and waits for its lanes.
    TakenOver,
}

/// The end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub verdict: Verdict,
    /// Said before the connection is closed.
    pub error: Option<Box<ErrorFrame>>,
    /// Absent: there is nobody to tell.
    pub close: Option<CloseCode>,
}

impl Ending {
    /// Ends with a close frame.
    pub fn of(close: CloseCode, verdict: Verdict) -> Self {
        Self { verdict, error: None, close: Some(close) }
    }

    /// The client has closed the connection.
    pub fn closed_by_client() -> Self {
        Self { verdict: Verdict::Gone, error: None, close: None }
    }

    /// The connection is gone without a word.
    pub fn lost() -> Self {
        Self { verdict: Verdict::Lost, error: None, close: None }
    }
}
