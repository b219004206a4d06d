//! What `laneway serve` logs: lines for people on a terminal, JSON anywhere else, always on standard error.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::harness::pty::OnTerminal;
use crate::harness::{Server, TestDatabase};

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_pretty_on_a_terminal() {
    let database = TestDatabase::new().await;
    let args = ["serve", "--listen", "127.0.0.1:0", "--database-url", &database.url];
    let mut command = OnTerminal::start(&args);
    command.shows("where it listens", |text| text.contains("INFO listening address=127.0.0.1:")).await;
    assert!(!command.text().contains('{'), "{}", command.text());
    kill(Pid::from_raw(command.child.id().unwrap() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(command.ended().await, 0);
    command.shows("its end", |text| text.contains("INFO stopped")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_json_in_a_pipe() {
    let database = TestDatabase::new().await;
    let mut server = Server::on_database(&database.url).await;
    assert_eq!(server.stop().await, 0);
    server.logged("stopped").await;
    let log = server.log();
    assert!(log.len() >= 3, "{log:?}");
    for line in log {
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for field in ["timestamp", "level", "target", "message"] {
            assert!(event[field].is_string(), "{field}: {line}");
        }
    }
}
