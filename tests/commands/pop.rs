//! `laneway pop`: prints what is there, acknowledges what was printed, and waits if asked to.

use serde_json::Value;

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
    wrong_usage(&bus.run(&["pop", "orders", "--group", "billing", "--count", "0"]).await, "--count");
}
