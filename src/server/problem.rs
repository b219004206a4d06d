//! The one place where an error becomes a stable code, a status and a sentence.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use laneway_client::{ErrorCode, Problem};

use crate::broker::appender::AppendError;
use crate::broker::message::InvalidMessage;
use crate::broker::publish::PublishError;
use crate::broker::reader::ReadError;
use crate::broker::topics::TopicError;
use crate::limits::{HTTP_BODY_BYTES_MAX, HTTP_DISCARD_BYTES_MAX, HTTP_REQUEST_TIMEOUT};
use crate::store::Error as StoreError;

/// An error as HTTP carries it.
#[derive(Debug)]
pub(super) struct Failure(pub Box<Problem>);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self.0)).into_response();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unavailable { .. }
            | StoreError::Contended { .. }
            | StoreError::ReadOnly
            | StoreError::Untrusted { .. } => ErrorCode::Unavailable, // nothing happened
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
        Self::from(Problem::new(code, error.to_string()))
    }
}

impl From<TopicError> for Failure {
    fn from(error: TopicError) -> Self {
        let detail = error.to_string();
        let problem = match error {
            TopicError::Name(_) => Problem::new(ErrorCode::InvalidTopicName, detail).with_field("name"),
            TopicError::Setting { field, .. } => {
                Problem::new(ErrorCode::InvalidSetting, detail).with_field(field)
            }
            TopicError::Shrinks { .. } => {
                Problem::new(ErrorCode::InvalidSetting, detail).with_field("partitions")
            }
            TopicError::Exists { .. } => Problem::new(ErrorCode::TopicExists, detail).with_field("name"),
            TopicError::Unknown { .. } => Problem::new(ErrorCode::UnknownTopic, detail).with_field("topic"),
            TopicError::Store(error) => return error.into(),
        };
        Self::from(problem)
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        let detail = error.to_string();
        let problem = match error {
            PublishError::Empty => Problem::new(ErrorCode::InvalidMessage, detail).with_field("messages"),
            PublishError::Invalid { index, rule } => Problem::new(rule_code(&rule), detail)
                .with_field(format!("messages[{index}].{}", rule.field())),
            PublishError::PartitionOutOfRange { index, .. } => {
                Problem::new(ErrorCode::PartitionOutOfRange, detail)
                    .with_field(format!("messages[{index}].partition"))
            }
            PublishError::Sequence { index, .. } => Problem::new(ErrorCode::InvalidMessage, detail)
                .with_field(format!("messages[{index}].sequence")),
            PublishError::Topic(error) => return error.into(),
        };
        Self::from(problem)
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
        | InvalidMessage::ZeroTrace => ErrorCode::InvalidMessage,
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        let detail = error.to_string();
        let mut problem = match &error {
            AppendError::Overloaded => Problem::new(ErrorCode::Overloaded, detail),
            AppendError::TooLarge => Problem::new(ErrorCode::TooLarge, detail),
            AppendError::Unavailable { .. } => Problem::new(ErrorCode::Unavailable, detail),
            AppendError::OutcomeUnknown { .. } => Problem::new(ErrorCode::OutcomeUnknown, detail),
            AppendError::SequenceGap { .. } => Problem::new(ErrorCode::SequenceGap, detail),
            AppendError::Refused { .. } => Problem::new(ErrorCode::InvalidMessage, detail),
            AppendError::UnknownPartition => Problem::new(ErrorCode::UnknownTopic, detail),
            AppendError::Internal { .. } => Problem::new(ErrorCode::Internal, detail),
        };
        if let AppendError::SequenceGap { expected } = error {
            problem.expected = Some(expected.0);
        }
        Self::from(problem)
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let detail = error.to_string();
        match error {
            ReadError::OutOfRange { start } => {
                let mut problem = Problem::new(ErrorCode::OutOfRange, detail).with_field("from");
                problem.start = Some(start.0);
                Self::from(problem)
            }
            ReadError::UnknownPartition => Self::from(Problem::new(ErrorCode::UnknownTopic, detail)),
            ReadError::Store(error) => error.into(),
        }
    }
}

/// A JSON body whose rejections are problems too.
#[derive(Debug, FromRequest)]
#[from_request(via(axum::Json), rejection(Failure))]
pub(super) struct Body<T>(pub T);

/// A query string whose rejections are problems too.
#[derive(Debug, axum::extract::FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Failure))]
pub(super) struct Query<T>(pub T);

/// Path parameters whose rejections are problems too.
#[derive(Debug, axum::extract::FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Failure))]
pub(super) struct Path<T>(pub T);

impl From<JsonRejection> for Failure {
    fn from(rejection: JsonRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let detail = format!("a request has at most {HTTP_BODY_BYTES_MAX} bytes: send less at once");
                Self::from(Problem::new(ErrorCode::TooLarge, detail))
            }
            _ => Self::from(Problem::new(ErrorCode::Malformed, rejection.body_text())),
        }
    }
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Self {
        Self::from(Problem::new(ErrorCode::Malformed, rejection.body_text()))
    }
}

impl From<PathRejection> for Failure {
    fn from(rejection: PathRejection) -> Self {
        Self::from(Problem::new(ErrorCode::Malformed, rejection.body_text()))
    }
}

/// A value of a request that is not of its form.
pub(super) fn malformed(field: impl Into<String>, detail: impl Into<String>) -> Failure {
    Failure::from(Problem::new(ErrorCode::Malformed, detail).with_field(field))
}

pub(super) async fn unknown_route(request: Request) -> Failure {
    let detail = format!("there is nothing at {}", request.uri().path());
    Failure::from(Problem::new(ErrorCode::UnknownRoute, detail))
}

pub(super) async fn method_not_allowed(request: Request) -> Failure {
    let detail = format!("{} does not take {}", request.uri().path(), request.method());
    Failure::from(Problem::new(ErrorCode::MethodNotAllowed, detail))
}

/// Refuses a body that is too large by its own account. It is read and thrown away first, up to a bound, because a client
/// that is still sending would see a broken connection instead of the answer.
pub(super) async fn in_size(request: Request, next: Next) -> Response {
    let declared =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if declared.is_none_or(|bytes: usize| bytes <= HTTP_BODY_BYTES_MAX) {
        return next.run(request).await;
    }
    let mut body = request.into_body().into_data_stream();
    let mut thrown_away = 0;
    while let Some(Ok(piece)) = body.next().await {
        thrown_away += piece.len();
        if thrown_away > HTTP_DISCARD_BYTES_MAX {
            break;
        }
    }
    let detail = format!("the body is larger than {HTTP_BODY_BYTES_MAX} bytes");
    Failure::from(Problem::new(ErrorCode::TooLarge, detail)).into_response()
}

/// Answers a request that takes too long; what it has handed to the appender goes on.
pub(super) async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(HTTP_REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = "the broker did not answer in time; the request may still be carried out";
            Failure::from(Problem::new(ErrorCode::OutcomeUnknown, detail)).into_response()
        }
    }
}
