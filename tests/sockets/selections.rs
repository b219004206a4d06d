//! Subscriptions that select their topics: by names, patterns and labels; topics that come later; one credit, oldest first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use laneway_client::labels::Labels;
use laneway_client::topic::{AlterTopic, CreateTopic};
use laneway_client::wire::{
    Batch, BrokerFrame, ClientFrame, CreditGrant, ErrorFrame, Hello, LaneDraining, Resume, ResumeOutcome,
    Select, Selected, Start, StepPublish, Subprotocol, TopicJoined, TopicLeft, Transact, Unsubscribe,
    WantedSettings, Welcome,
};
use laneway_client::{Admin, ErrorCode};
use nix::sys::signal::Signal;

use crate::Bus;
use crate::harness::socket::{
    BOTH, Socket, ack, hello, make_topic, payloads, quick_retries, subscribe, text,
};
use crate::harness::wait::until;
use crate::harness::{Server, TestDatabase};

fn select(group: &str) -> Select {
    Select {
        id: 0,
        group: group.into(),
        topics: Vec::new(),
        pattern: None,
        labels: Labels::new(),
        start: None,
        credit: CreditGrant { messages: 100_000, bytes: 64 << 20 },
        batch: None,
        settings: None,
    }
}

fn matching(group: &str, pattern: &str) -> Select {
    Select { pattern: Some(pattern.into()), ..select(group) }
}

fn named(group: &str, topics: &[&str]) -> Select {
    Select { topics: topics.iter().map(|topic| (*topic).to_owned()).collect(), ..select(group) }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn selected(socket: &mut Socket, mut select: Select) -> Result<Selected, ErrorFrame> {
    let id = socket.id();
    select.id = id;
    socket.send(ClientFrame::Select(Box::new(select))).await;
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::Selected(selected) if selected.id == id => Some(Ok((**selected).clone())),
            BrokerFrame::Error(error) if error.id == Some(id) => Some(Err((**error).clone())),
            _ => None,
        })
        .await
}

async fn joined(socket: &mut Socket) -> TopicJoined {
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::TopicJoined(joined) => Some((**joined).clone()),
            _ => None,
        })
        .await
}

async fn left(socket: &mut Socket) -> TopicLeft {
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::TopicLeft(left) => Some((**left).clone()),
            _ => None,
        })
        .await
}

/// The numbers of so many topics, by name.
async fn topics(socket: &mut Socket, count: usize) -> BTreeMap<String, u32> {
    let mut topics = BTreeMap::new();
    while topics.len() < count {
        let joined = joined(socket).await;
        topics.insert(joined.topic, joined.subscription);
    }
    topics
}

async fn publish(address: &str, topic: &str, payloads: impl IntoIterator<Item = String>) {
    let mut producer = Socket::connect(address, Subprotocol::MessagePack).await;
    producer.publish(topic, payloads.into_iter().map(text).collect()).await;
    producer.close().await;
}

async fn received(socket: &mut Socket, count: usize) -> Vec<String> {
    let mut received = Vec::new();
    while received.len() < count {
        received.extend(payloads(&socket.batch().await));
    }
    received
}

fn admin(address: &str) -> Admin {
    Admin::new(&format!("http://{address}")).unwrap()
}

