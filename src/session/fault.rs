//! The one place where an error becomes a stable code and a sentence, the same on the socket and over HTTP.
//!
//! Whoever answers puts it into its own form: an `error` frame, the fault of a unit, or an HTTP problem. The class follows
//! from the code alone.

use laneway_client::ErrorCode;
use laneway_client::selection::InvalidSelection;
use laneway_client::wire::{ErrorFrame, Fault};

use crate::broker::appender::AppendError;
use crate::broker::capacity::TopicFull;
use crate::broker::groups::lane::AckError;
use crate::broker::groups::{StepRefused, SubscribeError};
use crate::broker::message::InvalidMessage;
use crate::broker::publish::PublishError;
use crate::broker::reader::ReadError;
use crate::broker::schedules::ScheduleError;
use crate::broker::search::SearchError;
use crate::broker::selections::SelectError;
use crate::broker::steps::StepError;
use crate::broker::tailing::TailError;
use crate::broker::topics::TopicError;
use crate::broker::watching::WatchError;
use crate::store::Error as StoreError;

/// Why something was refused or failed, as a client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: ErrorCode,
    /// One sentence for people.
    pub detail: String,
    /// The member at fault.
    pub field: Option<String>,
    /// With `out_of_range`: the first offset that can still be read.
    pub start: Option<i64>,
    /// With `sequence_gap`: the sequence that must come next.
    pub expected: Option<i64>,
    /// With `topic_full`: how full it is.
    pub fullness: Option<Fullness>,
}

/// How full a topic is, as a client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fullness {
    pub depth: u64,
    pub limit: u64,
    pub retry_after_ms: u64,
}

