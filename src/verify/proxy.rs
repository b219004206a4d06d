//! A wire that can be cut, delayed, truncated or turned into a black hole: between clients and a broker, or between a broker
//! and its database.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes that are forwarded at once.
const CHUNK_BYTES: usize = 16 << 10;

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Clear,
    /// Every chunk takes that long.
    Slow(Duration),
    /// Nothing passes, and nobody is told.
    Blackhole,
}

/// The state that connections of a proxy watch.
#[derive(Debug, Clone, Copy)]
struct State {
    weather: Weather,
    /// Connections of an earlier generation are cut.
    generation: u64,
}

/// Where a proxy forwards to.
#[derive(Debug, Clone)]
pub(super) enum Target {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Proxy {
    pub address: SocketAddr,
    state: watch::Sender<State>,
    /// Bytes that the connections may still forward before they are cut; negative: no bound.
    allowance: Arc<AtomicI64>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub async fn start(target: Target) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (state, watched) = watch::channel(State { weather: Weather::Clear, generation: 0 });
        let allowance = Arc::new(AtomicI64::new(-1));
        let task = tokio::spawn(accept(listener, target, watched, allowance.clone()));
        Ok(Self { address, state, allowance, task })
    }

    /// Cuts every connection, as a reset does.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Lets some more bytes pass and cuts every connection there, in the middle of whatever it is.
    pub async fn truncate(&self, bytes: u32, patience: Duration) {
        self.allowance.store(i64::from(bytes), Ordering::Relaxed);
        tokio::time::sleep(patience).await; // until somebody has said that much
        self.allowance.store(-1, Ordering::Relaxed);
        self.cut();
    }

    pub fn delay(&self, each: Duration) {
        self.state.send_modify(|state| state.weather = Weather::Slow(each));
    }

    pub fn blackhole(&self) {
        self.state.send_modify(|state| state.weather = Weather::Blackhole);
    }

    /// What was held up goes on.
    pub fn heal(&self) {
        self.state.send_modify(|state| state.weather = Weather::Clear);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn accept(
    listener: TcpListener,
    target: Target,
    state: watch::Receiver<State>,
    allowance: Arc<AtomicI64>,
) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(connect(client, target.clone(), state.clone(), allowance.clone()));
    }
}

async fn connect(
    client: TcpStream,
    target: Target,
    mut state: watch::Receiver<State>,
    allowance: Arc<AtomicI64>,
) {
    let born_in = state.borrow().generation;
    let (reads, writes) = client.into_split();
    let forwarding = async {
        match target {
            Target::Tcp(address) => {
                let Ok(server) = TcpStream::connect(address).await else { return };
                let (server_reads, server_writes) = server.into_split();
                both((reads, writes), (server_reads, server_writes), &state, &allowance).await;
            }
            Target::Unix(path) => {
                let Ok(server) = UnixStream::connect(path).await else { return };
                let (server_reads, server_writes) = server.into_split();
                both((reads, writes), (server_reads, server_writes), &state, &allowance).await;
            }
        }
    };
    let mut cut = state.clone();
    tokio::select! {
        () = forwarding => {}
        _ = cut.wait_for(|state| state.generation > born_in) => {}
    }
    state.mark_unchanged();
}

/// Ends when either way has ended.
async fn both(
    client: (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    server: (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    state: &watch::Receiver<State>,
    allowance: &AtomicI64,
) {
    tokio::select! {
        () = forward(client.0, server.1, state.clone(), allowance) => {}
        () = forward(server.0, client.1, state.clone(), allowance) => {}
    }
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
    allowance: &AtomicI64,
) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let mut some = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(some) => some,
        };
        let weather = state.borrow().weather;
        if let Weather::Slow(each) = weather {
            tokio::time::sleep(each).await;
        }
        if state.wait_for(|state| state.weather != Weather::Blackhole).await.is_err() {
            return;
        }
        let left = allowance.load(Ordering::Relaxed);
        let is_last = left >= 0 && some as i64 >= left;
        if is_last {
            some = left as usize;
        } else if left >= 0 {
            allowance.fetch_sub(some as i64, Ordering::Relaxed);
        }
        if to.write_all(&buffer[..some]).await.is_err() || is_last {
            return;
        }
    }
}
