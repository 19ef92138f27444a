//! A stalling disk, simulated by pausing the ledger's writer.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use enrich_sqlite::Work;
use tokio::time::sleep;

/// How often a stalled writer checks whether the stall is over.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The disk of a node. It keeps its state when the node crashes.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    is_stalled: AtomicBool,
}

impl Disk {
    /// Starts or ends a stall.
    pub(crate) fn set_stalled(&self, is_stalled: bool) {
        self.is_stalled.store(is_stalled, Ordering::Relaxed);
    }

    fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::Relaxed)
    }

    /// Runs a writer to completion, pausing it while the disk stalls.
    pub(crate) async fn run_writer(self: Arc<Self>, mut work: Work) {
        let mut has_ended = false;
        while !has_ended {
            while self.is_stalled() {
                sleep(POLL_INTERVAL).await;
            }
            has_ended = poll_fn(|cx| {
                if self.is_stalled() { Poll::Ready(false) } else { work.as_mut().poll(cx).map(|()| true) }
            })
            .await;
        }
    }
}
