//! What a pop may ask for beside messages: settings of the group that it makes, and until when a lane holds after a nack.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use laneway_client::admin::AdminError;
use laneway_client::pull_api::{Pop, PopNack, PopRequest, PopVerdict};
use laneway_client::wire::{GroupOrdering, OnFailure, Subprotocol, Subscribe, WantedSettings};
use laneway_client::{Admin, ErrorCode};

use crate::Bus;
use crate::harness::socket::{quick_retries, subscribe};

fn patient() -> PopRequest {
    PopRequest { wait_ms: Some(20_000), ..PopRequest::default() }
}

async fn pop(admin: &Admin, wish: &PopRequest) -> Pop {
    admin.pop("orders", "billing", wish).await.unwrap().expect("there are messages")
}

/// The code, the field and the sentence.
fn refused<T: std::fmt::Debug>(result: Result<T, AdminError>) -> (ErrorCode, String, String) {
    match result.unwrap_err() {
        AdminError::Refused(problem) => (problem.code, problem.field.unwrap_or_default(), problem.detail),
        other => panic!("{other}"),
    }
}

fn ahead(from_now: jiff::SignedDuration) -> Option<String> {
    Some((Timestamp::now() + from_now).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_holds_until_the_moment_that_a_nack_of_a_pop_names_and_other_moments_are_refused() {
    let bus = Bus::with_topic("orders", 1).await;
    let admin = Admin::new(&bus.server.url("")).unwrap();
    bus.publish("orders", 0, 0..2).await;
    let first = pop(&admin, &patient()).await;
    let nack = |until| PopNack { epoch: first.epoch, offset: 0, until, ..PopNack::default() };
    let (second, minute) = (jiff::SignedDuration::from_secs(1), jiff::SignedDuration::from_mins(1));
    let named = |code| (code, "until".to_owned());
    for (wrong, code) in [
        (nack(Some("soon".into())), ErrorCode::InvalidTime),
        (nack(ahead(-2 * minute)), ErrorCode::InvalidTime),
        (nack(ahead(25 * 60 * minute)), ErrorCode::InvalidTime),
        (PopNack { delay_ms: Some(0), ..nack(ahead(second)) }, ErrorCode::Malformed),
    ] {
        let (found, field, detail) = refused(admin.nack("orders", "billing", &wrong).await);
        assert_eq!((found, field), named(code), "{detail}");
    }
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.attempt").await, 0, "nothing was charged");
    let started = Instant::now();
    let held = admin.nack("orders", "billing", &nack(ahead(second))).await.unwrap();
    assert_eq!((held.remaining, held.attempts, held.verdict), (0, 1, PopVerdict::Retry));
    let again = pop(&admin, &patient()).await;
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
    assert_eq!((again.messages.len(), again.attempts[0].attempts), (2, 1));
    // A moment that is just past is now, whatever the backoff of the group would be.
    let slow = WantedSettings {
        backoff_base_ms: Some(60_000),
        backoff_cap_ms: Some(60_000),
        ..WantedSettings::default()
    };
    admin.alter_group("orders", "billing", &slow).await.unwrap();
    let past = PopNack { epoch: again.epoch, ..nack(ahead(-second)) };
    admin.nack("orders", "billing", &past).await.unwrap();
    assert_eq!(pop(&admin, &patient()).await.attempts[0].attempts, 2);
    bus.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_pop_says_what_its_group_is_like_and_a_later_one_must_agree() {
    let bus = Bus::with_topic("orders", 1).await;
    let admin = Admin::new(&bus.server.url("")).unwrap();
    bus.publish("orders", 0, 0..1).await;
    let wish = |settings| PopRequest { settings: Some(settings), ..patient() };
    let ask = async |settings| refused(admin.pop("orders", "billing", &wish(settings)).await);
    let absurd = WantedSettings { max_attempts: Some(0), ..WantedSettings::default() };
    let (code, field, _) = ask(absurd).await;
    assert_eq!((code, field.as_str()), (ErrorCode::InvalidSetting, "settings.max_attempts"));
    let by_key = WantedSettings { ordering: Some(GroupOrdering::Key), ..WantedSettings::default() };
    let (code, field, _) = ask(by_key).await;
    assert_eq!((code, field.as_str()), (ErrorCode::InvalidSetting, "settings.ordering"));
    assert_eq!(bus.database.number("SELECT count(*) FROM laneway.consumer_group").await, 0);
    let made = WantedSettings {
        on_failure: Some(OnFailure::Skip),
        ack_deadline_ms: Some(5_000),
        ..quick_retries(1)
    };
    let first = pop(&admin, &wish(made)).await;
    let group = admin.show_group("orders", "billing").await.unwrap().group.settings;
    assert_eq!((group.on_failure, group.max_attempts, group.ack_deadline_ms), (OnFailure::Skip, 1, 5_000));
    // It is enforced, and not only shown.
    let nack = PopNack { epoch: first.epoch, offset: 0, ..PopNack::default() };
    assert_eq!(admin.nack("orders", "billing", &nack).await.unwrap().verdict, PopVerdict::Skip);
    // Others agree with it or are refused, as those who subscribe are.
    let more = WantedSettings { max_attempts: Some(2), ..made };
    let (code, field, detail) = ask(more).await;
    assert_eq!((code, field.as_str()), (ErrorCode::GroupMismatch, "settings.max_attempts"), "{detail}");
    bus.publish("orders", 0, 1..2).await;
    assert_eq!(pop(&admin, &wish(made)).await.messages[0].offset, 1);
    let mut session = bus.connect(Subprotocol::Json).await;
    let other = Subscribe { settings: Some(more), ..subscribe("billing", "orders") };
    assert_eq!(session.subscribe_with(other).await.unwrap_err().code, ErrorCode::GroupMismatch);
    bus.stop().await;
}
