//! `laneway publish --delay` and `--at`, and `laneway schedule`: what waits is listed, shown, moved and cancelled.

use serde_json::{Value, json};

use crate::running::{Bus, sentence, wrong_usage};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_with_a_time_is_listed_shown_moved_and_cancelled() {
    let bus = Bus::new(1).await;
    let document = |said: crate::harness::process::Said| -> Value {
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", said.stdout);
        serde_json::from_str(&said.stdout).unwrap()
    };
    assert_eq!(bus.run(&["schedule", "list"]).await.stdout, "no schedules\n");
    let said = document(bus.run_with(&["publish", "orders", "--delay", "2h", "--json"], b"one\ntwo\n").await);
    let (first, last) = (&said["scheduled"]["first_schedule"], &said["scheduled"]["last_schedule"]);
    assert_eq!((&said["messages"], &said["scheduled"]["messages"]), (&json!(2), &json!(2)));
    let (first, last) = (first.to_string(), last.to_string());
    let args = ["publish", "orders", "--at", "2035-12-24T18:00:00Z", "--transaction-id", "merry"];
    let said = bus.run_with(&args, b"three\n").await;
    assert!(
        said.stdout.starts_with("1 message in topic orders, one of them waits: schedule "),
        "{}",
        said.stdout
    );
    assert_eq!(bus.count().await, 0, "nothing is appended yet");

    let list = document(bus.run(&["schedule", "list", "--topic", "orders", "--json"]).await);
    assert_eq!(list["schedules"].as_array().unwrap().len(), 3);
    let third = list["schedules"][2]["id"].to_string();
    let page = bus.run(&["schedule", "list", "--limit", "1"]).await;
    assert_eq!((page.code, page.stderr), (0, format!("there are more: --after {first}\n")));
    let shown = bus.run(&["schedule", "show", &third]).await.stdout;
    assert!(shown.contains("due at 2035-12-24T18:00:00Z") && shown.ends_with("\nthree\n"), "{shown}");

    let cancelled = bus.run(&["schedule", "cancel", &first, &third]).await.stdout;
    assert_eq!(cancelled, format!("cancelled schedule {first}\ncancelled schedule {third}\n"));
    for args in [
        &["schedule", "cancel", &first][..],
        &["schedule", "show", &first],
        &["schedule", "move", &first, "--delay", "1s"],
    ] {
        assert!(sentence(&bus.run(args).await, 1).ends_with("(unknown_schedule)"), "{args:?}");
    }
    let refused = sentence(&bus.run(&["schedule", "move", &last, "--at", "1999-12-31T00:00:00Z"]).await, 1);
    assert!(refused.ends_with("(invalid_time)"), "{refused}");
    let moved = document(bus.run(&["schedule", "move", &last, "--delay", "0s", "--json"]).await);
    assert_eq!(moved["id"].to_string(), last);
    let args = ["tail", "orders", "--from", "earliest", "--count", "1"];
    let appended = document(bus.run(&args).await);
    assert_eq!(appended["payload"], "two");
    let args = ["publish", "orders", "--delay", "1s", "--at", "2035-12-24T18:00:00Z"];
    wrong_usage(&bus.run_with(&args, b"x\n").await, "cannot be used with");
    wrong_usage(&bus.run(&["schedule", "move", &last]).await, "--delay");
    // More milliseconds than a number of 64 bits has: not a moment, but too long.
    let absurd = "18446744073709552s";
    let late =
        bus.run_with(&["publish", "orders", "--delay", absurd, "--transaction-id", "never"], b"x\n").await;
    assert!(late.stderr.contains("invalid_time"), "{}", late.stderr);
    let args = ["publish", "orders", "--at", "2035-12-24T18:00:00Z"];
    assert_eq!(bus.run_with(&args, b"x\n").await.code, 0);
    let list = document(bus.run(&["schedule", "list", "--json"]).await);
    let waits = list["schedules"][0]["id"].to_string();
    let refused = sentence(&bus.run(&["schedule", "move", &waits, "--delay", absurd]).await, 1);
    assert!(refused.ends_with("(invalid_time)"), "{refused}");
    let refused = sentence(&bus.run(&["topic", "alter", "orders", "--retention-age", absurd]).await, 1);
    assert!(refused.ends_with("(invalid_setting)"), "{refused}");
    let refused = sentence(&bus.run(&["topic", "create", "others", "--group-expiry", absurd]).await, 1);
    assert!(refused.ends_with("(invalid_setting)"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_may_have_a_ttl_which_counts_from_when_it_is_appended() {
    let bus = Bus::new(1).await;
    let late = bus.run_with(&["publish", "orders", "--delay", "2h", "--ttl", "1ms"], b"late\n").await;
    assert_eq!((late.code, late.stderr.as_str()), (0, ""));
    let at = ["publish", "orders", "--at", "2035-12-24T18:00:00Z", "--ttl", "1h"];
    assert_eq!(bus.run_with(&at, b"merry\n").await.code, 0);
    let list: Value = serde_json::from_str(&bus.run(&["schedule", "list", "--json"]).await.stdout).unwrap();
    let first = list["schedules"][0]["id"].to_string();
    assert_eq!(list["schedules"].as_array().unwrap().len(), 2);
    assert_eq!(bus.run(&["schedule", "move", &first, "--delay", "0s"]).await.code, 0);
    let appended =
        bus.run(&["tail", "orders", "--from", "earliest", "--count", "1", "--format", "raw"]).await;
    assert_eq!(appended.stdout, "late\n", "it is appended whatever its ttl is");
    let ttl = "SELECT ttl_ms FROM laneway.message";
    assert_eq!(bus.database.number(ttl).await, 1);
    let nothing = bus.run(&["pop", "orders", "--group", "billing"]).await;
    assert_eq!((nothing.code, nothing.stdout.as_str()), (0, ""), "it has outlived it");
}
