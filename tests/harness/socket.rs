//! A client of the protocol for tests: frames in, frames out, in either subprotocol, with nothing done behind one's back.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use laneway_client::wire::{
    Ack, Batch, BatchOptions, BrokerFrame, ClientFrame, Credit, CreditGrant, ErrorFrame, Hello, LaneGranted,
    Nack, NewMessage, OffsetRange, Publish, Published, Start, Subprotocol, Subscribe, Subscribed, Transact,
    Transacted, WantedSettings, Welcome,
};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// Long enough for a busy machine; a test that waits this long for a frame has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Both subprotocols, for tests that try each.
pub const BOTH: [Subprotocol; 2] = [Subprotocol::Json, Subprotocol::MessagePack];

/// What a test reads next from a socket.
#[derive(Debug)]
pub enum Seen {
    Frame(BrokerFrame),
    /// The code of the close frame, if there was one.
    Closed(Option<u16>),
}

/// A connection that speaks the protocol.
pub struct Socket {
    pub subprotocol: Subprotocol,
    pub stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Read while something else was waited for.
    put_aside: VecDeque<BrokerFrame>,
    next_id: u64,
}

/// A hello that asks for nothing special.
pub fn hello() -> Hello {
    Hello {
        id: 1,
        client: Some("test".into()),
        token: None,
        resume: None,
        resume_grace_ms: None,
        heartbeat_ms: None,
    }
}

/// A message of text.
pub fn text(payload: impl Into<String>) -> NewMessage {
    NewMessage { payload: Bytes::from(payload.into()), ..NewMessage::default() }
}

