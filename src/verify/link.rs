//! A connection that speaks the protocol and hides nothing: frames in, frames out.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use laneway_client::wire::{BrokerFrame, ClientFrame, Hello, Resume, Subprotocol, Welcome};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::settings::{GRACE, HEARTBEAT};

/// How long an upgrade and a welcome may take before another broker is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What comes next from a broker.
#[derive(Debug)]
pub(super) enum Incoming {
    Frame(Box<BrokerFrame>),
    /// With the code of the close frame, if there was one.
    Ended(Option<u16>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    subprotocol: Subprotocol,
}

impl Link {
    /// Upgrades and says hello. `None`: it did not work, whatever the reason.
    pub async fn open(
        address: SocketAddr,
        subprotocol: Subprotocol,
        resume: Option<Resume>,
    ) -> Option<(Self, Welcome)> {
        tokio::time::timeout(CONNECT_TIMEOUT, Self::dial(address, subprotocol, resume)).await.ok()?
    }

    async fn dial(
        address: SocketAddr,
        subprotocol: Subprotocol,
        resume: Option<Resume>,
    ) -> Option<(Self, Welcome)> {
        let mut link = Self::upgrade(address, subprotocol).await?;
        let hello = Hello {
            id: 1,
            client: Some("verify".into()),
            token: None,
            resume,
            resume_grace_ms: Some(GRACE.as_millis() as u32),
            heartbeat_ms: Some(HEARTBEAT.as_millis() as u32),
        };
        link.send(&ClientFrame::Hello(hello)).await?;
        loop {
            match link.next().await {
                Incoming::Frame(frame) => {
                    if let BrokerFrame::Welcome(welcome) = *frame {
                        return Some((link, *welcome));
                    }
                }
                Incoming::Ended(_) => return None,
            }
        }
    }

    /// The upgrade alone.
    pub async fn upgrade(address: SocketAddr, subprotocol: Subprotocol) -> Option<Self> {
        let mut request = format!("ws://{address}/v1/ws").into_client_request().ok()?;
        let name = HeaderValue::from_static(subprotocol.name());
        request.headers_mut().insert("sec-websocket-protocol", name);
        let (stream, _) = tokio_tungstenite::connect_async(request).await.ok()?;
        Some(Self { stream, subprotocol })
    }

    /// `None`: the connection is lost.
    pub async fn send(&mut self, frame: &ClientFrame) -> Option<()> {
        let bytes = self.subprotocol.encode_client(frame);
        self.send_raw(bytes).await
    }

    /// Sends bytes as a frame, whatever they are.
    pub async fn send_raw(&mut self, bytes: Vec<u8>) -> Option<()> {
        let message = match self.subprotocol {
            Subprotocol::MessagePack => Message::Binary(bytes.into()),
            Subprotocol::Json => Message::Text(String::from_utf8(bytes).ok()?.into()),
        };
        self.stream.send(message).await.ok()
    }

    /// What comes next. Safe to drop while it waits.
    pub async fn next(&mut self) -> Incoming {
        loop {
            let bytes = match self.stream.next().await {
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(Message::Close(frame))) => {
                    return Incoming::Ended(frame.map(|frame| frame.code.into()));
                }
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => return Incoming::Ended(None),
            };
            return match self.subprotocol.decode_broker(&bytes) {
                Ok(frame) => Incoming::Frame(Box::new(frame)),
                Err(_) => Incoming::Ended(None),
            };
        }
    }

    /// Closes in order.
    pub async fn close(mut self) {
        let closing = async {
            if self.stream.close(None).await.is_ok() {
                while let Some(Ok(_)) = self.stream.next().await {}
            }
        };
        tokio::time::timeout(CONNECT_TIMEOUT, closing).await.ok(); // a broker that is gone does not answer
    }
}
