//! The machine of this process.

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use enrich_host::SystemArrivals;
use enrich_lib::model::Timestamp;
use enrich_node::{Machine, Task};
use enrich_sqlite::Work;
use tracing::error;

use crate::runtime;

pub struct SystemMachine;

impl Machine for SystemMachine {
    fn now(&self) -> Timestamp {
        SystemArrivals::now()
    }

    fn monotonic(&self) -> Duration {
        static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        ORIGIN.elapsed()
    }

    fn random(&self) -> [u8; 32] {
        rand::random()
    }

    fn run_writer(&self, work: Work) {
        enrich_sqlite::run_on_thread(work);
    }

    /// Runs the task on a thread of its own, until the process ends.
    fn spawn(&self, name: &'static str, task: Task) {
        let run = move || match runtime::single_threaded() {
            Ok(runtime) => runtime.block_on(task()),
            Err(failure) => error!(error = failure.what, name, "a task cannot be started"),
        };
        if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(run) {
            error!(%error, name, "a task cannot be started");
        }
    }
}