impl Socket {
    /// The upgrade, without hello.
    pub async fn upgraded(address: &str, subprotocol: Subprotocol) -> Self {
        let mut request = format!("ws://{address}/v1/ws").into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", subprotocol.name().parse().unwrap());
        let (stream, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        Self { subprotocol, stream, put_aside: VecDeque::new(), next_id: 100 }
    }

    /// A session that was welcomed.
    pub async fn connect(address: &str, subprotocol: Subprotocol) -> Self {
        Self::connect_with(address, subprotocol, hello()).await.0
    }

    /// As [`Socket::connect`], with a hello of one's own.
    pub async fn connect_with(address: &str, subprotocol: Subprotocol, hello: Hello) -> (Self, Welcome) {
        let mut socket = Self::upgraded(address, subprotocol).await;
        socket.send(ClientFrame::Hello(hello)).await;
        match socket.frame().await {
            BrokerFrame::Welcome(welcome) => (socket, *welcome),
            other => panic!("not welcomed: {other:?}"),
        }
    }

    /// As [`Socket::connect_with`], where the connection may be lost at any byte: `None` if it was.
    pub async fn try_connect_with(
        address: &str,
        subprotocol: Subprotocol,
        hello: Hello,
    ) -> Option<(Self, Welcome)> {
        let mut request = format!("ws://{address}/v1/ws").into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", subprotocol.name().parse().unwrap());
        let connected = tokio::time::timeout(PATIENCE, tokio_tungstenite::connect_async(request)).await;
        let (stream, _) = connected.expect("an answer in time").ok()?;
        let mut socket = Self { subprotocol, stream, put_aside: VecDeque::new(), next_id: 100 };
        socket.try_send(ClientFrame::Hello(hello)).await?;
        loop {
            match socket.seen().await {
                Seen::Frame(BrokerFrame::Welcome(welcome)) => return Some((socket, *welcome)),
                Seen::Frame(BrokerFrame::Heartbeat) => {}
                Seen::Frame(other) => panic!("not welcomed: {other:?}"),
                Seen::Closed(_) => return None,
            }
        }
    }

    /// As [`Socket::send`]; `None` if the connection is lost.
    pub async fn try_send(&mut self, frame: ClientFrame) -> Option<()> {
        let message = self.message(self.subprotocol.encode_client(&frame));
        self.stream.send(message).await.ok()
    }

    /// A fresh request id.
    pub fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub async fn send(&mut self, frame: ClientFrame) {
        let bytes = self.subprotocol.encode_client(&frame);
        self.send_raw(bytes).await;
    }

    /// Sends bytes as a frame of the subprotocol's kind, whatever they are.
    pub async fn send_raw(&mut self, bytes: Vec<u8>) {
        let message = self.message(bytes);
        self.stream.send(message).await.unwrap();
    }

    fn message(&self, bytes: Vec<u8>) -> Message {
        match self.subprotocol {
            Subprotocol::Json => Message::Text(String::from_utf8(bytes).unwrap().into()),
            Subprotocol::MessagePack => Message::Binary(bytes.into()),
        }
    }

    /// What comes next, heartbeats included.
    pub async fn seen(&mut self) -> Seen {
        self.seen_within(PATIENCE).await.expect("a frame in time")
    }

    /// As [`Socket::seen`]; `None` if nothing comes in time.
    pub async fn seen_within(&mut self, patience: Duration) -> Option<Seen> {
        if let Some(frame) = self.put_aside.pop_front() {
            return Some(Seen::Frame(frame));
        }
        loop {
            let message = tokio::time::timeout(patience, self.stream.next()).await.ok()?;
            return Some(match message {
                Some(Ok(Message::Text(text))) => self.decoded(Bytes::from(text.to_string())),
                Some(Ok(Message::Binary(bytes))) => self.decoded(bytes),
                Some(Ok(Message::Close(frame))) => Seen::Closed(frame.map(|frame| frame.code.into())),
                Some(Ok(_)) => continue,
                Some(Err(Error::ConnectionClosed)) | None => Seen::Closed(None),
                Some(Err(error)) => {
                    eprintln!("the socket ended: {error}");
                    Seen::Closed(None)
                }
            });
        }
    }

    fn decoded(&self, bytes: Bytes) -> Seen {
        Seen::Frame(
            self.subprotocol.decode_broker(&bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}")),
        )
    }

    /// The next frame that is no heartbeat.
    pub async fn frame(&mut self) -> BrokerFrame {
        loop {
            match self.seen().await {
                Seen::Frame(BrokerFrame::Heartbeat) => {}
                Seen::Frame(frame) => return frame,
                Seen::Closed(code) => panic!("the broker has closed the connection: {code:?}"),
            }
        }
    }

    /// As [`Socket::frame`]; `None` if nothing comes in time.
    pub async fn frame_within(&mut self, patience: Duration) -> Option<BrokerFrame> {
        loop {
            match self.seen_within(patience).await? {
                Seen::Frame(BrokerFrame::Heartbeat) => {}
                Seen::Frame(frame) => return Some(frame),
                Seen::Closed(code) => panic!("the broker has closed the connection: {code:?}"),
            }
        }
    }

    /// The next frame that a test picks; the others are put aside, in order.
    pub async fn wait_for<T>(&mut self, mut pick: impl FnMut(&BrokerFrame) -> Option<T>) -> T {
        let mut passed = VecDeque::new();
        loop {
            let frame = self.frame().await;
            if let Some(picked) = pick(&frame) {
                passed.append(&mut self.put_aside);
                self.put_aside = passed;
                return picked;
            }
            passed.push_back(frame);
        }
    }

    /// Waits for the close frame and returns its code; frames before it are dropped.
    pub async fn closed(&mut self) -> Option<u16> {
        loop {
            if let Seen::Closed(code) = self.seen().await {
                return code;
            }
        }
    }

    /// Publishes and waits for the answer, which must not be an error.
    pub async fn publish(&mut self, topic: &str, messages: Vec<NewMessage>) -> Published {
        let id = self.id();
        self.send(ClientFrame::Publish(Publish {
            id,
            topic: topic.into(),
            producer_id: None,
            wait_ms: None,
            messages,
        }))
        .await;
        self.wait_for(|frame| match frame {
            BrokerFrame::Published(published) if published.id == id => Some(published.clone()),
            BrokerFrame::Error(error) if error.id == Some(id) => panic!("{error:?}"),
            _ => None,
        })
        .await
    }

    /// Subscribes with plenty of credit and waits for the answer, which must not be an error.
    pub async fn subscribe(&mut self, group: &str, topic: &str) -> Subscribed {
        let subscribe = subscribe(group, topic);
        self.subscribe_with(subscribe).await.unwrap()
    }

    /// Subscribes; the id is filled in.
    pub async fn subscribe_with(&mut self, mut subscribe: Subscribe) -> Result<Subscribed, ErrorFrame> {
        let id = self.id();
        subscribe.id = id;
        self.send(ClientFrame::Subscribe(subscribe)).await;
        self.wait_for(|frame| match frame {
            BrokerFrame::Subscribed(subscribed) if subscribed.id == id => Some(Ok((**subscribed).clone())),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((**error).clone())),
            _ => None,
        })
        .await
    }

    /// The next grant of a lane.
    pub async fn granted(&mut self) -> LaneGranted {
        self.wait_for(|frame| match frame {
            BrokerFrame::LaneGranted(granted) => Some(granted.clone()),
            _ => None,
        })
        .await
    }

    /// The next batch.
    pub async fn batch(&mut self) -> Batch {
        self.wait_for(|frame| match frame {
            BrokerFrame::Batch(batch) => Some(batch.clone()),
            _ => None,
        })
        .await
    }

    /// Batches until so many messages have come; asserts that nothing else but lane news comes between.
    pub async fn batches(&mut self, messages: usize) -> Vec<Batch> {
        let mut batches = Vec::new();
        let mut count = 0;
        while count < messages {
            let batch = self.batch().await;
            count += batch.messages.len();
            batches.push(batch);
        }
        batches
    }

