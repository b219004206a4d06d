//! The front door: one port for WebSockets, the HTTP API, health and metrics.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the routes, and how serving ends |
//! | `accept` | the listener: connections, how many, for how long |
//! | `watched` | the bytes of a connection: when they last moved, and what is left of them at the end |
//! | `guard` | who may ask: `Host` and `Origin` |
//! | `problem` | errors as HTTP carries them |
//! | `ws` | the upgrade to a WebSocket, which becomes a session |
//! | `health`, `topics`, `messages`, `groups`, `lanes`, `dead_letters` | the other routes |
//!
//! Knows no SQL. Every answer that is not a success is `application/problem+json`.

mod accept;
mod dead_letters;
mod groups;
mod guard;
mod health;
mod lanes;
mod messages;
mod problem;
mod topics;
mod watched;
mod ws;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use laneway_client::wire::bounds::WEBSOCKET_PATH;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::limits::{CLOSE_TIMEOUT, HTTP_BODY_BYTES_MAX, SESSIONS_DRAIN_TIMEOUT};
use crate::postgres::Status;
use crate::session::Sessions;

/// What every route can reach.
#[derive(Debug, Clone)]
pub struct Context {
    pub broker: Broker,
    pub sessions: Sessions,
    pub metrics: Arc<Registry>,
    /// Names, beside those of this machine, under which the broker may be asked.
    pub allowed_hosts: Arc<[String]>,
    /// Of the private PostgreSQL, where there is one.
    pub postgres: Option<tokio::sync::watch::Receiver<Status>>,
}

/// All routes.
pub fn router(context: Context) -> Router {
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route(WEBSOCKET_PATH, get(ws::upgrade))
        .route("/v1/topics", post(topics::create).get(topics::list))
        .route("/v1/topics/{topic}", get(topics::show).patch(topics::alter).delete(topics::delete))
        .route(
            "/v1/topics/{topic}/groups/{group}",
            get(groups::show).patch(groups::alter).delete(groups::delete),
        )
        .route("/v1/topics/{topic}/groups/{group}/seek", post(groups::seek))
        .route("/v1/groups", get(groups::list))
        .route("/v1/lanes", get(lanes::list))
        .route("/v1/brokers", get(lanes::brokers))
        .route("/v1/topics/{topic}/messages", post(messages::publish))
        .route("/v1/topics/{topic}/partitions/{partition}/messages", get(messages::list))
        .route("/v1/traces/{trace_id}/messages", get(messages::trace))
        .route("/v1/dead-letters", get(dead_letters::list))
        .route("/v1/dead-letters/{id}", get(dead_letters::show).delete(dead_letters::delete))
        .route("/v1/dead-letters/{id}/replay", post(dead_letters::replay))
        .fallback(problem::unknown_route)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(DefaultBodyLimit::max(HTTP_BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn(problem::in_size))
        .layer(axum::middleware::from_fn(problem::in_time))
        .layer(axum::middleware::from_fn_with_state(context.clone(), guard::check))
        .with_state(context)
}

/// Serves until told to stop; then, in the order of the data: no more connections, sessions drain, requests under way end.
pub async fn serve(listener: TcpListener, context: Context, stop: CancellationToken) {
    let sessions = context.sessions.clone();
    let requests = accept::Requests::default();
    accept::run(listener, router(context), &requests, &stop).await;
    sessions.drain(SESSIONS_DRAIN_TIMEOUT + CLOSE_TIMEOUT).await;
    requests.end().await;
}
