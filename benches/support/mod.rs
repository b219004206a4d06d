//! What the programs here share: a private PostgreSQL, a broker process of this build, and a session over a real socket.

#![allow(dead_code)] // each program uses its part

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use laneway_client::Admin;
use laneway_client::wire::{
    BatchOptions, BrokerFrame, ClientFrame, CreditGrant, Hello, NewMessage, Publish, Start, Subprotocol,
    Subscribe,
};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

pub const PAYLOAD_BYTES: usize = 200;
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The one in the middle.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A broker process of this build.
pub struct Broker {
    pub address: SocketAddr,
    child: Child,
}

impl Broker {
    /// Starts one and waits until it is ready.
    pub async fn start(url: &str) -> Result<(Self, Admin), Failure> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let child = Command::new(env!("CARGO_BIN_EXE_laneway"))
            .args(["serve", "--listen", &address.to_string(), "--database-url", url])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let broker = Self { address, child };
        let admin = Admin::new(&broker.url())?;
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(error) = admin.ready().await {
            if Instant::now() > deadline {
                return Err(error.into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok((broker, admin))
    }

    /// As clients name it.
    pub fn url(&self) -> String {
        format!("ws://{}/v1/ws", self.address)
    }

    pub fn stop(mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.child.kill().ok(); // it may have been stopped in order
    }
}

/// A message that was delivered, and the lane that it came by.
#[derive(Debug, Clone, Copy)]
pub struct Delivered {
    pub subscription: u32,
    pub partition: u32,
    pub epoch: i64,
    pub round: u32,
    pub offset: i64,
}

/// A session of the protocol, in MessagePack.
pub struct Session {
    pub stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub delivered: VecDeque<Delivered>,
    next_id: u64,
}

impl Session {
    pub async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let mut request = format!("ws://{address}/v1/ws").into_client_request()?;
        request.headers_mut().insert("sec-websocket-protocol", Subprotocol::MessagePack.name().parse()?);
        let (stream, _) = tokio_tungstenite::connect_async(request).await?;
        let mut session = Self { stream, delivered: VecDeque::new(), next_id: 1 };
        let hello = Hello {
            id: 1,
            client: Some("bench".into()),
            token: None,
            resume: None,
            resume_grace_ms: None,
            heartbeat_ms: None,
        };
        session.send(&ClientFrame::Hello(hello)).await?;
        session.until(|frame| matches!(frame, BrokerFrame::Welcome(_))).await?;
        Ok(session)
    }

    pub async fn send(&mut self, frame: &ClientFrame) -> Result<(), Failure> {
        let bytes = Subprotocol::MessagePack.encode_client(frame);
        Ok(self.stream.send(Message::Binary(bytes.into())).await?)
    }

    /// Sends a frame with the next ones, at the latest when there is nothing to read.
    pub async fn feed(&mut self, frame: &ClientFrame) -> Result<(), Failure> {
        let bytes = Subprotocol::MessagePack.encode_client(frame);
        Ok(self.stream.feed(Message::Binary(bytes.into())).await?)
    }

    /// The next frame that is no heartbeat; `None`: a batch, which is taken in.
    pub async fn next(&mut self) -> Result<Option<BrokerFrame>, Failure> {
        loop {
            let message = match self.stream.next().now_or_never() {
                Some(message) => message,
                None => {
                    self.stream.flush().await?;
                    self.stream.next().await
                }
            };
            let Some(message) = message else { return Err("the broker has gone".into()) };
            let Message::Binary(bytes) = message? else { continue };
            match Subprotocol::MessagePack.decode_broker(&bytes)? {
                BrokerFrame::Heartbeat => {}
                BrokerFrame::Error(error) => return Err(error.detail.into()),
                BrokerFrame::Batch(batch) => {
                    self.delivered.extend(batch.messages.iter().map(|message| Delivered {
                        subscription: batch.subscription,
                        partition: batch.partition,
                        epoch: batch.epoch,
                        round: batch.round,
                        offset: message.offset,
                    }));
                    return Ok(None);
                }
                frame => return Ok(Some(frame)),
            }
        }
    }

    pub async fn until(&mut self, wanted: impl Fn(&BrokerFrame) -> bool) -> Result<BrokerFrame, Failure> {
        loop {
            if let Some(frame) = self.next().await?.filter(|frame| wanted(frame)) {
                return Ok(frame);
            }
        }
    }

    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub fn message(key: usize) -> NewMessage {
        let payload = Bytes::from_static(&[7; PAYLOAD_BYTES]);
        NewMessage { payload, key: Some(format!("customer-{key}").into()), ..NewMessage::default() }
    }

    pub async fn fill(&mut self, topic: &str, orders: usize) -> Result<(), Failure> {
        for frame in 0..orders / 1_000 {
            let messages = (0..1_000).map(|number| Self::message(frame * 1_000 + number)).collect();
            let id = self.id();
            self.send(&ClientFrame::Publish(Publish {
                id,
                topic: topic.into(),
                producer_id: None,
                wait_ms: None,
                messages,
            }))
            .await?;
            self.until(|frame| matches!(frame, BrokerFrame::Published(published) if published.id == id))
                .await?;
        }
        Ok(())
    }

    pub async fn subscribe(&mut self, topic: &str) -> Result<(), Failure> {
        let id = self.id();
        let subscribe = Subscribe {
            id,
            group: "work".into(),
            topic: topic.into(),
            start: Some(Start::Earliest),
            credit: CreditGrant { messages: 1_000, bytes: 16 << 20 },
            batch: Some(BatchOptions { max_messages: Some(100), ..BatchOptions::default() }),
            settings: None,
        };
        self.send(&ClientFrame::Subscribe(subscribe)).await?;
        self.until(|frame| matches!(frame, BrokerFrame::Subscribed(done) if done.id == id)).await?;
        Ok(())
    }
}
