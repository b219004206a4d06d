//! `GET /v1/ws`: the upgrade to a WebSocket. What comes after it is a session.
//!
//! The buffers of the socket are set here, because their defaults are made for few connections and large messages.

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::{IntoResponse as _, Response};
use laneway_client::wire::Subprotocol;
use laneway_client::{ErrorCode, Problem};

use super::Context;
use super::accept::Seat;
use super::problem::{Failure, malformed};
use crate::limits::{FRAME_BYTES_MAX, SOCKET_READ_BYTES, SOCKET_WRITE_BYTES, SOCKET_WRITE_BYTES_MAX};
use crate::session::Connection;

pub(super) async fn upgrade(
    State(context): State<Context>,
    Extension(seat): Extension<Seat>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let upgrade = upgrade.map_err(|rejection| {
        let detail = format!("this route takes the upgrade to a WebSocket only: {}", rejection.body_text());
        malformed("Upgrade", detail)
    })?;
    let upgrade = upgrade.protocols(Subprotocol::ALL.iter().map(|subprotocol| subprotocol.name()));
    let chosen = upgrade.selected_protocol().and_then(|name| Subprotocol::from_name(name.to_str().ok()?));
    let Some(subprotocol) = chosen else {
        let names: Vec<&str> = Subprotocol::ALL.iter().map(|subprotocol| subprotocol.name()).collect();
        let detail = format!("offer one of the subprotocols that this broker speaks: {}", names.join(", "));
        return Err(malformed("Sec-WebSocket-Protocol", detail));
    };
    if context.sessions.is_draining() {
        let detail = "this broker is draining and takes nothing new: connect again";
        return Err(Failure::from(Problem::new(ErrorCode::GoingAway, detail)));
    }
    let sessions = context.sessions;
    let upgrade = upgrade
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .read_buffer_size(SOCKET_READ_BYTES)
        .write_buffer_size(SOCKET_WRITE_BYTES)
        .max_write_buffer_size(SOCKET_WRITE_BYTES_MAX);
    let response = upgrade.on_upgrade(move |socket| {
        let Seat { place, activity } = seat;
        sessions.serve(Connection { socket, subprotocol, activity, place })
    });
    Ok(response.into_response())
}
