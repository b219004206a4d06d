//! Steps through a real broker: what a message leads to carries its trace and its cause, and happens once with its ack.

use std::sync::Arc;

use laneway_client::group_api::Seek;
use laneway_client::{Admin, Cause, Client, Error, ErrorCode, NewMessage, Placed, Start};
use uuid::Uuid;

use crate::bus::{Bus, both, committed, keyed, next, offsets, publish_all, quick, take, text, to};
use crate::harness::socket::make_topic;
use crate::harness::wait;
use crate::wire::Wire;

/// A broker with the topics `orders` and `results`.
async fn bus(partitions: u32) -> Bus {
    let bus = Bus::new(partitions).await;
    make_topic(&bus.server.address, "results", 1).await;
    bus
}

fn numbers(stored: &[(String, String)]) -> Vec<&str> {
    stored.iter().map(|(_, payload)| &payload[..]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_publishes_carries_trace_and_cause_bit_for_bit() {
    for options in both() {
        let bus = bus(4).await;
        let client = Client::connect(&bus.url(), options).await.unwrap();
        let trace = Uuid::from_u128(0xfedc_ba98_7654_3210_0011_2233_4455_6677);
        let order = NewMessage { trace_id: Some(trace), ..to(2, 7) };
        publish_all(&client, "orders", [to(2, 6), order]).await;
        let mut orders = client.subscribe("orders", "billing").await.unwrap();
        next(&mut orders).await.ack();
        let order = Arc::new(next(&mut orders).await);
        let other = Uuid::from_u128(3);
        order.publish("results", keyed("k", 0)).await.unwrap();
        order.publish("results", NewMessage { trace_id: Some(other), ..keyed("k", 1) }).await.unwrap();
        let first = Cause { topic: "results".into(), partition: 0, offset: 0 };
        order.publish("results", NewMessage { cause: Some(first.clone()), ..keyed("k", 2) }).await.unwrap();
        let step = order.transact().publish("results", keyed("k", 3));
        step.publish("results", NewMessage { trace_id: Some(other), ..keyed("k", 4) })
            .commit()
            .await
            .unwrap();
        let mut results = client.subscribe("results", "audit").await.unwrap();
        let results = take(&mut results, 5).await;
        let caused: Vec<_> =
            results.iter().map(|result| (text(result), result.trace_id, result.cause.clone())).collect();
        let of_order = Some(Cause { topic: "orders".into(), partition: 2, offset: 1 });
        let expected = [
            ("0".to_owned(), trace, of_order.clone()),
            ("1".to_owned(), other, None),
            ("2".to_owned(), trace, Some(first)),
            ("3".to_owned(), trace, of_order),
            ("4".to_owned(), other, None),
        ];
        assert_eq!(caused, expected);
        client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_acknowledges_and_publishes_and_says_where() {
    for options in both() {
        let bus = bus(1).await;
        bus.fill(0, 0..3).await;
        let client = Client::connect(&bus.url(), options).await.unwrap();
        let mut orders = client.subscribe("orders", "billing").await.unwrap();
        let order = next(&mut orders).await;
        let step_id = Uuid::now_v7();
        let step =
            order.transact().step_id(step_id).publish("results", keyed("k", 0)).publish("orders", to(0, 9));
        let done = step.publish("results", keyed("k", 1)).commit().await.unwrap();
        let at = |offset| Placed { partition: 0, offset };
        assert_eq!((done.repeated, done.placed), (false, vec![at(0), at(3), at(1)]));
        let known = format!("SELECT count(*) FROM laneway.step WHERE step_id = '{step_id}'");
        assert_eq!(bus.database.number(&known).await, 1);
        let twice = order.transact().publish("results", keyed("k", 2)).commit().await.unwrap_err();
        assert_eq!(twice.code(), Some(ErrorCode::AlreadyDone));
        // What is refused leaves everything as it was, and the message can still be done.
        let second = next(&mut orders).await;
        let refused = second.transact().publish("nowhere", keyed("k", 3)).commit().await.unwrap_err();
        assert_eq!(refused.code(), Some(ErrorCode::UnknownTopic));
        second.transact().commit().await.unwrap();
        drop((order, second));
        client.close().await;
        assert_eq!(numbers(&bus.stored_in("results").await), ["0", "1"]);
        let heir = bus.client().await;
        let mut orders = heir.subscribe("orders", "billing").await.unwrap();
        assert_eq!(
            offsets(&take(&mut orders, 2).await),
            [2, 3],
            "what steps have done is not delivered again"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_several_lanes_and_subscriptions_are_one_step() {
    let bus = bus(2).await;
    bus.fill(0, 0..4).await;
    bus.fill(1, 0..1).await;
    let client = bus.client().await;
    client.publish("results", keyed("k", 0)).await.unwrap();
    let mut orders = client.subscribe("orders", "billing").await.unwrap();
    let mut results = client.subscribe("results", "billing").await.unwrap();
    let held = take(&mut orders, 5).await;
    let result = next(&mut results).await;
    let of = |partition, offset| {
        held.iter().find(|order| (order.partition, order.offset) == (partition, offset)).unwrap()
    };
    let step = of(1, 0).transact().ack(of(0, 3)).ack(of(0, 0)).ack(&result).ack(of(0, 1));
    let own = of(0, 3).caused(keyed("k", 2));
    step.publish("results", keyed("k", 1)).publish("results", own).commit().await.unwrap();
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.step").await, 1);
    let causes: Vec<_> =
        take(&mut results, 2).await.into_iter().map(|result| result.cause.clone().unwrap()).collect();
    let causes: Vec<_> = causes.iter().map(|cause| (cause.partition, cause.offset)).collect();
    assert_eq!(causes, [(1, 0), (0, 3)], "the first delivery, unless it is said otherwise");
    wait::until("what is done without a gap", async || committed(&bus, 0).await == 2).await;
    for order in held.into_iter().filter(|order| (order.partition, order.offset) == (0, 2)) {
        order.ack_confirmed().await.unwrap();
    }
    wait::until("the rest", async || committed(&bus, 0).await == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_are_lost_on_the_way_there_or_back_happen_once() {
    let bus = bus(1).await;
    bus.fill(0, 0..12).await;
    let wire = Wire::to(&bus.server.address).await;
    let client = Client::connect(&wire.url(), quick()).await.unwrap();
    let mut orders = client.subscribe("orders", "billing").await.unwrap();
    for number in 0..12 {
        let order = next(&mut orders).await;
        assert_eq!(order.offset, number as i64, "in order, and what is done does not come again");
        match number % 3 {
            0 => wire.mute(),
            1 => wire.deafen(),
            _ => {}
        }
        let before = wire.swallowed();
        let step = tokio::spawn(order.transact().publish("results", keyed("k", number)).commit());
        if number % 3 != 2 {
            wait::until("the step or its answer to be lost", async || wire.swallowed() > before).await;
            wire.cut();
        }
        let done = step.await.unwrap().unwrap();
        assert_eq!(done.repeated, number % 3 == 1, "{number}: only then had it happened before");
        assert_eq!(done.placed, [Placed { partition: 0, offset: number as i64 }]);
    }
    let expected: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    assert_eq!(numbers(&bus.stored_in("results").await), expected);
    wait::until("everything to be committed", async || committed(&bus, 0).await == 12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lane_is_said_and_nothing_is_published() {
    let bus = bus(1).await;
    bus.fill(0, 0..2).await;
    let wire = Wire::to(&bus.server.address).await;
    let client = Client::connect(&wire.url(), quick()).await.unwrap();
    let mut orders = client.subscribe("orders", "billing").await.unwrap();
    let held = take(&mut orders, 2).await;
    // The lane gets another epoch, and the client does not hear of it.
    wire.deafen();
    let admin = Admin::new(&bus.server.url("")).unwrap();
    let seek = Seek { to: Start::Offset(0), partitions: None };
    admin.seek_group("orders", "billing", &seek).await.unwrap();
    let moved = "SELECT count(*) FROM laneway.lane WHERE session_id IS NOT NULL AND epoch > 1";
    wait::until("the lane to be held under the next epoch", async || bus.database.number(moved).await == 1)
        .await;
    let before = wire.swallowed();
    let step = tokio::spawn(held[0].transact().publish("results", keyed("k", 0)).commit());
    wait::until("an answer to be lost", async || wire.swallowed() > before).await;
    wire.cut();
    assert_eq!(step.await.unwrap(), Err(Error::LaneLost));
    let again = take(&mut orders, 2).await;
    assert_eq!(offsets(&again), [0, 1]);
    assert_eq!(held[1].transact().publish("results", keyed("k", 1)).commit().await, Err(Error::LaneLost));
    assert_eq!(numbers(&bus.stored_in("results").await), Vec::<&str>::new());
    for (number, order) in again.iter().enumerate() {
        order.transact().publish("results", keyed("k", number)).commit().await.unwrap();
    }
    assert_eq!(numbers(&bus.stored_in("results").await), ["0", "1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_a_killed_broker_may_have_done_is_decided_by_the_next_one() {
    let mut bus = Bus::brief(1).await;
    make_topic(&bus.server.address, "results", 1).await;
    bus.fill(0, 0..3).await;
    let client = bus.client().await;
    let mut orders = client.subscribe("orders", "billing").await.unwrap();
    let order = next(&mut orders).await;
    // Somebody holds the partitions, so that the step is in the midst of its transaction when its broker dies.
    let holder = bus.database.raw().await;
    holder.batch_execute("BEGIN; SELECT FROM laneway.partition FOR UPDATE").await.unwrap();
    let step = tokio::spawn(order.transact().publish("results", keyed("k", 0)).commit());
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    wait::until("the step to wait", async || bus.database.number(waiting).await > 0).await;
    let address = bus.server.address.clone();
    bus.server.kill().await;
    holder.batch_execute("COMMIT").await.unwrap();
    bus.server = bus.brief_at(&address).await;
    let mut done = Vec::new();
    match step.await.unwrap() {
        Ok(committed) => done.extend(committed.placed.iter().map(|placed| placed.offset)),
        Err(error) => assert_eq!(error, Error::LaneLost, "it has not happened, and the order comes again"),
    }
    while done.len() < 3 {
        let order = next(&mut orders).await;
        let result = keyed("k", order.offset as usize);
        match order.transact().publish("results", result).commit().await {
            Ok(_) => done.push(order.offset),
            Err(error) => assert_eq!(error, Error::LaneLost),
        }
    }
    assert_eq!(done, [0, 1, 2]);
    assert_eq!(numbers(&bus.stored_in("results").await), ["0", "1", "2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tail_delivers_leads_to_others_but_cannot_be_acknowledged() {
    use futures_util::StreamExt as _;
    let bus = bus(1).await;
    bus.fill(0, 0..1).await;
    let client = bus.client().await;
    let mut tail = client.tail("orders", Start::Earliest).await.unwrap();
    let order = tail.next().await.unwrap();
    let refused = order.transact().publish("results", keyed("k", 0)).commit().await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::Malformed));
    order.publish("results", keyed("k", 1)).await.unwrap();
    let mut results = client.subscribe("results", "audit").await.unwrap();
    let result = next(&mut results).await;
    assert_eq!((text(&result), result.trace_id), ("1".to_owned(), order.trace_id));
}
