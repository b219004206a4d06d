//! The front door: one port for WebSockets, the HTTP API, health and metrics.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the routes, and how serving ends |
//! | `accept` | the listener: connections, how many, for how long |
//! | `watched` | the bytes of a connection: when they last moved, and what is left of them at the end |
//! | `guard` | who may ask: `Host` and `Origin` |
//! | `problem` | errors as HTTP carries them |
//! | `exposition` | the formats of `/metrics` |
//! | `openapi` | the description of all routes, `/openapi.json` |
//! | `ws` | the upgrade to a WebSocket, which becomes a session |
//! | `health`, `topics`, `publishing`, `messages`, `traces`, `search`, `groups`, `lanes`, `keys`, `pops`, `dead_letters`, `parked`, `schedules` | the other routes |
//!
//! Knows no SQL. Every answer that is not a success is `application/problem+json`.

mod accept;
mod capacity;
mod dead_letters;
mod exposition;
mod groups;
mod guard;
mod health;
mod keys;
mod lanes;
mod management;
mod messages;
mod openapi;
mod parked;
mod pops;
mod problem;
mod publishing;
mod schedules;
mod search;
mod topics;
mod traces;
mod watched;
mod ws;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Extension, Router};
use laneway_client::wire::bounds::WEBSOCKET_PATH;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::broker::Broker;
use crate::limits::{CLOSE_TIMEOUT, HTTP_BODY_BYTES_MAX, SESSIONS_DRAIN_TIMEOUT};
use crate::postgres::Status;
use crate::session::Sessions;

use openapi::{Description, Document};

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
    let (router, description) = described();
    router
        // Not described: what follows the upgrade is no HTTP.
        .route(WEBSOCKET_PATH, get(ws::upgrade))
        .fallback(problem::unknown_route)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(Extension(Document::new(&description)))
        .layer(DefaultBodyLimit::max(HTTP_BODY_BYTES_MAX))
        .layer(axum::middleware::from_fn(problem::in_size))
        .layer(axum::middleware::from_fn(problem::in_time))
        .layer(axum::middleware::from_fn_with_state(context.clone(), guard::check))
        .with_state(context)
}

/// The routes of the HTTP API, and the document that describes them.
fn described() -> (Router<Context>, utoipa::openapi::OpenApi) {
    let (router, mut description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(openapi::document))
        .routes(routes!(topics::create, topics::list))
        .routes(routes!(topics::show, topics::alter, topics::delete))
        .routes(routes!(capacity::history))
        .routes(routes!(groups::show, groups::alter, groups::delete))
        .routes(routes!(groups::seek))
        .routes(routes!(management::pause_topic))
        .routes(routes!(management::resume_topic))
        .routes(routes!(management::purge))
        .routes(routes!(management::partitions))
        .routes(routes!(management::pause_group))
        .routes(routes!(management::resume_group))
        .routes(routes!(groups::list))
        .routes(routes!(pops::pop))
        .routes(routes!(pops::ack))
        .routes(routes!(pops::nack))
        .routes(routes!(pops::extend))
        .routes(routes!(lanes::list))
        .routes(routes!(lanes::brokers))
        .routes(routes!(keys::list))
        .routes(routes!(publishing::publish))
        .routes(routes!(publishing::publish_one))
        .routes(routes!(messages::list))
        .routes(routes!(messages::show))
        .routes(routes!(messages::trace))
        .routes(routes!(traces::show))
        .routes(routes!(search::search))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::show, dead_letters::delete))
        .routes(routes!(dead_letters::replay))
        .routes(routes!(parked::list))
        .routes(routes!(parked::show))
        .routes(routes!(parked::replay))
        .routes(routes!(parked::drop_failed))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::show, schedules::alter, schedules::cancel))
        .split_for_parts();
    openapi::refine(&mut description);
    (router, description)
}

/// Serves until told to stop; then, in the order of the data: no more connections, sessions drain, requests under way end.
pub async fn serve(listener: TcpListener, context: Context, stop: CancellationToken) {
    let (sessions, pulling) = (context.sessions.clone(), context.broker.pulling.clone());
    let requests = accept::Requests::default();
    accept::run(listener, router(context), &requests, &stop).await;
    pulling.close();
    drop(pulling);
    sessions.drain(SESSIONS_DRAIN_TIMEOUT + CLOSE_TIMEOUT).await;
    requests.end().await;
}