impl Refusal {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, start: None, expected: None, fullness: None }
    }

    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// As the answer to a frame.
    pub fn into_frame(self, id: Option<u64>) -> ErrorFrame {
        ErrorFrame {
            id,
            field: self.field,
            start: self.start,
            expected: self.expected,
            depth: self.fullness.map(|fullness| fullness.depth),
            limit: self.fullness.map(|fullness| fullness.limit),
            retry_after_ms: self.fullness.map(|fullness| fullness.retry_after_ms),
            ..ErrorFrame::new(self.code, self.detail)
        }
    }

    /// As what became of a unit.
    pub fn into_fault(self) -> Fault {
        Fault { field: self.field, expected: self.expected, ..Fault::new(self.code, self.detail) }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unavailable { .. }
            | StoreError::Contended { .. }
            | StoreError::ReadOnly
            | StoreError::KeyClosed
            | StoreError::Untrusted { .. } => ErrorCode::Unavailable, // nothing happened
            StoreError::KeyMissing(_) => ErrorCode::KeyMissing,
            StoreError::NotAuthentic { .. } => {
                tracing::error!(%error, "a request failed");
                ErrorCode::NotAuthentic
            }
            StoreError::OutcomeUnknown { .. } => ErrorCode::OutcomeUnknown, // it may have happened
            StoreError::Refused { .. }
            | StoreError::NoSegment { .. }
            | StoreError::TableGone { .. }
            | StoreError::Forbidden { .. }
            | StoreError::Unexpected { .. } => {
                tracing::error!(%error, "a request failed");
                ErrorCode::Internal
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<TopicError> for Refusal {
    fn from(error: TopicError) -> Self {
        let detail = error.to_string();
        match error {
            TopicError::Name(_) => Self::new(ErrorCode::InvalidTopicName, detail).with_field("name"),
            TopicError::Setting { field, .. } => {
                Self::new(ErrorCode::InvalidSetting, detail).with_field(field)
            }
            TopicError::Shrinks { .. } => {
                Self::new(ErrorCode::InvalidSetting, detail).with_field("partitions")
            }
            TopicError::Label(_) => Self::new(ErrorCode::InvalidLabel, detail).with_field("labels"),
            TopicError::Exists { .. } => Self::new(ErrorCode::TopicExists, detail).with_field("name"),
            TopicError::Unknown { .. } => Self::new(ErrorCode::UnknownTopic, detail).with_field("topic"),
            TopicError::Store(error) => error.into(),
        }
    }
}

impl From<PublishError> for Refusal {
    fn from(error: PublishError) -> Self {
        let detail = error.to_string();
        match error {
            PublishError::Empty => Self::new(ErrorCode::InvalidMessage, detail).with_field("messages"),
            PublishError::Invalid { index, rule } => {
                Self::new(rule_code(&rule), detail).with_field(format!("messages[{index}].{}", rule.field()))
            }
            PublishError::PartitionOutOfRange { index, .. } => {
                Self::new(ErrorCode::PartitionOutOfRange, detail)
                    .with_field(format!("messages[{index}].partition"))
            }
            PublishError::Cause { index, .. } => {
                Self::new(ErrorCode::InvalidCause, detail).with_field(format!("messages[{index}].cause"))
            }
            PublishError::Due { index, fault } => Self::new(ErrorCode::InvalidTime, detail)
                .with_field(format!("messages[{index}].{}", fault.field())),
            PublishError::Sequence { index, .. } => {
                Self::new(ErrorCode::InvalidMessage, detail).with_field(format!("messages[{index}].sequence"))
            }
            PublishError::Full(full) => full.into(),
            PublishError::Topic(error) => error.into(),
        }
    }
}

impl From<TopicFull> for Refusal {
    fn from(full: TopicFull) -> Self {
        let TopicFull { topic: _, limited: _, depth, limit, retry_after } = full;
        let fullness = Fullness { depth, limit, retry_after_ms: retry_after.as_millis() as u64 };
        let refusal = Self::new(ErrorCode::TopicFull, full.to_string()).with_field("topic");
        Self { fullness: Some(fullness), ..refusal }
    }
}

fn rule_code(rule: &InvalidMessage) -> ErrorCode {
    match rule {
        InvalidMessage::PayloadTooLarge { .. } => ErrorCode::PayloadTooLarge,
        InvalidMessage::KeyTooLarge { .. } => ErrorCode::KeyTooLarge,
        InvalidMessage::HeadersTooLarge { .. } => ErrorCode::HeadersTooLarge,
        InvalidMessage::TransactionIdTooLong { .. } => ErrorCode::TransactionIdTooLong,
        InvalidMessage::Empty { .. }
        | InvalidMessage::Nul { .. }
        | InvalidMessage::ContentTypeTooLong { .. }
        | InvalidMessage::ZeroTrace
        | InvalidMessage::Traceparent(_)
        | InvalidMessage::TwoTraces
        | InvalidMessage::TooManyLinks { .. }
        | InvalidMessage::ZeroLink
        | InvalidMessage::Ttl => ErrorCode::InvalidMessage,
    }
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Self {
        let detail = error.to_string();
        match error {
            AppendError::Overloaded => Self::new(ErrorCode::Overloaded, detail),
            AppendError::TooLarge => Self::new(ErrorCode::TooLarge, detail),
            AppendError::Unavailable { .. } => Self::new(ErrorCode::Unavailable, detail),
            AppendError::OutcomeUnknown { .. } => Self::new(ErrorCode::OutcomeUnknown, detail),
            AppendError::SequenceGap { expected } => {
                let expected = Some(expected.0);
                Self { expected, ..Self::new(ErrorCode::SequenceGap, detail) }
            }
            AppendError::Refused { .. } => Self::new(ErrorCode::InvalidMessage, detail),
            AppendError::UnknownPartition => Self::new(ErrorCode::UnknownTopic, detail),
            AppendError::TopicPaused => Self::new(ErrorCode::TopicPaused, detail),
            AppendError::Unsealed => Self::new(ErrorCode::Unavailable, detail),
            AppendError::Time { index, .. } => {
                Self::new(ErrorCode::InvalidTime, detail).with_field(format!("messages[{index}].deliver_at"))
            }
            AppendError::Internal { .. } => Self::new(ErrorCode::Internal, detail),
        }
    }
}

impl From<ScheduleError> for Refusal {
    fn from(error: ScheduleError) -> Self {
        let detail = error.to_string();
        match error {
            ScheduleError::Unknown { .. } => Self::new(ErrorCode::UnknownSchedule, detail).with_field("id"),
            ScheduleError::Due(fault) => Self::new(ErrorCode::InvalidTime, detail).with_field(fault.field()),
            ScheduleError::Topic(error) => of_topic(error),
            ScheduleError::Store(error) => error.into(),
        }
    }
}

impl From<StepError> for Refusal {
    fn from(error: StepError) -> Self {
        let detail = error.to_string();
        let code = match error {
            StepError::Overloaded => ErrorCode::Overloaded,
            StepError::TooLarge => ErrorCode::TooLarge,
            StepError::LeaseLost => ErrorCode::LeaseLost,
            StepError::Mismatch => ErrorCode::StepMismatch,
            StepError::UnknownPartition => ErrorCode::UnknownTopic,
            StepError::TopicPaused => ErrorCode::TopicPaused,
            StepError::Time { .. } => ErrorCode::InvalidTime,
            StepError::Unavailable { .. } | StepError::Unsealed => ErrorCode::Unavailable,
            StepError::OutcomeUnknown { .. } => ErrorCode::OutcomeUnknown,
            StepError::Refused { .. } => ErrorCode::InvalidMessage,
            StepError::Internal { .. } => ErrorCode::Internal,
        };
        let field = (code == ErrorCode::StepMismatch).then(|| "step_id".to_owned());
        Self { field, ..Self::new(code, detail) }
    }
}

impl From<StepRefused> for Refusal {
    fn from(refused: StepRefused) -> Self {
        let code = match &refused {
            StepRefused::NotHeld { .. } => ErrorCode::LeaseLost,
            StepRefused::Ack(AckError::StaleRound { .. } | AckError::Void { .. }) => ErrorCode::StaleRound,
            StepRefused::Ack(AckError::BeyondSent { .. }) => ErrorCode::BeyondSent,
            StepRefused::Ack(AckError::Done { .. } | AckError::UnderWay { .. })
            | StepRefused::UnderWay { .. } => ErrorCode::AlreadyDone,
            StepRefused::OtherTry { .. } => ErrorCode::StepMismatch,
        };
        let field = if code == ErrorCode::StepMismatch { "step_id" } else { "acks" };
        Self::new(code, refused.to_string()).with_field(field)
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        let detail = error.to_string();
        match error {
            ReadError::OutOfRange { start } => {
                let refusal = Self::new(ErrorCode::OutOfRange, detail).with_field("from");
                Self { start: Some(start.0), ..refusal }
            }
            ReadError::UnknownPartition => Self::new(ErrorCode::UnknownTopic, detail),
            ReadError::Store(error) => error.into(),
        }
    }
}

impl From<SubscribeError> for Refusal {
    fn from(error: SubscribeError) -> Self {
        let detail = error.to_string();
        match error {
            SubscribeError::Topic(error) => of_topic(error),
            SubscribeError::Setting(setting) => {
                Self::new(ErrorCode::InvalidSetting, detail).with_field(format!("settings.{}", setting.field))
            }
            SubscribeError::Mismatch(mismatch) => {
                Self::new(ErrorCode::GroupMismatch, detail).with_field(format!("settings.{}", mismatch.field))
            }
            SubscribeError::Start { .. } => Self::new(ErrorCode::Malformed, detail).with_field("start"),
            SubscribeError::Batch { field, .. } => {
                Self::new(ErrorCode::InvalidSetting, detail).with_field(format!("batch.{field}"))
            }
            SubscribeError::Credit(_) => Self::new(ErrorCode::InvalidCredit, detail).with_field("credit"),
            SubscribeError::AlreadySubscribed => {
                Self::new(ErrorCode::AlreadySubscribed, detail).with_field("group")
            }
            SubscribeError::Read(error) => error.into(),
            SubscribeError::Store(error) => error.into(),
            SubscribeError::NoLease => Self::new(ErrorCode::Unavailable, detail),
        }
    }
}

impl From<SelectError> for Refusal {
    fn from(error: SelectError) -> Self {
        let detail = error.to_string();
        match error {
            SelectError::Selection(InvalidSelection::Name { index, .. }) => {
                Self::new(ErrorCode::InvalidTopicName, detail).with_field(format!("topics[{index}]"))
            }
            SelectError::Selection(InvalidSelection::Label(_)) => {
                Self::new(ErrorCode::InvalidLabel, detail).with_field("labels")
            }
            SelectError::Selection(InvalidSelection::Pattern) => {
                Self::new(ErrorCode::InvalidSelection, detail).with_field("pattern")
            }
            SelectError::Selection(
                InvalidSelection::Empty | InvalidSelection::Contradictory | InvalidSelection::Twice { .. },
            ) => Self::new(ErrorCode::InvalidSelection, detail).with_field("topics"),
            SelectError::Selection(InvalidSelection::TooMany { .. }) | SelectError::TooMany { .. } => {
                Self::new(ErrorCode::TooManyTopics, detail).with_field("topics")
            }
            SelectError::OnTopic { error, .. } => Self { detail, ..Self::from(*error) },
            SelectError::Subscribe(SubscribeError::Topic(TopicError::Unknown { .. })) => {
                Self::new(ErrorCode::UnknownTopic, detail).with_field("topics")
            }
            SelectError::Subscribe(error) => error.into(),
        }
    }
}

impl From<TailError> for Refusal {
    fn from(error: TailError) -> Self {
        let detail = error.to_string();
        match error {
            TailError::Topic(error) => of_topic(error),
            TailError::PartitionOutOfRange { index, .. } => {
                Self::new(ErrorCode::PartitionOutOfRange, detail).with_field(format!("partitions[{index}]"))
            }
            TailError::Twice { index, .. } => {
                Self::new(ErrorCode::Malformed, detail).with_field(format!("partitions[{index}]"))
            }
            TailError::NoPartition => Self::new(ErrorCode::Malformed, detail).with_field("partitions"),
            TailError::Terms(error) => error.into(),
            TailError::Read(error) => error.into(),
        }
    }
}

/// A frame names its topic in `topic`; over HTTP, the body that makes one calls it `name`.
pub fn of_topic(error: TopicError) -> Refusal {
    let refusal = Refusal::from(error);
    if refusal.code == ErrorCode::InvalidTopicName { refusal.with_field("topic") } else { refusal }
}

impl From<WatchError> for Refusal {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::TooMany => {
                Self::new(ErrorCode::TooManySubscriptions, error.to_string()).with_field("type")
            }
            WatchError::Topic(error) => of_topic(error),
            WatchError::Read(error) => error.into(),
        }
    }
}

impl From<SearchError> for Refusal {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::PartitionOutOfRange { .. } => {
                Self::new(ErrorCode::PartitionOutOfRange, error.to_string()).with_field("partition")
            }
            SearchError::Topic(error) => of_topic(error),
            SearchError::Read(error) => error.into(),
        }
    }
}

/// No message of a trace is stored.
pub fn unknown_trace(trace_id: impl std::fmt::Display) -> Refusal {
    let detail = format!("no message of trace {trace_id} is stored");
    Refusal::new(ErrorCode::UnknownTrace, detail).with_field("trace_id")
}
