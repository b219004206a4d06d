//! A trace over HTTP.

use axum::Json;
use axum::extract::State;
use laneway_client::openapi::TraceText;
use laneway_client::trace::Trace;

use super::Context;
use super::messages::trace_of_path;
use super::openapi::{Common, Malformed, NotFound};
use super::problem::{Failure, Path};
use crate::session::fault::unknown_trace;

/// A trace: every message of it as a tree of causes, and what each group has made of them.
#[utoipa::path(
    get,
    path = "/v1/traces/{trace_id}",
    operation_id = "show_trace",
    tag = "messages",
    params(("trace_id" = TraceText, Path, description = "A UUID or 32 hexadecimal digits", example = "0af7651916cd43dd8448eb211c80319c")),
    responses((status = 200, body = Trace, description = "The trace"), Malformed, NotFound, Common)
)]
pub(super) async fn show(
    State(context): State<Context>,
    Path(id): Path<String>,
) -> Result<Json<Trace>, Failure> {
    let trace_id = trace_of_path(&id)?;
    match context.broker.traces.read(trace_id).await? {
        Some(trace) => Ok(Json(trace)),
        None => Err(unknown_trace(trace_id).into()),
    }
}
