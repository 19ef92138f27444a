//! The parts of a server that the admin listener reports.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use enrich_host::ConnectionMonitor;
use enrich_host::swap::Swap;
use enrich_metrics::{LookupMetrics, VendorMetrics};
use enrich_node::Node;
use rustls::sign::CertifiedKey;

use crate::log::LostLines;

/// A server, from its start to its end.
pub struct Monitored {
    /// The data directory, if there is one.
    pub data: Option<PathBuf>,
    pub started_at: SystemTime,
    pub lost_lines: LostLines,
    pub lookups: Arc<LookupMetrics>,
    pub vendors: Arc<VendorMetrics>,
    pub connections: ConnectionMonitor,
    /// False if the last reload of the settings failed.
    pub is_reloaded: AtomicBool,
    running: OnceLock<Running>,
}

/// The parts of a server that has started.
pub struct Running {
    pub node: Arc<Node>,
    /// The maximum number of connections.
    pub connections_max: usize,
    /// The certificate of new connections.
    pub certificate: Option<Arc<Swap<Arc<CertifiedKey>>>>,
}

impl Monitored {
    /// Creates a server that is starting.
    pub fn new(data: Option<&Path>, lost_lines: LostLines) -> Self {
        Self {
            data: data.map(Path::to_owned),
            started_at: SystemTime::now(),
            lost_lines,
            lookups: Arc::default(),
            vendors: Arc::default(),
            connections: ConnectionMonitor::default(),
            is_reloaded: AtomicBool::new(true),
            running: OnceLock::new(),
        }
    }

    /// Records that the server accepts lookups.
    pub fn set_started(&self, running: Running) {
        // A server starts once.
        let _ = self.running.set(running);
    }

    /// Returns the parts of a server that has started.
    pub fn running(&self) -> Option<&Running> {
        self.running.get()
    }
}
