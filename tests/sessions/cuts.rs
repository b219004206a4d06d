//! Connections that are cut at random bytes, either way, while a producer publishes and a group consumes: nothing lost,
//! nothing stored twice, order kept, nothing delivered again that was confirmed.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_client::wire::{
    Ack, Acked, Batch, BrokerFrame, ClientFrame, Hello, NewMessage, OffsetRange, Publish, PublishedUnit,
    ResumeOutcome, Subprotocol, WantedSettings, Welcome,
};
use uuid::Uuid;

use crate::harness::socket::{BOTH, Seen, Socket, batches_of, hello, make_topic, subscribe, text};
use crate::harness::{Server, TestDatabase, wait};
use crate::mutate::Random;
use crate::proxy::{Allowance, Proxy};
use crate::resuming::back;

const PARTITIONS: usize = 2;
const MESSAGES: i64 = 1_000; // of each partition
const PATIENCE: Duration = Duration::from_secs(90);

fn seed() -> u64 {
    let given = std::env::var("LANEWAY_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = given.unwrap_or_else(rand::random);
    eprintln!("LANEWAY_SEED={seed}");
    seed
}

/// A proxy that cuts every connection after some bytes.
async fn cutting(broker: &str, seed: u64, cuts: Arc<Mutex<usize>>) -> Proxy {
    let mut random = Random::new(seed);
    Proxy::cutting(broker, move || {
        *cuts.lock().unwrap() += 1;
        // Some within the upgrade or hello, most a few frames later.
        let mut bytes = || match random.below(8) {
            0 => 1 + random.below(600),
            1..6 => 500 + random.below(6_000),
            _ => 2_000 + random.below(40_000),
        };
        Allowance { to_broker: bytes(), to_client: bytes() }
    })
    .await
}

/// Publishes numbered messages, a few frames in flight, and sends again whatever was not answered.
async fn produce(addresses: &[&str], seed: u64) {
    let (mut random, producer_id) = (Random::new(seed), Uuid::new_v4());
    let mut unanswered: VecDeque<(u64, Vec<NewMessage>)> = VecDeque::new();
    let (mut next, mut id) = ([0i64; PARTITIONS], 0);
    while next.iter().any(|next| *next < MESSAGES) || !unanswered.is_empty() {
        let subprotocol = BOTH[random.below(2)];
        let address = addresses[random.below(addresses.len())];
        let Some((mut socket, _)) = Socket::try_connect_with(address, subprotocol, hello()).await else {
            continue;
        };
        let publish = |id: u64, messages: Vec<NewMessage>| {
            let (topic, producer_id) = ("orders".to_owned(), Some(producer_id));
            ClientFrame::Publish(Publish { id, topic, producer_id, wait_ms: None, messages })
        };
        let mut stands = true;
        for (id, messages) in &unanswered {
            stands = stands && socket.try_send(publish(*id, messages.clone())).await.is_some();
        }
        while stands {
            while unanswered.len() < 4 && next.iter().any(|next| *next < MESSAGES) {
                let mut messages = Vec::new();
                for _ in 0..1 + random.below(20) {
                    let partition = random.below(PARTITIONS);
                    if next[partition] < MESSAGES {
                        let sequence = next[partition];
                        messages.push(NewMessage {
                            partition: Some(partition as u32),
                            sequence: Some(sequence),
                            ..text(sequence.to_string())
                        });
                        next[partition] += 1;
                    }
                }
                if messages.is_empty() {
                    continue;
                }
                id += 1;
                unanswered.push_back((id, messages.clone()));
                stands = socket.try_send(publish(id, messages)).await.is_some();
                if !stands {
                    break;
                }
            }
            if unanswered.is_empty() || !stands {
                break;
            }
            match socket.seen().await {
                Seen::Frame(BrokerFrame::Published(published)) => {
                    let failed = |unit: &&PublishedUnit| unit.error.is_some();
                    assert_eq!(published.units.iter().find(failed), None);
                    unanswered.retain(|(id, _)| *id != published.id);
                }
                Seen::Frame(BrokerFrame::Heartbeat) => {}
                Seen::Frame(other) => panic!("{other:?}"),
                Seen::Closed(_) => stands = false,
            }
        }
    }
}

/// What a consumer has seen and done of one partition.
#[derive(Default)]
struct Lane {
    /// Where deliveries are: epoch, round, and the offset after the last one.
    at: Option<(i64, u32, i64)>,
    /// Ever acknowledged, whether confirmed or not.
    acked: BTreeSet<i64>,
    /// Confirmed as committed.
    confirmed: BTreeSet<i64>,
    delivered: BTreeMap<i64, String>,
    /// How far the broker has said that it is, durably.
    committed: i64,
    /// How far it has said that acks have arrived: also those whose confirmation was lost.
    arrived: i64,
}

impl Lane {
    fn on_committed(&mut self, committed: i64, told_by: &str) {
        assert!(committed >= self.committed, "{committed} after {}, told by {told_by}", self.committed);
        (self.committed, self.arrived) = (committed, committed);
    }

    fn is_done(&self) -> bool {
        self.arrived == MESSAGES
    }

    fn on_batch(&mut self, batch: &Batch) {
        let under = (batch.epoch, batch.round);
        for record in &batch.messages {
            let offset = record.offset;
            if let Some((epoch, round, next)) = self.at
                && under == (epoch, round)
            {
                assert!(offset >= next, "{offset} after {next} in epoch and round {under:?}");
                let skipped: Vec<i64> =
                    (next..offset).filter(|offset| !self.acked.contains(offset)).collect();
                assert!(skipped.is_empty(), "{skipped:?} were left out in {under:?}");
            } else if let Some((epoch, round, _)) = self.at {
                assert!(under > (epoch, round), "{under:?} after {:?}", (epoch, round));
                let below: Vec<i64> = (0..offset).filter(|offset| !self.acked.contains(offset)).collect();
                assert!(
                    below.is_empty(),
                    "{under:?} begins at {offset}, but {below:?} were never acknowledged"
                );
            } else {
                assert_eq!(offset, 0, "a new group begins with the first message");
            }
            self.at = Some((batch.epoch, batch.round, offset + 1));
            assert!(
                !self.confirmed.contains(&offset),
                "{offset} was confirmed, and comes again in {under:?}"
            );
            let payload = String::from_utf8(record.payload.to_vec()).unwrap();
            let before = self.delivered.insert(offset, payload.clone());
            assert!(before.is_none_or(|before| before == payload), "{offset} names two messages");
        }
    }
}

/// Consumes until everything is committed; comes back now as the same session, now as another one.
async fn consume(addresses: &[&str], seed: u64, resumes: &mut usize) -> Vec<Lane> {
    let mut random = Random::new(seed);
    let mut lanes: Vec<Lane> = (0..PARTITIONS).map(|_| Lane::default()).collect();
    let mut last: Option<Welcome> = None;
    let (mut is_member, mut next_id) = (false, 100);
    let done = |lanes: &[Lane]| lanes.iter().all(Lane::is_done);
    while !done(&lanes) {
        let subprotocol = BOTH[random.below(2)];
        let address = addresses[random.below(addresses.len())];
        let grace = [0, 200, 1_000][random.below(3)];
        let wanted = match last.take() {
            Some(welcome) if welcome.resume_grace_ms > 0 && random.below(10) > 0 => back(&welcome),
            Some(_) | None => Hello { resume_grace_ms: Some(grace), ..hello() },
        };
        let connected = Socket::try_connect_with(address, subprotocol, wanted.clone()).await;
        let Some((mut socket, welcome)) = connected else {
            // Nobody has heard the answer: the same session is wanted again.
            last =
                wanted.resume.map(|resume| placeholder(resume, wanted.resume_grace_ms.unwrap_or_default()));
            continue;
        };
        let is_resumed =
            welcome.resume.as_ref().is_some_and(|report| report.outcome == ResumeOutcome::Resumed);
        *resumes += usize::from(is_resumed);
        for lane in welcome.resume.iter().flat_map(|report| &report.lanes) {
            lanes[lane.partition as usize].arrived = lane.committed_offset; // not durable yet, perhaps
        }
        last = Some(welcome.clone());
        is_member &= is_resumed;
        if !is_member {
            // Of a resumed session nobody knows whether its subscribe has arrived.
            let mut subscribe = subscribe("billing", "orders");
            subscribe.id = 1;
            subscribe.credit.messages = 60;
            subscribe.batch = Some(batches_of(1 + random.below(40) as u32));
            subscribe.settings = Some(WantedSettings {
                max_attempts: Some(1_000_000),
                backoff_base_ms: Some(1),
                backoff_factor: Some(1.0),
                backoff_cap_ms: Some(1),
                ..WantedSettings::default()
            });
            if socket.try_send(ClientFrame::Subscribe(subscribe)).await.is_none() {
                continue;
            }
        }
        drain(&mut socket, &mut lanes, (&mut is_member, &mut next_id), &mut random).await;
        if done(&lanes) {
            break;
        }
    }
    lanes
}

/// What is known of a session whose welcome was lost.
fn placeholder(resume: laneway_client::wire::Resume, resume_grace_ms: u32) -> Welcome {
    Welcome {
        id: 0,
        session: resume.session,
        resume_token: resume.token,
        broker: Uuid::nil(),
        heartbeat_ms: 0,
        resume_grace_ms,
        limits: laneway_client::wire::Limits {
            frame_bytes_max: 0,
            publish_messages_max: 0,
            publishes_in_flight_max: 0,
            subscriptions_max: 0,
            credit_messages_max: 0,
            credit_bytes_max: 0,
        },
        resume: None,
    }
}

/// Reads and acknowledges until the connection is lost or everything is committed.
async fn drain(socket: &mut Socket, lanes: &mut [Lane], state: (&mut bool, &mut u64), random: &mut Random) {
    let (is_member, next_id) = state;
    let mut asked: HashMap<u64, (usize, Vec<i64>)> = HashMap::new();
    while !lanes.iter().all(Lane::is_done) {
        match socket.seen().await {
            Seen::Frame(BrokerFrame::Batch(batch)) => {
                let partition = batch.partition as usize;
                lanes[partition].on_batch(&batch);
                *next_id += 1; // never the same again: an answer to the last connection may come to this one
                let (ack, offsets) = some_ack(&batch, *next_id, &lanes[partition], random);
                asked.insert(ack.id.unwrap(), (partition, offsets.clone()));
                lanes[partition].acked.extend(offsets);
                if socket.try_send(ClientFrame::Ack(ack)).await.is_none() {
                    return;
                }
                let credit = laneway_client::wire::Credit {
                    subscription: batch.subscription,
                    messages: batch.messages.len() as u32,
                    bytes: 1_000,
                };
                if socket.try_send(ClientFrame::Credit(credit)).await.is_none() {
                    return;
                }
            }
            Seen::Frame(BrokerFrame::LaneGranted(lane)) => {
                lanes[lane.partition as usize].on_committed(lane.committed_offset, "lane_granted");
            }
            Seen::Frame(BrokerFrame::Acked(Acked { id, partition, committed_offset, .. })) => {
                lanes[partition as usize].on_committed(committed_offset, "acked");
                if let Some((partition, offsets)) = asked.remove(&id) {
                    lanes[partition].confirmed.extend(offsets);
                }
            }
            Seen::Frame(BrokerFrame::Error(error)) => {
                use laneway_client::ErrorCode::{AlreadySubscribed, LeaseLost};
                assert!(matches!(error.code, LeaseLost | AlreadySubscribed), "{error:?}");
                *is_member |= error.code == AlreadySubscribed;
            }
            Seen::Frame(BrokerFrame::Subscribed(_)) => *is_member = true,
            Seen::Frame(_) => {}
            Seen::Closed(_) => return,
        }
    }
}

/// An ack of a whole batch: all below its end, or message by message.
fn some_ack(batch: &Batch, id: u64, lane: &Lane, random: &mut Random) -> (Ack, Vec<i64>) {
    let offsets: Vec<i64> = batch.messages.iter().map(|record| record.offset).collect();
    let (first, end) = (offsets[0], offsets[offsets.len() - 1] + 1);
    let all_before = (0..first).all(|offset| lane.acked.contains(&offset));
    let is_cumulative = all_before && random.below(2) == 0;
    let ranges = offsets.iter().map(|offset| OffsetRange { from: *offset, to: offset + 1 });
    let ack = Ack {
        id: Some(id),
        subscription: batch.subscription,
        partition: batch.partition,
        epoch: batch.epoch,
        round: batch.round,
        next: is_cumulative.then_some(end),
        ranges: if is_cumulative { Vec::new() } else { ranges.collect() },
    };
    (ack, offsets)
}

async fn cut_at_any_byte(brokers: usize) {
    let seed = seed();
    let database = TestDatabase::new().await;
    let mut servers = Vec::new();
    for _ in 0..brokers {
        servers.push(Server::on_database(&database.url).await);
    }
    let server = &servers[0];
    make_topic(&server.address, "orders", PARTITIONS as u32).await;
    let cuts = Arc::new(Mutex::new(0));
    let mut proxies = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        proxies.push(cutting(&server.address, seed ^ (number as u64 + 10), cuts.clone()).await);
    }
    let addresses: Vec<&str> = proxies.iter().map(|proxy| proxy.address.as_str()).collect();
    let mut resumes = 0;
    let both =
        async { tokio::join!(produce(&addresses, seed ^ 2), consume(&addresses, seed ^ 3, &mut resumes)) };
    let Ok((_, lanes)) = tokio::time::timeout(PATIENCE, both).await else {
        let state = "SELECT 'lane ' || l::text FROM laneway.lane l UNION ALL SELECT 'member ' || m::text FROM laneway.member m
            UNION ALL SELECT 'session ' || s::text FROM laneway.session s UNION ALL SELECT 'broker ' || b::text FROM laneway.broker b";
        for row in database.raw().await.query(state, &[]).await.unwrap() {
            eprintln!("{}", row.get::<_, String>(0));
        }
        for server in &servers {
            let log = server.log();
            eprintln!("{}", log[log.len().saturating_sub(30)..].join("\n"));
        }
        panic!("it does not end within {PATIENCE:?}");
    };
    let cuts = *cuts.lock().unwrap();
    eprintln!("{cuts} connections, {resumes} resumes");
    assert!(cuts > 10 && resumes > 1, "{cuts} connections, {resumes} resumes");
    // One copy of each, in the order of its producer, wherever one looks.
    for (partition, lane) in lanes.iter().enumerate() {
        let expected: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
        assert_eq!(lane.delivered.values().cloned().collect::<Vec<_>>(), expected, "partition {partition}");
        assert_eq!(lane.delivered.keys().copied().collect::<Vec<_>>(), (0..MESSAGES).collect::<Vec<_>>());
    }
    assert_eq!(database.number("SELECT count(*) FROM laneway.message").await, 2 * MESSAGES);
    // What was confirmed is committed: a newcomer gets nothing.
    let mut newcomer = Socket::connect(&server.address, Subprotocol::Json).await;
    newcomer.subscribe("billing", "orders").await;
    wait::until("the lanes to come", async || {
        let granted = newcomer.granted().await;
        granted.committed_offset == MESSAGES && newcomer.granted().await.committed_offset == MESSAGES
    })
    .await;
    assert!(newcomer.frame_within(Duration::from_millis(300)).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_cut_at_any_byte_lose_nothing_double_nothing_and_keep_the_order() {
    cut_at_any_byte(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_go_on_at_another_broker_whenever_they_are_cut_lose_and_double_nothing() {
    cut_at_any_byte(2).await;
}
