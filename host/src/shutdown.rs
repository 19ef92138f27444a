//! The phases of a graceful shutdown.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio_util::sync::CancellationToken;

/// A phase of a shutdown, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Serving,
    /// Replies announce the end of the connection.
    Draining,
    /// Each connection closes as soon as it has no request in flight.
    Closing,
}

/// The state of a shutdown, shared by all connections and threads.
#[derive(Debug)]
pub(crate) struct Shutdown {
    phase: AtomicU8,
    /// Cancelled when the listener accepts the connections in its queue and closes.
    pub(crate) stopping: CancellationToken,
    /// Cancelled in [`Phase::Closing`].
    pub(crate) closing: CancellationToken,
}

impl Shutdown {
    pub(crate) fn new() -> Self {
        let closing = CancellationToken::new();
        Self { phase: AtomicU8::new(Phase::Serving as u8), stopping: closing.child_token(), closing }
    }

    /// Returns the phase. Reading a token would lock a mutex for each request.
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Serving,
            1 => Phase::Draining,
            _ => Phase::Closing,
        }
    }

    /// Returns whether replies announce the end of the connection.
    pub(crate) fn is_draining(&self) -> bool {
        self.phase() >= Phase::Draining
    }

    pub(crate) fn begin(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}
