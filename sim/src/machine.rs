//! The simulated machine of a node.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use enrich_lib::drive::Service;
use enrich_lib::model::Timestamp;
use enrich_node::{Machine, Task};
use enrich_sqlite::Work;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::clock::NodeClock;
use crate::disk::Disk;
use crate::port_recorder::PortRecorder;

pub(crate) struct SimulatedMachine {
    pub(crate) clock: NodeClock,
    pub(crate) disk: Arc<Disk>,
    pub(crate) recorder: Arc<PortRecorder>,
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
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    fn run_writer(&self, work: Work) {
        tokio::spawn(self.disk.clone().run_writer(work));
    }

    fn spawn(&self, _: &'static str, task: Task) {
        tokio::task::spawn_local(task());
    }

    fn wrap(&self, service: Service) -> Service {
        self.recorder.record_ports(service)
    }
}
