//! Promises 1, 3, 8 and 9 under the hardest attack: SIGKILL in the middle of flushes, of the broker and of PostgreSQL.
//!
//! The moment is random; the seed is printed, and `LANEWAY_TEST_SEED` repeats it.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::wait;
use crate::home::Home;
use crate::publishers::{PARTITIONS, Publisher, Round, TOPIC, check};
use crate::web::Web;

const CROWD: usize = 24;

fn random() -> StdRng {
    let given = std::env::var("LANEWAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(rand::random);
    println!("LANEWAY_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Short segments, so that kills also meet the making of tables.
async fn make_topic(web: &Web) {
    web.create(json!({"name": TOPIC, "partitions": PARTITIONS, "segment_messages": 400})).await;
}

fn start(crowd: Vec<Publisher>, web: &Web, round: &Round) -> JoinSet<Publisher> {
    crowd.into_iter().map(|publisher| publisher.run(web.clone(), round.clone())).collect()
}

/// A random moment after a random number of answers: somebody is always in the middle of something.
async fn some_moment(random: &mut StdRng, round: &Round) {
    let target = round.acknowledged() + random.random_range(50..400);
    wait::until("publishers to be answered", async || round.acknowledged() >= target).await;
    tokio::time::sleep(Duration::from_micros(random.random_range(0..5_000))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_broker_killed_in_mid_flush_loses_nothing_that_it_acknowledged() {
    let mut random = random();
    let home = Home::new();
    let mut server = home.serve().await;
    make_topic(&Web::new(&server)).await;
    let mut crowd = Publisher::crowd(CROWD);
    let mut cut_short = 0;
    for _ in 0..5 {
        let round = Round::default();
        let publishing = start(crowd, &Web::new(&server), &round);
        some_moment(&mut random, &round).await;
        server.kill().await;
        crowd = publishing.join_all().await;
        cut_short += crowd.iter().filter(|publisher| publisher.was_cut_short()).count();
        server = home.serve().await;
        check(&Web::new(&server), &crowd).await;
    }
    assert!(cut_short > 0, "no kill came in the middle of a publish");
    // What was left open is sent again and is one copy; order is kept.
    let round = Round::default();
    let publishing = start(crowd, &Web::new(&server), &round);
    some_moment(&mut random, &round).await;
    round.end();
    let crowd = publishing.join_all().await;
    check(&Web::new(&server), &crowd).await;
    let acknowledged: usize = crowd.iter().map(Publisher::acknowledged).sum();
    println!("{acknowledged} units were acknowledged, {cut_short} cut short by kills");
    assert_eq!(server.stop().await, 0);
}

/// What is killed of a PostgreSQL.
#[derive(Debug, Clone, Copy)]
enum Victim {
    /// Its backends notice it and leave, some after their commit.
    Postmaster,
    /// At once, as when the machine stops.
    Everything,
}

fn kill_postgres(home: &Home, postmaster: Pid, victim: Victim) {
    let children = home.children(postmaster);
    kill(postmaster, Signal::SIGKILL).unwrap();
    match victim {
        Victim::Postmaster => {}
        Victim::Everything => children.into_iter().for_each(|child| {
            let _gone_already = kill(child, Signal::SIGKILL);
        }),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_postgres_killed_in_mid_flush_loses_nothing_that_was_acknowledged() {
    let mut random = random();
    let home = Home::new();
    let mut server = home.serve().await;
    let web = Web::new(&server);
    make_topic(&web).await;
    let round = Round::default();
    let publishing = start(Publisher::crowd(CROWD), &web, &round);
    for victim in [Victim::Everything, Victim::Postmaster, Victim::Everything, Victim::Everything] {
        some_moment(&mut random, &round).await;
        let postmaster = home.postmaster().expect("a postmaster runs");
        kill_postgres(&home, postmaster, victim);
        wait::until("another postmaster", async || {
            home.postmaster().is_some_and(|another| another != postmaster)
        })
        .await;
        wait::until("readiness", async || web.get("/readyz").await.status == 200).await;
    }
    some_moment(&mut random, &round).await; // it goes on
    round.end();
    let crowd = publishing.join_all().await;
    check(&web, &crowd).await;
    let acknowledged: usize = crowd.iter().map(Publisher::acknowledged).sum();
    let doubts: usize = crowd.iter().map(Publisher::in_doubt).sum();
    println!("{acknowledged} units were acknowledged, {doubts} left open");
    assert_eq!(server.stop().await, 0);
}
