//! The bytes of one connection: notes when they last moved, and reads what is left of them when a socket was closed by us.
//!
//! Why the rest is read: closing a socket with unread bytes resets it, and the client loses the answer that was on its way.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use crate::limits::{CLOSE_TIMEOUT, HTTP_DISCARD_BYTES_MAX};
use crate::session::activity::Activity;

/// A TCP connection under observation.
#[derive(Debug)]
pub(super) struct Watched {
    /// Absent only while it is being dropped.
    stream: Option<TcpStream>,
    activity: Arc<Activity>,
}

impl Watched {
    pub fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        Self { stream: Some(stream), activity }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn noted(&self, written: io::Result<usize>) -> Poll<io::Result<usize>> {
        if matches!(written, Ok(1..)) {
            self.activity.on_written();
        }
        Poll::Ready(written)
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.stream()?.poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.activity.on_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(self.stream()?.poll_write(context, bytes));
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(self.stream()?.poll_write_vectored(context, pieces));
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(context)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.activity.lingers()
            && let Some(stream) = self.stream.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(tokio::time::timeout(CLOSE_TIMEOUT, discard(stream)));
        }
    }
}

/// Says that nothing more comes, and reads until the other side has said so too, or has sent far too much.
async fn discard(mut stream: TcpStream) {
    let _reset = stream.shutdown().await;
    let mut rest = stream.take(HTTP_DISCARD_BYTES_MAX as u64);
    let _reset = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
}
