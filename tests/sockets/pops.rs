//! Consumers without a connection: pop, ack, nack and extend, on one broker and on several, beside sessions and alone.

use std::time::{Duration, Instant};

use laneway_client::admin::AdminError;
use laneway_client::group_api::LaneState;
use laneway_client::management::Purge;
use laneway_client::pull_api::{Pop, PopAck, PopExtend, PopNack, PopRequest, PopVerdict};
use laneway_client::wire::{OnFailure, Subprotocol, WantedSettings};
use laneway_client::{Admin, ErrorCode, Problem};
use serde_json::{Value, json};

use crate::Bus;
use crate::harness::Server;
use crate::harness::socket::{offsets, quick_retries};
use crate::harness::wait::until;

fn admin(server: &Server) -> Admin {
    Admin::new(&server.url("")).unwrap()
}

/// Waits for as long as a request may.
fn patient() -> PopRequest {
    PopRequest { wait_ms: Some(20_000), ..PopRequest::default() }
}

fn lasting(ack_deadline_ms: u64) -> PopRequest {
    PopRequest { ack_deadline_ms: Some(ack_deadline_ms), ..patient() }
}

async fn pop(admin: &Admin, wish: &PopRequest) -> Pop {
    admin.pop("orders", "billing", wish).await.unwrap().expect("there are messages")
}

fn popped(pop: &Pop) -> Vec<i64> {
    pop.messages.iter().map(|message| message.offset).collect()
}

fn refused<T: std::fmt::Debug>(result: Result<T, AdminError>) -> Problem {
    match result.unwrap_err() {
        AdminError::Refused(problem) => *problem,
        other => panic!("{other}"),
    }
}

