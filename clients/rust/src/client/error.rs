//! Why something that the client was asked for did not happen. One enum; facts as fields; the class says what may follow.

use crate::error_code::{Class, ErrorCode};
use crate::tls::CaError;
use crate::wire::{ErrorFrame, Fault};

/// Why something did not happen, or why nobody knows whether it did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The address is none of a broker.
    #[error("{url:?} is not the address of a broker: give one like ws://127.0.0.1:7420/v1/ws")]
    Address {
        /// As it was given.
        url: String,
    },
    /// Certificates that were given cannot be used.
    #[error(transparent)]
    Certificates(#[from] CaError),
    /// No broker answered.
    #[error("no broker answers at {url}: {reason}")]
    Unreachable {
        /// The address that was tried last.
        url: String,
        /// What the connection said.
        reason: String,
    },
    /// A rule or the broker refused it, or the broker could not do it in time.
    #[error("{} ({})", .0.detail, .0.code.as_str())]
    Refused(Box<Refusal>),
    /// The deadline has passed.
    #[error("it took longer than it may, and it is {}", if *.doubtful { "not known whether it happened" } else { "certain that it did not happen" })]
    TimedOut {
        /// Whether it may have happened, or may still happen.
        doubtful: bool,
    },
    /// As much waits already as may wait.
    #[error("as many messages or bytes wait as may wait")]
    Full,
    /// The lane of the message has moved or its round is over: the message comes again, here or elsewhere.
    #[error("the lane has moved or the round is over: the message will be delivered again")]
    LaneLost,
    /// The broker has closed the connection with a code that says not to come back.
    #[error("the broker has closed the connection for good: {reason} ({code})")]
    Stopped {
        /// The close code.
        code: u16,
        /// What it says.
        reason: String,
    },
    /// The client is closed.
    #[error("the client is closed")]
    Closed,
}

/// What was refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stable code.
    pub code: ErrorCode,
    /// What may follow from it.
    pub class: Class,
    /// One sentence for people.
    pub detail: String,
    /// The member at fault, if it is known.
    pub field: Option<String>,
    /// With `topic_full`: how full the topic is.
    pub fullness: Option<Fullness>,
}

/// How full a topic is that takes nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fullness {
    /// How much there is of what is limited.
    pub depth: u64,
    /// How much there may be.
    pub limit: u64,
    /// When it is worth to try again.
    pub retry_after: std::time::Duration,
}

impl Error {
    /// What may follow from it: may I do the same again, may it have happened?
    pub fn class(&self) -> Class {
        match self {
            Self::Refused(refusal) => refusal.class,
            Self::Unreachable { .. } | Self::Full | Self::TimedOut { doubtful: false } => Class::Retry,
            Self::TimedOut { doubtful: true } => Class::Unknown,
            Self::Address { .. } | Self::Certificates(_) | Self::LaneLost => Class::Refused,
            Self::Stopped { .. } | Self::Closed => Class::Fatal,
        }
    }

    /// The stable code, if a broker or a rule has given one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            Self::Address { .. }
            | Self::Certificates(_)
            | Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::Full
            | Self::LaneLost
            | Self::Stopped { .. }
            | Self::Closed => None,
        }
    }

    pub(crate) fn refused(code: ErrorCode, detail: impl Into<String>, field: Option<&str>) -> Self {
        let field = field.map(str::to_owned);
        let (class, detail) = (code.class(), detail.into());
        Self::Refused(Box::new(Refusal { code, class, detail, field, fullness: None }))
    }
}

impl From<&ErrorFrame> for Error {
    fn from(error: &ErrorFrame) -> Self {
        Self::Refused(Box::new(Refusal {
            code: error.code,
            class: error.class,
            detail: error.detail.clone(),
            field: error.field.clone(),
            fullness: error.depth.zip(error.limit).map(|(depth, limit)| Fullness {
                depth,
                limit,
                retry_after: std::time::Duration::from_millis(error.retry_after_ms.unwrap_or(0)),
            }),
        }))
    }
}

impl From<&Fault> for Error {
    fn from(fault: &Fault) -> Self {
        Self::Refused(Box::new(Refusal {
            code: fault.code,
            class: fault.class,
            detail: fault.detail.clone(),
            field: fault.field.clone(),
            fullness: None,
        }))
    }
}
