//! Groups, lanes and brokers over HTTP: looked at, altered, moved while they are served, deleted. Members speak over sockets.

use std::collections::BTreeSet;

use laneway_client::ErrorCode;
use laneway_client::group_api::{BrokerList, GroupDetail, GroupList, LaneList, LaneState, Sought};
use laneway_client::topic::TopicDetail;
use laneway_client::wire::{BrokerFrame, LaneGranted, LaneRevoked, OnFailure, Subprotocol, WantedSettings};
use serde_json::{Value, json};

use crate::harness::socket::{Socket, offsets, quick_retries, subscribe};
use crate::harness::{Server, TestDatabase, wait};
use crate::web::{Answer, Web};

async fn server() -> (TestDatabase, Server, Web) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    (database, server, web)
}

async fn member(server: &Server, group: &str, topic: &str) -> Socket {
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    socket.subscribe(group, topic).await;
    socket
}

async fn publish(web: &Web, topic: &str, partition: u32, count: usize) {
    let messages = (0..count).map(|n| json!({"payload": format!("m{n}"), "partition": partition}));
    web.publish(topic, messages.collect()).await;
}

async fn show(web: &Web, topic: &str, group: &str) -> GroupDetail {
    let answer = web.get(&format!("/v1/topics/{topic}/groups/{group}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn patch(web: &Web, path: &str, body: Value) -> Answer {
    web.send(web.http.patch(web.url(path)).json(&body)).await
}

async fn seek(web: &Web, topic: &str, group: &str, body: Value) -> Answer {
    web.post(&format!("/v1/topics/{topic}/groups/{group}/seek"), &body).await
}

async fn revoked(socket: &mut Socket) -> LaneRevoked {
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::LaneRevoked(revoked) => Some(revoked.clone()),
            _ => None,
        })
        .await
}

