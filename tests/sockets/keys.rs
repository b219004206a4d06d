//! Order by key: different keys do not wait for each other, a failing key is parked, and comes back in order.

use bytes::Bytes;
use laneway_client::parked::{ParkedKey, ParkedQuery, ParkedState};
use laneway_client::trace::HopState;
use laneway_client::wire::{
    Batch, ClientFrame, GroupOrdering, NewMessage, OnFailure, Record, Subprotocol, Subscribe, Transact,
    WantedSettings,
};
use laneway_client::{Admin, ErrorCode};

use crate::harness::socket::{BOTH, Socket, ack, nack, offsets, quick_retries, subscribe};
use crate::harness::wait::until;
use crate::{Bus, to_partition};

/// Order by key, a failing key is parked after so many attempts.
pub fn parking(max_attempts: u32) -> WantedSettings {
    WantedSettings {
        ordering: Some(GroupOrdering::Key),
        on_failure: Some(OnFailure::Park),
        ..quick_retries(max_attempts)
    }
}

/// Messages of partition 0, each with the key that stands before the colon.
pub fn keyed<'a>(payloads: impl IntoIterator<Item = &'a str>) -> Vec<NewMessage> {
    let message = |payload: &'a str| {
        let key = payload.split(':').next().filter(|key| !key.is_empty());
        NewMessage { key: key.map(|key| key.as_bytes().to_vec().into()), ..to_partition(0, payload) }
    };
    payloads.into_iter().map(message).collect()
}

pub async fn publish(bus: &Bus, payloads: &[&str]) {
    let mut producer = bus.connect(Subprotocol::MessagePack).await;
    producer.publish("orders", keyed(payloads.iter().copied())).await;
    producer.close().await;
}

async fn join(bus: &Bus, subprotocol: Subprotocol, settings: WantedSettings) -> Socket {
    let mut consumer = bus.connect(subprotocol).await;
    let wish = Subscribe { settings: Some(settings), ..subscribe("billing", "orders") };
    consumer.subscribe_with(wish).await.unwrap();
    consumer
}

fn admin(bus: &Bus) -> Admin {
    Admin::new(&bus.server.url("")).unwrap()
}

pub async fn parked(admin: &Admin) -> Vec<ParkedKey> {
    admin.list_parked(&ParkedQuery::default()).await.unwrap().parked
}

