//! Stable error codes, the same on the socket and over HTTP.
//!
//! A code never changes its meaning. Its class answers the two questions a caller has: may I send the same again, and
//! may it have happened already? The sentence and the field at fault travel beside it.

use serde::{Deserialize, Serialize};

/// What a caller may conclude from an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Nothing happened; the same request may succeed later.
    Retry,
    /// It may have happened; only an idempotent request may be sent again.
    Unknown,
    /// Nothing happened, and nothing will until the request is changed.
    Refused,
    /// The session is over: the connection closes right after it, and the close code says whether to come back.
    Fatal,
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
    /// The request or frame is not of the form that is taken there.
    Malformed = "malformed", Refused, 400;
    /// There is no frame of that type.
    UnknownType = "unknown_type", Refused, 400;
    /// The maps and arrays of the frame are nested deeper than any frame needs.
    TooDeep = "too_deep", Refused, 400;
    /// The body or frame is larger than the broker takes.
    TooLarge = "too_large", Refused, 413;
    /// There is no such route.
    UnknownRoute = "unknown_route", Refused, 404;
    /// The route exists, but not for this method.
    MethodNotAllowed = "method_not_allowed", Refused, 405;
    /// The `Host` or `Origin` of the request is not one that this broker serves.
    ForeignHost = "foreign_host", Refused, 403;
    /// The name of a topic breaks the rule for names.
    InvalidTopicName = "invalid_topic_name", Refused, 422;
    /// A setting of a topic or group is outside its range.
    InvalidSetting = "invalid_setting", Refused, 422;
    /// The name or value of a label breaks its rule, or there are too many.
    InvalidLabel = "invalid_label", Refused, 422;
    /// The subscription names no topics, the same topic twice, or in contradictory ways.
    InvalidSelection = "invalid_selection", Refused, 422;
    /// More topics match than one subscription may have.
    TooManyTopics = "too_many_topics", Refused, 422;
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
    /// The message that is named as a cause does not exist yet, or belongs to another trace.
    InvalidCause = "invalid_cause", Refused, 422;
    /// The producer left out a sequence number, so that order cannot be kept.
    SequenceGap = "sequence_gap", Refused, 409;
    /// The offset is below what retention has kept.
    OutOfRange = "out_of_range", Refused, 410;
    /// The broker knows what is asked for, but does not offer it.
    Unsupported = "unsupported", Refused, 501;
    /// The name of a group breaks the rule for names.
    InvalidGroupName = "invalid_group_name", Refused, 422;
    /// The topic has no group of that name.
    UnknownGroup = "unknown_group", Refused, 404;
    /// The group exists with other settings than the ones asked for.
    GroupMismatch = "group_mismatch", Refused, 409;
    /// The group has members; it goes only if the request insists.
    GroupHasMembers = "group_has_members", Refused, 409;
    /// The group has parked keys; what was asked for needs them to be replayed or dropped first.
    GroupHasParked = "group_has_parked", Refused, 409;
    /// There is no parked key of that number.
    UnknownParked = "unknown_parked", Refused, 404;
    /// The parked key is released already: its messages are being delivered.
    AlreadyReleased = "already_released", Refused, 409;
    /// The group keeps order by key, and that cannot be done so.
    OrderedByKey = "ordered_by_key", Refused, 409;
    /// The session takes part in that group already.
    AlreadySubscribed = "already_subscribed", Refused, 409;
    /// The session has no subscription of that number.
    UnknownSubscription = "unknown_subscription", Refused, 404;
    /// The session has as many subscriptions as it may.
    TooManySubscriptions = "too_many_subscriptions", Refused, 429;
    /// The session does not hold the lane, or holds it under another epoch.
    LeaseLost = "lease_lost", Refused, 409;
    /// The round is over, and the offset is not below the one that ended it.
    StaleRound = "stale_round", Refused, 409;
    /// The offset has not been sent under this epoch.
    BeyondSent = "beyond_sent", Refused, 422;
    /// What the step acknowledges is done already, so that it cannot be done again with it.
    AlreadyDone = "already_done", Refused, 409;
    /// The step id belongs to a step of other content.
    StepMismatch = "step_mismatch", Refused, 409;
    /// The credit is zero in both parts, or passes a limit of the broker.
    InvalidCredit = "invalid_credit", Refused, 422;
    /// The partition has no message at that offset yet.
    UnknownMessage = "unknown_message", Refused, 404;
    /// No message of that trace is stored.
    UnknownTrace = "unknown_trace", Refused, 404;
    /// There is no dead letter of that number.
    UnknownDeadLetter = "unknown_dead_letter", Refused, 404;
    /// The time at which something is to happen is none, is past, is too far ahead, or is given twice.
    InvalidTime = "invalid_time", Refused, 422;
    /// No message of that number waits for its time: it was appended or cancelled, or there never was one.
    UnknownSchedule = "unknown_schedule", Refused, 404;
    /// What is asked for is encrypted, or is to be, and this broker lacks the key; nothing happened.
    KeyMissing = "key_missing", Refused, 503;
    /// What is stored is not what was sealed: it was changed, or moved to where it does not belong.
    NotAuthentic = "not_authentic", Refused, 500;
    /// The single acks of the lane leave as many gaps as it may have; the oldest must be acknowledged first.
    TooManyGaps = "too_many_gaps", Retry, 409;
    /// As many messages of the lane are in flight or wait for their keys as may; the oldest must be done first.
    TooManyWaiting = "too_many_waiting", Retry, 409;
    /// The lane has as many parked keys as it may; a key that fails is blocked until others are replayed or dropped.
    TooManyParked = "too_many_parked", Retry, 409;
    /// The session waits for the answers to as many publishes as it may.
    TooManyPublishes = "too_many_publishes", Retry, 429;
    /// An operator has paused the topic: it takes messages again once it is resumed.
    TopicPaused = "topic_paused", Retry, 409;
    /// The topic holds as much as its limits allow; `depth`, `limit` and `retry_after_ms` say more.
    TopicFull = "topic_full", Retry, 429;
    /// The broker has as many connections as it may.
    TooManyConnections = "too_many_connections", Retry, 503;
    /// The broker is draining and takes nothing new; another one does.
    GoingAway = "going_away", Retry, 503;
    /// The frame does not belong here: a first frame other than `hello`, or a second `hello`.
    OutOfTurn = "out_of_turn", Fatal, 400;
    /// Nothing was heard from the client for two heartbeats.
    HeartbeatMissed = "heartbeat_missed", Fatal, 408;
    /// The client reads more slowly than the broker is willing to buffer.
    TooSlow = "too_slow", Fatal, 408;
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
