//! One good frame of every type, and several of those that come in kinds: what the golden files hold.

mod traces;

use std::collections::BTreeMap;

use bytes::Bytes;
use laneway_client::wire::*;
use laneway_client::{Cause, ErrorCode};
use traces::trace;
use uuid::Uuid;

const SESSION: Uuid = Uuid::from_u128(0x0198_f5a0_1c2d_7e3f_8a4b_5c6d_7e8f_9a0b);
const BROKER: Uuid = Uuid::from_u128(0x0198_f5a0_0000_7000_8000_0000_0000_0001);
const PRODUCER: Uuid = Uuid::from_u128(0x5f3c_8a52_9d1e_4b7a_a6c3_21f0_e4d5_b697);
const STEP: Uuid = Uuid::from_u128(0x0198_f5a0_3c4d_7e5f_8a6b_7c8d_9e0f_1a2b);
const TRACE: Uuid = Uuid::from_u128(0x0198_f5a0_2b3c_7d4e_9f5a_6b7c_8d9e_0f1a);
const BINARY: &[u8] =
    &[0, 1, 2, 0xfe, 0xff, b'P', b'N', b'G', 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88];
/// 2026-11-16T06:41:00.123456Z.
const PUBLISHED_AT_US: i64 = 1_794_811_260_123_456;

fn headers() -> BTreeMap<String, String> {
    [("region", "eu"), ("näme", "\"quoted\"")].map(|(name, value)| (name.into(), value.into())).into()
}

fn credit() -> CreditGrant {
    CreditGrant { messages: 100, bytes: 1_048_576 }
}

fn batch_options() -> BatchOptions {
    BatchOptions {
        max_messages: Some(50),
        max_bytes: Some(65_536),
        min_messages: Some(10),
        max_wait_ms: Some(20),
    }
}

fn message(payload: &'static [u8]) -> NewMessage {
    NewMessage { payload: Bytes::from_static(payload), ..NewMessage::default() }
}

fn cause() -> Cause {
    Cause { topic: "orders".into(), partition: 7, offset: 1_042 }
}

fn watch(trace_id: Option<Uuid>, topic: Option<&str>, sample: Option<f64>) -> ClientFrame {
    ClientFrame::Watch(Watch { id: 8, trace_id, topic: topic.map(str::to_owned), sample })
}

fn publish(messages: Vec<NewMessage>) -> ClientFrame {
    ClientFrame::Publish(Publish {
        id: 2,
        topic: "orders".into(),
        producer_id: None,
        wait_ms: None,
        messages,
    })
}

fn subscribe(start: Option<Start>) -> Subscribe {
    let (group, topic) = ("billing".into(), "orders".into());
    Subscribe { id: 3, group, topic, start, credit: credit(), batch: None, settings: None }
}

fn select() -> Select {
    Select {
        id: 3,
        group: "billing".into(),
        topics: Vec::new(),
        pattern: None,
        labels: Default::default(),
        start: None,
        credit: credit(),
        batch: None,
        settings: None,
    }
}

fn ack(next: Option<i64>, ranges: &[(i64, i64)]) -> Ack {
    let ranges = ranges.iter().copied().map(OffsetRange::from).collect();
    Ack { id: None, subscription: 1, partition: 7, epoch: 4, round: 2, next, ranges }
}

fn nack() -> Nack {
    let (reason, delay_ms) = (None, None);
    Nack {
        id: None,
        subscription: 1,
        partition: 7,
        epoch: 4,
        round: 2,
        offset: 1_041,
        reason,
        delay_ms,
        until: None,
    }
}

fn hello() -> Hello {
    Hello { id: 1, client: None, token: None, resume: None, resume_grace_ms: None, heartbeat_ms: None }
}

fn tail() -> Tail {
    Tail { id: 5, topic: "orders".into(), partitions: None, start: None, credit: credit(), batch: None }
}

/// Frames from the client, by the names of their files.
pub fn client_frames() -> Vec<(&'static str, ClientFrame)> {
    let mut frames = openings();
    frames.extend(publishes());
    frames.extend(subscriptions());
    frames.extend(answers());
    frames
}

