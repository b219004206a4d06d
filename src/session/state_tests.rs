//! Whatever a client sends, in whatever order, the state keeps its promises.

use laneway_client::wire::{Ack, CreditGrant, GoAway, Nack, Progress, Subprotocol, Token, Untail};
use proptest::prelude::*;

use super::*;

const BEAT: Duration = Duration::from_secs(20);

fn hello() -> ClientFrame {
    ClientFrame::Hello(Hello {
        id: 1,
        client: None,
        token: None,
        resume: None,
        resume_grace_ms: None,
        heartbeat_ms: None,
    })
}

fn open(now: Instant) -> State {
    let mut state = State::new(now);
    assert!(matches!(state.on_frame(Box::new(hello())).as_slice(), [Action::Open(_)]));
    state.on_opened(BEAT, Vec::new(), now);
    state
}

fn go_away() -> BrokerFrame {
    BrokerFrame::GoAway(GoAway { reason: "drain".to_owned(), delay_ms: 0 })
}

fn subscribe(group: &str) -> Box<ClientFrame> {
    Box::new(ClientFrame::Subscribe(Subscribe {
        id: 2,
        group: group.to_owned(),
        topic: "orders".to_owned(),
        start: None,
        credit: CreditGrant { messages: 1, bytes: 1 },
        batch: None,
        settings: None,
    }))
}

fn tail() -> Box<ClientFrame> {
    Box::new(ClientFrame::Tail(Tail {
        id: 3,
        topic: "orders".to_owned(),
        partitions: None,
        start: None,
        credit: CreditGrant { messages: 1, bytes: 1 },
        batch: None,
    }))
}

fn publish() -> Box<ClientFrame> {
    Box::new(ClientFrame::Publish(Publish {
        id: 4,
        topic: "orders".to_owned(),
        producer_id: None,
        wait_ms: None,
        messages: Vec::new(),
    }))
}

fn ack(subscription: u32) -> Box<ClientFrame> {
    let ranges = Vec::new();
    let (id, next) = (Some(5), Some(1));
    Box::new(ClientFrame::Ack(Ack { id, subscription, partition: 0, epoch: 1, round: 0, next, ranges }))
}

fn credit(subscription: u32) -> Box<ClientFrame> {
    Box::new(ClientFrame::Credit(Credit { subscription, messages: 1, bytes: 1 }))
}

/// The code of the only action, which must be an error.
fn code(actions: &[Action]) -> ErrorCode {
    match actions {
        [Action::Send(BrokerFrame::Error(error))] => error.code,
        [Action::End(Ending { error: Some(error), .. })] => error.code,
        other => panic!("not one error: {other:?}"),
    }
}

fn ending(actions: &[Action]) -> &Ending {
    match actions.last() {
        Some(Action::End(ending)) => ending,
        other => panic!("not an end: {other:?}"),
    }
}

#[test]
fn hello_comes_first_and_once() {
    let now = Instant::now();
    let mut state = State::new(now);
    let refused = state.on_frame(publish());
    assert_eq!(code(&refused), ErrorCode::OutOfTurn);
    assert_eq!(ending(&refused).close, Some(CloseCode::HelloRefused));
    assert_eq!(state.on_frame(Box::new(hello())), []);
    let again = open(now).on_frame(Box::new(hello()));
    assert_eq!(code(&again), ErrorCode::OutOfTurn);
}

#[test]
fn a_token_is_refused_until_there_is_authentication() {
    let ClientFrame::Hello(plain) = hello() else { unreachable!() };
    let with_token = Hello { token: Some(Token::new("secret")), ..plain };
    let refused = State::new(Instant::now()).on_frame(Box::new(ClientFrame::Hello(with_token)));
    assert_eq!(code(&refused), ErrorCode::Unsupported);
    assert_eq!(ending(&refused).close, Some(CloseCode::HelloRefused));
}

#[test]
fn a_client_that_never_says_hello_is_sent_away_in_time() {
    let now = Instant::now();
    let mut state = State::new(now);
    let deadline = state.next_deadline().unwrap();
    assert_eq!(state.on_tick(deadline.checked_sub(Duration::from_millis(1)).unwrap()), []);
    assert_eq!(ending(&state.on_tick(deadline)).close, Some(CloseCode::HelloTimeout));
    assert_eq!(state.next_deadline(), None);
}

