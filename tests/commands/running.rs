//! A broker with a topic, and a command that runs beside the test: its lines are read one by one, as by a slow reader.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::harness::process::{Said, laneway, run_command};
use crate::harness::socket::make_topic;
use crate::harness::wait::{self, PATIENCE};
use crate::harness::{Server, TestDatabase};

/// A broker with a topic named `orders`.
pub struct Bus {
    pub database: TestDatabase,
    pub server: Server,
}

impl Bus {
    pub async fn new(partitions: u32) -> Self {
        let database = TestDatabase::new().await;
        let server = Server::on_database(&database.url).await;
        make_topic(&server.address, "orders", partitions).await;
        Self { database, server }
    }

    pub fn url(&self) -> String {
        format!("ws://{}/v1/ws", self.server.address)
    }

    /// Ends the broker without a word, and starts another one at its address.
    pub async fn crash_and_restart(&mut self) {
        self.server.kill().await;
        self.start_again().await;
    }

    /// Starts a broker at the address of the one that has ended.
    pub async fn start_again(&mut self) {
        let mut command = laneway();
        command.args(["serve", "--listen", &self.server.address, "--database-url", &self.database.url]);
        self.server = Server::spawn_command(&mut command).listening().await;
    }

    /// Runs a command to its end, with something on standard input.
    pub async fn run_with(&self, args: &[&str], input: &[u8]) -> Said {
        let mut command = self.command(args, input);
        run_command(&mut command).await
    }

    pub async fn run(&self, args: &[&str]) -> Said {
        self.run_with(args, b"").await
    }

    fn command(&self, args: &[&str], input: &[u8]) -> tokio::process::Command {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, input).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let mut command = laneway();
        command.args(args).env("LANEWAY_URL", self.url()).stdin(file);
        command
    }

    /// Publishes texts to a partition, by the command.
    pub async fn publish(&self, partition: u32, texts: impl IntoIterator<Item = String>) {
        let lines: String = texts.into_iter().map(|text| text + "\n").collect();
        let partition = partition.to_string();
        let said = self.run_with(&["publish", "orders", "--partition", &partition], lines.as_bytes()).await;
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    }

    /// All payloads of a partition in order, as the database has them.
    pub async fn stored(&self, partition: i32) -> Vec<Vec<u8>> {
        let sql = r#"SELECT payload FROM laneway.message JOIN laneway.partition USING (partition_id)
                     WHERE number = $1 ORDER BY "offset""#;
        let rows = self.database.raw().await.query(sql, &[&partition]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub async fn count(&self) -> i64 {
        self.database.number("SELECT count(*) FROM laneway.message").await
    }

    /// Where the one group of the test goes on in a partition.
    pub async fn committed(&self, partition: u32) -> i64 {
        let sql = format!(
            "SELECT max(committed_offset) FROM laneway.lane_commit JOIN laneway.partition p USING (partition_id) \
             WHERE p.number = {partition}"
        );
        self.database.number(&sql).await
    }
}

/// A command that runs.
pub struct Running {
    child: Child,
    pub input: Option<ChildStdin>,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    said: Arc<Mutex<String>>,
}

impl Running {
    pub fn start(bus: &Bus, args: &[&str]) -> Self {
        let mut command = laneway();
        command.args(args).env("LANEWAY_URL", bus.url());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (mut errors, sink) = (child.stderr.take().unwrap(), said.clone());
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(some @ 1..) = errors.read(&mut buffer).await {
                sink.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..some]));
            }
        });
        let lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Self { input: child.stdin.take(), lines, child, said }
    }

    /// The next line of standard output; `None` at its end.
    pub async fn line(&mut self) -> Option<String> {
        let lines = self.lines.as_mut().expect("still read");
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        line.unwrap_or_else(|_| panic!("no line in time: {}", self.said.lock().unwrap())).unwrap()
    }

    /// The next lines, as JSON.
    pub async fn objects(&mut self, many: usize) -> Vec<Value> {
        let mut objects = Vec::new();
        while objects.len() < many {
            let line = self.line().await.expect("one more line");
            objects.push(serde_json::from_str(&line).unwrap());
        }
        objects
    }

    /// Everything up to the end of standard output.
    pub async fn rest(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        while let Some(line) = self.line().await {
            rest.push(line);
        }
        rest
    }

    /// Nobody reads its standard output any more.
    pub fn close_output(&mut self) {
        self.lines = None;
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().expect("still running") as i32)
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// What it has said on standard error so far.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it has said something on standard error.
    pub async fn says(&self, words: &str) {
        wait::until(words, async || self.said().contains(words)).await;
    }

    /// Waits for its end. Returns its exit code.
    pub async fn ended(&mut self) -> i32 {
        let status = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await;
        status.unwrap_or_else(|_| panic!("it does not end: {}", self.said())).unwrap().code().unwrap_or(-1)
    }
}

/// One sentence on standard error, nothing on standard output.
pub fn sentence(said: &Said, code: i32) -> String {
    assert_eq!((said.code, said.stdout.as_str()), (code, ""), "{}", said.stderr);
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    said.stderr.strip_prefix("laneway: ").expect("it says who speaks").trim_end().to_owned()
}

/// A refusal of the arguments: exit code 2, and a sentence that has these words.
pub fn wrong_usage(said: &Said, words: &str) {
    assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{}", said.stderr);
    assert!(said.stderr.contains(words), "{}", said.stderr);
}

pub fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

pub fn payloads(objects: &[Value]) -> Vec<String> {
    objects.iter().map(|object| object["payload"].as_str().unwrap().to_owned()).collect()
}

/// An address where nobody listens.
pub const NOBODY: &str = "ws://127.0.0.1:1/v1/ws";