async fn label(address: &str, topic: &str, name: &str, value: Option<&str>) {
    let change = [(name.to_owned(), value.map(str::to_owned))].into();
    let changes = AlterTopic { labels: change, ..AlterTopic::default() };
    admin(address).alter_topic(topic, &changes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_subscription_gets_the_messages_of_several_topics_and_acknowledges_each() {
    for subprotocol in BOTH {
        let bus = Bus::start().await;
        let address = &bus.server.address;
        for topic in ["orders.eu", "orders.us", "parcels"] {
            make_topic(address, topic, 2).await;
            publish(address, topic, (0..4).map(|n| format!("{topic}-{n}"))).await;
        }
        let mut socket = bus.connect(subprotocol).await;
        let made = selected(&mut socket, named("billing", &["orders.eu", "parcels"])).await.unwrap();
        assert_eq!((made.topics, made.group.as_str()), (2, "billing"));
        let topics = topics(&mut socket, 2).await;
        assert!(
            topics.keys().eq(["orders.eu", "parcels"]) && topics.values().all(|n| *n >= 1 << 31),
            "{topics:?}"
        );
        let mut seen = BTreeSet::new();
        while seen.len() < 8 {
            let batch = socket.batch().await;
            seen.extend(payloads(&batch));
            let next = batch.messages.last().unwrap().offset + 1;
            assert_eq!(socket.ack_below(&batch, next).await, Ok(next));
        }
        let expected =
            ["orders.eu", "parcels"].iter().flat_map(|topic| (0..4).map(move |n| format!("{topic}-{n}")));
        assert_eq!(seen, expected.collect());
        let id = socket.id();
        socket.send(ClientFrame::Unsubscribe(Unsubscribe { id, subscription: made.subscription })).await;
        socket
            .wait_for(|frame| matches!(frame, BrokerFrame::Unsubscribed(left) if left.id == id).then_some(()))
            .await;
        // A plain member goes on where the selection was.
        let number = socket.subscribe("billing", "orders.eu").await.subscription;
        let mut granted = Vec::new();
        while granted.len() < 2 {
            granted.extend(Some(socket.granted().await).filter(|lane| lane.subscription == number));
        }
        assert_eq!(granted.iter().map(|lane| lane.committed_offset).sum::<i64>(), 4);
        bus.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_and_labels_match_topics_also_those_that_are_labelled_later() {
    let bus = Bus::start().await;
    let address = bus.server.address.clone();
    let admin = admin(&address);
    for (name, pairs) in [
        ("orders.eu", &[("namespace", "shop"), ("task", "ship")][..]),
        ("orders.us", &[("namespace", "shop")]),
        ("parcels", &[("namespace", "shop"), ("task", "ship")]),
    ] {
        let request = CreateTopic { labels: labels(pairs), ..CreateTopic::new(name, 1) };
        assert_eq!(admin.create_topic(&request).await.unwrap().topic.labels, labels(pairs));
        publish(&address, name, [format!("first of {name}")]).await;
    }
    let mut by_pattern = bus.connect(Subprotocol::Json).await;
    selected(&mut by_pattern, matching("a", "orders.*")).await.unwrap();
    assert!(topics(&mut by_pattern, 2).await.keys().eq(["orders.eu", "orders.us"]));
    let mut by_labels = bus.connect(Subprotocol::MessagePack).await;
    let ships = labels(&[("namespace", "shop"), ("task", "ship")]);
    selected(&mut by_labels, Select { labels: ships.clone(), ..select("b") }).await.unwrap();
    assert!(topics(&mut by_labels, 2).await.keys().eq(["orders.eu", "parcels"]));
    received(&mut by_labels, 2).await;
    let mut by_both = bus.connect(Subprotocol::Json).await;
    selected(&mut by_both, Select { labels: ships, ..matching("c", "orders.*") }).await.unwrap();
    assert_eq!(joined(&mut by_both).await.topic, "orders.eu");
    // A label that comes makes a topic join, from its first message on; one that goes lets it leave.
    label(&address, "orders.us", "task", Some("ship")).await;
    assert_eq!(joined(&mut by_labels).await.topic, "orders.us");
    assert_eq!(received(&mut by_labels, 1).await, ["first of orders.us"]);
    assert_eq!(joined(&mut by_both).await.topic, "orders.us");
    label(&address, "parcels", "task", None).await;
    let gone = left(&mut by_labels).await;
    assert_eq!((gone.topic.as_str(), gone.reason.as_str()), ("parcels", "unselected"));
    let shop = admin.list_labelled_topics(None, &labels(&[("namespace", "shop")])).await.unwrap();
    assert_eq!(shop.topics.len(), 3);
    let ship = admin.list_labelled_topics(None, &labels(&[("task", "ship")])).await.unwrap();
    assert!(ship.topics.iter().map(|topic| topic.name.as_str()).eq(["orders.eu", "orders.us"]));
    bus.stop().await;
}

fn label_of(group: &str, name: &str, value: &str) -> Select {
    Select { labels: labels(&[(name, value)]), ..select(group) }
}

/// Several brokers on one database.
async fn brokers(database: &TestDatabase, count: usize) -> Vec<Server> {
    let mut servers = Vec::new();
    for _ in 0..count {
        let args = ["--database-url", &database.url, "--lane-drain", "2s", "--lease-ttl", "2s"];
        servers.push(Server::start(&args).await);
    }
    servers
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_that_appear_later_at_another_broker_join_from_their_first_message_on() {
    let database = TestDatabase::new().await;
    let mut servers = brokers(&database, 2).await;
    let (here, there) = (servers[0].address.clone(), servers[1].address.clone());
    make_topic(&here, "orders.old", 1).await;
    publish(&here, "orders.old", ["before".to_owned()]).await;
    let mut socket = Socket::connect(&here, Subprotocol::MessagePack).await;
    let latest = Select { start: Some(Start::Latest), ..matching("billing", "orders.*") };
    assert_eq!(selected(&mut socket, latest).await.unwrap().topics, 1);
    assert_eq!(joined(&mut socket).await.topic, "orders.old");
    for n in 0..5 {
        let topic = format!("orders.new{n}");
        make_topic(&there, &topic, 2).await;
        publish(&there, &topic, (0..10).map(|m| format!("{n}-{m}"))).await;
    }
    let seen: BTreeSet<String> = received(&mut socket, 50).await.into_iter().collect();
    assert_eq!(
        seen,
        (0..5).flat_map(|n| (0..10).map(move |m| format!("{n}-{m}"))).collect(),
        "and not `before`"
    );
    // Made again under its name, it joins again.
    let admin = admin(&there);
    admin.delete_topic("orders.new0").await.unwrap();
    while left(&mut socket).await.topic != "orders.new0" {}
    make_topic(&there, "orders.new0", 1).await;
    publish(&there, "orders.new0", ["again".to_owned()]).await;
    assert_eq!(received(&mut socket, 1).await, ["again"]);
    for server in &mut servers {
        server.stop().await;
    }
}

fn with_grace() -> Hello {
    Hello { resume_grace_ms: Some(60_000), ..hello() }
}

fn back(welcome: &Welcome) -> Hello {
    let resume = Resume { session: welcome.session, token: welcome.resume_token.clone() };
    Hello { resume: Some(resume), ..with_grace() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_session_has_its_whole_selection_here_and_elsewhere_and_what_came_meanwhile() {
    for elsewhere in [false, true] {
        let database = TestDatabase::new().await;
        let mut servers = brokers(&database, 2).await;
        let (here, there) = (servers[0].address.clone(), servers[1].address.clone());
        make_topic(&here, "orders.a", 1).await;
        publish(&here, "orders.a", (0..4).map(|n| format!("a{n}"))).await;
        let (mut socket, welcome) = Socket::connect_with(&here, Subprotocol::Json, with_grace()).await;
        let latest = Select { start: Some(Start::Earliest), ..matching("billing", "orders.*") };
        let made = selected(&mut socket, latest).await.unwrap();
        let number = joined(&mut socket).await.subscription;
        let batch = socket.batch().await;
        assert_eq!(batch.subscription, number);
        socket.ack_below(&batch, 2).await.unwrap();
        socket.cut();
        make_topic(&there, "orders.b", 1).await;
        publish(&there, "orders.b", ["b0".to_owned()]).await;
        let address = if elsewhere { &there } else { &here };
        let (mut socket, welcome) = Socket::connect_with(address, Subprotocol::Json, back(&welcome)).await;
        let report = welcome.resume.unwrap();
        assert_eq!(report.outcome, ResumeOutcome::Resumed);
        if !elsewhere {
            let lane = &report.lanes[0];
            assert_eq!((lane.selection, lane.subscription), (Some(made.subscription), number));
        }
        let topics = topics(&mut socket, 2).await;
        assert_eq!(topics["orders.a"], number, "it keeps its number");
        let mut seen = received(&mut socket, 3).await;
        seen.sort_unstable();
        assert_eq!(seen, ["a2", "a3", "b0"]);
        // It goes on selecting, and takes credit and leave under the old number.
        make_topic(&here, "orders.c", 1).await;
        assert_eq!(joined(&mut socket).await.topic, "orders.c");
        socket.credit(made.subscription, 1, 1).await;
        let id = socket.id();
        socket.send(ClientFrame::Unsubscribe(Unsubscribe { id, subscription: made.subscription })).await;
        socket
            .wait_for(|frame| matches!(frame, BrokerFrame::Unsubscribed(left) if left.id == id).then_some(()))
            .await;
        for server in &mut servers {
            server.stop().await;
        }
    }
}

async fn draining(socket: &mut Socket) -> LaneDraining {
    socket
        .wait_for(|frame| match frame {
            BrokerFrame::LaneDraining(draining) => Some(draining.clone()),
            _ => None,
        })
        .await
}

async fn labelled(address: &str, topic: &str, pairs: &[(&str, &str)]) {
    let request = CreateTopic { labels: labels(pairs), ..CreateTopic::new(topic, 1) };
    admin(address).create_topic(&request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_selected_again_while_it_is_being_left_joins_once_its_acks_are_in() {
    let database = TestDatabase::new().await;
    let mut server = Server::start(&["--database-url", &database.url, "--lane-drain", "60s"]).await;
    let address = server.address.clone();
    labelled(&address, "parcels", &[("task", "ship")]).await;
    publish(&address, "parcels", (0..4).map(|n| format!("p{n}"))).await;
    let mut socket = Socket::connect(&address, Subprotocol::Json).await;
    selected(&mut socket, label_of("g", "task", "ship")).await.unwrap();
    let number = joined(&mut socket).await.subscription;
    let batch = socket.batch().await;
    for again in 0..3 {
        label(&address, "parcels", "task", if again % 2 == 0 { None } else { Some("ship") }).await;
        if again == 0 {
            assert_eq!(draining(&mut socket).await.subscription, number);
        } else if again == 1 {
            // A look that has found this one has found the other one selected again.
            labelled(&address, "letters", &[("task", "ship")]).await;
            assert_eq!(joined(&mut socket).await.topic, "letters");
        }
    }
    label(&address, "parcels", "task", Some("ship")).await;
    assert_eq!(socket.ack_below(&batch, 4).await, Ok(4), "the lane drains on, and what is in flight counts");
    let gone = left(&mut socket).await;
    assert_eq!((gone.subscription, gone.reason.as_str()), (Some(number), "unselected"));
    let back = joined(&mut socket).await;
    assert_eq!(back.topic, "parcels");
    assert_ne!(back.subscription, number);
    publish(&address, "parcels", ["p4".to_owned()]).await;
    assert_eq!(received(&mut socket, 1).await, ["p4"]);
    assert_eq!(database.number("SELECT count(*) FROM laneway.member").await, 2);
    socket.close().await;
    assert_eq!(server.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_that_change_while_a_session_is_away_decide_what_it_has_when_it_is_back_here_and_elsewhere() {
    for elsewhere in [false, true] {
        let database = TestDatabase::new().await;
        let mut servers = brokers(&database, 2).await;
        let (here, there) = (servers[0].address.clone(), servers[1].address.clone());
        for topic in ["kept", "dropped"] {
            labelled(&here, topic, &[("task", "ship")]).await;
        }
        labelled(&here, "gained", &[]).await;
        publish(&here, "gained", ["g0".to_owned()]).await;
        let (mut socket, welcome) = Socket::connect_with(&here, Subprotocol::Json, with_grace()).await;
        let made = selected(&mut socket, label_of("g", "task", "ship")).await.unwrap();
        let numbers = topics(&mut socket, 2).await;
        for _ in 0..2 {
            socket.granted().await;
        }
        socket.cut();
        label(&there, "dropped", "task", None).await;
        label(&there, "gained", "task", Some("ship")).await;
        let address = if elsewhere { &there } else { &here };
        let (mut socket, welcome) = Socket::connect_with(address, Subprotocol::Json, back(&welcome)).await;
        assert_eq!(welcome.resume.unwrap().outcome, ResumeOutcome::Resumed);
        let gone = left(&mut socket).await;
        assert_eq!(
            (gone.selection, gone.subscription, gone.topic.as_str(), gone.reason.as_str()),
            (made.subscription, Some(numbers["dropped"]), "dropped", "unselected")
        );
        assert_eq!(received(&mut socket, 1).await, ["g0"]);
        publish(&there, "kept", ["k0".to_owned()]).await;
        let batch = socket.batch().await;
        assert_eq!((batch.subscription, payloads(&batch)), (numbers["kept"], vec!["k0".to_owned()]));
        // The lane of the other one is free for others.
        let mut member = Socket::connect(&here, Subprotocol::Json).await;
        member.subscribe("g", "dropped").await;
        member.granted().await;
        assert_eq!(database.number("SELECT count(*) FROM laneway.member").await, 3);
        for server in &mut servers {
            server.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_another_member_makes_at_latest_begins_where_the_selection_that_waits_for_the_topic_does()
 {
    let bus = Bus::start().await;
    let address = &bus.server.address;
    make_topic(address, "orders.old", 1).await;
    let (mut socket, welcome) = Socket::connect_with(address, Subprotocol::Json, with_grace()).await;
    let latest = Select { start: Some(Start::Latest), ..matching("billing", "orders.*") };
    selected(&mut socket, latest.clone()).await.unwrap();
    assert_eq!(joined(&mut socket).await.topic, "orders.old");
    socket.cut();
    let away = "SELECT count(*) FROM laneway.session WHERE away_until_at > clock_timestamp()";
    until("it is away, and joins nothing", async || bus.database.number(away).await == 1).await;
    for topic in ["orders.new", "orders.newer", "parcels"] {
        make_topic(address, topic, 1).await;
        publish(address, topic, (0..2).map(|n| format!("{topic}-{n}"))).await;
    }
    let plain = |topic: &str| laneway_client::wire::Subscribe {
        start: Some(Start::Latest),
        ..subscribe("billing", topic)
    };
    let mut member = bus.connect(Subprotocol::Json).await;
    member.subscribe_with(plain("orders.new")).await.unwrap();
    assert_eq!(member.granted().await.committed_offset, 0, "the selection is its first consumer");
    member.subscribe_with(plain("parcels")).await.unwrap();
    assert_eq!(member.granted().await.committed_offset, 2, "nobody waits for this one");
    let mut other = bus.connect(Subprotocol::Json).await;
    selected(&mut other, latest).await.unwrap();
    let begins = "SELECT first_offset FROM laneway.lane JOIN laneway.partition p USING (partition_id)
        JOIN laneway.topic t USING (topic_id) WHERE t.name = 'orders.newer'";
    assert_eq!(bus.database.number(begins).await, 0, "nor is anything skipped for another selection");
    publish(address, "orders.old", ["old".to_owned()]).await;
    let (_socket, welcome) = Socket::connect_with(address, Subprotocol::Json, back(&welcome)).await;
    assert_eq!(welcome.resume.unwrap().outcome, ResumeOutcome::Resumed);
    // A topic that was there before is begun anew where its next consumer says.
    let admin = admin(address);
    admin.delete_group_with_members("orders.old", "billing").await.unwrap();
    let mut anew = bus.connect(Subprotocol::Json).await;
    anew.subscribe_with(plain("orders.old")).await.unwrap();
    assert_eq!(anew.granted().await.committed_offset, 1);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_two_brokers_the_oldest_message_of_those_that_wait_at_each_goes_first() {
    const SLACK_US: i64 = 5_000;
    let database = TestDatabase::new().await;
    let mut servers = brokers(&database, 2).await;
    let addresses = [servers[0].address.clone(), servers[1].address.clone()];
    for n in 0..4 {
        make_topic(&addresses[0], &format!("work.{n}"), 2).await;
    }
    let mut members = Vec::new();
    for address in &addresses {
        let mut socket = Socket::connect(address, Subprotocol::MessagePack).await;
        let credit = CreditGrant { messages: 1, bytes: 64 << 20 };
        let made = selected(&mut socket, Select { credit, ..matching("g", "work.*") }).await.unwrap();
        members.push((socket, made.subscription));
    }
    let shared = "SELECT count(*) FROM (SELECT session_id FROM laneway.lane WHERE session_id IS NOT NULL
        AND session_id = wanted_session GROUP BY session_id HAVING count(*) = 4) AS member";
    until("each of both has four lanes", async || database.number(shared).await == 2).await;
    // Both brokers store messages of every lane in turns.
    let mut producers = Vec::new();
    for address in &addresses {
        producers.push(Socket::connect(address, Subprotocol::MessagePack).await);
    }
    for turn in 0..200_usize {
        let message = crate::to_partition((turn / 4 % 2) as u32, format!("m{turn}"));
        let topic = format!("work.{}", turn % 4);
        producers[turn / 3 % 2].publish(&topic, vec![message; 5]).await;
    }
    for (socket, number) in &mut members {
        socket.batch().await; // the one that was accepted before the others were there
        let mut times_seen = Vec::new();
        while times_seen.len() < 499 {
            let more = (499 - times_seen.len()).min(20);
            socket.credit(*number, more as u32, 1).await;
            times_seen.extend(times(&socket.batches(more).await));
        }
        let mut newest = i64::MIN;
        for (place, time) in times_seen.iter().enumerate() {
            let late = newest.saturating_sub(*time);
            assert!(late <= SLACK_US, "message {place} is older than one before it by {late} us");
            newest = newest.max(*time);
        }
    }
    for server in &mut servers {
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_the_broker_of_a_pattern_subscriber_is_killed() {
    let database = TestDatabase::new().await;
    let mut servers = brokers(&database, 2).await;
    let (victim, living) = (servers[0].address.clone(), servers[1].address.clone());
    for topic in ["orders.a", "orders.b"] {
        make_topic(&living, topic, 1).await;
        publish(&living, topic, (0..20).map(|n| format!("{topic}-{n}"))).await;
    }
    let (mut socket, welcome) = Socket::connect_with(&victim, Subprotocol::MessagePack, with_grace()).await;
    selected(&mut socket, matching("billing", "orders.*")).await.unwrap();
    let mut acked = BTreeSet::new();
    for _ in 0..2 {
        let batch = socket.batch().await;
        let next = batch.messages[5].offset;
        socket.ack_below(&batch, next).await.unwrap();
        acked.extend(payloads(&batch).into_iter().take(5));
    }
    servers[0].signal(Signal::SIGKILL);
    make_topic(&living, "orders.late", 1).await;
    publish(&living, "orders.late", ["late".to_owned()]).await;
    // Taken up at once, or begun anew once the dead broker is buried: in both cases everything that was not acked comes.
    let (mut socket, welcome) = Socket::connect_with(&living, Subprotocol::MessagePack, back(&welcome)).await;
    if welcome.resume.unwrap().outcome == ResumeOutcome::Reset {
        selected(&mut socket, matching("billing", "orders.*")).await.unwrap();
    }
    let all: BTreeSet<String> = ["orders.a", "orders.b"]
        .iter()
        .flat_map(|topic| (0..20).map(move |n| format!("{topic}-{n}")))
        .chain(["late".to_owned()])
        .collect();
    let mut seen = BTreeSet::new();
    while seen.len() < all.len() - acked.len() {
        seen.extend(payloads(&socket.batch().await));
    }
    assert!(seen.is_disjoint(&acked), "what was acknowledged does not come again");
    assert_eq!(seen.union(&acked).cloned().collect::<BTreeSet<_>>(), all);
    servers[1].stop().await;
}

/// When each message was published, in the order in which they came.
fn times(batches: &[Batch]) -> Vec<i64> {
    batches.iter().flat_map(|batch| &batch.messages).map(|message| message.published_at_us).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_little_credit_the_oldest_waiting_message_of_all_topics_goes_first() {
    /// Messages published so close together count as equally old.
    const SLACK_US: i64 = 5_000;
    let bus = Bus::start().await;
    let address = &bus.server.address;
    make_topic(address, "work.busy", 2).await;
    for n in 0..9 {
        make_topic(address, &format!("work.quiet{n}"), 1).await;
    }
    // Old messages of the busy topic, then the quiet ones, each followed by more of the busy one.
    for part in 0..10 {
        publish(address, "work.busy", (0..1_000).map(|n| format!("busy{part}-{n}"))).await;
        if part > 0 {
            publish(address, &format!("work.quiet{}", part - 1), [format!("quiet{part}")]).await;
        }
    }
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    let credit = CreditGrant { messages: 1, bytes: 64 << 20 };
    let made = selected(&mut socket, Select { credit, ..matching("g", "work.*") }).await.unwrap();
    for _ in 0..11 {
        socket.granted().await;
    }
    socket.batch().await; // the one message that was accepted before every lane was there
    let mut batches: Vec<Batch> = Vec::new();
    let mut count = 1;
    while count < 10_009 {
        socket.credit(made.subscription, 50, 1).await;
        let some = socket.batches((10_009 - count).min(50)).await;
        count += times(&some).len();
        batches.extend(some);
    }
    let times = times(&batches);
    let mut newest = i64::MIN;
    for (place, time) in times.iter().enumerate() {
        assert!(
            time + SLACK_US >= newest,
            "message {place} is older than one before it by {} us",
            newest - time
        );
        newest = newest.max(*time);
    }
    let mut next: BTreeMap<(u32, u32), i64> = BTreeMap::new();
    for batch in &batches {
        for message in &batch.messages {
            let before = next.insert((batch.subscription, batch.partition), message.offset);
            assert!(
                before.is_none_or(|before| before + 1 == message.offset),
                "each partition stays in order"
            );
        }
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credit_is_of_the_whole_subscription_and_too_much_is_refused() {
    let bus = Bus::start().await;
    let address = &bus.server.address;
    for n in 0..4 {
        make_topic(address, &format!("t{n}"), 1).await;
        publish(address, &format!("t{n}"), (0..10).map(|m| format!("{n}-{m}"))).await;
    }
    let mut socket = bus.connect(Subprotocol::Json).await;
    let credit = CreditGrant { messages: 7, bytes: 1 << 20 };
    let made = selected(&mut socket, Select { credit, ..matching("g", "t*") }).await.unwrap();
    for _ in 0..4 {
        socket.granted().await;
    }
    assert_eq!(received(&mut socket, 7).await.len(), 7);
    while let Some(frame) = socket.frame_within(Duration::from_millis(300)).await {
        assert!(!matches!(frame, BrokerFrame::Batch(_)), "there is no credit left: {frame:?}");
    }
    socket.credit(made.subscription, 5, 0).await;
    assert_eq!(received(&mut socket, 5).await.len(), 5);
    socket.credit(made.subscription, u32::MAX, 0).await;
    let error = socket.error().await;
    assert_eq!((error.code, error.subscription), (ErrorCode::InvalidCredit, Some(made.subscription)));
    socket.credit(1 << 31, 5, 0).await;
    assert_eq!(socket.error().await.code, ErrorCode::UnknownSubscription);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_selections_are_refused_by_name_and_nothing_is_joined() {
    let bus = Bus::with_topic("orders", 1).await;
    make_topic(&bus.server.address, "other", 1).await;
    let mut socket = bus.connect(Subprotocol::Json).await;
    let label = |name: &str, value: &str| Select { labels: labels(&[(name, value)]), ..select("g") };
    let settings = |settings: WantedSettings| Select { settings: Some(settings), ..matching("g", "x*") };
    for (bad, code, field) in [
        (select("g"), ErrorCode::InvalidSelection, "topics"),
        (
            Select { pattern: Some("a*".into()), ..named("g", &["orders"]) },
            ErrorCode::InvalidSelection,
            "topics",
        ),
        (named("g", &["orders", "orders"]), ErrorCode::InvalidSelection, "topics"),
        (named("g", &["orders", "no name"]), ErrorCode::InvalidTopicName, "topics[1]"),
        (named("g", &["orders", "missing"]), ErrorCode::UnknownTopic, "topics"),
        (matching("g", "a**"), ErrorCode::InvalidSelection, "pattern"),
        (matching("g", "a b"), ErrorCode::InvalidSelection, "pattern"),
        (label("", "x"), ErrorCode::InvalidLabel, "labels"),
        (label("task", "*"), ErrorCode::InvalidLabel, "labels"),
        (matching("no name", "a*"), ErrorCode::InvalidGroupName, "group"),
        (settings(quick_retries(0)), ErrorCode::InvalidSetting, "settings.max_attempts"),
        (
            Select { start: Some(Start::At("soon".into())), ..matching("g", "x*") },
            ErrorCode::Malformed,
            "start",
        ),
        (
            Select { credit: CreditGrant { messages: 0, bytes: 1 }, ..matching("g", "x*") },
            ErrorCode::InvalidCredit,
            "credit",
        ),
    ] {
        let error = selected(&mut socket, bad.clone()).await.expect_err(&format!("{bad:?}"));
        assert_eq!((error.code, error.field.as_deref()), (code, Some(field)), "{bad:?}: {}", error.detail);
    }
    // Other settings on one of the topics are a mismatch that names it.
    let differs =
        laneway_client::wire::Subscribe { settings: Some(quick_retries(9)), ..subscribe("g", "other") };
    let mut member = bus.connect(Subprotocol::Json).await;
    member.subscribe_with(differs).await.unwrap();
    let wish = Select { settings: Some(quick_retries(3)), ..matching("g", "o*") };
    let error = selected(&mut socket, wish).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::GroupMismatch);
    assert!(error.detail.contains("topic other"), "{}", error.detail);
    // A topic that comes later and cannot join is told, with the reason.
    let wish = Select { settings: Some(quick_retries(3)), ..label_of("g", "task", "ship") };
    let mut late = bus.connect(Subprotocol::MessagePack).await;
    assert_eq!(selected(&mut late, wish).await.unwrap().topics, 0, "it waits");
    self::label(&bus.server.address, "other", "task", Some("ship")).await;
    let refused = left(&mut late).await;
    assert_eq!(
        (refused.topic.as_str(), refused.reason.as_str(), refused.subscription),
        ("other", "refused", None)
    );
    assert_eq!(refused.error.unwrap().code, ErrorCode::GroupMismatch);
    // Others go on.
    let wish = Select { settings: Some(quick_retries(3)), ..matching("late", "o*s") };
    let made = selected(&mut socket, wish).await.unwrap();
    assert_eq!(joined(&mut socket).await.topic, "orders");
    let admin = admin(&bus.server.address);
    admin.create_topic(&CreateTopic::new("offers", 1)).await.unwrap();
    assert_eq!(joined(&mut socket).await.topic, "offers");
    // One selection for a group, and nothing beside it.
    for group in ["late"] {
        let error = selected(&mut socket, matching(group, "x*")).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::AlreadySubscribed);
        let error = socket.subscribe_with(subscribe(group, "other")).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::AlreadySubscribed);
    }
    // A lane is not named by the number of the whole, nor by one that no topic has.
    for subscription in [made.subscription, (1 << 31) + 999] {
        let id = socket.id();
        let frame = laneway_client::wire::Ack {
            id: Some(id),
            subscription,
            partition: 0,
            epoch: 1,
            round: 1,
            next: Some(1),
            ranges: vec![],
        };
        socket.send(ClientFrame::Ack(frame)).await;
        assert_eq!(socket.confirmed(id).await.unwrap_err().code, ErrorCode::UnknownSubscription);
    }
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_acknowledges_on_a_topic_of_a_selection_and_publishes_to_another() {
    let bus = Bus::start().await;
    let address = &bus.server.address;
    for topic in ["in.a", "in.b", "out"] {
        make_topic(address, topic, 1).await;
    }
    publish(address, "in.a", ["a0".to_owned()]).await;
    publish(address, "in.b", ["b0".to_owned()]).await;
    let mut socket = bus.connect(Subprotocol::MessagePack).await;
    selected(&mut socket, matching("g", "in.*")).await.unwrap();
    let (first, second) = (socket.batch().await, socket.batch().await);
    assert_ne!(first.subscription, second.subscription);
    let publishes = vec![StepPublish { topic: "out".into(), messages: vec![text("both")] }];
    let acks = vec![ack(&first, Some(1), &[]), ack(&second, Some(1), &[])];
    let step = Transact { id: 0, step_id: uuid::Uuid::now_v7(), acks, publishes };
    let done = socket.transact(step.clone()).await.unwrap();
    assert_eq!(done.placed[0].len(), 1);
    assert!(socket.transact(step).await.unwrap().repeated);
    let strange = laneway_client::wire::Ack { subscription: (1 << 31) + 7, ..ack(&first, Some(1), &[]) };
    let step = Transact { id: 0, step_id: uuid::Uuid::now_v7(), acks: vec![strange], publishes: vec![] };
    assert_eq!(socket.transact(step).await.unwrap_err().code, ErrorCode::UnknownSubscription);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_members_share_many_topics_and_one_takes_all_when_the_other_leaves() {
    let bus = Bus::start().await;
    let address = &bus.server.address;
    for n in 0..8 {
        make_topic(address, &format!("t{n}"), 1).await;
    }
    let mut members = Vec::new();
    for _ in 0..2 {
        let mut socket = bus.connect(Subprotocol::MessagePack).await;
        selected(&mut socket, matching("g", "t*")).await.unwrap();
        topics(&mut socket, 8).await;
        members.push(socket);
    }
    let mut second = members.pop().unwrap();
    members.pop().unwrap().close().await;
    for n in 0..8 {
        publish(address, &format!("t{n}"), [format!("m{n}")]).await;
    }
    let seen: BTreeSet<String> = received(&mut second, 8).await.into_iter().collect();
    assert_eq!(seen.len(), 8);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_an_operator_deletes_is_not_made_again_and_the_metrics_count() {
    let bus = Bus::start().await;
    let address = &bus.server.address;
    make_topic(address, "t0", 1).await;
    make_topic(address, "t1", 1).await;
    let mut socket = bus.connect(Subprotocol::Json).await;
    selected(&mut socket, matching("g", "t*")).await.unwrap();
    topics(&mut socket, 2).await;
    let sample = async |name: &str| {
        let text = reqwest::get(format!("http://{address}/metrics")).await.unwrap().text().await.unwrap();
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("laneway_{name} ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name}"))
    };
    until("both topics are counted", async || sample("selection_topics").await == "2").await;
    assert_eq!(sample("selections").await, "1");
    admin(address).delete_group_with_members("t0", "g").await.unwrap();
    let gone = left(&mut socket).await;
    assert_eq!((gone.topic.as_str(), gone.reason.as_str()), ("t0", "group_deleted"));
    publish(address, "t0", ["for nobody".to_owned()]).await;
    publish(address, "t1", ["for all".to_owned()]).await;
    assert_eq!(received(&mut socket, 1).await, ["for all"]);
    until("it is counted", async || sample("selection_topics").await == "1").await;
    socket.close().await;
    until("it is over", async || sample("selections").await == "0").await;
    bus.stop().await;
}
