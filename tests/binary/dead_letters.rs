//! Dead letters over HTTP: listed, shown, published again in one transaction with their end, and dropped.

use std::collections::HashSet;

use laneway::ids::{BrokerId, PartitionId};
use laneway::store::listen::{Hint, Hints};
use laneway_client::dead_letter::{DeadLetter, DeadLetterList, DeadLetterQuery, Replayed};
use laneway_client::message::MessageList;
use laneway_client::{Admin, ErrorCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::harness::{Server, TestDatabase, wait};
use crate::web::{Answer, Web, text};

async fn server() -> (TestDatabase, Server, Web) {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    (database, server, web)
}

/// Gives a stored message up, as a group does. Returns the id of the dead letter.
pub async fn give_up(database: &TestDatabase, topic: &str, group: &str, partition: i32, offset: i64) -> i64 {
    let sql = r#"
        INSERT INTO laneway.dead_letter (
            topic_id, group_name, partition_id, "offset", attempts, reason, published_at, trace_id, cause_partition_id,
            cause_offset, key, transaction_id, headers, content_type, payload, producer
        )
        SELECT
            t.topic_id, $2, m.partition_id, m."offset", 3, 'it does not parse', m.published_at, m.trace_id,
            m.partition_id, 4711, m.key, m.transaction_id, m.headers, m.content_type, m.payload, m.producer
        FROM laneway.topic t
        JOIN laneway.partition p USING (topic_id)
        JOIN laneway.message m USING (partition_id)
        WHERE t.name = $1 AND t.deleted_at IS NULL AND p.number = $3 AND m."offset" = $4
        RETURNING dead_letter_id"#;
    let raw = database.raw().await;
    raw.query_one(sql, &[&topic, &group, &partition, &offset]).await.unwrap().get(0)
}

async fn left(database: &TestDatabase) -> i64 {
    database.number("SELECT count(*) FROM laneway.dead_letter").await
}

async fn list(web: &Web, query: &str) -> DeadLetterList {
    let answer = web.get(&format!("/v1/dead-letters?{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn ids(web: &Web, query: &str) -> (Vec<i64>, Option<i64>) {
    let page = list(web, query).await;
    (page.dead_letters.iter().map(|letter| letter.id).collect(), page.next)
}

async fn replay(web: &Web, id: i64) -> Answer {
    web.send(web.http.post(web.url(&format!("/v1/dead-letters/{id}/replay")))).await
}

#[tokio::test]
async fn dead_letters_are_listed_by_id_page_by_page_and_by_topic_and_group() {
    let (database, _server, web) = server().await;
    assert_eq!(ids(&web, "").await, (vec![], None));
    web.create(json!({"name": "orders", "partitions": 2})).await;
    web.create(json!({"name": "audit"})).await;
    let mut expected = Vec::new();
    for number in 0..12 {
        let (topic, partition) = if number % 3 == 0 { ("audit", 0) } else { ("orders", number % 2) };
        let message = json!([{"payload": format!("m{number}"), "partition": partition}]);
        let offset = web.publish(topic, message).await.results[0].offset.unwrap();
        let group = if number % 4 == 0 { "billing" } else { "mail" };
        let id = give_up(&database, topic, group, partition, offset).await;
        expected.push((id, topic, group));
    }
    let picked = |pick: &dyn Fn(&str, &str) -> bool| {
        let picked = expected.iter().filter(|(_, topic, group)| pick(topic, group));
        picked.map(|(id, _, _)| *id).collect::<Vec<i64>>()
    };
    let all = picked(&|_, _| true);
    assert!(all.is_sorted());
    assert_eq!(ids(&web, "").await, (all.clone(), None));
    assert_eq!(ids(&web, "topic=audit").await.0, picked(&|topic, _| topic == "audit"));
    assert_eq!(ids(&web, "group=mail").await.0, picked(&|_, group| group == "mail"));
    assert_eq!(
        ids(&web, "topic=orders&group=billing").await.0,
        picked(&|topic, group| (topic, group) == ("orders", "billing"))
    );
    assert_eq!(ids(&web, "group=nobody").await, (vec![], None));
    // Pages: a full one that is the last says so.
    assert_eq!(ids(&web, "limit=5").await, (all[..5].to_vec(), Some(all[4])));
    assert_eq!(ids(&web, &format!("limit=5&after={}", all[4])).await, (all[5..10].to_vec(), Some(all[9])));
    assert_eq!(ids(&web, &format!("limit=2&after={}", all[9])).await, (all[10..].to_vec(), None));
    assert_eq!(ids(&web, &format!("after={}", all[11])).await, (vec![], None));
    assert_eq!(ids(&web, &format!("after={}", i64::MAX)).await, (vec![], None));
    let mails = picked(&|_, group| group == "mail");
    let page = ids(&web, &format!("group=mail&limit=2&after={}", mails[1])).await;
    assert_eq!(page, (mails[2..4].to_vec(), Some(mails[3])));
}

#[tokio::test]
async fn a_page_of_large_dead_letters_ends_at_some_bytes_and_goes_on() {
    let (database, _server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    let mut expected = Vec::new();
    for offset in 0..12 {
        web.publish("orders", json!([{"payload": "p".repeat(1 << 20)}])).await;
        expected.push(give_up(&database, "orders", "mail", 0, offset).await);
    }
    let (mut found, mut after, mut pages) = (Vec::new(), Some(0), 0);
    while let Some(last) = after {
        let (some, next) = ids(&web, &format!("limit=100&after={last}")).await;
        assert!(!some.is_empty() && some.len() < 12);
        found.extend(some);
        after = next;
        pages += 1;
    }
    assert_eq!((found, pages), (expected, 2));
}

#[tokio::test]
async fn a_dead_letter_is_shown_whole_and_dropped_once() {
    let (database, server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 3})).await;
    let message = json!({
        "payload": {"a": 1.50}, "encoding": "json", "key": "/wA=", "key_encoding": "base64", "partition": 2,
        "trace_id": "0af7651916cd43dd8448eb211c80319c", "transaction_id": "t-1", "headers": {"h": "ü\0"},
    });
    web.publish("orders", json!([message, {"payload": "plain", "partition": 2}])).await;
    let id = give_up(&database, "orders", "mail", 2, 0).await;
    let plain = give_up(&database, "orders", "mail", 2, 1).await;
    let stored = serde_json::to_value(&web.all("orders", 2).await[0]).unwrap();
    let mut shown: Value = web.get(&format!("/v1/dead-letters/{id}")).await.json();
    assert_eq!(serde_json::to_value(&list(&web, "").await.dead_letters[0]).unwrap(), shown);
    let own = shown.as_object_mut().unwrap();
    let dead_at: jiff::Timestamp = own.remove("dead_at").unwrap().as_str().unwrap().parse().unwrap();
    assert!(dead_at >= stored["published_at"].as_str().unwrap().parse().unwrap());
    assert_eq!(own.remove("id"), Some(id.into()));
    assert_eq!(own.remove("cause"), Some(json!({"topic": "orders", "partition": 2, "offset": 4711})));
    assert_eq!(own.remove("group"), Some("mail".into()));
    assert_eq!(own.remove("attempts"), Some(3.into()));
    assert_eq!(own.remove("reason"), Some("it does not parse".into()));
    assert_eq!(shown, stored, "the rest is the message as it stands in its partition");

    let admin = Admin::new(&server.url("")).unwrap();
    let query = DeadLetterQuery { group: Some("mail".into()), limit: Some(1), ..Default::default() };
    assert_eq!(admin.list_dead_letters(&query).await.unwrap().next, Some(id));
    assert_eq!(admin.show_dead_letter(plain).await.unwrap().key.map(|key| key.to_string()), None);
    admin.delete_dead_letter(id).await.unwrap();
    assert!(admin.delete_dead_letter(id).await.is_err());
    let path = format!("/v1/dead-letters/{plain}");
    let dropped = web.delete(&path).await;
    assert_eq!((dropped.status, dropped.body.as_str()), (204, ""));
    assert_eq!(web.delete(&path).await.problem().code, ErrorCode::UnknownDeadLetter);
    assert_eq!(web.get(&path).await.problem().code, ErrorCode::UnknownDeadLetter);
    assert_eq!(left(&database).await, 0);
    assert_eq!(web.all("orders", 2).await.len(), 2, "the messages stay");
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused_with_its_field() {
    use ErrorCode as E;
    let (database, _server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    web.publish("orders", json!([{"payload": "m"}])).await;
    let id = give_up(&database, "orders", "mail", 0, 0).await;
    for (query, code, field) in [
        ("limit=0", E::Malformed, Some("limit")),
        ("limit=1001", E::Malformed, Some("limit")),
        ("limit=-1", E::Malformed, None),
        ("limit=many", E::Malformed, None),
        ("after=-1", E::Malformed, Some("after")),
        ("after=9223372036854775808", E::Malformed, None),
        ("group=a%00b", E::InvalidGroupName, Some("group")),
        ("group=", E::InvalidGroupName, Some("group")),
        ("topic=a%20b", E::InvalidTopicName, Some("name")),
        ("topic=nowhere", E::UnknownTopic, Some("topic")),
        ("before=1", E::Malformed, None),
    ] {
        let problem = web.get(&format!("/v1/dead-letters?{query}")).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (code, field), "{query}: {problem:?}");
    }
    for (wrong, code) in [
        ("x", E::Malformed),
        ("1.5", E::Malformed),
        ("9223372036854775808", E::Malformed),
        ("0", E::UnknownDeadLetter),
        ("-1", E::UnknownDeadLetter),
        ("9223372036854775807", E::UnknownDeadLetter),
    ] {
        let path = format!("/v1/dead-letters/{wrong}");
        assert_eq!(web.get(&path).await.problem().code, code, "{wrong}");
        assert_eq!(web.delete(&path).await.problem().code, code, "{wrong}");
        let replay = web.send(web.http.post(web.url(&format!("{path}/replay")))).await;
        assert_eq!(replay.problem().code, code, "{wrong}");
    }
    let put = web.send(web.http.put(web.url(&format!("/v1/dead-letters/{id}")))).await;
    assert_eq!(put.problem().code, E::MethodNotAllowed);
    assert_eq!(web.get(&format!("/v1/dead-letters/{id}/replay")).await.problem().code, E::MethodNotAllowed);
    assert_eq!(left(&database).await, 1);
    assert_eq!(web.all("orders", 0).await.len(), 1);
}

/// Everything of a message but its place and its time.
fn essence(message: &impl serde::Serialize) -> Value {
    let mut value = serde_json::to_value(message).unwrap();
    value
        .as_object_mut()
        .unwrap()
        .retain(|name, _| !["offset", "published_at", "cause"].contains(&name.as_str()));
    value
}

#[tokio::test]
async fn a_replay_publishes_the_message_as_it_was_to_the_same_partition() {
    let (database, server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 4})).await;
    let trace = "0af76519-16cd-43dd-8448-eb211c80319c";
    // Its key would lead elsewhere by now: what counts is where it was.
    let message = json!({
        "payload": "/wAB", "encoding": "base64", "key": "customer-7", "partition": 3, "trace_id": trace,
        "transaction_id": "t-1", "headers": {"h": "ü\0"}, "content_type": "text/x-odd",
    });
    web.publish("orders", json!([message, {"payload": "later", "partition": 3}])).await;
    let id = give_up(&database, "orders", "mail", 3, 0).await;
    let answer = replay(&web, id).await;
    assert_eq!(answer.json::<Value>(), json!({"partition": 3, "offset": 2}), "{answer:?}");
    assert_eq!(replay(&web, id).await.problem().code, ErrorCode::UnknownDeadLetter);
    assert_eq!(left(&database).await, 0);

    let all = web.all("orders", 3).await;
    assert_eq!(all.len(), 3);
    assert_eq!(essence(&all[2]), essence(&all[0]));
    assert!(all[2].published_at > all[1].published_at);
    assert_eq!(all[2].cause.as_ref().map(|cause| (cause.partition, cause.offset)), Some((3, 4711)));
    let hops = web.get(&format!("/v1/traces/{trace}/messages")).await.json::<MessageList>().messages;
    assert_eq!(hops.iter().map(|hop| hop.offset).collect::<Vec<_>>(), [0, 2], "the trace index knows both");
    let bytes = web.partitions("orders").await[3].stored_bytes;
    let first = 3 + "customer-7".len() as i64 + r#"{"h":"ü\u0000"}"#.len() as i64;
    assert_eq!(bytes, 2 * first + "later".len() as i64);

    // The transaction id still names the first copy, and publishing goes on behind the replay.
    let named = json!([{"payload": "again", "partition": 3, "transaction_id": "t-1"}]);
    let again = web.publish("orders", named).await.results.remove(0);
    assert_eq!((again.offset, again.duplicate), (Some(0), true));
    let next = web.publish("orders", json!([{"payload": "next", "partition": 3}])).await;
    assert_eq!(next.results[0].offset, Some(3));
    let second = give_up(&database, "orders", "mail", 3, 3).await;
    let admin = Admin::new(&server.url("")).unwrap();
    assert_eq!(admin.replay_dead_letter(second).await.unwrap(), Replayed { partition: 3, offset: 4 });
}

#[tokio::test]
async fn a_replay_is_told_to_those_who_follow_the_partition() {
    let (database, _server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    web.publish("orders", json!([{"payload": "m"}])).await;
    let id = give_up(&database, "orders", "mail", 0, 0).await;
    let hints = Hints::new();
    let mut heard = hints.subscribe();
    let stop = CancellationToken::new();
    let listening = tokio::spawn(hints.listen(database.store(), stop.clone()));
    let partition = database.number("SELECT partition_id FROM laneway.partition").await;
    let mut replayed = false;
    let hint = async {
        loop {
            match heard.recv().await.unwrap() {
                Hint::Everything => replayed = replay(&web, id).await.status == 200, // it listens now
                Hint::Heads { broker_id, partitions } => return (broker_id, partitions),
                Hint::Topics | Hint::Group(_) => {}
            }
        }
    };
    let hint = tokio::time::timeout(wait::PATIENCE, hint).await.expect("a hint comes");
    assert_eq!(hint, (BrokerId(uuid::Uuid::nil()), vec![PartitionId(partition)]));
    assert!(replayed);
    stop.cancel();
    listening.await.unwrap();
}

/// Retention, or a partition that was never published to: the dead letter is all there is.
#[tokio::test]
async fn a_replay_makes_the_tables_that_it_needs() {
    let (database, _server, web) = server().await;
    web.create(json!({"name": "orders", "partitions": 2, "segment_messages": 16})).await;
    web.publish("orders", (0..16).map(|n| json!({"payload": format!("m{n}"), "partition": 0})).collect())
        .await;
    let raw = database.raw().await;
    let mut letters = Vec::new();
    for offset in 0..16 {
        letters.push(give_up(&database, "orders", "mail", 0, offset).await);
    }
    let elsewhere = "UPDATE laneway.dead_letter SET partition_id =
        (SELECT partition_id FROM laneway.partition WHERE number = 1) WHERE dead_letter_id = ANY ($1)";
    raw.execute(elsewhere, &[&&letters[8..]]).await.unwrap();
    let tables = "SELECT count(*) FROM pg_class WHERE relname ~ '^message_p[0-9]+$'";
    assert_eq!(database.number(tables).await, 1);
    // Through the ends of segments too: the appender of this broker does not know of these messages.
    for (place, id) in letters.iter().enumerate() {
        let offset = if place < 8 { 16 + place as i64 } else { place as i64 - 8 };
        let partition = u32::from(place >= 8);
        assert_eq!(replay(&web, *id).await.json::<Replayed>(), Replayed { partition, offset });
    }
    assert_eq!(database.number(tables).await, 2);
    let texts: Vec<String> = web.all("orders", 1).await.iter().map(text).collect();
    assert_eq!(texts, (8..16).map(|n| format!("m{n}")).collect::<Vec<_>>());
    for n in 24..60 {
        let result = web.publish("orders", json!([{"payload": "m", "partition": 0}])).await;
        assert_eq!(result.results[0].offset, Some(n));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_replays_at_once_exactly_one_wins_while_others_publish() {
    const LETTERS: i64 = 12;
    let database = TestDatabase::new().await;
    let servers = [Server::on_database(&database.url).await, Server::on_database(&database.url).await];
    let webs = [Web::new(&servers[0]), Web::new(&servers[1])];
    webs[0].create(json!({"name": "orders", "segment_messages": 16})).await;
    let messages = (0..LETTERS).map(|n| json!({"payload": format!("dead{n}")})).collect();
    webs[0].publish("orders", messages).await;
    let mut tries = tokio::task::JoinSet::new();
    for offset in 0..LETTERS {
        let id = give_up(&database, "orders", "mail", 0, offset).await;
        for web in webs.iter().cycle().take(4) {
            let web = web.clone();
            tries.spawn(async move { (id, replay(&web, id).await) });
        }
    }
    let mut publishing = tokio::task::JoinSet::new();
    for web in webs.clone() {
        publishing.spawn(async move {
            for n in 0..40 {
                web.publish("orders", json!([{"payload": format!("new{n}")}])).await;
            }
        });
    }
    let mut winners = HashSet::new();
    let mut offsets = HashSet::new();
    for (id, answer) in tries.join_all().await {
        match answer.status {
            200 => {
                assert!(winners.insert(id), "{id} was replayed twice");
                assert!(offsets.insert(answer.json::<Replayed>().offset));
            }
            _ => assert_eq!(answer.problem().code, ErrorCode::UnknownDeadLetter),
        }
    }
    publishing.join_all().await;
    assert_eq!((winners.len() as i64, left(&database).await), (LETTERS, 0));
    let all = webs[1].all("orders", 0).await;
    assert!(all.iter().map(|message| message.offset).eq(0..LETTERS * 2 + 80), "{}", all.len());
    for n in 0..LETTERS {
        let copies: Vec<_> = all.iter().filter(|message| text(message) == format!("dead{n}")).collect();
        assert_eq!(copies.len(), 2);
        assert!(offsets.contains(&copies[1].offset), "it stands where its answer says");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_killed_in_the_middle_of_a_replay_has_done_neither_half() {
    let (database, mut server, web) = server().await;
    web.create(json!({"name": "orders"})).await;
    web.publish("orders", json!([{"payload": "m"}])).await;
    let id = give_up(&database, "orders", "mail", 0, 0).await;
    // Somebody holds the partition, so the replay has taken the dead letter and waits.
    let holder = database.raw().await;
    holder.batch_execute("BEGIN; SELECT FROM laneway.partition FOR UPDATE").await.unwrap();
    let waiting = tokio::spawn({
        let web = web.clone();
        async move { web.http.post(web.url(&format!("/v1/dead-letters/{id}/replay"))).send().await.is_ok() }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'laneway' AND wait_event_type = 'Lock'";
    wait::until("the replay to wait", async || database.number(waits).await == 1).await;
    server.kill().await;
    assert!(!waiting.await.unwrap(), "nobody answered");
    holder.batch_execute("COMMIT").await.unwrap();
    wait::until("its session to end", async || database.number(waits).await == 0).await;
    let server = Server::on_database(&database.url).await;
    let web = Web::new(&server);
    wait::until("the dead letter to be free", async || {
        let free = "SELECT count(*) FROM (SELECT FROM laneway.dead_letter FOR UPDATE SKIP LOCKED) AS free";
        database.number(free).await == 1
    })
    .await;
    assert_eq!(web.all("orders", 0).await.len(), 1);
    assert_eq!(replay(&web, id).await.json::<Replayed>(), Replayed { partition: 0, offset: 1 });
    assert_eq!((web.all("orders", 0).await.len(), left(&database).await), (2, 0));
}

#[tokio::test]
async fn the_dead_letters_of_a_deleted_topic_are_gone_with_it() {
    let (database, _server, web) = server().await;
    for topic in ["orders", "audit"] {
        web.create(json!({"name": topic})).await;
        web.publish(topic, json!([{"payload": "m"}])).await;
    }
    let id = give_up(&database, "orders", "mail", 0, 0).await;
    let other = give_up(&database, "audit", "mail", 0, 0).await;
    assert_eq!(web.delete("/v1/topics/orders").await.status, 204);
    assert_eq!(ids(&web, "").await, (vec![other], None));
    assert_eq!(web.get("/v1/dead-letters?topic=orders").await.problem().code, ErrorCode::UnknownTopic);
    for answer in [
        web.get(&format!("/v1/dead-letters/{id}")).await,
        web.delete(&format!("/v1/dead-letters/{id}")).await,
        replay(&web, id).await,
    ] {
        assert_eq!(answer.problem().code, ErrorCode::UnknownDeadLetter);
    }
    // A topic of the same name is another one.
    web.create(json!({"name": "orders"})).await;
    assert_eq!(ids(&web, "topic=orders").await, (vec![], None));
    wait::until("the sweep", async || left(&database).await == 1).await;
    assert_eq!(web.get(&format!("/v1/dead-letters/{other}")).await.json::<DeadLetter>().topic, "audit");
}
