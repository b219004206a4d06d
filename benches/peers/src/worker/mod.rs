//! A worker: one process of a measurement. It connects, says that it is ready, waits for the window, works, and says what it counted.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the conversation: JSON lines, ready – window – tally |
//! | `tally` | what is counted in the window |
//! | `pace` | handing out messages at the moment they are due |
//! | `redis` | the work on Redis Streams |
//! | `nats` | the work on NATS JetStream |
//!
//! Standard input ends: the worker ends. So nothing stays behind, however the comparison ends.

pub mod nats;
mod pace;
pub mod redis;
pub mod tally;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};
use tokio::task::JoinSet;

use self::tally::{Count, Tally};
use crate::clock::{Window, until};
use crate::error::Error;
use crate::system::Peer;
use crate::work::DRAIN;

/// What a worker is for, as its one argument says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Post {
    pub peer: Peer,
    pub address: SocketAddr,
    pub job: Job,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Job {
    /// Batches, several in flight, as fast as they are answered.
    Batches,
    /// So many producers that send one message and wait for its answer, over some connections.
    Singles { producers: usize, connections: usize },
    /// Single messages at a rate, over some connections, whether answers come or not.
    Scheduled { connections: u32, rate: u32 },
    /// A member of each group for some of the partitions.
    Consume { groups: Vec<String>, partitions: Vec<u32>, counting: Counting },
}

/// When a consumer counts a message.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Counting {
    /// When the server has answered its acknowledgement.
    Acknowledged,
    /// When it is delivered, with the time since it was due.
    Delivered { rate: u32 },
}

impl Job {
    /// The hidden command that does it.
    pub fn role(&self) -> &'static str {
        match self {
            Self::Batches | Self::Singles { .. } | Self::Scheduled { .. } => "produce",
            Self::Consume { .. } => "consume",
        }
    }

    /// How long it goes on after the window.
    fn overtime(&self) -> Duration {
        match self {
            Self::Scheduled { .. } | Self::Consume { counting: Counting::Delivered { .. }, .. } => DRAIN,
            Self::Batches | Self::Singles { .. } => Duration::ZERO,
            Self::Consume { counting: Counting::Acknowledged, .. } => Duration::ZERO,
        }
    }
}

/// Tasks that work until they are dropped, or until there is nothing left to do.
pub type Tasks = JoinSet<Result<(), Error>>;

/// A job that is connected and waits for its window.
pub trait Ready {
    fn begin(self: Box<Self>, count: &Arc<Count>) -> Tasks;
}

/// Works through one window.
pub async fn run(post: Post) -> Result<(), Error> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let job = match post.peer {
        Peer::Redis(_) => redis::open(&post).await?,
        Peer::Nats(_, publishing) => nats::open(&post, publishing).await?,
    };
    say(&"ready")?;
    let Some(window) = window(&mut lines).await? else { return Ok(()) };
    let count = Arc::new(Count::new(window, &post.job));
    let mut tasks = job.begin(&count);
    tokio::select! {
        ended = all(&mut tasks) => ended?,
        () = tokio::time::sleep(until(window.to_ns) + post.job.overtime()) => {}
        () = count.complete() => {}
        _ = lines.next_line() => return Ok(()), // whoever measures is gone
    }
    // A job may run dry before the others are done.
    tokio::time::sleep(until(window.to_ns)).await;
    say(&count.tally())
}

async fn all(tasks: &mut Tasks) -> Result<(), Error> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|_| Error::Panicked)??;
    }
    Ok(())
}

/// The window to work through; `None`: there is none.
async fn window(lines: &mut Lines<BufReader<Stdin>>) -> Result<Option<Window>, Error> {
    let line = lines.next_line().await.map_err(Error::io("reading the window"))?;
    line.map(|text| parsed(&text)).transpose()
}

/// What a line of the conversation says.
pub fn parsed<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|source| Error::NotUnderstood { text: text.to_owned(), source })
}

fn say(what: &impl Serialize) -> Result<(), Error> {
    use std::io::Write as _;
    let mut line = serde_json::to_vec(what).map_err(std::io::Error::from).map_err(Error::io("a report"))?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(Error::io("a report"))
}

/// What the workers counted together.
pub fn sum(tallies: &[Tally]) -> Tally {
    Tally {
        messages: tallies.iter().map(|tally| tally.messages).sum(),
        missing: tallies.iter().map(|tally| tally.missing).sum(),
        latencies: tallies.iter().flat_map(|tally| tally.latencies.iter().copied()).collect(),
    }
}
