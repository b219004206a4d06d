//! A wire to PostgreSQL that counts round trips: how often a connection of an appender speaks after it was spoken to.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// As appenders name their connections when they open them.
const APPENDER: &[u8] = b"laneway appender";

/// See the module.
pub struct Wire {
    url: String,
    round_trips: Arc<AtomicU64>,
}

impl Wire {
    /// A wire to the PostgreSQL that listens on the socket of this URL.
    pub async fn to(url: &str) -> Self {
        let (_, host) = url.split_once("host=").expect("a private PostgreSQL has a socket");
        let host =
            percent_encoding::percent_decode_str(host.split('&').next().unwrap()).decode_utf8().unwrap();
        let socket = PathBuf::from(host.as_ref()).join(".s.PGSQL.5432");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let round_trips = Arc::new(AtomicU64::new(0));
        let counted = round_trips.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(forward(client, server, counted.clone()));
            }
        });
        let user = url.split_once("//").and_then(|(_, rest)| rest.split_once('@')).unwrap().0;
        let database = url.split('?').next().unwrap().rsplit('/').next().unwrap();
        Self { url: format!("postgresql://{user}@127.0.0.1:{port}/{database}?sslmode=disable"), round_trips }
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Of all appenders so far.
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::SeqCst)
    }
}

async fn forward(client: TcpStream, server: UnixStream, round_trips: Arc<AtomicU64>) {
    client.set_nodelay(true).unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // Whether the server has spoken last: then what the client says begins a round trip.
    let answered = Arc::new(AtomicBool::new(true));
    let has_answered = answered.clone();
    let up = async move {
        let (mut buffer, mut is_appender) = (vec![0; 64 << 10], false);
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            is_appender |= buffer[..length].windows(APPENDER.len()).any(|window| window == APPENDER);
            if is_appender && answered.swap(false, Ordering::SeqCst) {
                round_trips.fetch_add(1, Ordering::SeqCst);
            }
            if to_server.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };
    let down = async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            has_answered.store(true, Ordering::SeqCst);
            if to_client.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(up, down);
}
