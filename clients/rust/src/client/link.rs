//! One connection: the upgrade, `hello`, and then a reader and a writer task with a bounded channel each.
//!
//! The reader decodes and hands over; the writer feeds what has come together and flushes once. Neither decides anything.
//! Both end when the connection ends or when the [`Link`] is dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode as WsCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream};

use super::error::Error;
use crate::error_code::Class;
use crate::wire::{Advice, BrokerFrame, ClientFrame, CloseCode, Hello, Subprotocol, Welcome};

/// Frames that are decoded and wait for the owner: enough that the reader does not wait for each of them.
const INCOMING_FRAMES_MAX: usize = 32;
/// Frames that wait for the writer: it writes what has come together at once.
const OUTGOING_FRAMES_MAX: usize = 32;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 64 << 10;
/// Largest frame from a broker: the largest payload of any topic as base64, with room for the rest.
const FRAME_BYTES_MAX: usize = 128 << 20;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What comes from a connection.
#[derive(Debug)]
pub(super) enum Incoming {
    Frame(BrokerFrame),
    /// The code and reason of the close frame, if there was one; else what the connection said.
    Ended(Ending),
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Closed { code: u16, reason: String },
    Lost { reason: String },
}

/// Why no connection was made.
#[derive(Debug)]
pub(super) enum DialError {
    /// Worth another try, here or elsewhere.
    Away(String),
    /// The same would happen again.
    Refused(Error),
}

/// An open session.
#[derive(Debug)]
pub(super) struct Link {
    pub incoming: mpsc::Receiver<Incoming>,
    pub outgoing: mpsc::Sender<ToWriter>,
    pub welcome: Welcome,
}

/// What the writer is asked for.
#[derive(Debug)]
pub(super) enum ToWriter {
    Frame(Box<ClientFrame>),
    /// The last word.
    Close,
}

/// Connects, says hello, and waits for `welcome`.
pub(super) async fn dial(
    url: &str,
    tls: &Arc<ClientConfig>,
    subprotocol: Subprotocol,
    hello: Hello,
    timeout: Duration,
) -> Result<Link, DialError> {
    match tokio::time::timeout(timeout, open(url, tls, subprotocol, hello)).await {
        Ok(result) => result,
        Err(_) => Err(DialError::Away("it took too long".to_owned())),
    }
}

async fn open(
    url: &str,
    tls: &Arc<ClientConfig>,
    subprotocol: Subprotocol,
    hello: Hello,
) -> Result<Link, DialError> {
    let bad = |_| DialError::Refused(Error::Address { url: url.to_owned() });
    let mut request = url.into_client_request().map_err(bad)?;
    request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(subprotocol.name()));
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(WRITE_BYTES)
        .max_write_buffer_size(FRAME_BYTES_MAX)
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let connector = Some(Connector::Rustls(tls.clone()));
    let connected =
        tokio_tungstenite::connect_async_tls_with_config(request, Some(config), true, connector).await;
    let (socket, _) = connected.map_err(|error| DialError::Away(error.to_string()))?;
    let (mut sink, mut stream) = socket.split();
    let frame = encoded(subprotocol, &ClientFrame::Hello(hello));
    sink.send(frame).await.map_err(|error| DialError::Away(error.to_string()))?;
    let welcome = welcomed(&mut stream, subprotocol).await?;
    let (incoming_sender, incoming) = mpsc::channel(INCOMING_FRAMES_MAX);
    let (outgoing, outgoing_receiver) = mpsc::channel(OUTGOING_FRAMES_MAX);
    tokio::spawn(read(stream, subprotocol, incoming_sender));
    tokio::spawn(write(sink, subprotocol, outgoing_receiver));
    Ok(Link { incoming, outgoing, welcome })
}

