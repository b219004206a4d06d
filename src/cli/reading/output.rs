//! Standard output in a thread of its own: a write to a pipe that nobody reads can be waited for, not ended.
//!
//! It says how many bytes were taken, so that a message is acknowledged only if its whole line was written.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::cli::Failure;

/// Pause before a write to something that is full and does not wait is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(5);

type Request = (Vec<u8>, oneshot::Sender<Written>);

/// What became of a write.
#[derive(Debug)]
pub(super) struct Written {
    /// Bytes that were taken and flushed.
    pub bytes: usize,
    /// Why no more.
    pub error: Option<io::Error>,
}

/// A handle on the thread.
#[derive(Debug)]
pub(super) struct Output {
    to: mpsc::Sender<Request>,
}

impl Output {
    /// Why not the handle of the standard library: it keeps a part of a line to itself, and then nobody knows what was written.
    pub fn start() -> io::Result<Self> {
        let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let (to, mut from) = mpsc::channel::<Request>(1);
        std::thread::spawn(move || {
            while let Some((bytes, reply)) = from.blocking_recv() {
                let written = write(&mut out, &bytes);
                reply.send(written).ok(); // nobody waits any more after a second signal
            }
        });
        Ok(Self { to })
    }

    /// Writes and flushes. Cancel safety: the write goes on if it is dropped, and its outcome is lost.
    pub async fn write(&self, bytes: Vec<u8>) -> Result<Written, Failure> {
        let (reply, written) = oneshot::channel();
        self.to.send((bytes, reply)).await.map_err(|_| "the output has ended")?;
        Ok(written.await?)
    }
}

fn write(out: &mut impl Write, bytes: &[u8]) -> Written {
    let mut taken = 0;
    while taken < bytes.len() {
        match out.write(&bytes[taken..]) {
            Ok(0) => return Written { bytes: taken, error: Some(io::ErrorKind::WriteZero.into()) },
            Ok(some) => taken += some,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A terminal that another program has switched: there is nothing to wait for but time.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(FULL_PAUSE),
            Err(error) => return Written { bytes: taken, error: Some(error) },
        }
    }
    Written { bytes: taken, error: out.flush().err() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes some bytes, and then nobody reads any more.
    struct Pipe(usize);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let some = bytes.len().min(self.0).min(3);
            self.0 -= some;
            if some == 0 { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(some) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_write_that_breaks_off_says_how_much_was_taken() {
        let whole = write(&mut Pipe(100), b"0123456789");
        assert_eq!((whole.bytes, whole.error.is_none()), (10, true));
        let part = write(&mut Pipe(7), b"0123456789");
        assert_eq!((part.bytes, part.error.unwrap().kind()), (7, io::ErrorKind::BrokenPipe));
    }
}
