//! The simulated machine of a node, and the signals to its process.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use enrich_lib::model::Timestamp;
use enrich_node::{Machine, Task};
use enrich_sqlite::Work;
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::Notify;

use crate::clock::NodeClock;
use crate::disk::Disk;

pub(crate) struct SimulatedMachine {
    pub(crate) clock: NodeClock,
    /// The disk of a node on SQLite.
    pub(crate) disk: Option<Arc<Disk>>,
    pub(crate) rng: Mutex<StdRng>,
}

impl Machine for SimulatedMachine {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.read().elapsed
    }

    fn random(&self) -> [u8; 32] {
        self.rng.lock().random()
    }

    fn run_writer(&self, work: Work) {
        let disk = self.disk.clone().expect("a node on SQLite has a disk");
        tokio::spawn(disk.run_writer(work));
    }

    fn spawn(&self, _: &'static str, task: Task) {
        tokio::task::spawn_local(task());
    }
}

/// SIGTERM and SIGHUP, and the settings file.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) stop: Notify,
    pub(crate) reload: Notify,
    /// Whether the settings are those of the other sources.
    pub(crate) has_other_sources: AtomicBool,
}

impl Signals {
    /// Changes the sources in the settings, and reloads them.
    pub(crate) fn reload(&self, has_other_sources: bool) {
        self.has_other_sources.store(has_other_sources, Ordering::Relaxed);
        self.reload.notify_one();
    }

    /// Forgets the signals to the previous process.
    pub(crate) async fn forget(&self) {
        for signal in [&self.stop, &self.reload] {
            tokio::select! { biased;
                () = signal.notified() => {}
                () = ready(()) => {}
            }
        }
    }
}
