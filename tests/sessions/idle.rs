//! What an idle session costs the broker.

use laneway_client::wire::{BrokerFrame, ClientFrame, Subprotocol};

use crate::harness::socket::{Socket, hello};
use crate::harness::{Server, TestDatabase};

/// Memory of a server that is in RAM.
pub fn resident_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Opens sessions, many at once.
async fn open(address: &str, count: usize) -> Vec<Socket> {
    let mut sockets = Vec::new();
    while sockets.len() < count {
        let some = (count - sockets.len()).min(50);
        let more = (0..some).map(|_| Socket::connect_with(address, Subprotocol::MessagePack, hello()));
        sockets.extend(futures_util::future::join_all(more).await.into_iter().map(|(socket, _)| socket));
    }
    sockets
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_an_idle_session_costs_at_most_twenty_kilobytes() {
    const WARM_UP: usize = 200;
    const SESSIONS: usize = 1_000;
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let warm = open(&server.address, WARM_UP).await;
    let before = resident_kib(&server);
    let mut sockets = open(&server.address, SESSIONS).await;
    let after = resident_kib(&server);
    let each = (after.saturating_sub(before)) as f64 / SESSIONS as f64;
    eprintln!("{before} KiB with {WARM_UP} sessions, {after} KiB with {SESSIONS} more: {each:.1} KiB each");
    assert!(each <= 20_000.0 / 1_024.0, "{each:.1} KiB each");
    // They are all still there.
    for socket in sockets.iter_mut().step_by(100) {
        socket
            .send(ClientFrame::Unsubscribe(laneway_client::wire::Unsubscribe { id: 1, subscription: 1 }))
            .await;
        assert!(matches!(socket.frame().await, BrokerFrame::Error(_)));
    }
    drop((warm, sockets));
}
