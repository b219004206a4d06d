//! A wire to a broker that a test can cut, or that swallows what the client says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Wire {
    address: String,
    cuts: watch::Sender<u32>,
    mute: Arc<Mute>,
}

/// Whether what the client says is swallowed, and how many bytes were.
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
        let mute = Arc::new(Mute::default());
        let (broker, muted) = (broker.to_owned(), mute.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&broker).await else { continue };
                let (mut cut, muted) = (cut.clone(), muted.clone());
                cut.mark_unchanged();
                tokio::spawn(async move {
                    let (client_reads, mut client_writes) = client.into_split();
                    let (mut server_reads, server_writes) = server.into_split();
                    tokio::select! {
                        () = to_broker(client_reads, server_writes, &muted) => {}
                        _ = tokio::io::copy(&mut server_reads, &mut client_writes) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, cuts, mute }
    }

    /// Ends all connections; what was swallowed is lost, and new ones are heard.
    pub fn cut(&self) {
        self.mute.is_on.store(false, Ordering::SeqCst);
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on the broker hears nothing, and nobody is told.
    pub fn mute(&self) {
        self.mute.is_on.store(true, Ordering::SeqCst);
    }

    pub fn swallowed(&self) -> usize {
        self.mute.swallowed.load(Ordering::SeqCst)
    }

    pub fn url(&self) -> String {
        format!("ws://{}/v1/ws", self.address)
    }
}

async fn to_broker(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mute: &Mute) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(some @ 1..) = from.read(&mut buffer).await {
        if mute.is_on.load(Ordering::SeqCst) {
            mute.swallowed.fetch_add(some, Ordering::SeqCst);
        } else if to.write_all(&buffer[..some]).await.is_err() {
            return;
        }
    }
}
