//! The web server of a test: answers every GET with one page, and hands on what the page posts. Just enough HTTP.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::chromium::Chromium;
use crate::harness::wait::PATIENCE;

/// One page on a port of the system's choice.
pub struct Site {
    port: u16,
    results: mpsc::Receiver<serde_json::Value>,
}

impl Site {
    pub async fn serve(page: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, results) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, page, sender.clone()));
            }
        });
        Self { port, results }
    }

    /// Opens the page in a browser, under a host name that decides its origin, and waits for what it posts.
    pub async fn visit(&mut self, host: &str, broker: &str) -> serde_json::Value {
        let browser = Chromium::open(&format!("http://{host}:{}/?broker={broker}", self.port));
        match tokio::time::timeout(PATIENCE, self.results.recv()).await {
            Ok(result) => result.expect("the site serves as long as the test"),
            Err(_) => panic!("the page has not reported in {PATIENCE:?}; Chromium says:\n{}", browser.log()),
        }
    }
}

/// One request per connection. A browser also opens connections that it never uses: they just end.
async fn answer(
    stream: TcpStream,
    page: &str,
    results: mpsc::Sender<serde_json::Value>,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    stream.read_line(&mut first).await?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? <= 2 {
            break; // the empty line, or the end
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    if first.starts_with("POST /result ") {
        results.send(serde_json::from_slice(&body).unwrap()).await.unwrap();
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close";
    let text = format!("{head}\r\ncontent-length: {}\r\n\r\n{page}", page.len());
    stream.write_all(text.as_bytes()).await
}
