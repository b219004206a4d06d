//! A wire between client and broker that a test can freeze, or that is cut after a number of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// How many bytes pass each way before the connection is cut.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    pub to_broker: usize,
    pub to_client: usize,
}

impl Allowance {
    pub const ENDLESS: Self = Self { to_broker: usize::MAX, to_client: usize::MAX };
}

/// Forwards to one broker.
pub struct Proxy {
    pub address: String,
    frozen: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Forwards for ever.
    pub async fn to(broker: &str) -> Self {
        Self::cutting(broker, || Allowance::ENDLESS).await
    }

    /// Each connection gets an allowance, and is cut when either way has used it up.
    pub async fn cutting(broker: &str, mut allowance: impl FnMut() -> Allowance + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (frozen, broker) = (Arc::new(AtomicBool::new(false)), broker.to_owned());
        let is_frozen = frozen.clone();
        let task = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let Ok(server) = TcpStream::connect(&broker).await else { continue };
                tokio::spawn(join(client, server, allowance(), is_frozen.clone()));
            }
        });
        Self { address, frozen, task }
    }

    /// From now on nothing passes, and nobody is told.
    pub fn freeze(&self) {
        self.frozen.store(true, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends, and so drops both connections, when one way is cut or has ended.
async fn join(client: TcpStream, server: TcpStream, allowance: Allowance, frozen: Arc<AtomicBool>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    tokio::select! {
        () = forward(client_reads, server_writes, allowance.to_broker, &frozen) => {}
        () = forward(server_reads, client_writes, allowance.to_client, &frozen) => {}
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut allowance: usize, frozen: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    while allowance > 0 {
        let some = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(some) => some.min(allowance),
        };
        while frozen.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_secs(3600)).await; // a black hole: it never thaws
        }
        if to.write_all(&buffer[..some]).await.is_err() {
            return;
        }
        allowance -= some;
    }
}