#[test]
fn two_missed_heartbeats_end_a_session_as_lost_and_one_does_not() {
    let now = Instant::now();
    let mut state = open(now);
    assert_eq!(state.on_tick(now + BEAT), []);
    state.on_heard(now + BEAT);
    assert_eq!(state.on_tick(now + BEAT * 2), []);
    let missed = state.on_tick(now + BEAT * 3);
    assert_eq!(code(&missed), ErrorCode::HeartbeatMissed);
    assert_eq!(ending(&missed).verdict, Verdict::Lost);
}

#[test]
fn subscriptions_are_numbered_from_one_and_not_made_twice() {
    let mut state = open(Instant::now());
    assert!(matches!(state.on_frame(subscribe("a")).as_slice(), [Action::Subscribe { number: 1, .. }]));
    assert_eq!(code(&state.on_frame(subscribe("a"))), ErrorCode::AlreadySubscribed);
    assert!(matches!(state.on_frame(tail()).as_slice(), [Action::Tail { number: 2, .. }]));
    assert!(matches!(state.on_frame(tail()).as_slice(), [Action::Tail { number: 3, .. }]));
    state.on_unmade(1);
    let again = state.on_frame(subscribe("a"));
    assert!(matches!(again.as_slice(), [Action::Subscribe { number: 4, .. }]), "a number is not used again");
    for number in 4..=SUBSCRIPTIONS_MAX {
        assert!(matches!(state.on_frame(tail()).as_slice(), [Action::Tail { .. }]), "{number}");
    }
    assert_eq!(code(&state.on_frame(tail())), ErrorCode::TooManySubscriptions);
}

#[test]
fn frames_for_a_subscription_wait_until_it_is_made_and_unknown_ones_are_refused() {
    let mut state = open(Instant::now());
    state.on_frame(subscribe("a"));
    assert_eq!(state.on_frame(ack(1)), [Action::Hold(ack(1))]);
    assert_eq!(state.on_frame(credit(1)), [Action::Hold(credit(1))]);
    assert_eq!(state.on_made(1), []);
    assert_eq!(state.on_frame(ack(1)), [Action::Forward { number: 1, frame: ack(1) }]);
    assert_eq!(code(&state.on_frame(ack(2))), ErrorCode::UnknownSubscription);
    assert_eq!(code(&state.on_frame(credit(2))), ErrorCode::UnknownSubscription);
    state.on_frame(tail());
    state.on_made(2);
    assert_eq!(code(&state.on_frame(ack(2))), ErrorCode::LeaseLost, "a tail has nothing to acknowledge");
    assert_eq!(state.on_frame(credit(2)), [Action::Forward { number: 2, frame: credit(2) }]);
}

#[test]
fn a_group_that_is_being_left_still_takes_acks_and_is_left_once() {
    let mut state = open(Instant::now());
    state.on_frame(subscribe("a"));
    state.on_made(1);
    let unsubscribe = || Box::new(ClientFrame::Unsubscribe(Unsubscribe { id: 7, subscription: 1 }));
    assert_eq!(state.on_frame(unsubscribe()), [Action::Leave { number: 1, id: Some(7) }]);
    assert_eq!(code(&state.on_frame(unsubscribe())), ErrorCode::UnknownSubscription);
    assert!(matches!(state.on_frame(ack(1)).as_slice(), [Action::Forward { .. }]));
    let left = state.on_left(1, Some(7));
    assert!(matches!(left.as_slice(), [Action::Send(BrokerFrame::Unsubscribed(_))]));
    assert_eq!(code(&state.on_frame(ack(1))), ErrorCode::UnknownSubscription);
}

#[test]
fn publishes_without_an_answer_are_bounded() {
    let mut state = open(Instant::now());
    for _ in 0..PUBLISHES_IN_FLIGHT_MAX {
        assert!(matches!(state.on_frame(publish()).as_slice(), [Action::Publish(_)]));
    }
    assert_eq!(code(&state.on_frame(publish())), ErrorCode::TooManyPublishes);
    state.on_published();
    assert!(matches!(state.on_frame(publish()).as_slice(), [Action::Publish(_)]));
}

