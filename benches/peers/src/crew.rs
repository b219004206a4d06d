//! The workers of one measurement: this program again, once per process, and the conversation with them.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::clock::Window;
use crate::error::Error;
use crate::process::{Ending, Process};
use crate::system::Peer;
use crate::work::{
    CONSUMERS, Load, PARTITIONS, PRODUCERS, SCHEDULED_CONNECTIONS, SINGLES, WARM_UP, Work, group,
};
use crate::worker::tally::Tally;
use crate::worker::{Counting, Job, Post, parsed};

/// One process.
#[derive(Debug)]
struct Worker {
    role: &'static str,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: ChildStdin,
    /// Last: a worker ends by itself when its standard input does.
    _process: Process,
}

/// What was counted, by those who count for the result and by nobody else.
pub async fn work(
    peer: Peer,
    address: SocketAddr,
    load: Load,
    length: Duration,
) -> Result<(Tally, Window), Error> {
    let jobs = jobs(load);
    // Consumers are there before the first message is.
    let mut crew = Vec::new();
    for job in jobs.iter().rev() {
        crew.push(Worker::start(&Post { peer, address, job: job.clone() }).await?);
    }
    let window = Window::opening(WARM_UP, length);
    for worker in &mut crew {
        worker.begin(window).await?;
    }
    let (mut produced, mut consumed) = (Vec::new(), Vec::new());
    for worker in &mut crew {
        let tally = worker.heard().await?;
        match worker.role {
            "consume" => consumed.push(tally),
            _ => produced.push(tally),
        }
    }
    let counted = if consumed.is_empty() { produced } else { consumed };
    Ok((crate::worker::sum(&counted), window))
}

/// Who does the work.
fn jobs(load: Load) -> Vec<Job> {
    let Load { work, rate, singles_connections: connections } = load;
    let groups: Vec<String> = (0..work.groups()).map(group).collect();
    let consumers = |share: usize, of: usize, counting| Job::Consume {
        groups: groups.clone(),
        partitions: (0..PARTITIONS).filter(|partition| *partition as usize % of == share).collect(),
        counting,
    };
    match work {
        Work::Publish => vec![Job::Batches; PRODUCERS],
        Work::Singles => vec![Job::Singles { producers: SINGLES, connections }],
        Work::E2e | Work::Fanout => {
            let members = (0..CONSUMERS).map(|share| consumers(share, CONSUMERS, Counting::Acknowledged));
            vec![Job::Batches; PRODUCERS].into_iter().chain(members).collect()
        }
        Work::Latency => vec![
            Job::Scheduled { connections: SCHEDULED_CONNECTIONS, rate },
            consumers(0, 1, Counting::Delivered { rate }),
        ],
    }
}

impl Worker {
    /// Starts a worker and waits until it is connected.
    async fn start(post: &Post) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(Error::io("finding this program"))?;
        let text = serde_json::to_string(post).map_err(std::io::Error::from).map_err(Error::io("a post"))?;
        let mut command = Command::new(program);
        command.arg(post.job.role()).arg(text).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command, Ending::Kill)?;
        let (Some(stdin), Some(stdout)) = (process.child.stdin.take(), process.child.stdout.take()) else {
            return Err(Error::WorkerSilent { role: post.job.role() });
        };
        let lines = BufReader::new(stdout).lines();
        let mut worker = Self { role: post.job.role(), lines, stdin, _process: process };
        worker.line().await?; // it is ready
        Ok(worker)
    }

    async fn begin(&mut self, window: Window) -> Result<(), Error> {
        let text = serde_json::to_string(&window).map_err(std::io::Error::from);
        let line = text.map_err(Error::io("a window"))? + "\n";
        self.stdin.write_all(line.as_bytes()).await.map_err(Error::io("speaking to a worker"))
    }

    async fn heard(&mut self) -> Result<Tally, Error> {
        parsed(&self.line().await?)
    }

    async fn line(&mut self) -> Result<String, Error> {
        let line = self.lines.next_line().await.map_err(Error::io("listening to a worker"))?;
        line.ok_or(Error::WorkerSilent { role: self.role })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_one_consumer_in_each_group() {
        for work in [Work::E2e, Work::Fanout, Work::Latency] {
            let mut owned = Vec::new();
            for job in jobs(Load { work, rate: 1_000, singles_connections: 64 }) {
                if let Job::Consume { groups, partitions, .. } = job {
                    assert_eq!(groups.len(), work.groups());
                    owned.extend(partitions);
                }
            }
            owned.sort_unstable();
            assert_eq!(owned, (0..PARTITIONS).collect::<Vec<_>>(), "{work:?}");
        }
    }
}
