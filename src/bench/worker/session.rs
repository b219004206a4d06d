//! A connection that speaks the protocol in MessagePack, with nothing between the frames and the socket.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use laneway_client::ErrorCode;
use laneway_client::wire::bounds::HEARTBEAT_MS_MAX;
use laneway_client::wire::{BrokerFrame, ClientFrame, Hello, Subprotocol};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::WorkerError;

const ENCODING: Subprotocol = Subprotocol::MessagePack;
/// As rare as a broker allows.
const HEARTBEAT_MS: u32 = HEARTBEAT_MS_MAX;
/// What an idle session needs; the others read and write as much as there is.
const IDLE_BUFFER_BYTES: usize = 1 << 10;

/// The sending half.
pub(super) type Sender = SplitSink<WebSocketStream<TcpStream>, Message>;
/// The receiving half.
pub(super) struct Receiver(SplitStream<WebSocketStream<TcpStream>>);

/// How much a session is going to move.
#[derive(Debug, Clone, Copy)]
pub(super) enum Traffic {
    Heavy,
    Idle,
}

/// Connects and says hello.
pub(super) async fn open(broker: SocketAddr, traffic: Traffic) -> Result<(Sender, Receiver), WorkerError> {
    let mut request = format!("ws://{broker}/v1/ws").into_client_request()?;
    request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(ENCODING.name()));
    let config = match traffic {
        Traffic::Heavy => WebSocketConfig::default(),
        Traffic::Idle => WebSocketConfig::default()
            .read_buffer_size(IDLE_BUFFER_BYTES)
            .write_buffer_size(IDLE_BUFFER_BYTES),
    };
    let stream = TcpStream::connect(broker).await?;
    stream.set_nodelay(true)?;
    let (socket, _) = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await?;
    let (mut sender, receiver) = socket.split();
    let mut receiver = Receiver(receiver);
    let hello = Hello {
        id: 0,
        client: Some("bench".into()),
        token: None,
        resume: None,
        resume_grace_ms: None,
        heartbeat_ms: match traffic {
            Traffic::Heavy => Some(HEARTBEAT_MS),
            Traffic::Idle => None,
        },
    };
    sender.send(encoded(&ClientFrame::Hello(hello))).await?;
    receiver.until(|frame| matches!(frame, BrokerFrame::Welcome(_))).await?;
    Ok((sender, receiver))
}

/// Says on some connections that their client is there.
pub(super) async fn beat(senders: impl IntoIterator<Item = &mut Sender>) -> Result<(), WorkerError> {
    for sender in senders {
        sender.send(encoded(&ClientFrame::Heartbeat)).await?;
    }
    Ok(())
}

pub(super) fn encoded(frame: &ClientFrame) -> Message {
    Message::Binary(ENCODING.encode_client(frame).into())
}

impl Receiver {
    /// The next frame. An error frame is the end of the measurement.
    pub async fn next(&mut self) -> Result<BrokerFrame, WorkerError> {
        loop {
            let message = self.0.next().await.ok_or("the broker has closed the connection")??;
            if let Some(frame) = decoded(message)? {
                return Ok(frame);
            }
        }
    }

    /// A frame that is there already.
    pub fn ready(&mut self) -> Result<Option<BrokerFrame>, WorkerError> {
        while let Some(message) = self.0.next().now_or_never() {
            let message = message.ok_or("the broker has closed the connection")??;
            if let Some(frame) = decoded(message)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    pub async fn until(&mut self, wanted: impl Fn(&BrokerFrame) -> bool) -> Result<BrokerFrame, WorkerError> {
        loop {
            let frame = self.next().await?;
            if wanted(&frame) {
                return Ok(frame);
            }
        }
    }
}

fn decoded(message: Message) -> Result<Option<BrokerFrame>, WorkerError> {
    let bytes: Bytes = match message {
        Message::Binary(bytes) => bytes,
        Message::Close(frame) => return Err(format!("the broker closes: {frame:?}").into()),
        Message::Text(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => return Ok(None),
    };
    match ENCODING.decode_broker(&bytes)? {
        // Retention has overtaken a slow member: its lane is granted anew, and what it was about to acknowledge is gone.
        BrokerFrame::Error(error) if error.code == ErrorCode::LeaseLost => Ok(None),
        BrokerFrame::Error(error) => Err(format!("{:?}: {}", error.code, error.detail).into()),
        BrokerFrame::Published(published) => {
            match published.units.iter().find_map(|unit| unit.error.as_ref()) {
                Some(fault) => Err(format!("{:?}: {}", fault.code, fault.detail).into()),
                None => Ok(Some(BrokerFrame::Published(published))),
            }
        }
        frame => Ok(Some(frame)),
    }
}
