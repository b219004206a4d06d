//! A client that stops reading is contained: the broker's memory stays flat, others get everything, and the client gets
//! exactly the rest when it reads again or comes back.

use std::time::Instant;

use bytes::Bytes;
use laneway_client::wire::{
    BrokerFrame, ClientFrame, CreditGrant, Hello, NewMessage, Publish, ResumeOutcome, Subprotocol,
};

use crate::harness::socket::{Seen, Socket, ack, hello, make_topic, subscribe};
use crate::harness::{Server, TestDatabase};
use crate::idle::resident_kib;
use crate::resuming::back;

/// Of one message.
const BYTES: usize = 16 << 10;
const PER_FRAME: usize = 32;
const PARTITIONS: u32 = 2;

fn payload(number: usize) -> Bytes {
    let mut bytes = vec![b'.'; BYTES];
    bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
    bytes.into()
}

/// Publishes numbered messages, alternating between the partitions, a few frames in flight.
async fn publish(socket: &mut Socket, numbers: std::ops::Range<usize>) {
    let mut in_flight = 0;
    for from in numbers.clone().step_by(PER_FRAME) {
        let some = from..(from + PER_FRAME).min(numbers.end);
        let messages = some
            .map(|number| NewMessage {
                partition: Some((number % PARTITIONS as usize) as u32),
                payload: payload(number),
                ..NewMessage::default()
            })
            .collect();
        let id = socket.id();
        socket
            .send(ClientFrame::Publish(Publish {
                id,
                topic: "orders".into(),
                producer_id: None,
                wait_ms: None,
                messages,
            }))
            .await;
        in_flight += 1;
        while in_flight >= 4 {
            answered(socket).await;
            in_flight -= 1;
        }
    }
    for _ in 0..in_flight {
        answered(socket).await;
    }
}

/// Publishes in portions, and returns the most memory that the broker had between two of them, in KiB.
async fn publish_watched(socket: &mut Socket, numbers: std::ops::Range<usize>, server: &Server) -> u64 {
    let mut peak = 0;
    for from in numbers.clone().step_by(400) {
        publish(socket, from..(from + 400).min(numbers.end)).await;
        peak = peak.max(resident_kib(server));
    }
    peak
}

async fn answered(socket: &mut Socket) {
    match socket.frame().await {
        BrokerFrame::Published(published) => {
            assert!(published.units.iter().all(|unit| unit.error.is_none()), "{published:?}");
        }
        other => panic!("{other:?}"),
    }
}

fn number(payload: &[u8]) -> usize {
    u64::from_be_bytes(payload[..8].try_into().unwrap()) as usize
}

/// Reads and acknowledges until a group has everything below `total`. The connection may be lost and resumed on the way.
struct Consumer {
    next: [i64; PARTITIONS as usize],
    /// Epoch and round of the last batch of each partition.
    under: [(i64, u32); PARTITIONS as usize],
}

impl Consumer {
    fn new() -> Self {
        Self { next: [0; PARTITIONS as usize], under: [(0, 0); PARTITIONS as usize] }
    }

    fn is_done(&self, total: usize) -> bool {
        self.next.iter().sum::<i64>() == total as i64
    }

    /// Whether the connection still stands.
    async fn read(&mut self, socket: &mut Socket, total: usize) -> bool {
        while !self.is_done(total) {
            match socket.seen().await {
                Seen::Frame(BrokerFrame::Batch(batch)) => {
                    let partition = batch.partition as usize;
                    let first = batch.messages[0].offset;
                    if self.under[partition] != (batch.epoch, batch.round) {
                        assert!(self.under[partition] < (batch.epoch, batch.round));
                        self.under[partition] = (batch.epoch, batch.round);
                        assert!(first <= self.next[partition], "from {first}, but {:?} is next", self.next);
                        self.next[partition] = first;
                    }
                    for record in &batch.messages {
                        assert_eq!(record.offset, self.next[partition], "exactly the next one");
                        let expected = record.offset as usize * PARTITIONS as usize + partition;
                        assert_eq!(number(&record.payload), expected);
                        self.next[partition] += 1;
                    }
                    let ack = ack(&batch, Some(self.next[partition]), &[]);
                    let _lost = socket.try_send(ClientFrame::Ack(ack)).await;
                    let bytes = (batch.messages.len() * BYTES) as u64;
                    let credit = laneway_client::wire::Credit {
                        subscription: batch.subscription,
                        messages: batch.messages.len() as u32,
                        bytes,
                    };
                    let _lost = socket.try_send(ClientFrame::Credit(credit)).await;
                }
                Seen::Frame(BrokerFrame::Error(error)) => eprintln!("{error:?}"),
                Seen::Frame(_) => {}
                Seen::Closed(code) => {
                    eprintln!("closed with {code:?} at {:?}", self.next);
                    return false;
                }
            }
        }
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_client_that_stops_reading_costs_no_memory_and_gets_the_exact_rest_later() {
    const WARM_UP: usize = 8_000; // fills what the broker may keep for itself: queues, the hot tail, caches
    const TOTAL: usize = 40_000; // 500 MiB after the warm-up
    const GROWTH_KIB_MAX: u64 = 60 << 10;
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    make_topic(&server.address, "orders", PARTITIONS).await;
    let mut producer = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    let mut healthy = Socket::connect(&server.address, Subprotocol::MessagePack).await;
    healthy.subscribe("healthy", "orders").await;
    let mut well = Consumer::new();
    // What the broker needs for the same work while everybody reads.
    let (healthy_peak, stands) =
        tokio::join!(publish_watched(&mut producer, 0..WARM_UP, &server), well.read(&mut healthy, WARM_UP));
    assert!(stands);

    let hello = Hello { resume_grace_ms: Some(300_000), heartbeat_ms: Some(60_000), ..hello() };
    let (mut stalled, welcome) = Socket::connect_with(&server.address, Subprotocol::MessagePack, hello).await;
    let mut wanted = subscribe("stalled", "orders");
    let limits = welcome.limits;
    wanted.credit = CreditGrant { messages: limits.credit_messages_max, bytes: limits.credit_bytes_max };
    stalled.subscribe_with(wanted).await.unwrap();
    // From here on it reads nothing.
    let since = Instant::now();
    let (mut peak, stands) =
        tokio::join!(publish_watched(&mut producer, WARM_UP..TOTAL, &server), well.read(&mut healthy, TOTAL));
    assert!(stands && well.is_done(TOTAL), "others get everything meanwhile");
    eprintln!("resident: {healthy_peak} KiB healthy, {peak} KiB stalled, after {:?}", since.elapsed());
    assert!(peak < healthy_peak + GROWTH_KIB_MAX, "{healthy_peak} KiB healthy, {peak} KiB stalled");
    // It reads again; if it was given up meanwhile, it resumes.
    let mut ill = Consumer::new();
    let mut resumes = 0;
    while !ill.read(&mut stalled, TOTAL).await {
        let (again, welcome) =
            Socket::connect_with(&server.address, Subprotocol::MessagePack, back(&welcome)).await;
        assert_eq!(welcome.resume.unwrap().outcome, ResumeOutcome::Resumed);
        stalled = again;
        resumes += 1;
        assert!(resumes < 3, "it reads now, and must not be given up again");
    }
    assert!(ill.is_done(TOTAL));
    peak = peak.max(resident_kib(&server));
    assert!(peak < healthy_peak + GROWTH_KIB_MAX, "{healthy_peak} KiB healthy, {peak} KiB stalled");
}
