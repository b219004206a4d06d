//! The listener: takes connections, as many as there may be, and serves HTTP on each of them.
//!
//! A connection beyond the bound is told so in one answer, whatever it asks; beyond a second, small bound it is just closed.
//! A connection that becomes a WebSocket leaves this file with its place among the connections; see `ws`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use laneway_client::{ErrorCode, Problem};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::problem::Failure;
use super::watched::Watched;
use crate::limits::{CONNECTIONS_MAX, CONNECTIONS_REFUSED_MAX, HTTP_HEADERS_TIMEOUT};
use crate::session::activity::Activity;

/// Before the next try when no connection can be taken: the process has no file descriptor left, or the machine no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a request knows of its connection.
#[derive(Debug, Clone)]
pub(super) struct Seat {
    pub place: Arc<OwnedSemaphorePermit>,
    pub activity: Arc<Activity>,
}

/// The connections that speak HTTP.
#[derive(Debug, Default)]
pub(super) struct Requests {
    tasks: TaskTracker,
    ending: CancellationToken,
}

impl Requests {
    /// Lets requests under way end, and closes every connection that has none.
    pub async fn end(&self) {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Takes connections until told to stop.
pub(super) async fn run(
    listener: TcpListener,
    router: Router,
    requests: &Requests,
    stop: &CancellationToken,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let refusals = Arc::new(Semaphore::new(CONNECTIONS_REFUSED_MAX));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection was gone before it was served");
            continue;
        }
        if let Ok(place) = places.clone().try_acquire_owned() {
            let (ending, router) = (requests.ending.clone(), router.clone());
            requests.tasks.spawn(serve(stream, router, place, ending));
        } else if let Ok(place) = refusals.clone().try_acquire_owned() {
            requests.tasks.spawn(refuse(stream, place, requests.ending.clone()));
        } // else: closed by being dropped
    }
}

fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HTTP_HEADERS_TIMEOUT);
    http
}

async fn serve(stream: TcpStream, router: Router, place: OwnedSemaphorePermit, ending: CancellationToken) {
    let seat = Seat { place: Arc::new(place), activity: Arc::default() };
    let io = TokioIo::new(Watched::new(stream, seat.activity.clone()));
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(seat.clone());
        router.call(request)
    });
    let mut connection = std::pin::pin!(http().serve_connection(io, service).with_upgrades());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// Answers one request with the reason why there is no place for it.
async fn refuse(stream: TcpStream, _place: OwnedSemaphorePermit, ending: CancellationToken) {
    let service =
        service_fn(|_: Request<Incoming>| std::future::ready(Ok::<_, std::convert::Infallible>(too_many())));
    let mut http = http();
    http.keep_alive(false);
    let _answered = ending.run_until_cancelled(http.serve_connection(TokioIo::new(stream), service)).await;
}

fn too_many() -> Response {
    let detail = format!("this broker has {CONNECTIONS_MAX} connections, as many as it may: try again later");
    let mut response = Failure::from(Problem::new(ErrorCode::TooManyConnections, detail)).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
