//! `laneway publish`: what becomes of lines, how messages are named, what the summary says, and what is refused.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::process::{Said, laneway, run_command};
use crate::running::{Bus, NOBODY, sentence, wrong_usage};

fn document(said: &Said) -> Value {
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
    serde_json::from_str(&said.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_is_a_message_whatever_bytes_it_has() {
    let bus = Bus::new(1).await;
    let said = bus.run_with(&["publish", "orders", "--json"], b"one\r\ntwo\n\n\xff\xfe\nlast").await;
    let part = json!({"partition": 0, "messages": 5, "duplicates": 0, "first_offset": 0, "last_offset": 4});
    assert_eq!(
        document(&said),
        json!({"topic": "orders", "messages": 5, "duplicates": 0, "failed": 0, "unknown": 0, "partitions": [part]})
    );
    let expected: [&[u8]; 5] = [b"one", b"two", b"", b"\xff\xfe", b"last"];
    assert_eq!(bus.stored(0).await, expected);

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "six\nseven\n").unwrap();
    let said = bus.run(&["publish", "orders", file.path().to_str().unwrap()]).await;
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let words: Vec<&str> = said.stdout.split_whitespace().collect();
    assert_eq!(words[..5], ["2", "messages", "in", "topic", "orders"]);
    assert_eq!(
        words[5..],
        ["PARTITION", "MESSAGES", "FIRST", "OFFSET", "LAST", "OFFSET", "0", "2", "5", "6"]
    );
    assert_eq!(bus.run_with(&["publish", "orders", "-"], b"").await.stdout, "0 messages in topic orders\n");
    assert_eq!(bus.count().await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_input_is_one_message_with_all_that_it_was_given() {
    let bus = Bus::new(4).await;
    let trace = "0198f5a0-1c2d-7e3f-8a4b-5c6d7e8f9a0b";
    let args = ["publish", "orders", "--whole", "--key", "customer-17", "--partition", "3", "--trace", trace];
    let more = ["--transaction-id", "order-17", "--header", "kind=pdf", "--header", "note=a=b", "--json"];
    let said = document(&bus.run_with(&[&args[..], &more].concat(), b"two\nlines\n").await);
    assert_eq!((&said["messages"], &said["partitions"][0]["partition"]), (&json!(1), &json!(3)));

    let args = ["tail", "orders", "--from", "earliest", "--count", "1", "--format", "json"];
    let mut message = document(&bus.run(&args).await);
    assert!(message["published_at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    message.as_object_mut().unwrap().remove("published_at");
    assert_eq!(
        message,
        json!({
            "topic": "orders", "partition": 3, "offset": 0, "trace_id": trace, "key": "customer-17",
            "key_encoding": "text", "transaction_id": "order-17", "headers": {"kind": "pdf", "note": "a=b"},
            "payload": "two\nlines\n", "encoding": "text",
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_traceparent_names_the_trace_and_is_sent_along() {
    let bus = Bus::new(1).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    document(&bus.run_with(&["publish", "orders", "--trace", parent, "--json"], b"x\n").await);
    let args = ["tail", "orders", "--from", "earliest", "--count", "1", "--format", "json"];
    let message = document(&bus.run(&args).await);
    assert_eq!(message["trace_id"], json!("0af76519-16cd-43dd-8448-eb211c80319c"));
    assert_eq!(message["headers"], json!({ "traceparent": parent }));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_command_with_a_transaction_id_stores_nothing_twice() {
    let bus = Bus::new(8).await;
    let args = ["publish", "orders", "--transaction-id", "import-7", "--json"];
    let first = document(&bus.run_with(&args, b"a\na\na\n").await);
    assert_eq!(
        (&first["messages"], &first["duplicates"]),
        (&json!(3), &json!(0)),
        "equal lines are several messages"
    );
    let again = document(&bus.run_with(&args, b"a\na\na\nb\n").await);
    assert_eq!(
        (&again["messages"], &again["duplicates"]),
        (&json!(4), &json!(3)),
        "only the new line is new"
    );
    let rows = bus.database.raw().await;
    let sql = "SELECT transaction_id FROM laneway.message ORDER BY transaction_id";
    let ids: Vec<String> = rows.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(ids, ["import-7", "import-7-2", "import-7-3", "import-7-4"]);
    let people = bus.run_with(&args[..4], b"a\n").await.stdout;
    assert!(people.starts_with("1 message in topic orders, 1 of them stored before\n"), "{people}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_too_large_is_named_and_what_is_before_it_stays() {
    let bus = Bus::new(1).await;
    let input = format!("one\ntwo\n{}\nfour\n", "x".repeat((1 << 20) + 1));
    let said = bus.run_with(&["publish", "orders", "--json"], input.as_bytes()).await;
    let reason = "line 3 has more than 1048576 bytes, the most that the topic takes (payload_too_large)";
    assert_eq!((said.code, said.stderr), (1, format!("laneway: {reason}\n")));
    let summary: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&summary["messages"], &summary["partitions"][0]["last_offset"]), (&json!(2), &json!(1)));
    assert_eq!(summary["first_failure"], json!({"reason": reason}));
    assert_eq!(bus.stored(0).await, [b"one", b"two"]);
    let whole = bus.run_with(&["publish", "orders", "--whole"], &vec![0; (1 << 20) + 1]).await;
    assert_eq!(whole.code, 1);
    assert!(whole.stderr.starts_with("laneway: the input has more than 1048576 bytes"), "{}", whole.stderr);
    assert_eq!(bus.count().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_wrongly_is_refused_before_anything_is_published() {
    let bus = Bus::new(2).await;
    let publish = async |more: &[&str]| bus.run_with(&[&["publish", "orders"], more].concat(), b"x\n").await;
    wrong_usage(&publish(&["--header", "a=1", "--header", "a=2"]).await, "header a is given twice");
    wrong_usage(&publish(&["--header", "a"]).await, "a header is NAME=VALUE");
    wrong_usage(&publish(&["--trace", "17"]).await, "it is a UUID or 32 hexadecimal digits");
    let zero = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
    wrong_usage(&publish(&["--trace", zero]).await, "or a traceparent");
    wrong_usage(&publish(&["--partition", "-1"]).await, "--partition");
    wrong_usage(&publish(&["--nonsense"]).await, "--nonsense");
    let missing = sentence(&publish(&["no-such-file"]).await, 1);
    assert!(missing.starts_with("cannot read no-such-file: "), "{missing}");
    assert!(sentence(&publish(&["/"]).await, 1).contains("cannot read /: "));
    let unknown = sentence(&bus.run_with(&["publish", "nowhere"], b"x\n").await, 1);
    assert_eq!(unknown, "there is no topic nowhere (unknown_topic)");
    let outside = publish(&["--partition", "2"]).await;
    let reason = "laneway: line 1: the topic has 2 partitions, and no number 2 (partition_out_of_range)\n";
    assert_eq!((outside.code, outside.stderr.as_str()), (1, reason));
    assert_eq!(outside.stdout, "0 messages in topic orders, 1 not stored\n");
    assert_eq!(bus.count().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_it_says_so_and_ends() {
    let since = Instant::now();
    let said = run_command(laneway().args(["publish", "orders", "--url", NOBODY])).await;
    let away = sentence(&said, 1);
    assert!(away.contains(NOBODY) && away.ends_with("(is `laneway serve` running there?)"), "{away}");
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    let said = run_command(laneway().args(["publish", "orders", "--url", "nonsense"])).await;
    assert!(sentence(&said, 1).contains("\"nonsense\" is not the address of a broker"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_topic_has_no_room_for_is_tried_for_as_long_as_is_said_or_fails_at_once() {
    let bus = Bus::new(1).await;
    let pop = ["pop", "orders", "--group", "billing", "--auto-ack", "--format", "raw"];
    assert_eq!(bus.run(&pop).await.stdout, "", "its group is there from now on");
    assert_eq!(bus.run(&["topic", "alter", "orders", "--max-backlog-messages", "2"]).await.code, 0);
    let publish = async |more: &[&str], lines: &[u8]| {
        bus.run_with(&[&["publish", "orders", "--partition", "0"], more].concat(), lines).await
    };
    assert_eq!(publish(&["--on-full", "fail"], b"1\n2\n").await.code, 0);
    let full = publish(&["--on-full", "fail"], b"no\n").await;
    assert_eq!(full.code, 1);
    assert!(full.stderr.contains("topic orders is full"), "{}", full.stderr);
    let started = Instant::now();
    let late = publish(&["--timeout", "1s"], b"no\n").await;
    assert!(late.code == 1 && started.elapsed() >= Duration::from_secs(1), "{}", late.stderr);
    assert_eq!(bus.count().await, 2, "nothing of it is stored");
    let (patient, popped) = tokio::join!(publish(&["--timeout", "1m"], b"3\n"), bus.run(&pop));
    assert_eq!((patient.code, popped.code), (0, 0), "{}", patient.stderr);
    assert_eq!(popped.stdout + &bus.run(&pop).await.stdout, "1\n2\n3\n");
    for wrong in ["0s", "25h", "18446744073709551615s"] {
        wrong_usage(&publish(&["--timeout", wrong], b"x\n").await, "--timeout");
    }
    wrong_usage(&publish(&["--on-full", "never"], b"x\n").await, "wait or fail");
}
