//! `laneway pop`: prints what is there, acknowledges what was printed, and waits if asked to.

use serde_json::{Value, json};

use crate::running::{Bus, numbers, payloads, sentence, wrong_usage};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_popped_is_printed_and_done_and_the_rest_is_left() {
    let bus = Bus::new(1).await;
    bus.publish(0, numbers(0..10)).await;
    let pop = ["pop", "orders", "--group", "billing"];
    let three = bus.run(&[&pop[..], &["--count", "3", "--format", "raw"]].concat()).await;
    assert_eq!((three.code, three.stdout.as_str(), three.stderr.as_str()), (0, "0\n1\n2\n", ""));
    assert_eq!(bus.committed(0).await, 3);
    let once = bus.run(&[&pop[..], &["--count", "2", "--auto-ack"]].concat()).await;
    let objects: Vec<Value> = once.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((payloads(&objects), bus.committed(0).await), (numbers(3..5), 5));
    let rest = bus.run(&[&pop[..], &["--format", "pretty"]].concat()).await;
    assert_eq!((rest.stdout.lines().count(), bus.committed(0).await), (5, 10));
    assert!(rest.stdout.starts_with("0/5  20"), "{}", rest.stdout);
    let late = async {
        let said = bus.run(&[&pop[..], &["--count", "1", "--wait", "1m", "--format", "raw"]].concat()).await;
        assert_eq!((said.code, said.stdout.as_str()), (0, "10\n"));
    };
    tokio::join!(late, bus.publish(0, numbers(10..11)));
    let nothing = bus.run(&pop).await;
    assert_eq!((nothing.code, nothing.stdout.as_str(), nothing.stderr.as_str()), (0, "", ""));
    let short = bus.run(&[&pop[..], &["--ack-deadline", "1ms"]].concat()).await;
    assert!(sentence(&short, 1).contains("ack_deadline_ms must be between"), "{}", short.stderr);
    let absurd = bus.run(&[&pop[..], &["--ack-deadline", "18446744073709552s"]].concat()).await;
    assert!(sentence(&absurd, 1).contains("ack_deadline_ms must be between"), "{}", absurd.stderr);
    wrong_usage(&bus.run(&[&pop[..], &["--wait", "18446744073709551615s"]].concat()).await, "--wait");
    wrong_usage(&bus.run(&[&pop[..], &["--auto-ack", "--ack-deadline", "1m"]].concat()).await, "--auto-ack");
    wrong_usage(&bus.run(&["pop", "orders", "--group", "billing", "--count", "0"]).await, "--count");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_acknowledged_refused_and_prolonged_by_what_names_it() {
    let bus = Bus::new(1).await;
    bus.publish(0, numbers(0..4)).await;
    let of = ["--group", "billing", "--partition", "0", "--epoch"];
    let popped = async |action: &str, epoch: &str, more: &[&str]| {
        bus.run(&[&["popped", action, "orders"], &of[..], &[epoch], more].concat()).await
    };
    let keep = ["pop", "orders", "--group", "billing", "--keep"];
    let settings = ["--max-attempts", "2", "--on-failure", "skip", "--format", "json"];
    let kept = bus.run(&[&keep[..], &settings].concat()).await;
    let pop: Value = serde_json::from_str(kept.stdout.trim_end()).unwrap();
    assert_eq!((&pop["partition"], &pop["epoch"], &pop["end_offset"]), (&json!(0), &json!(1), &json!(4)));
    assert_eq!(payloads(pop["messages"].as_array().unwrap()), numbers(0..4));
    let until = pop["expires_at"].as_str().unwrap();
    assert_eq!(kept.stderr, format!("laneway: kept until {until}: partition 0, epoch 1, next 4\n"));
    assert_eq!(bus.committed(0).await, 0, "nothing is acknowledged");
    assert_eq!(bus.run(&keep).await.stdout, "", "and nobody else gets it");

    let extended = popped("extend", "1", &["--ack-deadline", "10m"]).await.stdout;
    let later: jiff::Timestamp = extended.strip_prefix("kept until ").unwrap().trim_end().parse().unwrap();
    assert!(later > until.parse().unwrap(), "{extended}");
    let done = popped("ack", "1", &["--next", "1", "--offset", "2"]).await;
    assert_eq!((done.code, done.stdout.as_str()), (0, "done up to 1, 2 messages of the pop are left\n"));
    let refused = popped("nack", "1", &["--offset", "1", "--reason", "no stock", "--delay", "0s"]).await;
    assert_eq!(
        refused.stdout, "message 1 has failed once and comes again; the pop is over\n",
        "{}",
        refused.stderr
    );
    let reason = "SELECT count(*) FROM laneway.attempt WHERE reason = 'no stock'";
    assert_eq!(bus.database.number(reason).await, 1);

    let again = bus.run(&[&keep[..], &["--format", "raw"]].concat()).await;
    assert_eq!((again.code, again.stdout.as_str()), (0, "1\n3\n"));
    assert!(again.stderr.ends_with(": partition 0, epoch 2, next 4\n"), "{}", again.stderr);
    let stale = sentence(&popped("ack", "1", &["--next", "4"]).await, 1);
    assert!(stale.ends_with("(lease_lost)"), "{stale}");
    let late = sentence(&popped("nack", "2", &["--offset", "1", "--until", "1999-12-31T00:00:00Z"]).await, 1);
    assert!(late.ends_with("(invalid_time)"), "{late}");
    let given_up = popped("nack", "2", &["--offset", "1", "--until", "2099-01-01T00:00:00Z"]).await;
    assert!(sentence(&given_up, 1).ends_with("(invalid_time)"), "more than a day ahead");
    let given_up = popped("nack", "2", &["--offset", "1", "--json"]).await;
    let given_up: Value = serde_json::from_str(&given_up.stdout).unwrap();
    assert_eq!((&given_up["verdict"], &given_up["attempts"]), (&json!("skip"), &json!(2)));
    assert_eq!(bus.run(&["pop", "orders", "--group", "billing", "--format", "raw"]).await.stdout, "3\n");
    assert_eq!(bus.committed(0).await, 4);

    wrong_usage(&popped("ack", "1", &[]).await, "--next");
    wrong_usage(
        &popped("nack", "1", &["--offset", "0", "--delay", "1s", "--until", "2035-12-24T18:00:00Z"]).await,
        "--until",
    );
    wrong_usage(&bus.run(&[&keep[..], &["--auto-ack"]].concat()).await, "--auto-ack");
    let other = bus.run(&[&keep[..], &["--max-attempts", "3"]].concat()).await;
    assert!(sentence(&other, 1).ends_with("(group_mismatch)"), "{}", other.stderr);
}