#[test]
fn a_draining_session_hands_everything_over_and_then_closes() {
    let now = Instant::now();
    let mut state = open(now);
    state.on_frame(subscribe("a"));
    state.on_made(1);
    state.on_frame(subscribe("b")); // still being made
    state.on_frame(publish());
    let drain = state.on_drain(go_away(), now);
    assert_eq!(drain, [Action::Send(go_away()), Action::Leave { number: 1, id: None }]);
    assert_eq!(code(&state.on_frame(publish())), ErrorCode::GoingAway);
    assert_eq!(code(&state.on_frame(subscribe("c"))), ErrorCode::GoingAway);
    assert!(matches!(state.on_frame(ack(1)).as_slice(), [Action::Forward { .. }]));
    assert_eq!(state.on_left(1, None), []);
    assert_eq!(state.on_made(2), [Action::Leave { number: 2, id: None }]);
    assert_eq!(state.on_left(2, None), []);
    let end = state.on_published();
    assert_eq!(ending(&end), &Ending::of(CloseCode::Restart, Verdict::Gone));
}

#[test]
fn an_idle_session_goes_at_once_when_the_broker_drains_and_a_stuck_one_after_a_while() {
    let now = Instant::now();
    let actions = open(now).on_drain(go_away(), now);
    assert_eq!(ending(&actions).close, Some(CloseCode::Restart));
    let mut stuck = open(now);
    stuck.on_frame(subscribe("a"));
    stuck.on_made(1);
    stuck.on_drain(go_away(), now);
    assert_eq!(stuck.on_tick(now), []);
    assert_eq!(ending(&stuck.on_tick(now + SESSIONS_DRAIN_TIMEOUT)).close, Some(CloseCode::Restart));
}

#[test]
fn what_cannot_be_read_ends_a_connection_that_was_not_welcomed() {
    let mut state = State::new(Instant::now());
    let bad = Subprotocol::Json.decode_client(&bytes::Bytes::from_static(b"{}")).unwrap_err();
    let actions = state.on_bad_frame(bad);
    let ending = ending(&actions);
    assert_eq!(ending.close, Some(CloseCode::HelloRefused));
    assert_eq!(ending.error.as_ref().map(|error| error.code), Some(ErrorCode::Malformed));
}

#[test]
fn a_client_that_speaks_another_language_is_given_up_after_many_frames_in_a_row() {
    let mut state = open(Instant::now());
    let bad = || {
        let frame = bytes::Bytes::from_static(b"{\"type\": \"x\"}");
        Subprotocol::Json.decode_client(&frame).unwrap_err()
    };
    for _ in 1..BAD_FRAMES_MAX {
        assert_eq!(code(&state.on_bad_frame(bad())), ErrorCode::UnknownType);
    }
    state.on_frame(Box::new(ClientFrame::Heartbeat)); // one good frame, and it begins anew
    for _ in 1..BAD_FRAMES_MAX {
        assert_eq!(code(&state.on_bad_frame(bad())), ErrorCode::UnknownType);
    }
    assert_eq!(ending(&state.on_bad_frame(bad())).close, Some(CloseCode::Policy));
}

#[test]
fn a_resumed_session_numbers_on_after_its_old_subscriptions() {
    let now = Instant::now();
    let mut state = State::new(now);
    state.on_frame(Box::new(hello()));
    state.on_opened(BEAT, vec![(7, "a".to_owned(), Some("orders".to_owned()))], now);
    assert!(matches!(state.on_frame(ack(7)).as_slice(), [Action::Forward { number: 7, .. }]));
    assert!(matches!(state.on_frame(tail()).as_slice(), [Action::Tail { number: 8, .. }]));
    assert_eq!(code(&state.on_frame(subscribe("a"))), ErrorCode::AlreadySubscribed);
}

/// Something that can happen to a session.
#[derive(Debug, Clone)]
enum Event {
    Frame(Box<ClientFrame>),
    Opened,
    Made(u32),
    Unmade(u32),
    Left(u32),
    Published,
    Drain,
    Overflow,
    Lost,
    Tick(u64),
}

