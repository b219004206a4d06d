//! Ten thousand idle lanes: brokers heartbeat, lanes do not.

use std::time::{Duration, Instant};

use laneway_client::wire::{BrokerFrame, Hello, Subprotocol};

use crate::harness::socket::{Seen, Socket, hello, make_topic};
use crate::harness::{Server, TestDatabase, wait};

const PARTITIONS: u32 = 100;
const GROUPS: u32 = 100;
/// A session has at most 64 subscriptions.
const GROUPS_PER_SESSION: u32 = 50;
/// How long it is looked at.
const WATCHED: Duration = Duration::from_secs(12);
/// Row changes of any kind per second that two brokers with nothing to do may make.
const HANDFUL: f64 = 5.0;

/// Rows that were written in any way, since the database was made.
async fn written(database: &TestDatabase) -> i64 {
    let sql = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables WHERE schemaname = 'laneway'";
    database.number(sql).await
}

/// A session that is a member of some groups, and has all their lanes.
async fn member(address: &str, groups: std::ops::Range<u32>) -> Socket {
    let hello = Hello { heartbeat_ms: Some(120_000), ..hello() };
    let (mut socket, _) = Socket::connect_with(address, Subprotocol::MessagePack, hello).await;
    let lanes = (groups.len() as u32 * PARTITIONS) as usize;
    let mut granted = 0;
    for group in groups {
        socket.subscribe(&format!("group{group}"), "orders").await;
    }
    while granted < lanes {
        match socket.seen().await {
            Seen::Frame(BrokerFrame::LaneGranted(_)) => granted += 1,
            Seen::Frame(_) => {}
            Seen::Closed(code) => panic!("closed: {code:?}"),
        }
    }
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_ten_thousand_idle_lanes_cost_a_handful_of_row_changes_per_second() {
    let database = TestDatabase::new().await;
    let (mut one, mut two) =
        (Server::on_database(&database.url).await, Server::on_database(&database.url).await);
    make_topic(&one.address, "orders", PARTITIONS).await;
    let sockets = tokio::join!(
        member(&one.address, 0..GROUPS_PER_SESSION),
        member(&two.address, GROUPS_PER_SESSION..GROUPS),
    );
    let held = "SELECT count(*) FROM laneway.lane WHERE session_id IS NOT NULL";
    assert_eq!(database.number(held).await, i64::from(PARTITIONS * GROUPS));
    // Backends tell what they have written after a while; then nothing more of the beginning comes.
    wait::until("the beginning to be counted", async || {
        let before = written(&database).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        written(&database).await - before < 20
    })
    .await;
    let (since, before) = (Instant::now(), written(&database).await);
    tokio::time::sleep(WATCHED).await;
    let changes = written(&database).await - before;
    let per_second = changes as f64 / since.elapsed().as_secs_f64();
    eprintln!("{changes} row changes, {per_second:.2} per second");
    assert!(changes > 0, "the heartbeats are counted");
    assert!(per_second <= HANDFUL, "{per_second:.2} row changes per second");
    assert_eq!(database.number(held).await, i64::from(PARTITIONS * GROUPS), "and all of them are still held");
    drop(sockets);
    for server in [&mut one, &mut two] {
        server.kill().await; // to hand over ten thousand lanes takes a while, and is another test's
    }
}
