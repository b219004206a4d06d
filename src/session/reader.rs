//! The reading half of a connection: WebSocket messages in, frames of our protocol out, to the owner of the session.
//!
//! Decides nothing. What cannot be read becomes an event as well. Lives until the connection ends, and says how; what it
//! hands over is bounded by the inbox, so a client that sends faster than its session works is slowed down by TCP.

use axum::extract::ws::{Message, WebSocket};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::SplitStream;
use laneway_client::ErrorCode;
use laneway_client::wire::{ClientFrame, CloseCode, ErrorFrame, FrameError, Subprotocol};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::error::ProtocolError;

use super::ending::{Ending, Verdict};
use crate::limits::{FRAME_BYTES_MAX, INBOX_FRAMES_MAX, INBOX_LARGE_BYTES};

/// What comes from a client. Boxed: the inbox of an idle session is allocated too.
#[derive(Debug)]
pub(super) enum Incoming {
    Frame(Box<ClientFrame>),
    Bad(Box<FrameError>),
    Ended(Box<Ending>),
}

/// Reads until the connection ends. Cancel safety: none. Spawned once; the owner aborts it.
pub(super) async fn run(
    mut stream: SplitStream<WebSocket>,
    subprotocol: Subprotocol,
    inbox: mpsc::Sender<Incoming>,
) {
    let ending = loop {
        let frame = match stream.next().await {
            Some(Ok(message)) => match (message, subprotocol) {
                (Message::Text(text), Subprotocol::Json) => Bytes::from(text),
                (Message::Binary(bytes), Subprotocol::MessagePack) => bytes,
                (Message::Text(_), Subprotocol::MessagePack) => break wrong_kind("text", "binary"),
                (Message::Binary(_), Subprotocol::Json) => break wrong_kind("binary", "text"),
                (Message::Ping(_) | Message::Pong(_), _) => continue, // answered by the socket itself
                (Message::Close(_), _) => break Ending::closed_by_client(),
            },
            Some(Err(error)) => break broken(error),
            None => break Ending::lost(),
        };
        if frame.len() > INBOX_LARGE_BYTES && inbox.reserve_many(INBOX_FRAMES_MAX).await.is_err() {
            return;
        }
        let incoming = match subprotocol.decode_client(&frame) {
            Ok(frame) => Incoming::Frame(Box::new(frame)),
            Err(error) => Incoming::Bad(Box::new(error)),
        };
        if inbox.send(incoming).await.is_err() {
            return;
        }
    };
    let _owner_is_gone = inbox.send(Incoming::Ended(Box::new(ending))).await;
    while stream.next().await.is_some() {} // lets the socket finish the closing handshake
}

fn wrong_kind(came: &str, expected: &str) -> Ending {
    let detail = format!("this subprotocol has {expected} frames, and a {came} frame came");
    violation(ErrorCode::Malformed, detail, CloseCode::WrongKind)
}

fn violation(code: ErrorCode, detail: impl Into<String>, close: CloseCode) -> Ending {
    let error = Some(Box::new(ErrorFrame::new(code, detail)));
    Ending { error, ..Ending::of(close, Verdict::Lost) }
}

/// Which end an error of the socket means.
fn broken(error: axum::Error) -> Ending {
    let Ok(error) = error.into_inner().downcast::<SocketError>() else { return Ending::lost() };
    match *error {
        SocketError::Capacity(_) => {
            let detail = format!("a frame has at most {FRAME_BYTES_MAX} bytes");
            violation(ErrorCode::TooLarge, detail, CloseCode::TooLarge)
        }
        SocketError::Utf8(_) => {
            violation(ErrorCode::Malformed, "a text frame must be UTF-8", CloseCode::BadUtf8)
        }
        SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Ending::lost(),
        SocketError::Protocol(error) => {
            violation(ErrorCode::Malformed, error.to_string(), CloseCode::ProtocolError)
        }
        _ => Ending::lost(), // not ours: whatever else it is, the connection is of no use any more
    }
}
