//! `/healthz`: the process lives. `/readyz`: it can do its work now. `/metrics`: numbers for Prometheus.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use laneway_client::admin::VERSION_HEADER;
use laneway_client::{ErrorCode, Problem};

use super::Context;
use super::exposition::{OPEN_METRICS, PLAIN_TEXT, plain_text, wants_plain_text};
use super::openapi::Common;
use super::problem::Failure;
use crate::postgres::Status;

/// Whether the process lives.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "health",
    responses((status = 200, body = String, content_type = "text/plain", description = "It lives"), Common)
)]
pub(super) async fn healthz() -> impl IntoResponse {
    ([(VERSION_HEADER, env!("CARGO_PKG_VERSION"))], "ok\n")
}

/// Whether the broker can do its work now.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    tag = "health",
    responses((status = 200, body = String, content_type = "text/plain", description = "It can"), Common)
)]
pub(super) async fn readyz(State(context): State<Context>) -> Result<&'static str, Failure> {
    if context.sessions.is_draining() {
        return Err(Failure::from(Problem::new(ErrorCode::GoingAway, "this broker is draining")));
    }
    if let Some(status) = &context.postgres
        && let Some(sentence) = trouble(&status.borrow())
    {
        return Err(Failure::from(Problem::new(ErrorCode::Unavailable, sentence)));
    }
    context.broker.store.ping().await?;
    Ok("ready\n")
}

fn trouble(status: &Status) -> Option<String> {
    match status {
        Status::Running => None,
        Status::Restarting { attempt } => {
            Some(format!("the private PostgreSQL is being restarted (try {attempt})"))
        }
        Status::Failed(error) => Some(error.to_string()),
        Status::Stopped => Some("the private PostgreSQL has been stopped".into()),
    }
}

/// Numbers for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "health",
    responses(
        (status = 200, description = "In the format of OpenMetrics, or in the older plain text for who accepts only that", content(
            (String = "text/plain"),
            (String = "application/openmetrics-text")
        )),
        Common
    )
)]
pub(super) async fn metrics(State(context): State<Context>, headers: HeaderMap) -> Response {
    let mut text = String::new();
    if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &context.metrics) {
        return Failure::from(Problem::new(ErrorCode::Internal, error.to_string())).into_response();
    }
    match wants_plain_text(&headers) {
        true => ([(header::CONTENT_TYPE, PLAIN_TEXT)], plain_text(&text)).into_response(),
        false => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
    }
}
