//! The conversation in the README, held again with a live broker: what it shows is what people see.

use futures_util::{SinkExt as _, StreamExt as _};
use laneway_client::wire::Subprotocol;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use crate::harness::socket::{PATIENCE, Socket, make_topic};
use crate::harness::{Server, TestDatabase};

const README: &str = include_str!("../../README.md");

/// Members whose values differ from run to run.
const VOLATILE: [&str; 5] = ["session", "resume_token", "broker", "published_at", "trace_id"];

/// One line of the conversation.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Client(&'a str),
    Broker(&'a str),
}

/// The first block of the README whose lines begin with `>` and `<`.
fn conversation() -> Vec<Line<'static>> {
    let line = |line: &'static str| match line.split_once(' ') {
        Some((">", frame)) => Line::Client(frame),
        Some(("<", frame)) => Line::Broker(frame),
        _ => panic!("neither from the client nor from the broker: {line}"),
    };
    let blocks = README.split("```").skip(1).step_by(2);
    let mut found = blocks.filter_map(|block| block.split_once('\n')).map(|(_, lines)| lines.trim_end());
    found
        .find(|lines| lines.starts_with("> {"))
        .expect("the README has a conversation")
        .lines()
        .map(line)
        .collect()
}

/// The text of a frame, with names in place of what differs from run to run.
fn normalised(frame: &str) -> String {
    let value: Value = serde_json::from_str(frame).unwrap_or_else(|error| panic!("{error}: {frame}"));
    let mut texts = Vec::new();
    collect_volatile(&value, &mut texts);
    texts.into_iter().fold(frame.to_owned(), |frame, (name, text)| frame.replace(&text, &format!("<{name}>")))
}

fn collect_volatile(value: &Value, texts: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value.as_str().filter(|_| VOLATILE.contains(&name.as_str())) {
                    Some(text) => texts.push((name.clone(), format!("\"{text}\""))),
                    None => collect_volatile(value, texts),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_volatile(item, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The next frame as it came, heartbeats left out.
async fn next(socket: &mut Socket) -> String {
    loop {
        let message = tokio::time::timeout(PATIENCE, socket.stream.next()).await.expect("a frame in time");
        match message.expect("the connection stands").unwrap() {
            Message::Text(text) if !text.contains("\"heartbeat\"") => return text.to_string(),
            Message::Text(_) | Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("the broker has sent {other:?}"),
        }
    }
}

#[tokio::test]
async fn the_conversation_in_the_readme_is_what_a_broker_says() {
    assert!(README.contains("laneway topic create jobs --partitions 1"), "the topic of the conversation");
    let database = TestDatabase::new().await;
    let mut server = Server::on_database(&database.url).await;
    make_topic(&server.address, "jobs", 1).await;
    let mut socket = Socket::upgraded(&server.address, Subprotocol::Json).await;
    for line in conversation() {
        match line {
            Line::Client(frame) => socket.stream.send(Message::Text(frame.into())).await.unwrap(),
            Line::Broker(frame) => {
                let live = next(&mut socket).await;
                assert_eq!(normalised(&live), normalised(frame), "the broker has said {live}");
            }
        }
    }
    socket.close().await;
    assert_eq!(server.stop().await, 0);
}

#[test]
fn normalising_keeps_everything_but_what_differs_from_run_to_run() {
    let frame =
        r#"{"type":"welcome","session":"a","limits":{"n":1},"messages":[{"trace_id":"b","payload":"c"}]}"#;
    let expected = r#"{"type":"welcome","session":<session>,"limits":{"n":1},"messages":[{"trace_id":<trace_id>,"payload":"c"}]}"#;
    assert_eq!(normalised(frame), expected);
}