/// The next message that is not done, with the round it came in.
async fn next(consumer: &mut Socket) -> (u32, Vec<i64>, Batch) {
    let batch = consumer.batch().await;
    (batch.round, offsets(&batch), batch)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_key_waits_alone_and_comes_again_in_order_while_acks_of_others_count() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        publish(&bus, &["a:0", "b:1", "a:2", "b:3", "c:4"]).await;
        let settings =
            WantedSettings { backoff_base_ms: Some(2_000), backoff_cap_ms: Some(2_000), ..parking(9) };
        let mut consumer = join(&bus, subprotocol, settings).await;
        let (round, sent, first) = next(&mut consumer).await;
        assert_eq!((round, sent), (1, vec![0, 1, 2, 3, 4]), "all keys are in flight at once");
        consumer.nack(&first, 0, "not now").await.unwrap();
        // The others were sent in the round that the nack has ended, and count.
        assert_eq!(consumer.ack(ack(&first, None, &[1, 3, 4])).await.unwrap(), 0);
        let error = consumer.ack(ack(&first, None, &[2])).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::StaleRound, "2 stands behind 0 and is void: {error:?}");
        publish(&bus, &["b:5", "a:6"]).await;
        let (_, sent, other) = next(&mut consumer).await;
        assert_eq!(sent, [5], "a waits, b does not");
        consumer.ack(ack(&other, None, &[5])).await.unwrap();
        let (round, sent, again) = next(&mut consumer).await;
        assert!(round > 1);
        assert_eq!((sent, again.attempts.clone()), (vec![0, 2, 6], vec![(0, 1)]));
        assert_eq!(consumer.ack_below(&again, 7).await.unwrap(), 7, "all that was sent in that round");
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_key_holds_nobody_and_the_committed_offset_follows_when_it_is_done() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["slow:0"]).await;
    let mut consumer = join(&bus, Subprotocol::Json, parking(3)).await;
    let (_, _, slow) = next(&mut consumer).await;
    let (mut done, mut published) = (1, 1);
    for turn in 0..20 {
        let payloads: Vec<String> = (0..600).map(|number| format!("k{}:{turn}", number % 60)).collect();
        publish(&bus, &payloads.iter().map(String::as_str).collect::<Vec<_>>()).await;
        published += 600;
        while done < published {
            let batch = consumer.batch().await;
            let many = offsets(&batch);
            consumer.ack(ack(&batch, None, &many)).await.unwrap();
            consumer.credit(batch.subscription, many.len() as u32, 1 << 20).await;
            done += many.len();
        }
    }
    assert_eq!(
        consumer.ack(ack(&slow, None, &[0])).await.unwrap(),
        12_001,
        "far beyond what may be in flight"
    );
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_fails_for_good_is_parked_with_everything_behind_it_and_a_replay_brings_all_of_it_back() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        publish(&bus, &["a:0", "b:1", "a:2"]).await;
        let mut consumer = join(&bus, subprotocol, parking(1)).await;
        let (_, _, first) = next(&mut consumer).await;
        consumer.nack(&first, 0, "it is poison").await.unwrap();
        consumer.ack(ack(&first, None, &[1])).await.unwrap();
        publish(&bus, &["a:3", "b:4", "a:5"]).await;
        let (_, sent, other) = next(&mut consumer).await;
        assert_eq!(sent, [4]);
        consumer.ack(ack(&other, None, &[4])).await.unwrap();
        let admin = admin(&bus);
        until("everything behind it is parked", async || {
            parked(&admin).await.first().is_some_and(|key| key.messages == 4)
        })
        .await;
        until("the lane moves on", async || {
            bus.database.number("SELECT max(committed_offset) FROM laneway.lane_commit").await == 6
        })
        .await;
        let key = parked(&admin).await.remove(0);
        let first = key.first.unwrap();
        assert_eq!((key.group.as_str(), key.partition, key.state), ("billing", 0, ParkedState::Parked));
        assert_eq!((first.message.offset, first.attempts, first.reason.as_str()), (0, 1, "it is poison"));
        let trace = admin.show_trace(first.message.trace_id.parse().unwrap()).await.unwrap();
        assert!(format!("{trace:?}").contains("Parked"), "{trace:?}");
        admin.replay_parked(key.id).await.unwrap();
        let mut back = Vec::new();
        while back.len() < 4 {
            let batch = consumer.batch().await;
            back.extend(offsets(&batch));
            assert_eq!(batch.attempts, [], "as if it had never failed");
            consumer.ack(ack(&batch, None, &offsets(&batch))).await.unwrap();
        }
        assert_eq!(back, [0, 2, 3, 5]);
        until("the key goes on", async || parked(&admin).await.is_empty()).await;
        publish(&bus, &["a:6"]).await;
        let (_, sent, last) = next(&mut consumer).await;
        assert_eq!(sent, [6], "from the stream");
        assert_eq!(consumer.ack_below(&last, 7).await.unwrap(), 7);
        assert_eq!(bus.database.number("SELECT count(*) FROM laneway.parked_message").await, 0);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_parked_message_is_told_by_its_trace_and_releases_what_is_behind_it() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["a:0", "a:1", "a:2"]).await;
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    let (_, _, first) = next(&mut consumer).await;
    consumer.nack(&first, 0, "it is poison").await.unwrap();
    let admin = admin(&bus);
    until("all of it is parked", async || parked(&admin).await.first().is_some_and(|key| key.messages == 3))
        .await;
    let key = parked(&admin).await.remove(0);
    let dropped = admin.drop_parked(key.id).await.unwrap().first.unwrap().message;
    assert_eq!(dropped.offset, 0);
    let trace = admin.show_trace(dropped.trace_id.parse().unwrap()).await.unwrap();
    assert!(format!("{trace:?}").contains(&format!("{:?}", HopState::Dropped)), "{trace:?}");
    let (_, sent, rest) = next(&mut consumer).await;
    assert_eq!(sent, [1, 2]);
    // It fails again, and is parked again, with what is behind it.
    consumer.nack(&rest, 1, "this one too").await.unwrap();
    until("it is parked again", async || {
        parked(&admin).await.first().is_some_and(|key| key.state == ParkedState::Parked && key.messages == 2)
    })
    .await;
    let again = parked(&admin).await.remove(0);
    assert_eq!(again.first.unwrap().reason, "this one too");
    admin.replay_parked(again.id).await.unwrap();
    let refused = admin.replay_parked(again.id).await.unwrap_err();
    assert!(
        refused.to_string().contains("released already") || refused.to_string().contains("no parked key")
    );
    let (_, sent, rest) = next(&mut consumer).await;
    assert_eq!(sent, [1, 2]);
    consumer.ack(ack(&rest, None, &[1, 2])).await.unwrap();
    until("the key goes on", async || parked(&admin).await.is_empty()).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_a_key_is_a_key_of_its_own() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &[":0", ":1", ":2"]).await;
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    let (_, _, first) = next(&mut consumer).await;
    consumer.nack(&first, 1, "it is poison").await.unwrap();
    assert_eq!(consumer.ack(ack(&first, None, &[0, 2])).await.unwrap(), 3);
    let admin = admin(&bus);
    let keys = parked(&admin).await;
    assert_eq!((keys.len(), keys[0].messages, keys[0].key.is_none()), (1, 1, true));
    admin.replay_parked(keys[0].id).await.unwrap();
    let (_, sent, again) = next(&mut consumer).await;
    assert_eq!(sent, [1]);
    consumer.ack(ack(&again, None, &[1])).await.unwrap();
    until("nothing is parked", async || parked(&admin).await.is_empty()).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nacks_of_several_keys_at_once_all_count() {
    let bus = Bus::with_topic("orders", 1).await;
    let payloads: Vec<String> = (0..20).map(|number| format!("k{}:{number}", number % 10)).collect();
    publish(&bus, &payloads.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut consumer = join(&bus, Subprotocol::MessagePack, parking(1)).await;
    let (_, sent, first) = next(&mut consumer).await;
    assert_eq!(sent.len(), 20);
    for offset in 0..9 {
        consumer.send(ClientFrame::Nack(nack(&first, offset, "it is poison"))).await;
    }
    consumer.ack(ack(&first, None, &[9, 19])).await.unwrap();
    let admin = admin(&bus);
    until("nine keys are parked with what is behind them", async || {
        let keys = parked(&admin).await;
        keys.len() == 9 && keys.iter().all(|key| key.messages == 2)
    })
    .await;
    assert_eq!(bus.database.number("SELECT max(committed_offset) FROM laneway.lane_commit").await, 20);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_misses_its_deadline_fails_alone_while_others_are_acknowledged() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["stuck:0", "b:1"]).await;
    let settings = WantedSettings { ack_deadline_ms: Some(1_000), ..parking(1) };
    let mut consumer = join(&bus, Subprotocol::Json, settings).await;
    let (_, _, first) = next(&mut consumer).await;
    consumer.ack(ack(&first, None, &[1])).await.unwrap();
    let admin = admin(&bus);
    until("the stuck key is parked", async || parked(&admin).await.len() == 1).await;
    assert_eq!(parked(&admin).await[0].first.as_ref().unwrap().reason, "ack_deadline");
    publish(&bus, &["b:2"]).await;
    let batch = consumer.batch().await;
    assert_eq!((offsets(&batch), batch.epoch), (vec![2], first.epoch), "the lane stays where it is");
    consumer.ack(ack(&batch, None, &[2])).await.unwrap();
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_acknowledges_by_key_also_what_was_parked() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["a:0", "b:1", "a:2"]).await;
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    let (_, _, first) = next(&mut consumer).await;
    consumer.transact(step(&first, 1)).await.unwrap();
    consumer.nack(&first, 0, "it is poison").await.unwrap();
    let admin = admin(&bus);
    until("both are parked", async || parked(&admin).await.first().is_some_and(|key| key.messages == 2))
        .await;
    admin.replay_parked(parked(&admin).await[0].id).await.unwrap();
    let (_, sent, back) = next(&mut consumer).await;
    assert_eq!(sent, [0, 2]);
    consumer.transact(step(&back, 0)).await.unwrap();
    assert_eq!(
        bus.database.number("SELECT count(*) FROM laneway.parked_message").await,
        1,
        "with the step itself"
    );
    consumer.transact(step(&back, 2)).await.unwrap();
    until("the key goes on", async || parked(&admin).await.is_empty()).await;
    let error = consumer.transact(step(&back, 2)).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::AlreadyDone);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seek_back_delivers_what_is_not_parked_again_and_parks_nothing_twice() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["a:0", "b:1", "a:2"]).await;
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    let (_, _, first) = next(&mut consumer).await;
    consumer.nack(&first, 0, "it is poison").await.unwrap();
    consumer.ack(ack(&first, None, &[1])).await.unwrap();
    let admin = admin(&bus);
    until("both are parked", async || parked(&admin).await.first().is_some_and(|key| key.messages == 2))
        .await;
    let seek =
        laneway_client::group_api::Seek { to: laneway_client::wire::Start::Earliest, partitions: None };
    admin.seek_group("orders", "billing", &seek).await.unwrap();
    let (_, sent, again) = next(&mut consumer).await;
    assert_eq!(sent, [1], "a is parked");
    consumer.ack(ack(&again, None, &[1])).await.unwrap();
    until("the lane moves on", async || {
        bus.database
            .number(
                "SELECT committed_offset FROM laneway.lane_commit ORDER BY epoch DESC, number DESC LIMIT 1",
            )
            .await
            == 3
    })
    .await;
    assert_eq!(parked(&admin).await[0].messages, 2);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_takes_the_message_that_failed_also_if_others_stand_before_it() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["a:0", "a:1", "a:2"]).await;
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    let (_, _, first) = next(&mut consumer).await;
    consumer.ack(ack(&first, None, &[0])).await.unwrap();
    consumer.nack(&first, 1, "it is poison").await.unwrap();
    let admin = admin(&bus);
    let messages = async || parked(&admin).await.first().map(|key| key.messages);
    until("two are parked", async || messages().await == Some(2)).await;
    let seek =
        laneway_client::group_api::Seek { to: laneway_client::wire::Start::Earliest, partitions: None };
    admin.seek_group("orders", "billing", &seek).await.unwrap();
    until("the one before them comes again, and stands aside, too", async || messages().await == Some(3))
        .await;
    until("those behind it were met again, too", async || {
        bus.database.number("SELECT max(committed_offset) FROM laneway.lane_commit WHERE epoch > 1").await
            == 3
    })
    .await;
    let key = parked(&admin).await.remove(0);
    let poison = admin.show_parked(key.id).await.unwrap().first.unwrap();
    assert_eq!((poison.message.offset, poison.attempts, poison.reason.as_str()), (1, 1, "it is poison"));
    assert_eq!(key.first.unwrap().message.offset, 1, "the list tells the same");
    assert_eq!(admin.drop_parked(key.id).await.unwrap().first.unwrap().message.offset, 1);
    let (_, sent, rest) = next(&mut consumer).await;
    assert_eq!(sent, [0, 2]);
    consumer.ack(ack(&rest, None, &[0, 2])).await.unwrap();
    until("the key goes on", async || parked(&admin).await.is_empty()).await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seek_back_with_a_released_key_sends_what_lies_before_its_copies_and_keeps_the_order() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["a:0", "b:1", "a:2"]).await;
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    let (_, _, first) = next(&mut consumer).await;
    consumer.ack(ack(&first, None, &[0, 1])).await.unwrap();
    consumer.nack(&first, 2, "it is poison").await.unwrap();
    let admin = admin(&bus);
    admin.replay_parked(parked(&admin).await[0].id).await.unwrap();
    let (_, sent, _) = next(&mut consumer).await;
    assert_eq!(sent, [2], "its copy, which nobody acknowledges");
    let seek =
        laneway_client::group_api::Seek { to: laneway_client::wire::Start::Earliest, partitions: None };
    admin.seek_group("orders", "billing", &seek).await.unwrap();
    let mut back = Vec::new();
    while back.len() < 3 {
        let batch = consumer.batch().await;
        let sent = offsets(&batch);
        consumer.ack(ack(&batch, None, &sent)).await.unwrap();
        back.extend(sent);
    }
    assert_eq!(back.iter().copied().filter(|offset| *offset != 1).collect::<Vec<_>>(), [0, 2], "{back:?}");
    assert!(back.contains(&1));
    until("the key goes on", async || parked(&admin).await.is_empty()).await;
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.parked_message").await, 0);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_that_does_not_count_any_more_holds_up_none_behind_it() {
    let bus = Bus::with_topic("orders", 1).await;
    publish(&bus, &["a:0", "b:1", "b:2", "c:3"]).await;
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    let (_, _, first) = next(&mut consumer).await;
    // While the first is written down, the others wait for their turn; the third is void by then.
    for offset in 0..4 {
        consumer.send(ClientFrame::Nack(nack(&first, offset, "it is poison"))).await;
    }
    let told = consumer.error().await;
    assert_eq!(told.code, ErrorCode::StaleRound, "{told:?}");
    let admin = admin(&bus);
    until("all keys are parked", async || parked(&admin).await.len() == 3).await;
    until("with what is behind them", async || {
        bus.database.number("SELECT count(*) FROM laneway.parked_message").await == 4
    })
    .await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_too_many_is_blocked_and_told_and_goes_on_when_another_is_let_go() {
    let bus = Bus::with_topic("orders", 1).await;
    let consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    consumer.close().await;
    until("nobody consumes", async || bus.database.number("SELECT count(*) FROM laneway.member").await == 0)
        .await;
    let fill = "INSERT INTO laneway.parked_key (group_id, partition_id, parked_offset, key, state, messages)
        SELECT l.group_id, l.partition_id, 1000000 + n, convert_to('k' || n, 'UTF8'), 'parked', 0
        FROM laneway.lane l, generate_series(1, 10000) n";
    bus.database.raw().await.batch_execute(fill).await.unwrap();
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    publish(&bus, &["a:0", "b:1", "a:2"]).await;
    let (_, sent, first) = next(&mut consumer).await;
    assert_eq!(sent, [0, 1, 2]);
    consumer.send(ClientFrame::Nack(nack(&first, 0, "it is poison"))).await;
    let told = consumer.error().await;
    assert_eq!((told.code, told.partition), (ErrorCode::TooManyParked, Some(0)));
    consumer.ack(ack(&first, None, &[1])).await.unwrap();
    let admin = admin(&bus);
    let one = admin.list_parked(&ParkedQuery::default()).await.unwrap().parked.remove(0);
    admin.replay_parked(one.id).await.unwrap();
    let (_, sent, again) = next(&mut consumer).await;
    assert_eq!((sent, again.attempts.clone()), (vec![0, 2], vec![(0, 1)]), "there is room for one");
    consumer.nack(&again, 0, "still").await.unwrap();
    until("it is parked", async || {
        bus.database.number("SELECT count(*) FROM laneway.parked_message").await == 2
    })
    .await;
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_contradicts_order_by_key_is_refused_by_name() {
    let bus = Bus::with_topic("orders", 1).await;
    let mut consumer = bus.connect(Subprotocol::Json).await;
    let lonely = WantedSettings { on_failure: Some(OnFailure::Park), ..WantedSettings::default() };
    let wish = Subscribe { settings: Some(lonely), ..subscribe("billing", "orders") };
    let error = consumer.subscribe_with(wish).await.unwrap_err();
    assert_eq!(
        (error.code, error.field.as_deref()),
        (ErrorCode::InvalidSetting, Some("settings.on_failure"))
    );
    let mut consumer = join(&bus, Subprotocol::Json, parking(1)).await;
    let mut other = bus.connect(Subprotocol::Json).await;
    let by_partition =
        WantedSettings { ordering: Some(GroupOrdering::Partition), ..WantedSettings::default() };
    let wish = Subscribe { settings: Some(by_partition), ..subscribe("billing", "orders") };
    assert_eq!(other.subscribe_with(wish).await.unwrap_err().code, ErrorCode::GroupMismatch);
    let admin = admin(&bus);
    let code = |error: laneway_client::admin::AdminError| format!("{error:?}");
    let alter = async |wanted: WantedSettings| admin.alter_group("orders", "billing", &wanted).await;
    let refused = code(alter(by_partition).await.unwrap_err());
    assert!(refused.contains("InvalidSetting"), "on_failure is park: {refused}");
    let both = WantedSettings { on_failure: Some(OnFailure::Skip), ..by_partition };
    let refused = code(alter(both).await.unwrap_err());
    assert!(refused.contains("GroupHasMembers"), "{refused}");
    let popped = code(admin.pop("orders", "billing", &Default::default()).await.unwrap_err());
    assert!(popped.contains("OrderedByKey"), "{popped}");
    assert!(code(admin.show_parked(4711).await.unwrap_err()).contains("UnknownParked"));
    publish(&bus, &["a:0"]).await;
    let (_, _, first) = next(&mut consumer).await;
    consumer.nack(&first, 0, "it is poison").await.unwrap();
    consumer.close().await;
    until("nobody consumes", async || bus.database.number("SELECT count(*) FROM laneway.member").await == 0)
        .await;
    let refused = code(alter(both).await.unwrap_err());
    assert!(refused.contains("GroupHasParked"), "{refused}");
    admin.drop_parked(parked(&admin).await[0].id).await.unwrap();
    let mut heir = join(&bus, Subprotocol::Json, WantedSettings::default()).await;
    heir.granted().await;
    until("nothing is parked", async || parked(&admin).await.is_empty()).await;
    heir.close().await;
    until("nobody consumes", async || bus.database.number("SELECT count(*) FROM laneway.member").await == 0)
        .await;
    alter(both).await.unwrap();
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_of_what_is_done_already_is_confirmed() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        let mut consumer = join(&bus, subprotocol, parking(1)).await;
        publish(&bus, &["a:0", "b:1", "a:2"]).await;
        let mut end = 0;
        while end < 3 {
            let batch = consumer.batch().await;
            end = batch.messages.last().unwrap().offset + 1;
            for _ in 0..2 {
                assert_eq!(consumer.ack_below(&batch, end).await.unwrap(), end);
            }
            assert_eq!(consumer.ack(ack(&batch, None, &offsets(&batch))).await.unwrap(), end);
        }
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_or_a_nack_of_what_was_copied_aside_meanwhile_does_not_count_and_it_comes_again() {
    for subprotocol in BOTH {
        let bus = Bus::with_topic("orders", 1).await;
        publish(&bus, &["a:0", "b:1", "a:2"]).await;
        let mut consumer = join(&bus, subprotocol, parking(1)).await;
        let (_, _, first) = next(&mut consumer).await;
        consumer.nack(&first, 0, "it is poison").await.unwrap();
        let admin = admin(&bus);
        until("both are copied", async || parked(&admin).await.first().is_some_and(|key| key.messages == 2))
            .await;
        for offset in [0, 2] {
            let error = consumer.ack(ack(&first, None, &[offset])).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::StaleRound, "{offset} is parked, not done: {error:?}");
            let error = consumer.nack(&first, offset, "late").await.unwrap_err();
            assert_eq!(error.code, ErrorCode::StaleRound, "{error:?}");
            let error = consumer.transact(step(&first, offset)).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::StaleRound, "{error:?}");
        }
        let error = consumer.ack_below(&first, 3).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::StaleRound, "{error:?}");
        assert_eq!(consumer.ack(ack(&first, None, &[1])).await.unwrap(), 3, "of 1 it has counted");
        admin.replay_parked(parked(&admin).await[0].id).await.unwrap();
        let (_, sent, again) = next(&mut consumer).await;
        assert_eq!(sent, [0, 2]);
        assert_eq!(consumer.ack(ack(&again, None, &[0, 2])).await.unwrap(), 3);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_cost_no_rows_and_no_tables_until_they_fail() {
    // Beside those of segments and cuts, which come with messages, and what goes with them.
    const RELATIONS: &str =
        "SELECT count(*) FROM pg_class WHERE relname !~ '^(message|trace_block|pg_toast)_'";
    let thousands = std::env::var("LANEWAY_KEYS_THOUSANDS").map_or(10, |number| number.parse().unwrap());
    let bus = Bus::with_topic("orders", 1).await;
    let mut consumer = join(&bus, Subprotocol::MessagePack, parking(1)).await;
    let rows =
        "SELECT (SELECT count(*) FROM laneway.parked_key) + (SELECT count(*) FROM laneway.parked_message)
        + (SELECT count(*) FROM laneway.attempt) + (SELECT count(*) FROM laneway.failure)";
    let mut done = 0;
    let mut tables = 0;
    for turn in 0..thousands {
        let payloads: Vec<String> = (0..1_000).map(|number| format!("{turn}-{number}:x")).collect();
        publish(&bus, &payloads.iter().map(String::as_str).collect::<Vec<_>>()).await;
        while done < (turn + 1) * 1_000 {
            let batch = consumer.batch().await;
            let many = offsets(&batch);
            consumer.send(ClientFrame::Ack(ack(&batch, None, &many))).await;
            let cost = |message: &Record| message.payload.len() + message.key.as_ref().map_or(0, Bytes::len);
            let bytes: usize = batch.messages.iter().map(cost).sum();
            consumer.credit(batch.subscription, many.len() as u32, bytes as u64).await;
            done += many.len();
        }
        if turn == 0 {
            tables = bus.database.number(RELATIONS).await;
        }
    }
    assert_eq!(bus.database.number(rows).await, 0);
    assert_eq!(bus.database.number(RELATIONS).await, tables);
    bus.stop().await;
}

fn step(batch: &Batch, offset: i64) -> Transact {
    Transact {
        id: 0,
        step_id: uuid::Uuid::new_v4(),
        acks: vec![ack(batch, None, &[offset])],
        publishes: vec![],
    }
}