    /// The next error.
    pub async fn error(&mut self) -> ErrorFrame {
        self.wait_for(|frame| match frame {
            BrokerFrame::Error(error) => Some((**error).clone()),
            _ => None,
        })
        .await
    }

    /// Acknowledges everything below an offset, and waits for the commit.
    pub async fn ack_below(&mut self, batch: &Batch, next: i64) -> Result<i64, ErrorFrame> {
        let ack = ack(batch, Some(next), &[]);
        self.ack(ack).await
    }

    /// Acknowledges, and waits for the commit. Returns the committed offset.
    pub async fn ack(&mut self, mut ack: Ack) -> Result<i64, ErrorFrame> {
        let id = self.id();
        ack.id = Some(id);
        self.send(ClientFrame::Ack(ack)).await;
        self.confirmed(id).await
    }

    /// Refuses a message, and waits until that is written down.
    pub async fn nack(&mut self, batch: &Batch, offset: i64, reason: &str) -> Result<i64, ErrorFrame> {
        let id = self.id();
        let mut nack = nack(batch, offset, reason);
        nack.id = Some(id);
        self.send(ClientFrame::Nack(nack)).await;
        self.confirmed(id).await
    }

    /// Waits for the answer to an ack, a nack or a progress.
    pub async fn confirmed(&mut self, id: u64) -> Result<i64, ErrorFrame> {
        self.wait_for(|frame| match frame {
            BrokerFrame::Acked(acked) if acked.id == id => Some(Ok(acked.committed_offset)),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((**error).clone())),
            _ => None,
        })
        .await
    }

    /// Sends a step and waits for its answer.
    pub async fn transact(&mut self, mut transact: Transact) -> Result<Transacted, ErrorFrame> {
        let id = self.id();
        transact.id = id;
        self.send(ClientFrame::Transact(transact)).await;
        self.wait_for(|frame| match frame {
            BrokerFrame::Transacted(done) if done.id == id => Some(Ok(done.clone())),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((**error).clone())),
            _ => None,
        })
        .await
    }

    pub async fn credit(&mut self, subscription: u32, messages: u32, bytes: u64) {
        self.send(ClientFrame::Credit(Credit { subscription, messages, bytes })).await;
    }

    /// Closes in order.
    pub async fn close(mut self) {
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        self.stream.close(Some(frame)).await.unwrap();
        while let Some(Ok(_)) = self.stream.next().await {}
    }

    /// Drops the connection without a word.
    pub fn cut(self) {
        drop(self);
    }
}

/// A subscribe with plenty of credit; its id is filled in by [`Socket::subscribe_with`].
pub fn subscribe(group: &str, topic: &str) -> Subscribe {
    Subscribe {
        id: 0,
        group: group.into(),
        topic: topic.into(),
        start: Some(Start::Earliest),
        credit: CreditGrant { messages: 100_000, bytes: 64 << 20 },
        batch: None,
        settings: None,
    }
}

/// Settings whose retries do not keep a test waiting.
pub fn quick_retries(max_attempts: u32) -> WantedSettings {
    WantedSettings {
        max_attempts: Some(max_attempts),
        backoff_base_ms: Some(10),
        backoff_factor: Some(1.0),
        backoff_cap_ms: Some(10),
        ..WantedSettings::default()
    }
}

/// Batches of at most so many messages.
pub fn batches_of(max_messages: u32) -> BatchOptions {
    BatchOptions { max_messages: Some(max_messages), ..BatchOptions::default() }
}

/// An ack of the lane and round of a batch, without an id.
pub fn ack(batch: &Batch, next: Option<i64>, singles: &[i64]) -> Ack {
    Ack {
        id: None,
        subscription: batch.subscription,
        partition: batch.partition,
        epoch: batch.epoch,
        round: batch.round,
        next,
        ranges: singles.iter().map(|offset| OffsetRange { from: *offset, to: offset + 1 }).collect(),
    }
}

/// A nack of the lane and round of a batch, without an id.
pub fn nack(batch: &Batch, offset: i64, reason: &str) -> Nack {
    Nack {
        id: None,
        subscription: batch.subscription,
        partition: batch.partition,
        epoch: batch.epoch,
        round: batch.round,
        offset,
        reason: Some(reason.into()),
        delay_ms: None,
        until: None,
    }
}

/// The offsets of a batch.
pub fn offsets(batch: &Batch) -> Vec<i64> {
    batch.messages.iter().map(|message| message.offset).collect()
}

/// The payloads of a batch, as text.
pub fn payloads(batch: &Batch) -> Vec<String> {
    let text = |payload: &Bytes| String::from_utf8(payload.to_vec()).unwrap();
    batch.messages.iter().map(|message| text(&message.payload)).collect()
}

/// Makes a topic over HTTP.
pub async fn make_topic(address: &str, name: &str, partitions: u32) {
    let body = serde_json::json!({ "name": name, "partitions": partitions });
    let url = format!("http://{address}/v1/topics");
    let answer = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}
