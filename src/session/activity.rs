//! When a connection last moved a byte, either way. Written by whoever owns the bytes, read by the session.
//!
//! Why not count frames: a large one may take minutes on a slow line, and its sender is not silent all the while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Of one connection.
#[derive(Debug)]
pub struct Activity {
    began: Instant,
    read_ms: AtomicU64,
    written_ms: AtomicU64,
    lingers: AtomicBool,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            read_ms: AtomicU64::new(0),
            written_ms: AtomicU64::new(0),
            lingers: AtomicBool::new(false),
        }
    }
}

impl Activity {
    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Bytes came.
    pub fn on_read(&self) {
        self.read_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// The socket has taken bytes.
    pub fn on_written(&self) {
        self.written_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// When bytes came last.
    pub fn read_at(&self) -> Instant {
        self.began + Duration::from_millis(self.read_ms.load(Ordering::Relaxed))
    }

    /// When the socket last took bytes.
    pub fn written_at(&self) -> Instant {
        self.began + Duration::from_millis(self.written_ms.load(Ordering::Relaxed))
    }

    /// The client may still be sending when the connection is closed: unread bytes would turn the close into a reset, and
    /// it would never see why.
    pub fn linger(&self) {
        self.lingers.store(true, Ordering::Relaxed);
    }

    /// Whether what still comes has to be read before the connection is dropped.
    pub fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Relaxed)
    }
}
