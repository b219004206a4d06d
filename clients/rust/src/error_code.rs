//! Stable error codes, the same on the socket and over HTTP.
//!
//! A code never changes its meaning. Its class answers the two questions a caller has: may I send the same again, and
//! may it have happened already? The sentence and the field at fault travel beside it.

use serde::{Deserialize, Serialize};

/// What a caller may conclude from an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Nothing happened; the same request may succeed later.
    Retry,
    /// It may have happened; only an idempotent request may be sent again.
    Unknown,
    /// Nothing happened, and nothing will until the request is changed.
    Refused,
}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $class:ident, $status:literal;)*) => {
        /// A stable code; see [`Class`] for what follows from it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode { $($(#[$doc])* #[serde(rename = $text)] $name,)* }

        impl ErrorCode {
            /// Every code, for tables and tests.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The code as it is written on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$name => $text,)* }
            }

            /// What a caller may conclude.
            pub const fn class(self) -> Class {
                match self { $(ErrorCode::$name => Class::$class,)* }
            }

            /// The HTTP status that carries the code.
            pub const fn http_status(self) -> u16 {
                match self { $(ErrorCode::$name => $status,)* }
            }
        }
    };
}

error_codes! {
    /// The request is not of the form that the route takes.
    Malformed = "malformed", Refused, 400;
    /// The body is larger than the broker takes.
    TooLarge = "too_large", Refused, 413;
    /// There is no such route.
    UnknownRoute = "unknown_route", Refused, 404;
    /// The route exists, but not for this method.
    MethodNotAllowed = "method_not_allowed", Refused, 405;
    /// The `Host` or `Origin` of the request is not one that this broker serves.
    ForeignHost = "foreign_host", Refused, 403;
    /// The name of a topic breaks the rule for names.
    InvalidTopicName = "invalid_topic_name", Refused, 422;
    /// A setting of a topic is outside its range.
    InvalidSetting = "invalid_setting", Refused, 422;
    /// There is no topic of that name.
    UnknownTopic = "unknown_topic", Refused, 404;
    /// A topic of that name exists already.
    TopicExists = "topic_exists", Refused, 409;
    /// The topic has fewer partitions than the request names.
    PartitionOutOfRange = "partition_out_of_range", Refused, 422;
    /// The payload is larger than its topic allows.
    PayloadTooLarge = "payload_too_large", Refused, 413;
    /// The key is larger than any topic allows.
    KeyTooLarge = "key_too_large", Refused, 422;
    /// The headers are larger than any topic allows.
    HeadersTooLarge = "headers_too_large", Refused, 422;
    /// The transaction id is longer than any topic allows.
    TransactionIdTooLong = "transaction_id_too_long", Refused, 422;
    /// A field holds a value that its rule refuses.
    InvalidMessage = "invalid_message", Refused, 422;
    /// The producer left out a sequence number, so that order cannot be kept.
    SequenceGap = "sequence_gap", Refused, 409;
    /// The offset is below what retention has kept.
    OutOfRange = "out_of_range", Refused, 410;
    /// The broker holds as much unwritten work as it may.
    Overloaded = "overloaded", Retry, 503;
    /// The database cannot be reached or cannot write.
    Unavailable = "unavailable", Retry, 503;
    /// The connection to the database was lost at a moment that leaves both outcomes open.
    OutcomeUnknown = "outcome_unknown", Unknown, 500;
    /// The broker met something that it does not know how to handle; its log says more.
    Internal = "internal", Unknown, 500;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_as_it_is_named() {
        for code in ErrorCode::ALL {
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{}\"", code.as_str()));
            assert_eq!(serde_json::from_str::<ErrorCode>(&json).unwrap(), *code);
        }
    }
}
