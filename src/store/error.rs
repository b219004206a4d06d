//! What a database operation can come to, and the one place that reads SQLSTATEs.
//!
//! The question every caller has is: did it happen? `OutcomeUnknown` means that nobody can say; every other variant
//! promises that nothing happened. Facts are fields; the sentence for people is the `Display`.

use tokio_postgres::error::{DbError, Severity, SqlState};
use uuid::Uuid;

use crate::encryption::Fingerprint;

/// Why an operation of the store did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No connection, no room, or no time: nothing happened, later it may work.
    #[error("the database is unavailable: {reason}")]
    Unavailable { reason: String },
    /// The connection was lost after the first byte of a write: it may or may not have been committed.
    #[error("the connection to the database was lost while it wrote, so the outcome is unknown: {reason}")]
    OutcomeUnknown { reason: String },
    /// A lock or a serialization race was lost: nothing happened, try again at once.
    #[error("the database asks to try again ({sqlstate}): {message}")]
    Contended { sqlstate: String, message: String },
    /// The server is a standby or is set read-only: the connection is of no use for writes.
    #[error("the database is read-only (is it a standby?)")]
    ReadOnly,
    /// The data breaks a rule of the database: nothing happened, and it will not work the second time.
    #[error("the database refuses the data ({sqlstate}): {message}")]
    Refused { sqlstate: String, message: String },
    /// An insert ran past the tables that exist: make them and try again. The relation is the parent that lacks one.
    #[error("a table below {relation} has still to be made")]
    NoSegment { relation: String },
    /// A named segment is gone: read the catalogue again.
    #[error("a table is no longer there: {message}")]
    TableGone { message: String },
    /// Whoever answers is not who the URL asks for: nothing happened, and waiting does not cure it.
    #[error("{reason}: check sslmode and sslrootcert in the URL of the database")]
    Untrusted { reason: String },
    /// The role lacks a right, or may not log in.
    #[error("the database refuses access ({sqlstate}): {message}")]
    Forbidden { sqlstate: String, message: String },
    /// What is stored is sealed, or is to be, and this broker lacks the key: nothing happened.
    #[error("{0}")]
    KeyMissing(KeyMissing),
    /// What is stored is not what was sealed.
    #[error(
        "the payload that is stored for offset {offset} does not open: it, or its data key {data_key_id}, is not as it was sealed"
    )]
    NotAuthentic { offset: i64, data_key_id: Uuid },
    /// A data key is closed or gone, because this broker was taken for dead: nothing happened, and another one is made.
    #[error("a data key is closed")]
    KeyClosed,
    /// Anything else the server can say: a bug of ours, or a schema that is not ours.
    #[error("the database answered with an error that Laneway does not expect ({sqlstate}): {message}")]
    Unexpected { sqlstate: String, message: String },
}

/// Which key a broker lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyMissing {
    /// None to seal with.
    #[error("the topic is encrypted, and this broker has no key ring (see --key-ring-file)")]
    Ring,
    /// The one that has sealed.
    #[error(
        "the message is encrypted under the key {name} ({fingerprint}), which the key ring of this broker lacks"
    )]
    Key { name: String, fingerprint: Fingerprint },
}

/// Whether the failing operation could have changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It only read, or its transaction is known not to have been committed.
    None,
    /// It may have been committed before the connection was lost.
    Possible,
}

/// What the caller should do about an SQLSTATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Retry,
    Unavailable,
    ConnectionLost,
    ReadOnly,
    Refused,
    TableGone,
    Forbidden,
    KeyClosed,
    Unexpected,
}

/// The only reading of SQLSTATEs in the code base.
fn verdict(state: &SqlState) -> Verdict {
    match state.code() {
        "40001" | "40P01" | "55P03" => Verdict::Retry,
        "40003" => Verdict::ConnectionLost, // statement completion unknown
        "25006" => Verdict::ReadOnly,
        "42P01" => Verdict::TableGone,
        "42501" => Verdict::Forbidden,
        "22012" => Verdict::KeyClosed, // data_keys_hold divides by zero; nothing else divides
        // statement_timeout, and a transaction ended for idling: rolled back, nothing happened.
        "57014" | "25P03" | "25P04" => Verdict::Unavailable,
        // Out of shared memory is our own doing only in theory; I/O errors and disk full are the machine's.
        "58030" | "58000" | "54000" => Verdict::Unavailable,
        code => match &code[..2] {
            "08" | "57" => Verdict::ConnectionLost,
            "53" => Verdict::Unavailable,
            "22" | "23" => Verdict::Refused,
            "28" => Verdict::Forbidden,
            "40" => Verdict::Retry,
            _ => Verdict::Unexpected,
        },
    }
}

/// Whether the session ended in a way that leaves the commit open. Why not the code alone: a full disk under the log is
/// 53100, as under a table, but a panic, and what was being committed may be there after the recovery.
fn ends_in_doubt(db: &DbError) -> bool {
    let ended = matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    ended && !matches!(db.code().code(), "25P03" | "25P04") // ended for idling: it had not begun to commit
}

