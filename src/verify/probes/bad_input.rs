//! Frames and requests that no client should send.

use std::time::Duration;

use laneway_client::topic::CreateTopic;
use laneway_client::wire::{BrokerFrame, Subprotocol};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Seen;
use super::actor::{Actor, numbered};
use crate::verify::link::{Incoming, Link};
use crate::verify::stage::Stage;

const TOPIC: &str = "verify-input";
/// How long a broker may take to say what it thinks of a frame.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Each is answered with an error or a close, and everybody else goes on.
pub(super) async fn bad_input(stage: &Stage) -> Seen {
    let admin = stage.admin(0).map_err(|error| error.to_string())?;
    admin.create_topic(&CreateTopic::new(TOPIC, 1)).await.map_err(|error| error.to_string())?;
    let broker = &stage.brokers[0];
    let pid_before = broker.process.lock().await.pid();
    let mut healthy = Actor::enter(broker.address).await?;
    let mut violations = Vec::new();
    for (what, bytes) in text_frames() {
        if let Err(violation) = provoke(stage, Subprotocol::Json, what, bytes).await {
            violations.push(violation);
        }
    }
    for (what, bytes) in binary_frames() {
        if let Err(violation) = provoke(stage, Subprotocol::MessagePack, what, bytes).await {
            violations.push(violation);
        }
    }
    for host in ["evil.example", "127.0.0.1.evil.example"] {
        let status = status_with_host(stage, host).await?;
        if !(400..500).contains(&status) {
            violations.push(format!("a request for host {host} was answered with {status}"));
        }
    }
    healthy.publish(TOPIC, numbered(0, 0..1)).await?;
    if broker.process.lock().await.pid() != pid_before {
        violations.push("the broker is another process than before".to_owned());
    }
    Ok(violations)
}

fn text_frames() -> Vec<(&'static str, Vec<u8>)> {
    let deep = format!("{{\"type\":\"hello\",\"id\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    vec![
        ("no JSON", b"hello?".to_vec()),
        ("a deep frame", deep.into_bytes()),
        ("a frame that ends early", b"{\"type\":\"hello\",\"id\":1".to_vec()),
        ("a wrong type", b"{\"type\":\"hello\",\"id\":\"one\"}".to_vec()),
        ("an unknown frame", b"{\"type\":\"make_coffee\",\"id\":1}".to_vec()),
        (
            "an ack before hello",
            b"{\"type\":\"ack\",\"subscription\":1,\"partition\":0,\"epoch\":1,\"round\":1,\"next\":9}"
                .to_vec(),
        ),
        ("a frame that is too large", vec![b' '; 17 << 20]),
    ]
}

fn binary_frames() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("an empty frame", Vec::new()),
        ("an array that claims four billion members", vec![0xdd, 0xff, 0xff, 0xff, 0xff]),
        ("a map that ends early", vec![0x82, 0xa4, b't', b'y']),
        ("a hundred thousand nested arrays", vec![0x91; 100_000]),
    ]
}

/// Sends it as the first frame; the broker must say something, or end the connection.
async fn provoke(stage: &Stage, subprotocol: Subprotocol, what: &str, bytes: Vec<u8>) -> Result<(), String> {
    let address = stage.brokers[0].address;
    let link = Link::upgrade(address, subprotocol).await;
    let mut link = link.ok_or_else(|| format!("{what}: no connection"))?;
    let answered = async {
        if link.send_raw(bytes).await.is_none() {
            return true; // it was closed while we were talking
        }
        loop {
            match link.next().await {
                Incoming::Frame(frame) if matches!(*frame, BrokerFrame::Error(_)) => return true,
                Incoming::Frame(_) => {}
                Incoming::Ended(_) => return true,
            }
        }
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, answered).await {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{what}: neither an error nor a close within {ANSWER_TIMEOUT:?}")),
    }
}

/// The status of a request that names a foreign host.
async fn status_with_host(stage: &Stage, host: &str) -> Result<u16, String> {
    let failed = |error: std::io::Error| format!("a request for host {host}: {error}");
    let mut stream = TcpStream::connect(stage.brokers[0].address).await.map_err(failed)?;
    let request = format!("GET /v1/topics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    let reading = tokio::time::timeout(ANSWER_TIMEOUT, stream.read_to_end(&mut answer)).await;
    reading.map_err(|_| format!("a request for host {host}: no answer"))?.map_err(failed)?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| format!("a request for host {host}: {text:?}"))
}
