//! Pulled groups keep delays, windows and ages as those of sessions do, on one broker and on several.

use laneway_client::Admin;
use laneway_client::pull_api::{Pop, PopAck, PopNack, PopRequest};
use laneway_client::trace::{HopState, Trace};
use laneway_client::wire::{NewMessage, OnExpiry, Subprotocol, WantedSettings};
use uuid::Uuid;

use crate::harness::Server;
use crate::harness::socket::quick_retries;
use crate::harness::wait::until;
use crate::metrics::{becomes, sample};
use crate::windows::{age_ms, make_old};
use crate::{Bus, to_partition};

fn admin(server: &Server) -> Admin {
    Admin::new(&server.url("")).unwrap()
}

fn patient() -> PopRequest {
    PopRequest { wait_ms: Some(20_000), ..PopRequest::default() }
}

async fn pop(admin: &Admin, wish: &PopRequest) -> Pop {
    admin.pop("orders", "billing", wish).await.unwrap().expect("there are messages")
}

fn popped(pop: &Pop) -> Vec<i64> {
    pop.messages.iter().map(|message| message.offset).collect()
}

/// A pulled group with settings, which has seen nothing yet.
async fn pulled_group(admin: &Admin, settings: &WantedSettings) {
    assert!(admin.pop("orders", "billing", &PopRequest::default()).await.unwrap().is_none());
    admin.alter_group("orders", "billing", settings).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pop_at_any_broker_gets_a_message_before_its_delay_and_those_who_wait_get_it_soon_after() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let (here, there) = (admin(&bus.server), admin(&other));
    let delay = WantedSettings { delay_ms: Some(600), ..WantedSettings::default() };
    pulled_group(&here, &delay).await;
    for round in 0..3 {
        bus.publish("orders", 0, 0..2).await;
        let asked = if round % 2 == 0 { &here } else { &there };
        let young = age_ms(&bus, 2 * round).await;
        let hasty = asked.pop("orders", "billing", &PopRequest::default()).await.unwrap();
        assert!(hasty.is_none() || age_ms(&bus, 2 * round).await >= 600, "it was {young} ms old: {hasty:?}");
        let (one, two) = match hasty {
            Some(pop) => (pop.clone(), pop),
            None => {
                let wish = PopRequest { wait_ms: Some(2_000), ..PopRequest::default() };
                let (one, two) = tokio::join!(
                    here.pop("orders", "billing", &wish),
                    there.pop("orders", "billing", &wish),
                );
                let age = age_ms(&bus, 2 * round + 1).await;
                let got: Vec<Pop> = one.unwrap().into_iter().chain(two.unwrap()).collect();
                assert_eq!(got.len(), 1, "one of both has it: {got:?}");
                assert!((600..6_000).contains(&age), "it came after {age} ms");
                (got[0].clone(), got[0].clone())
            }
        };
        assert_eq!((popped(&one), one.epoch), (vec![2 * round, 2 * round + 1], two.epoch));
        there.ack("orders", "billing", &PopAck::all(&one)).await.unwrap();
    }
    // A delay that is lifted holds nobody any more, not even those who wait already.
    let hour = WantedSettings { delay_ms: Some(3_600_000), ..WantedSettings::default() };
    here.alter_group("orders", "billing", &hour).await.unwrap();
    bus.publish("orders", 0, 0..1).await;
    let none = PopRequest { wait_ms: Some(100), ..PopRequest::default() };
    assert!(here.pop("orders", "billing", &none).await.unwrap().is_none());
    let wish = patient();
    let lift = async {
        let at_once = WantedSettings { delay_ms: Some(0), ..WantedSettings::default() };
        there.alter_group("orders", "billing", &at_once).await.unwrap();
    };
    let (late, ()) = tokio::join!(pop(&here, &wish), lift);
    assert_eq!(popped(&late), [6]);
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_opens_for_pullers_when_its_partition_is_quiet_and_what_it_let_through_does_not_wait_again()
{
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let (here, there) = (admin(&bus.server), admin(&other));
    let window = WantedSettings { window_ms: Some(500), window_max_ms: Some(3_600_000), ..quick_retries(9) };
    pulled_group(&here, &window).await;
    for round in 0..4 {
        bus.publish("orders", 0, 0..1).await;
        let hasty = there.pop("orders", "billing", &PopRequest::default()).await.unwrap();
        assert!(hasty.is_none() || age_ms(&bus, round).await >= 500, "its window is closed: {hasty:?}");
    }
    let two = PopRequest { max_messages: Some(2), ..patient() };
    let first = pop(&here, &two).await;
    let quiet = age_ms(&bus, 3).await;
    assert_eq!(popped(&first), [0, 1]);
    assert!((500..6_000).contains(&quiet), "it was quiet for {quiet} ms");
    // From now on it is never quiet, and never for as long as its longest wait; what was there then comes all the same, at any
    // broker, and comes again after it has failed.
    let long = WantedSettings { window_ms: Some(3_000_000), ..WantedSettings::default() };
    here.alter_group("orders", "billing", &long).await.unwrap();
    bus.publish("orders", 0, 0..1).await;
    let refused = PopNack { epoch: first.epoch, offset: 1, delay_ms: Some(0), ..PopNack::default() };
    there.nack("orders", "billing", &refused).await.unwrap();
    let before = PopAck { epoch: first.epoch, next: Some(1), ..PopAck::default() };
    there.ack("orders", "billing", &before).await.unwrap();
    let rest = pop(&there, &patient()).await;
    assert_eq!(popped(&rest), [1, 2, 3], "what was published later waits for the next window");
    here.ack("orders", "billing", &PopAck::all(&rest)).await.unwrap();
    assert!(here.pop("orders", "billing", &PopRequest::default()).await.unwrap().is_none());
    let short = WantedSettings { window_max_ms: Some(10), window_ms: Some(10), ..WantedSettings::default() };
    here.alter_group("orders", "billing", &short).await.unwrap();
    assert_eq!(popped(&pop(&there, &patient()).await), [4]);
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_old_for_a_pulled_group_is_evicted_once_whoever_pulls_and_its_trace_says_so() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut other = Server::on_database(&bus.database.url).await;
    let (here, there) = (admin(&bus.server), admin(&other));
    let old = WantedSettings { max_age_ms: Some(1_800_000), ..WantedSettings::default() };
    pulled_group(&here, &old).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let trace_id = Uuid::now_v7();
    for round in 0..3 {
        let messages = (0..1_000).map(|number| NewMessage {
            trace_id: (round == 1 && number == 500).then_some(trace_id),
            ..to_partition(0, "old")
        });
        producer.publish("orders", messages.collect()).await;
    }
    make_old(&bus, 3_000).await;
    producer.publish("orders", vec![to_partition(0, "young")]).await;
    // Both brokers find the same; one of them writes it down.
    let wish = PopRequest { wait_ms: Some(2_000), ..PopRequest::default() };
    let pops = tokio::join!(here.pop("orders", "billing", &wish), there.pop("orders", "billing", &wish));
    let got: Vec<Pop> = pops.0.unwrap().into_iter().chain(pops.1.unwrap()).collect();
    assert_eq!(got.iter().map(popped).collect::<Vec<_>>(), [[3_000]]);
    assert_eq!(got[0].committed_offset, 3_000);
    let raw = bus.database.raw().await;
    let rows =
        raw.query("SELECT \"offset\", end_offset, outcome, reason FROM laneway.failure", &[]).await.unwrap();
    let told: Vec<(i64, i64, &str, &str)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    assert_eq!(told, [(0, 3_000, "evicted", "max_age")]);
    let name = "expired_messages_total{reason=\"max_age\"}";
    assert_eq!(sample(&bus.server, name).await + sample(&other, name).await, 3_000.0);
    let answer = reqwest::get(other.url(&format!("/v1/traces/{trace_id}"))).await.unwrap();
    let trace: Trace = answer.json().await.unwrap();
    let hop = &trace.hops[0].groups[0];
    assert_eq!((trace.hops[0].offset, hop.state, hop.attempts), (1_500, HopState::Evicted, 0));
    // What grows too old while it waits for its next try is not tried again, and what nobody has acknowledged is not either.
    let young = WantedSettings { max_age_ms: Some(1), ..WantedSettings::default() };
    here.alter_group("orders", "billing", &young).await.unwrap();
    let refused = PopNack { epoch: got[0].epoch, offset: 3_000, delay_ms: Some(0), ..PopNack::default() };
    there.nack("orders", "billing", &refused).await.unwrap();
    assert!(here.pop("orders", "billing", &PopRequest::default()).await.unwrap().is_none());
    assert_eq!(bus.database.number("SELECT max(committed_offset) FROM laneway.lane_commit").await, 3_001);
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.attempt").await, 0);
    assert_eq!(other.stop().await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_evicted_since_a_lane_was_seen_is_not_given_out_and_no_committed_offset_goes_back() {
    for auto_ack in [true, false] {
        let bus = Bus::with_topic("orders", 1).await;
        let admin = admin(&bus.server);
        pulled_group(&admin, &WantedSettings::default()).await;
        bus.publish("orders", 0, 0..9).await;
        let first = pop(&admin, &PopRequest { max_messages: Some(5), auto_ack: true, ..patient() }).await;
        assert_eq!(first.end_offset, 5);
        // It has read message 5, and cannot take the lane yet.
        let mut raw = bus.database.raw().await;
        let held = raw.transaction().await.unwrap();
        held.batch_execute("LOCK TABLE laneway.lane IN EXCLUSIVE MODE").await.unwrap();
        let taking = admin.clone();
        let wish = PopRequest { max_messages: Some(1), auto_ack, ..patient() };
        let taken = tokio::spawn(async move { pop(&taking, &wish).await });
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '-- pops_take%'";
        until("the pop waits for the lane", async || bus.database.number(waits).await == 1).await;
        // Meanwhile another broker finds that 5, 6 and 7 have expired: its commit is under the epoch that both have seen.
        let evicted =
            "INSERT INTO laneway.lane_commit (group_id, partition_id, epoch, number, committed_offset)
            SELECT group_id, partition_id, epoch, 2, 8 FROM laneway.lane";
        assert_eq!(held.execute(evicted, &[]).await.unwrap(), 1);
        held.commit().await.unwrap();
        let taken = taken.await.unwrap();
        assert_eq!(popped(&taken), [8], "what was evicted is not delivered");
        let committed =
            "SELECT committed_offset FROM laneway.lane_commit ORDER BY epoch DESC, number DESC LIMIT 1";
        assert_eq!(bus.database.number(committed).await, if auto_ack { 9 } else { 8 });
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_outlived_its_ttl_in_a_pulled_group_becomes_a_dead_letter_where_the_group_says_so() {
    let bus = Bus::with_topic("orders", 1).await;
    let admin = admin(&bus.server);
    let settings = WantedSettings { on_expiry: Some(OnExpiry::DeadLetter), ..quick_retries(2) };
    pulled_group(&admin, &settings).await;
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    let ttl = |number: u32| (number % 3 == 1).then_some(1_800_000);
    let messages =
        (0..12).map(|number| NewMessage { ttl_ms: ttl(number), ..to_partition(0, format!("m{number}")) });
    producer.publish("orders", messages.collect()).await;
    make_old(&bus, 12).await;
    let first = pop(&admin, &patient()).await;
    assert_eq!(popped(&first), [0]);
    admin.ack("orders", "billing", &PopAck::all(&first)).await.unwrap();
    let rest = pop(&admin, &PopRequest { auto_ack: true, ..patient() }).await;
    assert_eq!(popped(&rest), [2, 3, 5, 6, 8, 9, 11], "those in between have expired, all found at once");
    becomes(&bus.server, "expired_messages_total{reason=\"ttl\"}", 4.0).await;
    becomes(&bus.server, "dead_letters_total", 4.0).await;
    let dead = admin.list_dead_letters(&Default::default()).await.unwrap().dead_letters;
    let told: Vec<(i64, u32, &str)> =
        dead.iter().map(|dead| (dead.offset, dead.attempts, dead.reason.as_str())).collect();
    assert_eq!(told, [(1, 0, "ttl"), (4, 0, "ttl"), (7, 0, "ttl"), (10, 0, "ttl")]);
    let trace: Trace = reqwest::get(bus.server.url(&format!("/v1/traces/{}", dead[1].trace_id)))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(trace.hops[0].groups[0].state, HopState::DeadLettered);
    assert_eq!(bus.database.number("SELECT max(committed_offset) FROM laneway.lane_commit").await, 12);
    bus.stop().await;
}
