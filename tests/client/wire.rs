//! A wire to a broker that a test can cut, or that swallows what one side says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Wire {
    address: String,
    cuts: watch::Sender<u32>,
    /// What the client says.
    mute: Arc<Mute>,
    /// What the broker says.
    deaf: Arc<Mute>,
}

/// Whether what a side says is swallowed, and how many bytes were.
#[derive(Default)]
struct Mute {
    is_on: AtomicBool,
    swallowed: AtomicUsize,
}

impl Wire {
    pub async fn to(broker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (cuts, cut) = watch::channel(0);
        let (mute, deaf) = (Arc::new(Mute::default()), Arc::new(Mute::default()));
        let (broker, muted, deafened) = (broker.to_owned(), mute.clone(), deaf.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&broker).await else { continue };
                let (mut cut, muted, deafened) = (cut.clone(), muted.clone(), deafened.clone());
                cut.mark_unchanged();
                tokio::spawn(async move {
                    let (client_reads, client_writes) = client.into_split();
                    let (server_reads, server_writes) = server.into_split();
                    tokio::select! {
                        () = carry(client_reads, server_writes, &muted) => {}
                        () = carry(server_reads, client_writes, &deafened) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, cuts, mute, deaf }
    }

    /// Ends all connections; what was swallowed is lost, and new ones are heard.
    pub fn cut(&self) {
        self.mute.is_on.store(false, Ordering::SeqCst);
        self.deaf.is_on.store(false, Ordering::SeqCst);
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on the broker hears nothing, and nobody is told.
    pub fn mute(&self) {
        self.mute.is_on.store(true, Ordering::SeqCst);
    }

    /// From now on the client hears nothing, and nobody is told.
    pub fn deafen(&self) {
        self.deaf.is_on.store(true, Ordering::SeqCst);
    }

    pub fn swallowed(&self) -> usize {
        [&self.mute, &self.deaf].map(|side| side.swallowed.load(Ordering::SeqCst)).iter().sum()
    }

    pub fn url(&self) -> String {
        format!("ws://{}/v1/ws", self.address)
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mute: &Mute) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(some @ 1..) = from.read(&mut buffer).await {
        if mute.is_on.load(Ordering::SeqCst) {
            mute.swallowed.fetch_add(some, Ordering::SeqCst);
        } else if to.write_all(&buffer[..some]).await.is_err() {
            return;
        }
    }
}
