//! A broker that says what a test wants it to say, frame by frame: for what a real one says only by accident.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use laneway_client::wire::{
    Batch, BrokerFrame, ClientFrame, ErrorFrame, GroupSettings, Hello, LaneGranted, Limits, OnFailure,
    Placed, Record, ResumeOutcome, ResumeReport, ResumedLane, Subprotocol, Subscribed, Token, Transact,
    Transacted, Welcome,
};
use laneway_client::{Client, ErrorCode, Subscription};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::bus::{PATIENCE, quick};

const SUBPROTOCOL: Subprotocol = Subprotocol::MessagePack;
pub const EPOCH: i64 = 4;

/// Where clients connect to.
pub struct Fake {
    pub url: String,
    listener: TcpListener,
}

/// One connection of a client.
pub struct Peer {
    stream: WebSocketStream<TcpStream>,
    pub hello: Hello,
}

#[allow(clippy::result_large_err)] // the library wants it so
fn pick(_request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    response.headers_mut().insert("sec-websocket-protocol", SUBPROTOCOL.name().parse().unwrap());
    Ok(response)
}

impl Fake {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { url: format!("ws://{}/v1/ws", listener.local_addr().unwrap()), listener }
    }

    /// The next connection, up to its hello.
    pub async fn accept(&self) -> Peer {
        let (stream, _) =
            tokio::time::timeout(PATIENCE, self.listener.accept()).await.expect("a client").unwrap();
        let mut stream = tokio_tungstenite::accept_hdr_async(stream, pick).await.unwrap();
        let first = stream.next().await.unwrap().unwrap().into_data();
        match SUBPROTOCOL.decode_client(&first).unwrap() {
            ClientFrame::Hello(hello) => Peer { stream, hello },
            other => panic!("{other:?}"),
        }
    }

    /// A client with a new session, and the other end of its connection.
    pub async fn connected(&self, heartbeat: Duration) -> (Client, Peer) {
        let url = self.url.clone();
        let connecting = tokio::spawn(async move { Client::connect(&url, quick()).await });
        let mut peer = self.accept().await;
        peer.welcome(heartbeat, None).await;
        (connecting.await.unwrap().unwrap(), peer)
    }

    /// A client with a subscription that holds a lane, and the other end of its connection.
    pub async fn subscribed(&self) -> (Client, Subscription, Peer) {
        let (client, mut peer) = self.connected(PATIENCE).await;
        let subscribing = tokio::spawn(client.subscribe("orders", "billing").into_future());
        peer.grant().await;
        (client, subscribing.await.unwrap().unwrap(), peer)
    }

    /// Whether somebody connects within a while.
    pub async fn is_called_within(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.listener.accept()).await.is_ok()
    }
}

impl Peer {
    pub async fn welcome(&mut self, heartbeat: Duration, resume: Option<ResumeReport>) {
        let welcome = Welcome {
            id: self.hello.id,
            session: uuid::Uuid::from_u128(7),
            resume_token: Token::new("secret"),
            broker: uuid::Uuid::from_u128(8),
            heartbeat_ms: heartbeat.as_millis() as u32,
            resume_grace_ms: 30_000,
            limits: Limits {
                frame_bytes_max: 1 << 20,
                publish_messages_max: 100,
                publishes_in_flight_max: 8,
                subscriptions_max: 8,
                credit_messages_max: 1_000,
                credit_bytes_max: 1 << 20,
            },
            resume,
        };
        self.send(BrokerFrame::Welcome(Box::new(welcome))).await;
    }

    /// Welcomes a client back: its session is resumed, its lane goes on in another round.
    pub async fn resume(&mut self, round: u32) {
        assert!(self.hello.resume.is_some());
        let lane = ResumedLane {
            selection: None,
            subscription: 1,
            group: "billing".into(),
            topic: "orders".into(),
            partition: 0,
            outcome: ResumeOutcome::Resumed,
            reason: None,
            epoch: EPOCH,
            round,
            committed_offset: 0,
            acked: vec![],
        };
        let report = ResumeReport { outcome: ResumeOutcome::Resumed, reason: None, lanes: vec![lane] };
        self.welcome(PATIENCE, Some(report)).await;
    }

    pub async fn send(&mut self, frame: BrokerFrame) {
        self.stream.send(Message::Binary(SUBPROTOCOL.encode_broker(&frame).into())).await.unwrap();
    }

