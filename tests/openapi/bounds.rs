//! A request has a bound in size and in time, and who passes one is told so in a problem.

use std::time::{Duration, Instant};

use laneway::limits::{HTTP_BODY_BYTES_MAX, HTTP_REQUEST_TIMEOUT};
use laneway_client::{ErrorCode, Problem};

use crate::harness::{Server, TestDatabase};

async fn problem(response: reqwest::Response) -> Problem {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    response.json().await.unwrap()
}

#[tokio::test]
async fn a_body_at_the_bound_is_taken_and_one_beyond_it_is_refused() {
    let database = TestDatabase::new().await;
    let server = Server::on_database(&database.url).await;
    let send = async |body: reqwest::Body| {
        let request = reqwest::Client::new().post(server.url("/v1/topics")).body(body);
        request.header("content-type", "application/json").send().await.unwrap()
    };
    let name = " ".repeat(HTTP_BODY_BYTES_MAX - 16) + r#"{"name":"small"}"#;
    assert_eq!(name.len(), HTTP_BODY_BYTES_MAX);
    assert_eq!(send(name.clone().into()).await.status(), 201, "at the bound it is taken");
    let refused = problem(send((name + " ").into()).await).await;
    assert_eq!((refused.code, refused.status), (ErrorCode::TooLarge, 413));
}

/// The longest test of this file: it waits for the bound itself.
#[tokio::test]
async fn a_request_beyond_the_bound_in_time_is_answered_and_may_still_be_carried_out() {
    let database = TestDatabase::new().await;
    let patient = ["--lock-timeout", "5m", "--statement-timeout", "5m"];
    let server = Server::start(&[&["--database-url", &database.url], patient.as_slice()].concat()).await;
    let mut raw = database.raw().await;
    let lock = raw.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE laneway.dead_letter IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let started = Instant::now();
    let late = problem(reqwest::get(server.url("/v1/dead-letters")).await.unwrap()).await;
    assert_eq!((late.code, late.status), (ErrorCode::OutcomeUnknown, 500));
    assert!(started.elapsed() >= HTTP_REQUEST_TIMEOUT);
    assert!(started.elapsed() < HTTP_REQUEST_TIMEOUT + Duration::from_secs(10), "{:?}", started.elapsed());
    lock.rollback().await.unwrap();
    assert_eq!(reqwest::get(server.url("/v1/dead-letters")).await.unwrap().status(), 200);
}
