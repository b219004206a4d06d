//! Bytes that no client library would send, straight into the socket.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::socket::{PATIENCE, Socket, make_topic, text};
use crate::harness::{Server, TestDatabase};

/// An upgraded connection without a library.
async fn upgraded(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /v1/ws HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: laneway.v1.json\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    stream
}

/// A frame of the WebSocket protocol that is not masked.
fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, payload.len() as u8][..], payload].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_break_the_websocket_protocol_end_their_connection_and_no_other() {
    const TEXT: u8 = 0x81;
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    make_topic(&server.address, "orders", 1).await;
    let mut healthy = Socket::connect(&server.address, laneway_client::wire::Subprotocol::Json).await;
    let hello = br#"{"type":"hello","id":1}"#;
    let wrong = [
        ("an unmasked text", unmasked(TEXT, hello)),
        ("an unmasked ping", unmasked(0x89, b"")),
        ("an opcode that does not exist", vec![0x83, 0x80, 0, 0, 0, 0]),
        ("reserved bits", vec![0xf1, 0x80, 0, 0, 0, 0]),
        ("a continuation of nothing", vec![0x80, 0x80, 0, 0, 0, 0]),
        ("a length of eight exabytes", [&[TEXT, 0xff][..], &[0xff; 8], &[0; 4]].concat()),
        ("a ping in pieces", vec![0x09, 0x80, 0, 0, 0, 0]),
    ];
    for (number, (what, bytes)) in wrong.iter().enumerate() {
        let mut stream = upgraded(&server.address).await;
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        let _reset_is_an_end_too = ended.unwrap_or_else(|_| panic!("{what} does not end the connection"));
        assert!(!String::from_utf8_lossy(&rest).contains("welcome"), "{what} opens no session");
        let published = healthy.publish("orders", vec![text(*what)]).await;
        assert_eq!(published.units[0].first_offset, Some(number as i64), "after {what} others go on");
    }
}