fn openings() -> Vec<(&'static str, ClientFrame)> {
    let resume = Some(Resume { session: SESSION, token: Token::new("cmVzdW1lIG1l") });
    let (client, grace) = (Some("billing-worker".into()), Some(30_000));
    vec![
        ("hello", ClientFrame::Hello(hello())),
        (
            "hello_resume",
            ClientFrame::Hello(Hello {
                client,
                resume,
                resume_grace_ms: grace,
                heartbeat_ms: Some(10_000),
                ..hello()
            }),
        ),
        ("hello_token", ClientFrame::Hello(Hello { token: Some(Token::new("secret")), ..hello() })),
        ("heartbeat", ClientFrame::Heartbeat),
    ]
}

fn publishes() -> Vec<(&'static str, ClientFrame)> {
    let json = NewMessage {
        content_type: Some("application/json".into()),
        ..message(br#"{"order": 17, "total": 12.50, "lines": [{"sku": "a-1"}]}"#)
    };
    let binary = NewMessage { key: Some(Bytes::from_static(&[0xff, 0x00])), ..message(BINARY) };
    let full = |sequence| NewMessage {
        payload: Bytes::from_static("größe".as_bytes()),
        key: Some(Bytes::from_static(b"customer-17")),
        partition: Some(7),
        trace_id: Some(TRACE),
        transaction_id: Some("order-17".into()),
        headers: headers(),
        content_type: Some("text/plain".into()),
        sequence: Some(sequence),
        ..NewMessage::default()
    };
    let sequenced = Publish {
        id: (1 << 53) - 1, // the largest that every JSON parser keeps exact
        topic: "orders".into(),
        producer_id: Some(PRODUCER),
        wait_ms: None,
        messages: vec![full(41), full(42)],
    };
    let patient = Publish { id: 9, wait_ms: Some(2_000), ..sequenced.clone() };
    let caused = NewMessage {
        trace_id: Some(TRACE),
        cause: Some(cause()),
        links: vec![PRODUCER, STEP],
        ..message(b"an invoice")
    };
    let at = NewMessage { deliver_at: Some("2026-12-24T18:00:00Z".into()), ..message(b"a reminder") };
    let after = NewMessage { delay_ms: Some(7_200_000), cause: Some(cause()), ..message(b"another one") };
    vec![
        ("publish_scheduled", publish(vec![at, after])),
        ("publish_text", publish(vec![message(b"hello"), message(b"")])),
        ("publish_json", publish(vec![json])),
        ("publish_base64", publish(vec![binary])),
        ("publish_full", ClientFrame::Publish(sequenced)),
        ("publish_waiting", ClientFrame::Publish(patient)),
        ("publish_caused", publish(vec![caused, message(b"hello")])),
        ("publish_ttl", publish(vec![NewMessage { ttl_ms: Some(30_000), ..message(b"hello") }])),
    ]
}

fn subscriptions() -> Vec<(&'static str, ClientFrame)> {
    let settings = WantedSettings {
        ack_deadline_ms: Some(30_000),
        max_attempts: Some(5),
        backoff_base_ms: Some(200),
        backoff_factor: Some(2.5),
        backoff_cap_ms: Some(60_000),
        on_failure: Some(OnFailure::DeadLetter),
        ..WantedSettings::default()
    };
    let aside = WantedSettings { capacity: Some(GroupCapacity::Excluded), ..settings };
    let aside = Subscribe { batch: Some(batch_options()), settings: Some(aside), ..subscribe(None) };
    let windows = WantedSettings {
        delay_ms: Some(1_000),
        window_ms: Some(5_000),
        window_max_ms: Some(60_000),
        max_age_ms: Some(3_600_000),
        on_expiry: Some(OnExpiry::DeadLetter),
        ..WantedSettings::default()
    };
    let (group, topic) = ("digest-of-the-day".repeat(8), "orders.of.all.shops".repeat(8));
    let windowed = Subscribe { settings: Some(windows), group, topic, ..subscribe(None) };
    let named = Select { topics: vec!["orders.eu".into(), "orders.us".into()], ..select() };
    let labels = [("namespace", "shop"), ("task", "ship")].map(|(name, value)| (name.into(), value.into()));
    let matched = Select {
        pattern: Some("orders.*".into()),
        labels: labels.into(),
        start: Some(Start::Latest),
        batch: Some(batch_options()),
        settings: Some(settings),
        ..select()
    };
    let at = Start::At("2026-11-16T06:41:00Z".into());
    let full = Subscribe { batch: Some(batch_options()), settings: Some(settings), ..subscribe(None) };
    let part = Tail { partitions: Some(vec![0, 7]), start: Some(Start::Offset(1_000)), ..tail() };
    vec![
        ("subscribe", ClientFrame::Subscribe(subscribe(None))),
        ("subscribe_earliest", ClientFrame::Subscribe(subscribe(Some(Start::Earliest)))),
        ("subscribe_latest", ClientFrame::Subscribe(subscribe(Some(Start::Latest)))),
        ("subscribe_at", ClientFrame::Subscribe(subscribe(Some(at)))),
        ("subscribe_offset", ClientFrame::Subscribe(subscribe(Some(Start::Offset(1_000))))),
        ("subscribe_full", ClientFrame::Subscribe(full)),
        ("subscribe_excluded", ClientFrame::Subscribe(aside)),
        ("subscribe_windows", ClientFrame::Subscribe(windowed)),
        ("select_topics", ClientFrame::Select(Box::new(named))),
        ("select_pattern", ClientFrame::Select(Box::new(matched))),
        ("unsubscribe", ClientFrame::Unsubscribe(Unsubscribe { id: 4, subscription: 1 })),
        ("tail", ClientFrame::Tail(tail())),
        ("tail_partitions", ClientFrame::Tail(Tail { batch: Some(batch_options()), ..part })),
        ("transact", ClientFrame::Transact(transact())),
        ("trace", ClientFrame::Trace(ReadTrace { id: 7, trace_id: TRACE })),
        ("watch_trace", watch(Some(TRACE), None, None)),
        ("watch_topic", watch(None, Some("orders"), Some(0.25))),
        ("untail", ClientFrame::Untail(Untail { id: 6, subscription: 2 })),
    ]
}

fn answers() -> Vec<(&'static str, ClientFrame)> {
    let both = Ack { id: Some(9), ..ack(Some(1_042), &[(1_044, 1_046), (1_050, 1_051)]) };
    let reason = Some("the warehouse does not answer".into());
    let full = Nack { id: Some(10), reason, delay_ms: Some(5_000), ..nack() };
    let progress = Progress { id: None, subscription: 1, partition: 7, epoch: 4, round: 2 };
    vec![
        ("ack", ClientFrame::Ack(ack(Some(1_042), &[]))),
        ("ack_ranges", ClientFrame::Ack(ack(None, &[(1_044, 1_046)]))),
        ("ack_confirmed", ClientFrame::Ack(both)),
        ("nack", ClientFrame::Nack(nack())),
        ("nack_full", ClientFrame::Nack(full)),
        ("nack_until", ClientFrame::Nack(Nack { until: Some("2026-11-16T07:00:00Z".into()), ..nack() })),
        ("progress", ClientFrame::Progress(progress.clone())),
        ("progress_confirmed", ClientFrame::Progress(Progress { id: Some(11), ..progress })),
        ("credit", ClientFrame::Credit(Credit { subscription: 1, messages: 50, bytes: 65_536 })),
    ]
}

/// Frames from the broker, by the names of their files.
fn transact() -> Transact {
    let ack = Ack {
        id: None,
        subscription: 1,
        partition: 7,
        epoch: 4,
        round: 2,
        next: None,
        ranges: vec![(1_042, 1_043).into()],
    };
    let publish = StepPublish {
        topic: "payments".into(),
        messages: vec![NewMessage { key: Some(Bytes::from_static(b"order-17")), ..message(b"charged") }],
    };
    Transact { id: 10, step_id: STEP, acks: vec![ack], publishes: vec![publish] }
}

pub fn broker_frames() -> Vec<(&'static str, BrokerFrame)> {
    let mut frames = welcomes();
    frames.extend(publish_answers());
    frames.extend(lanes());
    frames.extend(selections());
    frames.extend(batches());
    frames.extend(endings());
    frames
}

fn welcome(resume: Option<ResumeReport>) -> BrokerFrame {
    let limits = Limits {
        frame_bytes_max: 16_777_216,
        publish_messages_max: 10_000,
        publishes_in_flight_max: 256,
        subscriptions_max: 64,
        credit_messages_max: 100_000,
        credit_bytes_max: 67_108_864,
    };
    BrokerFrame::Welcome(Box::new(Welcome {
        id: 1,
        session: SESSION,
        resume_token: Token::new("cmVzdW1lIG1l"),
        broker: BROKER,
        heartbeat_ms: 20_000,
        resume_grace_ms: 30_000,
        limits,
        resume,
    }))
}

fn welcomes() -> Vec<(&'static str, BrokerFrame)> {
    let lane = ResumedLane {
        selection: None,
        subscription: 1,
        group: "billing".into(),
        topic: "orders".into(),
        partition: 7,
        outcome: ResumeOutcome::Resumed,
        reason: None,
        epoch: 4,
        round: 3,
        committed_offset: 1_042,
        acked: vec![(1_044, 1_046).into()],
    };
    let lost = ResumedLane {
        partition: 8,
        outcome: ResumeOutcome::Reset,
        reason: Some("the lane has moved".into()),
        epoch: 6,
        round: 1,
        acked: vec![],
        ..lane.clone()
    };
    let resumed = ResumeReport { outcome: ResumeOutcome::Resumed, reason: None, lanes: vec![lane, lost] };
    let reason = Some("the grace is over".into());
    let reset = ResumeReport { outcome: ResumeOutcome::Reset, reason, lanes: vec![] };
    vec![
        ("welcome", welcome(None)),
        ("welcome_resumed", welcome(Some(resumed))),
        ("welcome_reset", welcome(Some(reset))),
        ("heartbeat", BrokerFrame::Heartbeat),
    ]
}

fn unit(partition: u32, positions: &[u32], first_offset: Option<i64>) -> PublishedUnit {
    let (duplicates, error) = (vec![], None);
    PublishedUnit {
        partition,
        positions: positions.to_vec(),
        first_offset,
        duplicates,
        scheduled: Vec::new(),
        error,
    }
}

fn published(units: Vec<PublishedUnit>) -> BrokerFrame {
    BrokerFrame::Published(Published { id: 2, units })
}

fn publish_answers() -> Vec<(&'static str, BrokerFrame)> {
    let duplicates = vec![(0, Some(1_000)).into(), (2, None).into()];
    let mut gap = Fault::new(ErrorCode::SequenceGap, "sequence 43 was expected, and 45 came");
    gap.field = Some("messages[3].sequence".into());
    gap.expected = Some(43);
    vec![
        ("published", published(vec![unit(0, &[0, 2], Some(1_041)), unit(7, &[1], Some(0))])),
        (
            "published_duplicates",
            published(vec![PublishedUnit { duplicates, ..unit(7, &[0, 1, 2], Some(1_041)) }]),
        ),
        (
            "published_scheduled",
            published(vec![PublishedUnit {
                duplicates: vec![(1, None).into()],
                scheduled: vec![(0, 4_711).into(), (1, 4_700).into()],
                ..unit(7, &[0, 1], None)
            }]),
        ),
        (
            "published_error",
            published(vec![
                unit(0, &[0], Some(5)),
                PublishedUnit { error: Some(gap), ..unit(7, &[1, 2, 3], None) },
            ]),
        ),
    ]
}

fn group_settings() -> GroupSettings {
    GroupSettings {
        ack_deadline_ms: 30_000,
        max_attempts: 5,
        backoff_base_ms: 200,
        backoff_factor: 2.0,
        backoff_cap_ms: 60_000,
        on_failure: OnFailure::Block,
        capacity: GroupCapacity::Counted,
        delay_ms: 0,
        window_ms: 0,
        window_max_ms: 0,
        max_age_ms: 0,
        on_expiry: OnExpiry::Evict,
        ordering: GroupOrdering::Partition,
    }
}

fn selections() -> Vec<(&'static str, BrokerFrame)> {
    let settings = group_settings();
    let selected = Selected { id: 3, subscription: 2, group: "billing".into(), topics: 2, settings };
    let joined = TopicJoined {
        selection: 2,
        subscription: 1 << 31,
        group: "billing".into(),
        topic: "orders.eu".into(),
        partitions: 16,
        settings,
    };
    let left = TopicLeft {
        selection: 2,
        subscription: Some(1 << 31),
        topic: "orders.eu".into(),
        reason: "deleted".into(),
        error: None,
    };
    let fault = Fault::new(ErrorCode::GroupMismatch, "max_attempts is 5 in the group, not 3");
    let refused =
        TopicLeft { subscription: None, reason: "refused".into(), error: Some(fault), ..left.clone() };
    vec![
        ("selected", BrokerFrame::Selected(Box::new(selected))),
        ("topic_joined", BrokerFrame::TopicJoined(Box::new(joined))),
        ("topic_left", BrokerFrame::TopicLeft(Box::new(left))),
        ("topic_left_refused", BrokerFrame::TopicLeft(Box::new(refused))),
    ]
}

fn lanes() -> Vec<(&'static str, BrokerFrame)> {
    let settings = group_settings();
    let (group, topic) = ("billing".to_owned(), "orders".to_owned());
    let subscribed =
        Subscribed { id: 3, subscription: 1, group, topic: topic.clone(), partitions: 16, settings };
    let granted = LaneGranted {
        subscription: 1,
        partition: 7,
        epoch: 4,
        round: 1,
        committed_offset: 1_042,
        acked: vec![(1_044, 1_046).into()],
        reset: None,
    };
    let reset = LaneReset { from: 100, to: 1_042, reason: "retention was faster than the group".into() };
    let revoked = "the ack deadline was missed".to_owned();
    let tailed = [(0, 512), (7, 1_042)].map(|(partition, next_offset)| TailedLane { partition, next_offset });
    vec![
        ("subscribed", BrokerFrame::Subscribed(Box::new(subscribed))),
        ("lane_granted", BrokerFrame::LaneGranted(granted.clone())),
        (
            "lane_granted_reset",
            BrokerFrame::LaneGranted(LaneGranted { acked: vec![], reset: Some(reset), ..granted }),
        ),
        (
            "lane_draining",
            BrokerFrame::LaneDraining(LaneDraining {
                subscription: 1,
                partition: 7,
                epoch: 4,
                drain_ms: 10_000,
            }),
        ),
        (
            "lane_revoked",
            BrokerFrame::LaneRevoked(LaneRevoked {
                subscription: 1,
                partition: 7,
                epoch: 4,
                reason: revoked,
            }),
        ),
        ("tailing", BrokerFrame::Tailing(Tailing { id: 5, subscription: 2, topic, lanes: tailed.into() })),
    ]
}

fn record(offset: i64, payload: &'static [u8]) -> Record {
    Record {
        offset,
        published_at_us: PUBLISHED_AT_US,
        trace_id: TRACE,
        cause: None,
        key: None,
        transaction_id: None,
        headers: None,
        content_type: None,
        payload: Bytes::from_static(payload),
    }
}

fn batch(messages: Vec<Record>) -> Batch {
    Batch { subscription: 1, partition: 7, epoch: 4, round: 2, attempts: vec![], messages }
}

fn batches() -> Vec<(&'static str, BrokerFrame)> {
    let json = Record {
        content_type: Some("application/json".into()),
        ..record(1_042, br#"{"order": 17, "total": 12.50}"#)
    };
    let binary = Record { key: Some(Bytes::from_static(&[0xff, 0x00])), ..record(1_043, BINARY) };
    let full = Record {
        key: Some(Bytes::from_static(b"customer-17")),
        transaction_id: Some("order-17".into()),
        headers: Some(headers()),
        content_type: Some("text/plain".into()),
        ..record(1_044, "größe".as_bytes())
    };
    let retried = Batch { attempts: vec![(1_044, 3)], ..batch(vec![full]) };
    let tailed = Batch { subscription: 2, epoch: 0, round: 0, ..batch(vec![record(0, b"hello")]) };
    vec![
        ("batch_text", BrokerFrame::Batch(batch(vec![record(1_042, b"hello"), record(1_043, b"")]))),
        ("batch_json", BrokerFrame::Batch(batch(vec![json]))),
        ("batch_base64", BrokerFrame::Batch(batch(vec![binary]))),
        ("batch_retry", BrokerFrame::Batch(retried)),
        ("batch_tail", BrokerFrame::Batch(tailed)),
        (
            "batch_caused",
            BrokerFrame::Batch(batch(vec![Record { cause: Some(cause()), ..record(4, b"hello") }])),
        ),
    ]
}

fn endings() -> Vec<(&'static str, BrokerFrame)> {
    let placed = vec![vec![Placed { partition: 3, offset: 88 }]];
    let transacted = Transacted { id: 10, step_id: STEP, repeated: false, placed };
    let acked = Acked { id: 9, subscription: 1, partition: 7, epoch: 4, committed_offset: 1_042 };
    let error = |code, detail: &str| ErrorFrame::new(code, detail);
    let malformed = ErrorFrame {
        id: Some(2),
        field: Some("topic".into()),
        ..error(ErrorCode::Malformed, "topic: missing field `topic`")
    };
    let stale = ErrorFrame {
        id: Some(9),
        subscription: Some(1),
        partition: Some(7),
        ..error(ErrorCode::StaleRound, "round 1 ended with the nack of 1041")
    };
    let range =
        ErrorFrame { start: Some(512), ..error(ErrorCode::OutOfRange, "the partition begins at 512") };
    let busy = ErrorFrame {
        id: Some(2),
        retry_after_ms: Some(250),
        ..error(ErrorCode::Overloaded, "the broker holds as much unwritten work as it may")
    };
    let full = ErrorFrame {
        id: Some(2),
        field: Some("topic".into()),
        depth: Some(100_000),
        limit: Some(100_000),
        retry_after_ms: Some(200),
        ..error(
            ErrorCode::TopicFull,
            "topic orders is full: max_backlog_messages is 100000, and it holds 100000",
        )
    };
    let gap = ErrorFrame { expected: Some(43), ..error(ErrorCode::SequenceGap, "sequence 43 was expected") };
    let fatal = error(ErrorCode::OutOfTurn, "the first frame must be hello");
    let changed =
        TraceChanged { subscription: 3, trace_id: TRACE, hops: trace().hops.split_off(1), left_out: 2 };
    vec![
        ("acked", BrokerFrame::Acked(acked)),
        ("transacted", BrokerFrame::Transacted(transacted)),
        ("unsubscribed", BrokerFrame::Unsubscribed(Unsubscribed { id: 4, subscription: 1 })),
        ("untailed", BrokerFrame::Untailed(Untailed { id: 6, subscription: 2 })),
        ("traced", BrokerFrame::Traced(Box::new(Traced { id: 7, trace: trace() }))),
        ("watching", BrokerFrame::Watching(Watching { id: 8, subscription: 3 })),
        ("trace_changed", BrokerFrame::TraceChanged(changed)),
        ("go_away", BrokerFrame::GoAway(GoAway { reason: "the broker restarts".into(), delay_ms: 1_500 })),
        ("error_malformed", BrokerFrame::Error(Box::new(malformed))),
        ("error_stale_round", BrokerFrame::Error(Box::new(stale))),
        ("error_out_of_range", BrokerFrame::Error(Box::new(range))),
        ("error_overloaded", BrokerFrame::Error(Box::new(busy))),
        ("error_topic_full", BrokerFrame::Error(Box::new(full))),
        ("error_sequence_gap", BrokerFrame::Error(Box::new(gap))),
        ("error_fatal", BrokerFrame::Error(Box::new(fatal))),
    ]
}