/// The grant of a partition that a seek leads to: the one before it is put aside no more.
async fn granted_above(socket: &mut Socket, partition: u32, epoch: i64) -> LaneGranted {
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::LaneGranted(granted) if granted.partition == partition && granted.epoch > epoch => {
                Some(granted.clone())
            }
            _ => None,
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_shown_with_its_members_lanes_and_lag() {
    let (_database, server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 2})).await;
    publish(&web, "orders", 0, 5).await;
    let mut first = member(&server, "billing", "orders").await;
    let batch = first.batch().await;
    assert_eq!(offsets(&batch), [0, 1, 2, 3, 4]);
    first.ack_below(&batch, 2).await.unwrap();
    first.ack(crate::harness::socket::ack(&batch, None, &[3])).await.unwrap();

    let shown = show(&web, "orders", "billing").await;
    assert_eq!((shown.group.topic.as_str(), shown.group.group.as_str()), ("orders", "billing"));
    assert_eq!((shown.group.members, shown.group.settings.max_attempts), (1, 5));
    let [only] = shown.member_details.as_slice() else { panic!("{shown:?}") };
    assert_eq!(only.partitions, [0, 1]);
    let [behind, even] = shown.lanes.as_slice() else { panic!("{shown:?}") };
    assert_eq!((behind.partition, behind.committed_offset, behind.next_offset), (0, 2, 5));
    assert_eq!(behind.lag_messages, 2, "one beyond the committed offset is done");
    assert!(behind.lag_seconds > 0.0 && behind.lag_seconds < 60.0, "{behind:?}");
    assert_eq!((even.partition, even.lag_messages, even.lag_seconds), (1, 0, 0.0));
    for lane in &shown.lanes {
        assert_eq!((lane.state, lane.epoch), (LaneState::Held, 1));
        assert_eq!(lane.holder.as_deref(), Some(only.session.as_str()));
        assert_eq!(
            (lane.broker.as_deref(), lane.wanted.as_ref()),
            (Some(only.broker.as_str()), lane.holder.as_ref())
        );
    }
    // The lag in time is counted from the oldest flush that is not done.
    first.ack_below(&batch, 5).await.unwrap();
    publish(&web, "orders", 0, 1).await;
    let lane = show(&web, "orders", "billing").await.lanes.remove(0);
    assert_eq!(lane.lag_messages, 1);
    assert!(lane.lag_seconds < behind.lag_seconds + 30.0);

    let brokers: BrokerList = web.get("/v1/brokers").await.json();
    let [broker] = brokers.brokers.as_slice() else { panic!("{brokers:?}") };
    assert_eq!((&broker.broker, broker.sessions, broker.lanes), (&only.broker, 1, 2));
    assert_eq!(broker.dead_at, None);

    first.close().await;
    wait::until("the member to be gone", async || show(&web, "orders", "billing").await.group.members == 0)
        .await;
    wait::until("its lanes to be free", async || {
        show(&web, "orders", "billing").await.lanes.iter().all(|lane| lane.holder.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_lanes_are_listed_page_by_page() {
    let (_database, server, web) = server().await;
    let none: GroupList = web.get("/v1/groups").await.json();
    assert_eq!((none.groups.len(), none.next), (0, None));
    for topic in ["audit", "orders"] {
        web.create(json!({"name": topic, "partitions": 2})).await;
        for group in ["b", "a", "c"] {
            member(&server, group, topic).await.close().await;
        }
    }
    let names = async |query: &str| {
        let page: GroupList = web.get(&format!("/v1/groups?{query}")).await.json();
        let names = page.groups.iter().map(|group| format!("{}/{}", group.topic, group.group));
        (names.collect::<Vec<_>>(), page.next)
    };
    let all = ["audit/a", "audit/b", "audit/c", "orders/a", "orders/b", "orders/c"];
    assert_eq!(names("").await, (all.map(String::from).to_vec(), None));
    assert_eq!(names("topic=orders").await.0, all[3..]);
    assert_eq!(
        names("limit=4").await,
        (all[..4].iter().map(|s| s.to_string()).collect(), Some("orders/a".into()))
    );
    assert_eq!(
        names("limit=2&after=orders/a").await,
        (all[4..].iter().map(|s| s.to_string()).collect(), None)
    );
    assert_eq!(
        names("topic=orders&limit=1&after=orders/a").await,
        (vec!["orders/b".into()], Some("orders/b".into()))
    );

    let lanes = async |query: &str| {
        let page: LaneList = web.get(&format!("/v1/lanes?{query}")).await.json();
        let names = page.lanes.iter().map(|lane| format!("{}/{}/{}", lane.topic, lane.group, lane.partition));
        (names.collect::<Vec<_>>(), page.next)
    };
    assert_eq!(lanes("").await.0.len(), 12);
    assert_eq!(lanes("topic=audit&group=b").await, (vec!["audit/b/0".into(), "audit/b/1".into()], None));
    let (mut found, mut after) = (Vec::new(), Some(String::new()));
    while let Some(last) = after {
        let query = if last.is_empty() { "limit=5".into() } else { format!("limit=5&after={last}") };
        let (page, next) = lanes(&query).await;
        found.extend(page);
        after = next;
    }
    assert_eq!(found, lanes("limit=1000").await.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seek_moves_lanes_while_they_are_served_and_fences_their_holders() {
    let (database, server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 2})).await;
    publish(&web, "orders", 0, 5).await;
    publish(&web, "orders", 1, 5).await;
    let mut socket = member(&server, "billing", "orders").await;
    for batch in socket.batches(10).await {
        let next = offsets(&batch).last().unwrap() + 1;
        socket.ack_below(&batch, next).await.unwrap();
    }
    // Back to an offset, one partition only: the other does not pause.
    let answer = seek(&web, "orders", "billing", json!({"to": {"offset": 2}, "partitions": [1]})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sought: Sought = answer.json();
    assert_eq!(sought.lanes.len(), 1);
    assert_eq!(
        (sought.lanes[0].partition, sought.lanes[0].epoch, sought.lanes[0].committed_offset),
        (1, 2, 2)
    );
    let lost = revoked(&mut socket).await;
    assert_eq!((lost.partition, lost.epoch), (1, 1));
    let granted = granted_above(&mut socket, 1, 1).await;
    assert_eq!((granted.epoch, granted.committed_offset, granted.acked.len()), (3, 2, 0));
    let again = socket.batch().await;
    assert_eq!((again.partition, again.epoch, offsets(&again)), (1, 3, vec![2, 3, 4]));
    let untouched = &show(&web, "orders", "billing").await.lanes[0];
    assert_eq!((untouched.epoch, untouched.committed_offset), (1, 5));
    // What the holder says under its old epoch does not count.
    let mut old = crate::harness::socket::ack(&again, Some(5), &[]);
    old.epoch = 1;
    assert_eq!(socket.ack(old).await.unwrap_err().code, ErrorCode::LeaseLost);
    socket.ack_below(&again, 5).await.unwrap();
    // To the beginning, then to the end, everywhere.
    let sought: Sought = seek(&web, "orders", "billing", json!({"to": "earliest"})).await.json();
    assert!(sought.lanes.iter().all(|lane| lane.committed_offset == 0), "{sought:?}");
    let mut seen = BTreeSet::new();
    for batch in socket.batches(10).await {
        seen.extend(offsets(&batch).into_iter().map(|offset| (batch.partition, offset)));
    }
    assert_eq!(seen.len(), 10);
    let sought: Sought = seek(&web, "orders", "billing", json!({"to": "latest"})).await.json();
    assert!(sought.lanes.iter().all(|lane| lane.committed_offset == 5), "{sought:?}");
    for lane in &sought.lanes {
        granted_above(&mut socket, lane.partition, lane.epoch).await;
    }
    publish(&web, "orders", 0, 1).await;
    let batch = socket.batch().await;
    assert_eq!((batch.partition, offsets(&batch)), (0, vec![5]), "nothing that was skipped comes");
    // By time, and beyond either end.
    let sought: Sought =
        seek(&web, "orders", "billing", json!({"to": {"at": "2000-01-01T00:00:00Z"}})).await.json();
    assert!(sought.lanes.iter().all(|lane| lane.committed_offset == 0), "{sought:?}");
    let sought: Sought = seek(&web, "orders", "billing", json!({"to": {"offset": 1000}})).await.json();
    let places: Vec<i64> = sought.lanes.iter().map(|lane| lane.committed_offset).collect();
    assert_eq!(places, [6, 5]);
    // The newest commit of each lane is the seek's, under an epoch of its own.
    let stale =
        "SELECT count(*) FROM laneway.lane_commit c JOIN laneway.lane l USING (group_id, partition_id)
                 WHERE c.epoch > l.epoch";
    assert_eq!(database.number(stale).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seek_forgets_what_has_failed_and_what_is_suspect() {
    let (database, server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    publish(&web, "orders", 0, 3).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    let mut wanted = subscribe("billing", "orders");
    wanted.settings = Some(WantedSettings { on_failure: Some(OnFailure::Block), ..quick_retries(1) });
    socket.subscribe_with(wanted).await.unwrap();
    let batch = socket.batch().await;
    socket.nack(&batch, 0, "no").await.unwrap();
    assert_eq!(show(&web, "orders", "billing").await.lanes[0].state, LaneState::Blocked);
    assert_eq!(database.number("SELECT count(*) FROM laneway.attempt").await, 1);
    database.raw().await.batch_execute("UPDATE laneway.lane SET suspect_until = 3").await.unwrap();
    let sought: Sought = seek(&web, "orders", "billing", json!({"to": {"offset": 0}})).await.json();
    let granted = granted_above(&mut socket, 0, sought.lanes[0].epoch).await;
    assert_eq!(granted.committed_offset, 0);
    let batch = socket.batch().await;
    assert_eq!(
        (offsets(&batch), batch.attempts.len()),
        (vec![0, 1, 2], 0),
        "together, and as if never tried"
    );
    assert_eq!(database.number("SELECT count(*) FROM laneway.attempt").await, 0);
    assert_eq!(show(&web, "orders", "billing").await.lanes[0].state, LaneState::Held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seek_reaches_members_of_another_broker_and_a_group_without_members() {
    let (database, server, web) = server().await;
    let other = Server::on_database(&database.url).await;
    web.create(json!({"name": "orders"})).await;
    publish(&web, "orders", 0, 3).await;
    let mut socket = member(&other, "billing", "orders").await;
    let batch = socket.batch().await;
    socket.ack_below(&batch, 3).await.unwrap();
    seek(&web, "orders", "billing", json!({"to": {"offset": 1}})).await.json::<Sought>();
    assert_eq!(revoked(&mut socket).await.epoch, 1);
    assert_eq!(offsets(&socket.batch().await), [1, 2]);
    socket.close().await;
    wait::until("nobody to be there", async || show(&web, "orders", "billing").await.group.members == 0)
        .await;
    seek(&web, "orders", "billing", json!({"to": {"offset": 2}})).await.json::<Sought>();
    let mut socket = member(&server, "billing", "orders").await;
    assert_eq!(offsets(&socket.batch().await), [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_are_altered_hold_for_members_that_are_there() {
    let (database, server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    publish(&web, "orders", 0, 2).await;
    let mut socket = Socket::connect(&server.address, Subprotocol::Json).await;
    let mut wanted = subscribe("billing", "orders");
    wanted.settings = Some(WantedSettings { on_failure: Some(OnFailure::Block), ..quick_retries(1) });
    socket.subscribe_with(wanted).await.unwrap();
    socket.granted().await;
    let batch = socket.batch().await;
    socket.nack(&batch, 0, "no").await.unwrap();
    assert!(socket.frame_within(std::time::Duration::from_millis(200)).await.is_none(), "it is blocked");
    let path = "/v1/topics/orders/groups/billing";
    let altered = patch(&web, path, json!({"on_failure": "skip", "ack_deadline_ms": 30_000})).await;
    assert_eq!(altered.status, 200, "{altered:?}");
    let altered: GroupDetail = altered.json();
    let settings = altered.group.settings;
    assert_eq!((settings.on_failure, settings.ack_deadline_ms), (OnFailure::Skip, 30_000));
    assert_eq!((settings.max_attempts, settings.backoff_base_ms), (1, 10), "the others stay");
    // What has blocked the lane gets another try, and the new policy decides.
    let batch = socket.batch().await;
    assert_eq!(offsets(&batch), [0, 1]);
    socket.nack(&batch, 0, "no").await.unwrap();
    let batch = socket.batch().await;
    assert_eq!(offsets(&batch), [1]);
    assert_eq!(database.number("SELECT count(*) FROM laneway.dead_letter").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_deleted_without_members_or_by_force() {
    let (database, server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    publish(&web, "orders", 0, 2).await;
    let mut socket = member(&server, "billing", "orders").await;
    let batch = socket.batch().await;
    socket.ack_below(&batch, 1).await.unwrap();
    let path = "/v1/topics/orders/groups/billing";
    assert_eq!(web.delete(path).await.problem().code, ErrorCode::GroupHasMembers);
    assert_eq!(web.delete(&format!("{path}?force=false")).await.problem().code, ErrorCode::GroupHasMembers);
    let deleted = web.delete(&format!("{path}?force=true")).await;
    assert_eq!((deleted.status, deleted.body.as_str()), (204, ""));
    assert_eq!(socket.error().await.code, ErrorCode::UnknownGroup);
    for table in ["consumer_group", "member", "lane", "lane_commit"] {
        assert_eq!(database.number(&format!("SELECT count(*) FROM laneway.{table}")).await, 0, "{table}");
    }
    assert_eq!(web.delete(path).await.problem().code, ErrorCode::UnknownGroup);
    // The name begins anew, from the start.
    let mut socket = member(&server, "billing", "orders").await;
    assert_eq!(offsets(&socket.batch().await), [0, 1]);
    socket.close().await;
    wait::until("nobody to be there", async || show(&web, "orders", "billing").await.group.members == 0)
        .await;
    assert_eq!(web.delete(path).await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_altered_and_groups_get_the_lanes_of_new_partitions() {
    let (_database, server, web) = server().await;
    web.create(json!({"name": "orders", "retention_age_ms": 60_000, "retention_bytes": 1000})).await;
    let mut socket = member(&server, "billing", "orders").await;
    assert_eq!(socket.granted().await.partition, 0);
    let changes =
        json!({"partitions": 3, "retention_age_ms": null, "payload_bytes_max": 10, "dedup_window_ms": 5000});
    let altered = patch(&web, "/v1/topics/orders", changes).await;
    assert_eq!(altered.status, 200, "{altered:?}");
    let altered: TopicDetail = altered.json();
    assert_eq!((altered.topic.partitions, altered.partition_details.len()), (3, 3));
    assert_eq!((altered.topic.retention_age_ms, altered.topic.retention_bytes), (None, Some(1000)));
    assert_eq!((altered.topic.payload_bytes_max, altered.topic.dedup_window_ms), (10, 5000));
    let new = BTreeSet::from([socket.granted().await.partition, socket.granted().await.partition]);
    assert_eq!(new, BTreeSet::from([1, 2]));
    let large = json!({"messages": [{"payload": "01234567890"}]});
    let refused = web.post("/v1/topics/orders/messages", &large).await.problem();
    assert_eq!(refused.code, ErrorCode::PayloadTooLarge);
    // Nothing of a request that is refused has happened.
    let fewer =
        patch(&web, "/v1/topics/orders", json!({"partitions": 2, "payload_bytes_max": 99})).await.problem();
    assert_eq!((fewer.code, fewer.field.as_deref()), (ErrorCode::InvalidSetting, Some("partitions")));
    let shown: TopicDetail = web.get("/v1/topics/orders").await.json();
    assert_eq!(shown.topic, altered.topic);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_of_groups_is_refused_with_its_field() {
    use ErrorCode as E;
    let (_database, server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 2})).await;
    member(&server, "billing", "orders").await.close().await;
    let is = |answer: Answer, code: E, field: &str| {
        let problem = answer.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (code, Some(field)), "{answer:?}");
    };
    is(web.get("/v1/groups?topic=nowhere").await, E::UnknownTopic, "topic");
    is(web.get("/v1/groups?after=orders").await, E::Malformed, "after");
    is(web.get("/v1/groups?after=a%00/b").await, E::Malformed, "after");
    is(web.get("/v1/groups?limit=0").await, E::Malformed, "limit");
    is(web.get("/v1/groups?limit=1001").await, E::Malformed, "limit");
    is(web.get("/v1/lanes?after=orders/billing").await, E::Malformed, "after");
    is(web.get("/v1/lanes?after=orders/billing/x").await, E::Malformed, "after");
    is(web.get("/v1/lanes?group=a%20b").await, E::InvalidGroupName, "group");
    is(web.get("/v1/topics/nowhere/groups/billing").await, E::UnknownTopic, "topic");
    is(web.get("/v1/topics/orders/groups/mail").await, E::UnknownGroup, "group");
    let path = "/v1/topics/orders/groups/billing";
    is(patch(&web, path, json!({"max_attempts": 0})).await, E::InvalidSetting, "max_attempts");
    is(patch(&web, path, json!({"ack_deadline_ms": 1})).await, E::InvalidSetting, "ack_deadline_ms");
    is(patch(&web, "/v1/topics/orders/groups/mail", json!({})).await, E::UnknownGroup, "group");
    let to = async |body: Value| seek(&web, "orders", "billing", body).await;
    is(to(json!({"to": {"offset": -1}})).await, E::Malformed, "to");
    is(to(json!({"to": {"at": "yesterday"}})).await, E::Malformed, "to");
    is(to(json!({"to": "latest", "partitions": []})).await, E::Malformed, "partitions");
    is(to(json!({"to": "latest", "partitions": [0, 2]})).await, E::PartitionOutOfRange, "partitions[1]");
    is(to(json!({"to": "latest", "partitions": [1, 1]})).await, E::Malformed, "partitions[1]");
    for body in [json!({}), json!({"to": "middle"}), json!({"to": "latest", "more": 1})] {
        assert_eq!(to(body).await.problem().code, E::Malformed);
    }
    is(patch(&web, "/v1/topics/orders", json!({"partitions": 1001})).await, E::InvalidSetting, "partitions");
    is(
        patch(&web, "/v1/topics/orders", json!({"retention_bytes": 0})).await,
        E::InvalidSetting,
        "retention_bytes",
    );
    is(patch(&web, "/v1/topics/nowhere", json!({})).await, E::UnknownTopic, "topic");
    assert_eq!(patch(&web, "/v1/topics/orders", json!({"name": "x"})).await.problem().code, E::Malformed);
    assert_eq!(web.delete(&format!("{path}?force=perhaps")).await.problem().code, E::Malformed);
}
