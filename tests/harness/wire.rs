//! A wire between a broker and its PostgreSQL: it can turn into a black hole, or let no LISTEN through.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// What passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passes {
    Everything,
    /// Connections that say they are for LISTEN are closed.
    AllButListen,
    /// Nothing, and nobody is told.
    Nothing,
}

/// Forwards to the socket of a server, over TCP.
pub struct Wire {
    port: u16,
    passes: Arc<watch::Sender<Passes>>,
    task: tokio::task::JoinHandle<()>,
}

impl Wire {
    /// In front of the server that a URL with a socket directory names.
    pub async fn before(url: &str) -> Self {
        let directory = url.split("host=").nth(1).expect("a socket").split('&').next().unwrap();
        let directory = percent_encoding::percent_decode_str(directory).decode_utf8().unwrap().into_owned();
        let socket = PathBuf::from(directory).join(".s.PGSQL.5432");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let passes = Arc::new(watch::Sender::new(Passes::Everything));
        let watched = passes.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, socket.clone(), watched.subscribe()));
            }
        });
        Self { port, passes, task }
    }

    /// The same database, through the wire.
    pub fn url(&self, direct: &str) -> String {
        let (base, _) = direct.split_once('?').expect("a socket");
        let base = base.replace("@/", &format!("@127.0.0.1:{}/", self.port));
        format!("{base}?sslmode=disable") // so that the first message already says what a connection is for
    }

    pub fn let_nothing_through(&self) {
        self.passes.send_replace(Passes::Nothing);
    }

    pub fn let_no_listen_through(&self) {
        self.passes.send_replace(Passes::AllButListen);
    }

    pub fn heal(&self) {
        self.passes.send_replace(Passes::Everything);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(client: TcpStream, socket: PathBuf, mut passes: watch::Receiver<Passes>) {
    client.set_nodelay(true).unwrap();
    let Ok(server) = UnixStream::connect(socket).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // The first message says what the connection is for.
    let mut first = vec![0; 16 << 10];
    let Ok(length) = from_client.read(&mut first).await else { return };
    let is_listen = first[..length].windows(14).any(|word| word == b"laneway listen");
    if !pass(&mut passes.clone(), is_listen).await || to_server.write_all(&first[..length]).await.is_err() {
        return;
    }
    let (mut up, mut down) = (passes.clone(), passes.clone());
    tokio::select! {
        () = copy(&mut from_client, &mut to_server, &mut up, is_listen) => {}
        () = copy(&mut from_server, &mut to_client, &mut down, is_listen) => {}
        // A connection that is idle is closed too.
        () = async { while pass(&mut passes, is_listen).await { if passes.changed().await.is_err() { return } } } => {}
    }
}

/// Waits while nothing passes; `false`: this connection must end.
async fn pass(passes: &mut watch::Receiver<Passes>, is_listen: bool) -> bool {
    match passes.wait_for(|passes| *passes != Passes::Nothing).await {
        Ok(passes) => *passes == Passes::Everything || !is_listen,
        Err(_) => false,
    }
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    passes: &mut watch::Receiver<Passes>,
    is_listen: bool,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        if !pass(passes, is_listen).await || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