/// Reads until `welcome`, or until it is clear that none will come.
async fn welcomed(stream: &mut SplitStream<Socket>, subprotocol: Subprotocol) -> Result<Welcome, DialError> {
    let mut refusal: Option<Error> = None;
    loop {
        match incoming(stream.next().await, subprotocol) {
            Some(Incoming::Frame(BrokerFrame::Welcome(welcome))) => return Ok(*welcome),
            Some(Incoming::Frame(BrokerFrame::Error(error))) => match error.class {
                Class::Retry | Class::Unknown => return Err(DialError::Away(error.detail)),
                Class::Refused | Class::Fatal => refusal = Some(Error::from(&*error)),
            },
            Some(Incoming::Frame(_)) | None => {}
            Some(Incoming::Ended(ending)) => {
                return Err(match (refusal, ending.stopped()) {
                    (Some(refusal), _) => DialError::Refused(refusal),
                    (None, Some(error)) => DialError::Refused(error),
                    (None, None) => DialError::Away(ending.to_string()),
                });
            }
        }
    }
}

impl Ending {
    /// The error for the user, if the code says not to come back.
    pub fn stopped(&self) -> Option<Error> {
        let Self::Closed { code, reason } = self else { return None };
        let known = CloseCode::from_code(*code)?;
        match known.advice() {
            Advice::Retry => None,
            Advice::Stop => {
                let reason = if reason.is_empty() { known.meaning() } else { reason };
                Some(Error::Stopped { code: *code, reason: reason.to_owned() })
            }
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed { code, reason } => write!(f, "closed with {code} {reason}"),
            Self::Lost { reason } => f.write_str(reason),
        }
    }
}

type Read = Option<Result<Message, tokio_tungstenite::tungstenite::Error>>;

/// What a WebSocket message means; nothing for pings and pongs.
fn incoming(read: Read, subprotocol: Subprotocol) -> Option<Incoming> {
    let lost = |reason: String| Some(Incoming::Ended(Ending::Lost { reason }));
    let bytes = match read {
        Some(Ok(Message::Binary(bytes))) => bytes,
        Some(Ok(Message::Text(text))) => Bytes::from(text),
        Some(Ok(Message::Close(Some(frame)))) => {
            let ending = Ending::Closed { code: frame.code.into(), reason: frame.reason.to_string() };
            return Some(Incoming::Ended(ending));
        }
        Some(Ok(Message::Close(None))) | None => return lost("the connection has ended".to_owned()),
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => return None,
        Some(Err(error)) => return lost(error.to_string()),
    };
    match subprotocol.decode_broker(&bytes) {
        Ok(frame) => Some(Incoming::Frame(frame)),
        Err(error) => lost(format!("a frame cannot be read: {error}")),
    }
}

fn encoded(subprotocol: Subprotocol, frame: &ClientFrame) -> Message {
    let bytes = subprotocol.encode_client(frame);
    match subprotocol {
        Subprotocol::MessagePack => Message::Binary(bytes.into()),
        Subprotocol::Json => Message::Text(String::from_utf8(bytes).expect("JSON is UTF-8").into()),
    }
}

async fn read(
    mut stream: SplitStream<Socket>,
    subprotocol: Subprotocol,
    incoming_sender: mpsc::Sender<Incoming>,
) {
    loop {
        let next = tokio::select! {
            next = stream.next() => next,
            () = incoming_sender.closed() => return,
        };
        let Some(news) = incoming(next, subprotocol) else { continue };
        let is_end = matches!(news, Incoming::Ended(_));
        if incoming_sender.send(news).await.is_err() || is_end {
            return;
        }
    }
}

async fn write(
    mut sink: SplitSink<Socket, Message>,
    subprotocol: Subprotocol,
    mut outgoing: mpsc::Receiver<ToWriter>,
) {
    while let Some(first) = outgoing.recv().await {
        let mut next = Some(first);
        while let Some(word) = next {
            let message = match &word {
                ToWriter::Frame(frame) => encoded(subprotocol, frame),
                ToWriter::Close => {
                    let frame = CloseFrame { code: WsCode::Normal, reason: "".into() };
                    sink.send(Message::Close(Some(frame))).await.ok(); // the other side may be gone already
                    return;
                }
            };
            if sink.feed(message).await.is_err() {
                return; // the reader sees the same, and says so
            }
            next = outgoing.try_recv().ok();
        }
        if sink.flush().await.is_err() {
            return;
        }
    }
}
