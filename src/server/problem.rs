//! Errors as HTTP carries them: `application/problem+json`. Which code an error has, `session::fault` decides.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use laneway_client::{ErrorCode, Problem};

use crate::broker::appender::AppendError;
use crate::broker::publish::PublishError;
use crate::broker::reader::ReadError;
use crate::broker::schedules::ScheduleError;
use crate::broker::search::SearchError;
use crate::broker::topics::TopicError;
use crate::limits::{HTTP_BODY_BYTES_MAX, HTTP_DISCARD_BYTES_MAX, HTTP_REQUEST_TIMEOUT};
use crate::session::fault::{Fullness, Refusal};
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
        if let Some(ms) = self.0.retry_after_ms {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
        }
        response
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let mut problem = Problem::new(refusal.code, refusal.detail);
        (problem.field, problem.start, problem.expected) = (refusal.field, refusal.start, refusal.expected);
        if let Some(Fullness { depth, limit, retry_after_ms }) = refusal.fullness {
            problem.depth = Some(depth);
            problem.limit = Some(limit);
            problem.retry_after_ms = Some(retry_after_ms);
        }
        Self::from(problem)
    }
}

macro_rules! refused {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Refusal::from(error).into()
            }
        }
    )*};
}

refused!(StoreError, TopicError, PublishError, AppendError, ReadError, SearchError, ScheduleError);

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