fn frames() -> impl Strategy<Value = ClientFrame> {
    let number = 0u32..6;
    prop_oneof![
        Just(hello()),
        Just(*publish()),
        "[ab]".prop_map(|group| *subscribe(&group)),
        Just(*tail()),
        number.clone().prop_map(|number| *ack(number)),
        number.clone().prop_map(|number| *credit(number)),
        number.clone().prop_map(|subscription| ClientFrame::Nack(Nack {
            id: None,
            subscription,
            partition: 0,
            epoch: 1,
            round: 0,
            offset: 0,
            reason: None,
            delay_ms: None,
            until: None,
        })),
        number.clone().prop_map(|subscription| ClientFrame::Progress(Progress {
            id: None,
            subscription,
            partition: 0,
            epoch: 1,
            round: 0,
        })),
        number.clone().prop_map(|subscription| {
            let next = Some(1);
            let ack =
                Ack { id: None, subscription, partition: 0, epoch: 1, round: 0, next, ranges: Vec::new() };
            let (step_id, publishes) = (uuid::Uuid::from_u128(7), Vec::new());
            ClientFrame::Transact(Transact { id: 10, step_id, acks: vec![ack], publishes })
        }),
        number.clone().prop_map(|subscription| ClientFrame::Unsubscribe(Unsubscribe { id: 8, subscription })),
        number.prop_map(|subscription| ClientFrame::Untail(Untail { id: 9, subscription })),
        Just(ClientFrame::Watch(Watch {
            id: 11,
            trace_id: None,
            topic: Some("orders".into()),
            sample: None
        })),
        Just(ClientFrame::Trace(ReadTrace { id: 12, trace_id: uuid::Uuid::from_u128(9) })),
        Just(ClientFrame::Heartbeat),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => frames().prop_map(|frame| Event::Frame(Box::new(frame))),
        4 => Just(Event::Opened),
        6 => (0u32..6).prop_map(Event::Made),
        2 => (0u32..6).prop_map(Event::Unmade),
        2 => (0u32..6).prop_map(Event::Left),
        4 => Just(Event::Published),
        1 => Just(Event::Drain),
        1 => Just(Event::Overflow),
        1 => Just(Event::Lost),
        2 => (0u64..30_000).prop_map(Event::Tick),
    ]
}

proptest! {
    #[test]
    fn no_sequence_of_events_breaks_a_promise(events in proptest::collection::vec(events(), 0..80)) {
        let mut now = Instant::now();
        let mut state = State::new(now);
        let (mut opened, mut ended, mut publishes) = (false, false, 0usize);
        let mut numbers = std::collections::BTreeSet::new();
        for event in events {
            let actions = match event {
                Event::Frame(frame) => state.on_frame(frame),
                Event::Opened => {
                    opened |= !ended;
                    state.on_opened(BEAT, Vec::new(), now);
                    Vec::new()
                }
                Event::Made(number) => state.on_made(number),
                Event::Unmade(number) => state.on_unmade(number),
                Event::Left(number) => state.on_left(number, Some(1)),
                Event::Published => {
                    publishes = publishes.saturating_sub(1);
                    state.on_published()
                }
                Event::Drain => state.on_drain(go_away(), now),
                Event::Overflow => state.on_overflow(),
                Event::Lost => state.on_ended(Ending::lost()),
                Event::Tick(ms) => {
                    now += Duration::from_millis(ms);
                    state.on_tick(now)
                }
            };
            prop_assert!(!ended || actions.is_empty(), "after the end: {actions:?}");
            for action in actions {
                prop_assert!(!ended, "an action after the end: {action:?}");
                match action {
                    Action::End(_) => ended = true,
                    Action::Open(_) => prop_assert!(!opened, "opened twice"),
                    Action::Publish(_) | Action::Transact(_) | Action::Trace(_) => {
                        publishes += 1;
                        prop_assert!(opened && publishes <= PUBLISHES_IN_FLIGHT_MAX);
                    }
                    Action::Subscribe { number, .. }
                    | Action::Select { number, .. }
                    | Action::Tail { number, .. }
                    | Action::Watch { number, .. } => {
                        prop_assert!(opened && number > 0 && numbers.insert(number), "number {number} is new");
                    }
                    Action::Forward { number, .. } | Action::Leave { number, .. } | Action::Untail { number } => {
                        prop_assert!(opened && numbers.contains(&number));
                    }
                    Action::Hold(frame) => prop_assert!(opened && frame.id() != Some(4)),
                    Action::Send(_) => {}
                }
            }
            prop_assert_eq!(ended, state.next_deadline().is_none());
        }
    }
}
