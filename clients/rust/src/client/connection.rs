//! Whether there is a connection just now: for programs that tell people, or wait. Written by the owner, read by anybody.

/// The connection of a client, as of now. It counts how often it was lost, so that a loss that was mended at once is not
/// overlooked by somebody who looks now and then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// A broker answers.
    Up {
        /// How often the connection has been lost.
        losses: u64,
    },
    /// None; the client is trying.
    Down {
        /// How often the connection has been lost.
        losses: u64,
        /// What the last one said at its end.
        reason: String,
    },
}

impl Connection {
    /// How often the connection has been lost.
    pub fn losses(&self) -> u64 {
        match self {
            Self::Up { losses } | Self::Down { losses, .. } => *losses,
        }
    }

    /// Whether a broker answers.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }
}
