//! `docs/PROTOCOL.md` against the code: every code and every type stands in it, and its examples are real frames.

#![allow(clippy::unwrap_used)]

mod examples;

use bytes::Bytes;
use laneway_client::wire::{Advice, CloseCode, Subprotocol, bounds};
use laneway_client::{Class, ErrorCode};

fn specification() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/PROTOCOL.md");
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of the tables below one heading, as trimmed cells.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let text = specification();
    let below = text.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("no {heading}"));
    let section = below.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Retry => "retry",
        Class::Unknown => "unknown",
        Class::Refused => "refused",
        Class::Fatal => "fatal",
    }
}

#[test]
fn every_error_code_stands_in_the_table_with_its_class() {
    let rows = rows("## Errors");
    for code in ErrorCode::ALL {
        let name = format!("`{}`", code.as_str());
        let found: Vec<_> = rows.iter().filter(|row| row[0] == name).collect();
        assert_eq!(found.len(), 1, "{name} stands in the table of codes once");
        assert_eq!(found[0][1], class(code.class()), "{name}");
        assert!(found[0][2].len() > 10, "{name} has a meaning");
    }
    let codes = rows.iter().filter(|row| row[0].starts_with('`')).count();
    assert_eq!(codes, ErrorCode::ALL.len() + 4, "every code, and the four classes");
}

#[test]
fn every_close_code_stands_in_the_table_with_its_advice() {
    let rows = rows("## Close codes");
    for code in CloseCode::ALL {
        let advice = match code.advice() {
            Advice::Retry => "retry",
            Advice::Stop => "stop",
        };
        let wanted = [&code.code().to_string(), &format!("`{}`", code.name()), advice, code.meaning()];
        assert!(rows.iter().any(|row| *row == wanted), "{wanted:?} is missing");
    }
    assert_eq!(rows.len(), CloseCode::ALL.len() + 2, "every code, a head and a rule");
}

#[test]
fn every_example_is_a_frame() {
    let text = specification();
    let blocks = text.split("```json\n").skip(1).map(|block| block.split("```").next().unwrap());
    let mut examples = 0;
    for line in blocks.flat_map(str::lines) {
        let frame = Bytes::copy_from_slice(line.as_bytes());
        let client = Subprotocol::Json.decode_client(&frame);
        let broker = Subprotocol::Json.decode_broker(&frame);
        assert!(client.is_ok() || broker.is_ok(), "{line}\n{client:?}\n{broker:?}");
        examples += 1;
    }
    assert!(examples >= 24, "an example of every type, not {examples}");
}

#[test]
fn every_type_has_a_heading_and_every_member_is_named() {
    let text = specification();
    let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let client = examples::client_frames()
        .into_iter()
        .map(|(_, frame)| (frame.kind(), Subprotocol::Json.encode_client(&frame)));
    let broker = examples::broker_frames()
        .into_iter()
        .map(|(_, frame)| (frame.kind(), Subprotocol::Json.encode_broker(&frame)));
    for (kind, frame) in client.chain(broker) {
        let named = |heading: &&&str| heading.split(", ").any(|name| name == kind);
        let heading = headings.iter().find(named).unwrap_or_else(|| panic!("{kind} has no heading"));
        let section = text.split(&format!("\n### {heading}\n")).nth(1).unwrap();
        let section = section.split("\n### ").next().unwrap();
        let members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&frame).unwrap();
        for member in members.keys().filter(|member| *member != "type") {
            assert!(section.contains(&format!("`{member}`")), "{kind} does not explain {member}");
        }
    }
}

#[test]
fn the_bounds_are_those_of_the_code() {
    let rows = rows("## Bounds and defaults");
    let thousands = |number: u32| match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1_000, number % 1_000),
    };
    let row = |name: &str| rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(row("`heartbeat_ms`")[1], thousands(bounds::HEARTBEAT_MS_DEFAULT));
    let (min, max) = (thousands(bounds::HEARTBEAT_MS_MIN), thousands(bounds::HEARTBEAT_MS_MAX));
    assert_eq!(row("`heartbeat_ms`")[2], format!("{min} to {max}"));
    assert_eq!(row("`resume_grace_ms`")[1], thousands(bounds::RESUME_GRACE_MS_DEFAULT));
    assert_eq!(row("`resume_grace_ms`")[2], format!("0 to {}", thousands(bounds::RESUME_GRACE_MS_MAX)));
    assert_eq!(row("time until `hello`")[2], format!("{} s", bounds::HELLO_TIMEOUT_MS / 1_000));
    assert_eq!(row("levels of a frame")[2], bounds::FRAME_DEPTH_MAX.to_string());
    assert_eq!(row("levels of a JSON payload in a frame")[2], bounds::JSON_PAYLOAD_DEPTH_MAX.to_string());
    let silence = format!("{} × `heartbeat_ms`", bounds::HEARTBEATS_MISSED_MAX);
    assert_eq!(row("silence before a side gives up")[2], silence);
    let messages = thousands(bounds::PUBLISH_MESSAGES_MAX as u32);
    assert!(row("messages of a publish, or of a step")[2].starts_with(&messages));
}
