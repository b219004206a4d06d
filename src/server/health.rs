//! `/healthz`: the process lives. `/readyz`: it can do its work now. `/metrics`: numbers for Prometheus.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use laneway_client::admin::VERSION_HEADER;
use laneway_client::{ErrorCode, Problem};

use super::Context;
use super::problem::Failure;
use crate::postgres::Status;

pub(super) async fn healthz() -> impl IntoResponse {
    ([(VERSION_HEADER, env!("CARGO_PKG_VERSION"))], "ok\n")
}

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

pub(super) async fn metrics(State(context): State<Context>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &context.metrics) {
        Ok(()) => {
            ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
                .into_response()
        }
        Err(error) => Failure::from(Problem::new(ErrorCode::Internal, error.to_string())).into_response(),
    }
}