async fn committed(admin: &Admin, partition: usize) -> i64 {
    admin.show_group("orders", "billing").await.unwrap().lanes[partition].committed_offset
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_broker_has_popped_is_acknowledged_at_another_even_if_the_first_is_killed() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut granting = Server::on_database(&bus.database.url).await;
    bus.publish("orders", 0, 0..5).await;
    let (here, there) = (admin(&bus.server), admin(&granting));
    let first = pop(&there, &PopRequest { max_messages: Some(2), ..patient() }).await;
    assert_eq!((popped(&first), first.epoch, first.end_offset), (vec![0, 1], 1, 2));
    assert!(here.pop("orders", "billing", &PopRequest::default()).await.unwrap().is_none(), "it is taken");
    assert_eq!(here.show_group("orders", "billing").await.unwrap().lanes[0].state, LaneState::Popped);
    let done = here.ack("orders", "billing", &PopAck::all(&first)).await.unwrap();
    assert_eq!((done.committed_offset, done.remaining), (2, 0));
    let second = pop(&there, &patient()).await;
    assert_eq!((popped(&second), second.epoch), (vec![2, 3, 4], 2));
    granting.kill().await;
    let extend = PopExtend { epoch: 2, ack_deadline_ms: Some(60_000), ..PopExtend::default() };
    here.extend("orders", "billing", &extend).await.unwrap();
    let single = PopAck { epoch: 2, offsets: vec![3], ..PopAck::default() };
    let part = here.ack("orders", "billing", &single).await.unwrap();
    assert_eq!((part.committed_offset, part.remaining), (2, 2));
    // The answer to an ack may be lost: it is safe to send it again, also when the pop is over.
    for _ in 0..2 {
        let done = here.ack("orders", "billing", &PopAck::all(&second)).await.unwrap();
        assert_eq!((done.committed_offset, done.remaining), (5, 0));
    }
    let stale = refused(here.ack("orders", "billing", &PopAck::all(&first)).await);
    assert_eq!(
        (stale.code, stale.status, stale.field.as_deref()),
        (ErrorCode::LeaseLost, 409, Some("epoch"))
    );
    assert_eq!(committed(&here, 0).await, 5);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_pop_moves_and_charges_only_the_culprit() {
    let bus = Bus::with_topic("orders", 1).await;
    let admin = admin(&bus.server);
    bus.publish("orders", 0, 0..4).await;
    pop(&admin, &lasting(100)).await;
    admin.alter_group("orders", "billing", &quick_retries(2)).await.unwrap();
    // Four were out, and nobody knows which of them has killed its consumer: they come one by one.
    let alone = pop(&admin, &lasting(60_000)).await;
    assert_eq!((popped(&alone), alone.epoch, alone.attempts.len()), (vec![0], 2, 0));
    admin.ack("orders", "billing", &PopAck::all(&alone)).await.unwrap();
    // Message 1 kills its consumer every time.
    let culprit = pop(&admin, &lasting(100)).await;
    assert_eq!(popped(&culprit), [1]);
    let again = pop(&admin, &lasting(100)).await;
    assert_eq!((popped(&again), again.attempts[0].offset, again.attempts[0].attempts), (vec![1], 1, 1));
    let late = refused(admin.ack("orders", "billing", &PopAck::all(&culprit)).await);
    assert_eq!((late.code, committed(&admin, 0).await), (ErrorCode::LeaseLost, 1), "nothing has moved");
    // The second time it is given up, and its neighbours have not been charged.
    let next = pop(&admin, &lasting(60_000)).await;
    assert_eq!((popped(&next), next.attempts.len()), (vec![2], 0));
    let late = PopExtend { epoch: again.epoch, ..PopExtend::default() };
    assert_eq!(refused(admin.extend("orders", "billing", &late).await).code, ErrorCode::LeaseLost);
    let dead = admin.list_dead_letters(&Default::default()).await.unwrap().dead_letters;
    let dead: Vec<(i64, u32)> = dead.iter().map(|dead| (dead.offset, dead.attempts)).collect();
    assert_eq!(dead, [(1, 2)]);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_is_charged_by_the_policy_of_the_group_and_keeps_the_order() {
    let bus = Bus::with_topic("orders", 1).await;
    let admin = admin(&bus.server);
    bus.publish("orders", 0, 0..4).await;
    let first = pop(&admin, &patient()).await;
    admin.alter_group("orders", "billing", &quick_retries(2)).await.unwrap();
    let nack = PopNack {
        epoch: first.epoch,
        offset: 2,
        reason: Some("no stock".into()),
        delay_ms: Some(200),
        ..PopNack::default()
    };
    let refusal = admin.nack("orders", "billing", &nack).await.unwrap();
    assert_eq!((refusal.remaining, refusal.attempts, refusal.verdict), (2, 1, PopVerdict::Retry));
    let started = Instant::now();
    let beyond = refused(admin.ack("orders", "billing", &PopAck::all(&first)).await);
    assert_eq!(beyond.code, ErrorCode::BeyondSent, "what lies after it comes again");
    let before = PopAck { epoch: first.epoch, next: Some(2), ..PopAck::default() };
    assert_eq!(admin.ack("orders", "billing", &before).await.unwrap().remaining, 0);
    let second = pop(&admin, &patient()).await;
    assert!(started.elapsed() >= Duration::from_millis(150), "{:?}", started.elapsed());
    assert_eq!((popped(&second), second.attempts[0].attempts), (vec![2, 3], 1));
    let again = PopNack { epoch: second.epoch, delay_ms: None, ..nack };
    let given_up = admin.nack("orders", "billing", &again).await.unwrap();
    assert_eq!((given_up.committed_offset, given_up.verdict), (3, PopVerdict::DeadLetter));
    let dead = admin.list_dead_letters(&Default::default()).await.unwrap().dead_letters;
    assert_eq!((dead[0].offset, dead[0].attempts, dead[0].reason.as_str()), (2, 2, "no stock"));
    let last = pop(&admin, &patient()).await;
    assert_eq!(popped(&last), [3]);
    // A group that stops at a message stops for pullers, too, until it is told otherwise.
    let block = WantedSettings {
        max_attempts: Some(1),
        on_failure: Some(OnFailure::Block),
        ..WantedSettings::default()
    };
    admin.alter_group("orders", "billing", &block).await.unwrap();
    let stop = PopNack { epoch: last.epoch, offset: 3, delay_ms: Some(0), ..PopNack::default() };
    assert_eq!(admin.nack("orders", "billing", &stop).await.unwrap().verdict, PopVerdict::Block);
    assert!(admin.pop("orders", "billing", &PopRequest::default()).await.unwrap().is_none());
    assert_eq!(admin.show_group("orders", "billing").await.unwrap().lanes[0].state, LaneState::Blocked);
    admin.alter_group("orders", "billing", &quick_retries(9)).await.unwrap();
    assert_eq!(popped(&pop(&admin, &patient()).await), [3]);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pullers_are_one_member_and_share_the_lanes_with_sessions() {
    let bus = Bus::with_topic("orders", 4).await;
    let admin = admin(&bus.server);
    let mut session = bus.connect(Subprotocol::Json).await;
    session.subscribe("billing", "orders").await;
    for _ in 0..4 {
        session.granted().await;
    }
    // Two lanes come over, for as many pullers as there are.
    assert!(admin.pop("orders", "billing", &PopRequest::default()).await.unwrap().is_none());
    let of_pullers = async || {
        let lanes = admin.show_group("orders", "billing").await.unwrap().lanes;
        let free = lanes.iter().filter(|lane| lane.holder.is_none() && lane.wanted.is_some());
        free.map(|lane| lane.partition).collect::<Vec<u32>>()
    };
    until("half of the lanes are the pullers'", async || of_pullers().await.len() == 2).await;
    let pulled = of_pullers().await;
    for partition in 0..4 {
        bus.publish("orders", partition, 0..1).await;
    }
    let batches = session.batches(2).await;
    assert!(batches.iter().all(|batch| !pulled.contains(&batch.partition) && offsets(batch) == [0]));
    let wish = patient();
    let (one, two) = tokio::join!(pop(&admin, &wish), pop(&admin, &wish));
    let mut taken = [one.partition, two.partition];
    taken.sort_unstable();
    assert_eq!(taken[..], pulled[..]);
    // What a puller has stays with it until it is done, and goes back when pullers have not come for a while.
    let old = "UPDATE laneway.consumer_group SET pulled_at = pulled_at - interval '1 hour'";
    admin.ack("orders", "billing", &PopAck::all(&one)).await.unwrap();
    admin.ack("orders", "billing", &PopAck::all(&two)).await.unwrap();
    let raw = bus.database.raw().await;
    raw.execute(old, &[]).await.unwrap();
    let hint = "SELECT pg_notify('laneway', 'group:' || group_id) FROM laneway.consumer_group";
    raw.execute(hint, &[]).await.unwrap();
    for _ in 0..2 {
        assert!(pulled.contains(&session.granted().await.partition));
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_wait_are_woken_by_a_publish_elsewhere_and_get_each_partition_in_order() {
    let bus = Bus::with_topic("orders", 2).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let pullers = [admin(&bus.server), admin(&other), admin(&other)];
    let drain = async |admin: &Admin| {
        let mut seen: Vec<(u32, i64)> = Vec::new();
        let short = PopRequest { wait_ms: Some(2_000), max_messages: Some(7), ..PopRequest::default() };
        while let Some(pop) = admin.pop("orders", "billing", &short).await.unwrap() {
            seen.extend(pop.messages.iter().map(|message| (pop.partition, message.offset)));
            admin.ack("orders", "billing", &PopAck::all(&pop)).await.unwrap();
        }
        seen
    };
    let publish = async {
        for first in [0, 10, 20] {
            bus.publish("orders", 0, first..first + 10).await;
            bus.publish("orders", 1, first..first + 10).await;
        }
    };
    let (a, b, c, ()) = tokio::join!(drain(&pullers[0]), drain(&pullers[1]), drain(&pullers[2]), publish);
    for partition in 0..2 {
        let of = |seen: &Vec<(u32, i64)>| -> Vec<i64> {
            seen.iter().filter(|(number, _)| *number == partition).map(|(_, offset)| *offset).collect()
        };
        let each = [of(&a), of(&b), of(&c)];
        assert!(each.iter().all(|offsets| offsets.is_sorted()), "{each:?}");
        let mut all = each.concat();
        all.sort_unstable();
        assert_eq!(all, (0..30).collect::<Vec<i64>>(), "each once: {each:?}");
    }
    // One that waits ends at once when its broker does.
    let waiting = tokio::spawn(async move { pullers[1].pop("orders", "billing", &patient()).await });
    let waits = async || {
        let text = reqwest::get(other.url("/metrics")).await.unwrap().text().await.unwrap();
        text.contains("laneway_pops_waiting 1")
    };
    until("it waits", waits).await;
    assert_eq!(other.stop().await, 0);
    assert!(waiting.await.unwrap().unwrap().is_none());
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_by_itself_is_popped_once_and_the_oldest_lane_comes_first() {
    let bus = Bus::with_topic("orders", 2).await;
    let admin = admin(&bus.server);
    bus.publish("orders", 1, 0..3).await;
    bus.publish("orders", 0, 0..3).await;
    let wish = PopRequest { auto_ack: true, max_messages: Some(2), ..patient() };
    let mut order = Vec::new();
    for _ in 0..4 {
        let pop = pop(&admin, &wish).await;
        assert_eq!(pop.expires_at, None, "there is nothing to wait for");
        order.push((pop.partition, popped(&pop)));
        let late = PopNack { partition: pop.partition, epoch: pop.epoch, offset: 0, ..PopNack::default() };
        assert_eq!(refused(admin.nack("orders", "billing", &late).await).code, ErrorCode::LeaseLost);
    }
    assert_eq!(order[0], (1, vec![0, 1]), "it has waited longest");
    order.sort();
    assert_eq!(order, [(0, vec![0, 1]), (0, vec![2]), (1, vec![0, 1]), (1, vec![2])]);
    assert_eq!((committed(&admin, 0).await, committed(&admin, 1).await), (3, 3));
    let metrics = reqwest::get(bus.server.url("/metrics")).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("laneway_pops_total 4"), "{metrics}");
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seek_ends_a_pop_and_a_session_is_not_to_be_spoken_for() {
    let bus = Bus::with_topic("orders", 1).await;
    let admin = admin(&bus.server);
    bus.publish("orders", 0, 0..3).await;
    let taken = pop(&admin, &patient()).await;
    let seek = laneway_client::group_api::Seek { to: laneway_client::Start::Offset(1), partitions: None };
    admin.seek_group("orders", "billing", &seek).await.unwrap();
    assert_eq!(
        refused(admin.ack("orders", "billing", &PopAck::all(&taken)).await).code,
        ErrorCode::LeaseLost
    );
    assert_eq!(popped(&pop(&admin, &patient()).await), [1, 2]);
    // Whoever guesses the epoch of a session can say nothing for it.
    let mut session = bus.connect(Subprotocol::Json).await;
    session.subscribe("audit", "orders").await;
    let batch = session.batch().await;
    let guessed = PopAck { epoch: batch.epoch, next: Some(3), ..PopAck::default() };
    assert_eq!(refused(admin.ack("orders", "audit", &guessed).await).code, ErrorCode::LeaseLost);
    session.ack_below(&batch, 3).await.unwrap();
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_leaves_an_open_pop_to_its_puller_and_nothing_below_it_comes_again() {
    let bus = Bus::with_topic("orders", 1).await;
    let admin = admin(&bus.server);
    bus.publish("orders", 0, 0..9).await;
    let three = PopRequest { max_messages: Some(3), ..patient() };
    let purge = async |before_offset| {
        let bound = Purge::BeforeOffset { partition: 0, before_offset };
        admin.purge_topic("orders", &bound).await.unwrap().messages
    };
    let first = pop(&admin, &three).await;
    assert_eq!((popped(&first), purge(2).await), (vec![0, 1, 2], 2));
    let below = PopAck { epoch: first.epoch, next: Some(1), ..PopAck::default() };
    let part = admin.ack("orders", "billing", &below).await.unwrap();
    assert_eq!((part.committed_offset, part.remaining), (2, 1), "what is purged is nobody's any more");
    let extend = PopExtend { epoch: first.epoch, ..PopExtend::default() };
    admin.extend("orders", "billing", &extend).await.unwrap();
    let done = admin.ack("orders", "billing", &PopAck::all(&first)).await.unwrap();
    assert_eq!((done.committed_offset, done.remaining), (3, 0));
    // A nack of what is gone charges nobody, one of what is left counts.
    let second = pop(&admin, &three).await;
    assert_eq!((popped(&second), purge(5).await), (vec![3, 4, 5], 3));
    let nack = |offset| PopNack { epoch: second.epoch, offset, delay_ms: Some(0), ..PopNack::default() };
    refused(admin.nack("orders", "billing", &nack(3)).await);
    assert_eq!(admin.nack("orders", "billing", &nack(5)).await.unwrap().attempts, 1);
    // Everything of it is gone: the pop is done, and the next one goes on behind.
    let third = pop(&admin, &three).await;
    assert_eq!((popped(&third), third.attempts.len(), purge(9).await), (vec![5, 6, 7], 1, 4));
    let done = admin.ack("orders", "billing", &PopAck::all(&third)).await.unwrap();
    assert_eq!((done.committed_offset, done.remaining), (9, 0));
    bus.publish("orders", 0, 9..10).await;
    assert_eq!(popped(&pop(&admin, &patient()).await), [9]);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_acknowledges_itself_comes_at_most_once_also_if_its_broker_dies_before_it_has_answered() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut dying = Server::on_database(&bus.database.url).await;
    let (here, there) = (admin(&bus.server), admin(&dying));
    assert!(here.pop("orders", "billing", &PopRequest::default()).await.unwrap().is_none());
    bus.publish("orders", 0, 0..4).await;
    // Its transaction is on its way to the disk for as long as this lock is held.
    let raw = bus.database.raw().await;
    let slow = "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql
            AS 'BEGIN PERFORM pg_advisory_xact_lock(7421); RETURN NULL; END';
        CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON laneway.lane_commit DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION public.slow();
        SELECT pg_advisory_lock(7421)";
    raw.batch_execute(slow).await.unwrap();
    let wish = PopRequest { auto_ack: true, max_messages: Some(2), ..patient() };
    let asked = tokio::spawn({
        let wish = wish.clone();
        async move { there.pop("orders", "billing", &wish).await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    until("the commit is on its way", async || bus.database.number(waits).await == 1).await;
    dying.kill().await;
    assert!(asked.await.unwrap().is_err(), "nobody has got it");
    raw.batch_execute("SELECT pg_advisory_unlock(7421)").await.unwrap();
    until("it is committed", async || committed(&here, 0).await == 2).await;
    assert_eq!(popped(&pop(&here, &wish).await), [2, 3], "at most once");
    assert!(here.pop("orders", "billing", &PopRequest::default()).await.unwrap().is_none());
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paused_is_not_popped_until_it_is_resumed_while_open_pops_may_be_settled() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let (here, there) = (admin(&bus.server), admin(&other));
    for of_topic in [true, false] {
        bus.publish("orders", 0, 0..4).await;
        let open = pop(&there, &PopRequest { max_messages: Some(2), ..patient() }).await;
        match of_topic {
            true => drop(here.pause_topic("orders").await.unwrap()),
            false => drop(here.pause_group("orders", "billing").await.unwrap()),
        }
        let extend = PopExtend { epoch: open.epoch, ..PopExtend::default() };
        there.extend("orders", "billing", &extend).await.unwrap();
        let nack = PopNack {
            epoch: open.epoch,
            offset: open.end_offset - 1,
            delay_ms: Some(0),
            ..PopNack::default()
        };
        there.nack("orders", "billing", &nack).await.unwrap();
        let rest = PopAck { epoch: open.epoch, next: Some(open.end_offset - 1), ..PopAck::default() };
        assert_eq!(there.ack("orders", "billing", &rest).await.unwrap().remaining, 0);
        for asked in [&here, &there] {
            let short = PopRequest { wait_ms: Some(700), ..PopRequest::default() };
            assert!(asked.pop("orders", "billing", &short).await.unwrap().is_none(), "it is paused");
        }
        let waiting = tokio::spawn({
            let there = admin(&other);
            async move { pop(&there, &patient()).await }
        });
        crate::metrics::becomes(&other, "pops_waiting", 1.0).await;
        match of_topic {
            true => drop(here.resume_topic("orders").await.unwrap()),
            false => drop(here.resume_group("orders", "billing").await.unwrap()),
        }
        let next = waiting.await.unwrap();
        assert_eq!(popped(&next), (open.end_offset - 1..open.end_offset + 2).collect::<Vec<_>>());
        here.ack("orders", "billing", &PopAck::all(&next)).await.unwrap();
    }
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_and_nothing_happens() {
    let bus = Bus::with_topic("orders", 1).await;
    bus.publish("orders", 0, 0..2).await;
    let admin = admin(&bus.server);
    let http = reqwest::Client::new();
    let ask = async |group: &str, action: &str, body: Value| -> (String, String) {
        let url = bus.server.url(&format!("/v1/topics/orders/groups/{group}/{action}"));
        let problem: Problem = http.post(url).json(&body).send().await.unwrap().json().await.unwrap();
        (problem.code.as_str().to_owned(), problem.field.unwrap_or_default())
    };
    for (action, body, code, field) in [
        ("pop", json!({"max_messages": 0}), "malformed", "max_messages"),
        ("pop", json!({"max_messages": 1001}), "malformed", "max_messages"),
        ("pop", json!({"wait_ms": 20001}), "malformed", "wait_ms"),
        ("pop", json!({"wait_ms": -1}), "malformed", ""),
        ("pop", json!({"ack_deadline_ms": 99}), "malformed", "ack_deadline_ms"),
        ("pop", json!({"ack_deadline_ms": 86_400_001}), "malformed", "ack_deadline_ms"),
        ("pop", json!({"ack_deadline_ms": 1_000, "auto_ack": true}), "malformed", "ack_deadline_ms"),
        ("pop", json!({"start": {"offset": -1}}), "malformed", "start"),
        ("pop", json!({"unknown": 1}), "malformed", ""),
        ("ack", json!({"partition": 0, "epoch": 1, "next": 1}), "unknown_group", "group"),
    ] {
        assert_eq!(ask("billing", action, body.clone()).await, (code.to_owned(), field.to_owned()), "{body}");
    }
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.consumer_group").await, 0);
    let taken = pop(&admin, &patient()).await;
    for (action, body, code, field) in [
        ("ack", json!({"partition": 0, "epoch": 1}), "malformed", "next"),
        ("ack", json!({"partition": 0, "epoch": 1, "next": -1}), "malformed", "next"),
        ("ack", json!({"partition": 0, "epoch": -1, "next": 1}), "malformed", "epoch"),
        ("ack", json!({"partition": 1, "epoch": 1, "next": 1}), "partition_out_of_range", "partition"),
        ("ack", json!({"partition": 0, "epoch": 2, "next": 1}), "lease_lost", "epoch"),
        ("ack", json!({"partition": 0, "epoch": 1, "next": 3}), "beyond_sent", "offset"),
        ("ack", json!({"partition": 0, "epoch": 1, "offsets": [i64::MAX]}), "beyond_sent", "offset"),
        ("ack", json!({"partition": 0, "epoch": 1, "offsets": vec![0; 1001]}), "malformed", "offsets"),
        ("nack", json!({"partition": 0, "epoch": 1, "offset": 2}), "beyond_sent", "offset"),
        (
            "nack",
            json!({"partition": 0, "epoch": 1, "offset": 0, "delay_ms": 86_400_001}),
            "malformed",
            "delay_ms",
        ),
        ("extend", json!({"partition": 0, "epoch": 1, "ack_deadline_ms": 0}), "malformed", "ack_deadline_ms"),
        ("extend", json!({"partition": 0, "epoch": 0}), "lease_lost", "epoch"),
    ] {
        assert_eq!(ask("billing", action, body.clone()).await, (code.to_owned(), field.to_owned()), "{body}");
    }
    let attempts = "SELECT count(*) FROM laneway.attempt";
    assert_eq!((committed(&admin, 0).await, bus.database.number(attempts).await), (0, 0));
    admin.ack("orders", "billing", &PopAck::all(&taken)).await.unwrap();
    let done = PopNack { epoch: 1, offset: 0, ..PopNack::default() };
    assert_eq!(refused(admin.nack("orders", "billing", &done).await).code, ErrorCode::LeaseLost);
    assert_eq!(refused(admin.pop("nothing", "billing", &patient()).await).code, ErrorCode::UnknownTopic);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_under_an_open_pop_lets_it_be_acknowledged_or_expire_and_nothing_of_it_comes_back() {
    use laneway_client::management::Purge;
    let bus = Bus::with_topic("orders", 1).await;
    let admin = admin(&bus.server);
    bus.publish("orders", 0, 0..4).await;
    let first = pop(&admin, &PopRequest { max_messages: Some(2), ..patient() }).await;
    admin.purge_topic("orders", &Purge::All).await.unwrap();
    let done = admin.ack("orders", "billing", &PopAck::all(&first)).await.unwrap();
    assert_eq!((done.committed_offset, done.remaining), (4, 0), "what was purged is done");
    bus.publish("orders", 0, 4..6).await;
    let next = pop(&admin, &PopRequest { max_messages: Some(1), ..lasting(100) }).await;
    assert_eq!(popped(&next), [4]);
    // Its message is gone when its time is over: nobody is to blame, and nothing is kept of it.
    admin.alter_group("orders", "billing", &quick_retries(1)).await.unwrap();
    admin.purge_topic("orders", &Purge::All).await.unwrap();
    bus.publish("orders", 0, 6..7).await;
    let last = pop(&admin, &patient()).await;
    assert_eq!(popped(&last), [6]);
    admin.ack("orders", "billing", &PopAck::all(&last)).await.unwrap();
    assert_eq!(committed(&admin, 0).await, 7);
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.dead_letter").await, 0);
    bus.stop().await;
}