impl Error {
    /// Classifies what the driver reports about an operation with or without effect.
    pub fn classify(error: &tokio_postgres::Error, effect: Effect) -> Self {
        let Some(db) = error.as_db_error() else {
            let untrusted = untrusted(error).map(|reason| Self::Untrusted { reason });
            return untrusted.unwrap_or_else(|| Self::lost(innermost(error), effect));
        };
        let sqlstate = db.code().code().to_owned();
        let message = db.message().to_owned();
        if effect == Effect::Possible && ends_in_doubt(db) {
            return Self::lost(format!("{message} ({sqlstate})"), effect);
        }
        match verdict(db.code()) {
            Verdict::Retry => Self::Contended { sqlstate, message },
            Verdict::Unavailable => Self::Unavailable { reason: format!("{message} ({sqlstate})") },
            Verdict::ConnectionLost => Self::lost(format!("{message} ({sqlstate})"), effect),
            Verdict::ReadOnly => Self::ReadOnly,
            // Tuple routing that finds no table reports a check violation without a constraint.
            Verdict::Refused if *db.code() == SqlState::CHECK_VIOLATION && db.constraint().is_none() => {
                Self::NoSegment { relation: db.table().unwrap_or_default().to_owned() }
            }
            Verdict::Refused => Self::Refused { sqlstate, message },
            Verdict::TableGone => Self::TableGone { message },
            Verdict::Forbidden => Self::Forbidden { sqlstate, message },
            Verdict::KeyClosed => Self::KeyClosed,
            Verdict::Unexpected => Self::Unexpected { sqlstate, message },
        }
    }

    /// Nobody has answered for longer than the server was told to take.
    pub(super) fn silent(waited: std::time::Duration, effect: Effect) -> Self {
        Self::lost(format!("no answer for {waited:?}"), effect)
    }

    fn lost(reason: String, effect: Effect) -> Self {
        match effect {
            Effect::None => Self::Unavailable { reason },
            Effect::Possible => Self::OutcomeUnknown { reason },
        }
    }

    /// Every kind, for metrics that begin at zero.
    pub const KINDS: &[&str] = &[
        "unavailable",
        "outcome_unknown",
        "contended",
        "read_only",
        "refused",
        "no_segment",
        "table_gone",
        "untrusted",
        "forbidden",
        "key_missing",
        "not_authentic",
        "key_closed",
        "unexpected",
    ];

    /// A short, stable name for logs and metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "unavailable",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::Contended { .. } => "contended",
            Self::ReadOnly => "read_only",
            Self::Refused { .. } => "refused",
            Self::NoSegment { .. } => "no_segment",
            Self::TableGone { .. } => "table_gone",
            Self::Untrusted { .. } => "untrusted",
            Self::Forbidden { .. } => "forbidden",
            Self::KeyMissing(_) => "key_missing",
            Self::NotAuthentic { .. } => "not_authentic",
            Self::KeyClosed => "key_closed",
            Self::Unexpected { .. } => "unexpected",
        }
    }
}

/// Why the peer is not trusted, if that is what failed. A handshake that broke off for other reasons may work next time.
fn untrusted(error: &tokio_postgres::Error) -> Option<String> {
    let cause = std::error::Error::source(error)?;
    let inner = cause.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref());
    match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(reason)) => {
            Some(format!("the certificate of the database is not trusted ({reason})"))
        }
        Some(_) => None,
        // The driver has no type for it.
        None => (cause.to_string() == "server does not support TLS")
            .then(|| "the database does not support TLS, which its URL requires".to_owned()),
    }
}

/// The cause at the bottom of an error: "connection refused" rather than "error connecting to server".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sqlstate_has_one_verdict() {
        for (code, expected) in [
            ("40001", Verdict::Retry),
            ("40P01", Verdict::Retry),
            ("55P03", Verdict::Retry),
            ("40003", Verdict::ConnectionLost),
            ("25006", Verdict::ReadOnly),
            ("53100", Verdict::Unavailable),
            ("53200", Verdict::Unavailable),
            ("53300", Verdict::Unavailable),
            ("57014", Verdict::Unavailable),
            ("57P01", Verdict::ConnectionLost),
            ("57P02", Verdict::ConnectionLost),
            ("57P03", Verdict::ConnectionLost),
            ("08006", Verdict::ConnectionLost),
            ("22021", Verdict::Refused),
            ("22P05", Verdict::Refused),
            ("23505", Verdict::Refused),
            ("23514", Verdict::Refused),
            ("28P01", Verdict::Forbidden),
            ("42501", Verdict::Forbidden),
            ("42P01", Verdict::TableGone),
            ("42703", Verdict::Unexpected),
            ("XX000", Verdict::Unexpected),
        ] {
            assert_eq!(verdict(&SqlState::from_code(code)), expected, "{code}");
        }
    }

    #[test]
    fn every_kind_is_listed() {
        let (reason, message) = (String::new(), String::new);
        let (sqlstate, relation) = (String::new, String::new());
        for error in [
            Error::Unavailable { reason: reason.clone() },
            Error::OutcomeUnknown { reason: reason.clone() },
            Error::Contended { sqlstate: sqlstate(), message: message() },
            Error::ReadOnly,
            Error::Refused { sqlstate: sqlstate(), message: message() },
            Error::NoSegment { relation },
            Error::TableGone { message: message() },
            Error::Untrusted { reason },
            Error::Forbidden { sqlstate: sqlstate(), message: message() },
            Error::Unexpected { sqlstate: sqlstate(), message: message() },
        ] {
            assert!(Error::KINDS.contains(&error.kind()), "{error:?}");
        }
    }
}
