//! Truncated and mutated frames, sent to a live broker over sockets: it answers or closes, it lives, and nobody else
//! notices. Many of them still decode, so that they reach what lies behind the decoder.
//!
//! The decoder alone sees every truncation and 10,000 mutations of each golden frame in the tests of the client library.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use laneway_client::wire::{ClientFrame, Subprotocol};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::harness::socket::{BOTH, Socket, make_topic};
use crate::harness::{Server, TestDatabase};
use crate::mutate::{Form, Random, mutate};
use crate::witness::Witness;

const SEED: u64 = 0x1a9e_5e55;
/// Mutations of each frame that goes to a session that is open.
const MUTATIONS: usize = 10_000;
/// Mutations of each `hello`: every one takes a connection of its own.
const HELLOS: usize = 150;
/// Where the golden frames are.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/protocol");

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// The golden frames that a client sends, by name.
fn golden(subprotocol: Subprotocol) -> Vec<(String, Bytes)> {
    let ending = match subprotocol {
        Subprotocol::Json => ".json",
        Subprotocol::MessagePack => ".msgpack.hex",
    };
    let mut frames = Vec::new();
    for entry in std::fs::read_dir(Path::new(FOLDER)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(name) = name.strip_suffix(ending) else { continue };
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.trim_end();
        let bytes: Bytes = match subprotocol {
            Subprotocol::Json => Bytes::copy_from_slice(text.as_bytes()),
            Subprotocol::MessagePack => {
                let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
                pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
            }
        };
        if subprotocol.decode_client(&bytes).is_ok() {
            frames.push((name.to_owned(), bytes));
        }
    }
    frames.sort();
    assert!(frames.len() > 20, "{} golden frames of clients", frames.len());
    frames
}

const fn form(subprotocol: Subprotocol) -> Form {
    match subprotocol {
        Subprotocol::Json => Form::Json,
        Subprotocol::MessagePack => Form::MessagePack,
    }
}

/// A session that is fed with anything, and whose answers are read and dropped.
struct Fed {
    address: String,
    subprotocol: Subprotocol,
    sink: SplitSink<Stream, Message>,
    reading: tokio::task::JoinHandle<()>,
    connections: usize,
}

async fn read_away(mut stream: SplitStream<Stream>) {
    while let Some(Ok(_)) = stream.next().await {}
}

impl Fed {
    async fn new(address: &str, subprotocol: Subprotocol) -> Self {
        let (sink, stream) = Socket::connect(address, subprotocol).await.stream.split();
        let reading = tokio::spawn(read_away(stream));
        Self { address: address.to_owned(), subprotocol, sink, reading, connections: 1 }
    }

    /// Connects again if the broker has had enough.
    async fn send(&mut self, bytes: Vec<u8>) {
        let message = match self.subprotocol {
            Subprotocol::Json => match String::from_utf8(bytes) {
                Ok(text) => Message::Text(text.into()),
                Err(_) => return, // tungstenite would not send it, and one is sent in the tests of the handshake
            },
            Subprotocol::MessagePack => Message::Binary(bytes.into()),
        };
        if self.reading.is_finished() || self.sink.send(message.clone()).await.is_err() {
            let connections = self.connections + 1;
            *self = Self { connections, ..Self::new(&self.address, self.subprotocol).await };
            self.sink.send(message).await.unwrap();
        }
    }

    /// Waits until everything that was sent has been dealt with.
    async fn finish(mut self) -> usize {
        let _closed_already = self.sink.send(Message::Close(None)).await;
        tokio::time::timeout(Duration::from_secs(60), self.reading).await.expect("it is closed").unwrap();
        self.connections
    }
}

/// Sends every truncation and some mutations of each frame; says how many were sent, and how many decode.
/// A healthy session lives on beside it.
async fn feed(address: &str, subprotocol: Subprotocol, witness: &mut Witness) -> (usize, usize, usize) {
    let mut random = Random::new(SEED);
    let mut fed = Fed::new(address, subprotocol).await;
    let (mut mutants, mut decoded) = (0, 0);
    for (name, frame) in golden(subprotocol) {
        if name.starts_with("hello") {
            continue; // a second one ends the connection; see below
        }
        for length in 0..frame.len() {
            fed.send(frame[..length].to_vec()).await;
            if length % 64 == 63 {
                fed.send(subprotocol.encode_client(&ClientFrame::Heartbeat)).await; // not a hundred in a row
            }
        }
        for _ in 0..MUTATIONS {
            let mutant = Bytes::from(mutate(form(subprotocol), &frame, &mut random));
            mutants += 1;
            decoded += usize::from(subprotocol.decode_client(&mutant).is_ok());
            fed.send(mutant.to_vec()).await;
        }
        witness.lives().await;
    }
    (mutants, decoded, fed.finish().await)
}

/// The same for `hello`, one connection each.
async fn greet(address: &str, subprotocol: Subprotocol) {
    let mut random = Random::new(SEED);
    for (_, frame) in golden(subprotocol).into_iter().filter(|(name, _)| name.starts_with("hello")) {
        let cuts = (0..frame.len()).step_by(4).map(|length| frame[..length].to_vec());
        let mut mutants: Vec<Vec<u8>> = cuts.collect();
        mutants.extend((0..HELLOS).map(|_| mutate(form(subprotocol), &frame, &mut random)));
        for mutant in mutants {
            let mut socket = Socket::upgraded(address, subprotocol).await;
            if subprotocol == Subprotocol::Json && std::str::from_utf8(&mutant).is_err() {
                continue;
            }
            let is_hello = matches!(
                subprotocol.decode_client(&Bytes::from(mutant.clone())),
                Ok(ClientFrame::Hello(hello)) if hello.token.is_none()
            );
            socket.send_raw(mutant).await;
            if is_hello {
                socket.frame().await; // welcome, or a reset
            } else {
                assert!(socket.closed().await.is_some(), "refused, and told why");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_mutated_frames_hurt_nobody_and_a_third_of_them_reach_the_session() {
    eprintln!("seed {SEED:#x}");
    let database = TestDatabase::new().await;
    let mut server = Server::on_database(&database.url).await;
    make_topic(&server.address, "orders", 8).await;
    let mut witness = Witness::new(&server.address, Subprotocol::Json).await;
    for subprotocol in BOTH {
        let since = Instant::now();
        let (mutants, decoded, connections) = feed(&server.address, subprotocol, &mut witness).await;
        eprintln!(
            "{}: {decoded} of {mutants} decode, over {connections} connections, in {:?}",
            subprotocol.name(),
            since.elapsed()
        );
        assert!(decoded * 3 >= mutants, "{decoded} of {mutants} decode");
        let since = Instant::now();
        greet(&server.address, subprotocol).await;
        eprintln!("greetings took {:?}", since.elapsed());
        witness.lives().await;
    }
    let panics: Vec<String> = server.log().into_iter().filter(|line| line.contains("panicked")).collect();
    assert_eq!(panics, Vec::<String>::new());
    let broken: Vec<String> = server.log().into_iter().filter(|line| line.contains("\"ERROR\"")).collect();
    assert_eq!(broken, Vec::<String>::new(), "nothing that a client sends is an error of the broker");
    assert_eq!(server.stop().await, 0);
}