    /// The next frame, heartbeats included; `None` when the client has gone.
    pub async fn next(&mut self) -> Option<ClientFrame> {
        loop {
            match tokio::time::timeout(PATIENCE, self.stream.next()).await.expect("a frame in time") {
                Some(Ok(Message::Binary(bytes))) => return Some(SUBPROTOCOL.decode_client(&bytes).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(_)) => {}
            }
        }
    }

    /// The next frame that a test picks; others are passed over.
    pub async fn wait_for<T>(&mut self, mut pick: impl FnMut(ClientFrame) -> Option<T>) -> T {
        loop {
            let frame = self.next().await.expect("the client stays");
            if let Some(picked) = pick(frame) {
                return picked;
            }
        }
    }

    /// Answers a subscribe with one lane, partition 0.
    pub async fn grant(&mut self) {
        self.grant_as(1, EPOCH).await;
    }

    /// As [`Peer::grant`], under another number and epoch.
    pub async fn grant_as(&mut self, subscription: u32, epoch: i64) {
        let (id, group, topic) = self
            .wait_for(|frame| match frame {
                ClientFrame::Subscribe(subscribe) => Some((subscribe.id, subscribe.group, subscribe.topic)),
                _ => None,
            })
            .await;
        let settings = GroupSettings {
            ack_deadline_ms: 60_000,
            max_attempts: 5,
            backoff_base_ms: 500,
            backoff_factor: 2.0,
            backoff_cap_ms: 60_000,
            on_failure: OnFailure::DeadLetter,
            capacity: laneway_client::wire::GroupCapacity::Counted,
            delay_ms: 0,
            window_ms: 0,
            window_max_ms: 0,
            max_age_ms: 0,
            on_expiry: laneway_client::wire::OnExpiry::Evict,
            ordering: laneway_client::wire::GroupOrdering::Partition,
        };
        self.send(BrokerFrame::Subscribed(Box::new(Subscribed {
            id,
            subscription,
            group,
            topic,
            partitions: 1,
            settings,
        })))
        .await;
        self.send(BrokerFrame::LaneGranted(LaneGranted {
            subscription,
            partition: 0,
            epoch,
            round: 1,
            committed_offset: 0,
            acked: vec![],
            reset: None,
        }))
        .await;
    }

    /// Delivers some messages of the lane.
    pub async fn deliver(&mut self, round: u32, offsets: std::ops::Range<i64>) {
        let record = |offset: i64| Record {
            offset,
            published_at_us: 0,
            trace_id: uuid::Uuid::from_u128(9),
            cause: None,
            key: None,
            transaction_id: None,
            headers: None,
            content_type: None,
            payload: offset.to_string().into(),
        };
        let messages = offsets.map(record).collect();
        let batch = Batch { subscription: 1, partition: 0, epoch: EPOCH, round, attempts: vec![], messages };
        self.send(BrokerFrame::Batch(batch)).await;
    }

    /// The next step.
    pub async fn transact(&mut self) -> Transact {
        self.wait_for(|frame| match frame {
            ClientFrame::Transact(transact) => Some(transact),
            _ => None,
        })
        .await
    }

    /// Says that a step is done: all its messages in partition 0, one behind the other.
    pub async fn transacted(&mut self, transact: &Transact, repeated: bool) {
        let mut offsets = 100..;
        let mut place = |_: &_| Placed { partition: 0, offset: offsets.next().unwrap() };
        let placed =
            transact.publishes.iter().map(|publish| publish.messages.iter().map(&mut place).collect());
        let (id, step_id, placed) = (transact.id, transact.step_id, placed.collect());
        self.send(BrokerFrame::Transacted(Transacted { id, step_id, repeated, placed })).await;
    }

    /// Refuses what has an id.
    pub async fn refuse(&mut self, id: u64, code: ErrorCode) {
        let mut error = ErrorFrame::new(code, "no");
        error.id = Some(id);
        self.send(BrokerFrame::Error(Box::new(error))).await;
    }

    pub async fn close(mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: code.into(), reason: reason.to_owned().into() };
        self.stream.close(Some(frame)).await.unwrap();
        while let Some(Ok(_)) = self.stream.next().await {} // until the client has answered, or is gone
    }
}
