//! The disk of a node on SQLite: it stalls, fails, fills up and loses power.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use enrich_disk::{LogError, SyncFault};
use enrich_sqlite::Work;
use tokio::time::sleep;

use crate::fault::DiskFault;

/// How often a stalled writer checks whether the stall is over.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

const SECTOR_BYTES: usize = 4_096;

/// The disk of a node. It keeps its state when the node crashes.
#[derive(Debug)]
pub(crate) struct Disk {
    files: enrich_disk::Disk,
    /// A stall pauses the writer of the ledger.
    is_stalled: AtomicBool,
}

impl Disk {
    /// Mounts an empty disk in `dir`. The effects of its faults are drawn from `seed`.
    pub(crate) fn mount(dir: &Path, seed: u64) -> Self {
        let files = enrich_disk::Disk::mount(dir, SECTOR_BYTES, SyncFault::None, seed);
        Self { files, is_stalled: AtomicBool::new(false) }
    }

    /// Starts a fault.
    pub(crate) fn start(&self, fault: DiskFault) {
        match fault {
            DiskFault::Stall => self.is_stalled.store(true, Ordering::Relaxed),
            DiskFault::Reads => self.files.fail_reads_after(0),
            DiskFault::Writes(before) => self.files.fail_log_after(before, LogError::WriteDone, u32::MAX),
            DiskFault::Syncs => self.files.fail_log_after(0, LogError::Sync, u32::MAX),
            DiskFault::LostSyncs => self.files.fail_log_after(0, LogError::SyncLost, u32::MAX),
            DiskFault::Full => self.files.set_full(true),
            DiskFault::PowerCut(steps) => self.files.cut_after(steps),
        }
    }

    /// Ends a fault, or cancels a power cut that has not occurred yet.
    pub(crate) fn stop(&self, fault: DiskFault) {
        match fault {
            DiskFault::Stall => self.is_stalled.store(false, Ordering::Relaxed),
            DiskFault::Reads => self.files.repair_reads(),
            DiskFault::Writes(_) | DiskFault::Syncs | DiskFault::LostSyncs => self.files.cancel_error(),
            DiskFault::Full => self.files.set_full(false),
            DiskFault::PowerCut(_) if self.files.is_on() => self.files.cancel_cut(),
            DiskFault::PowerCut(_) => self.files.power_on(),
        }
    }

    /// Returns whether the disk has power.
    pub(crate) fn is_on(&self) -> bool {
        self.files.is_on()
    }

    /// Kills a process that uses the disk. The files keep what it has written, and are not closed in order.
    pub(crate) fn keep_during(&self, kill: impl FnOnce()) {
        let image = self.is_on().then(|| self.files.image());
        kill();
        if let Some(image) = image {
            self.files.restore(image);
        }
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

    fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::Relaxed)
    }
}
