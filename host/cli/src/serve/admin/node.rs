//! The parts of a server that the admin listener reports.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use enrich_host::ConnectionMonitor;
use enrich_host::swap::Swap;
use enrich_log::DroppedLines;
use enrich_metrics::{LookupMetrics, VendorMetrics};
use enrich_middleware::StackMonitor;
use enrich_sqlite::People;
use enrich_store::Ledger;
use rustls::sign::CertifiedKey;

use crate::serve::rate_limits::RateLimits;
use crate::serve::stores::Stores;
use crate::serve::ticks::Ticks;

/// A server, from its start to its end.
pub struct Node {
    /// The data directory.
    pub data: PathBuf,
    pub started_at: SystemTime,
    pub dropped_lines: DroppedLines,
    pub lookups: Arc<LookupMetrics>,
    pub vendors: Arc<VendorMetrics>,
    pub connections: ConnectionMonitor,
    /// The number of workspaces with few credits.
    pub low_balances: Arc<AtomicU64>,
    running: OnceLock<Running>,
    is_draining: AtomicBool,
}

/// The parts of a server that has started.
pub struct Running {
    pub accounts: Arc<dyn Ledger>,
    pub windows: RateLimits,
    pub people: Arc<People>,
    pub ticks: Arc<Ticks>,
    pub stack: Arc<Swap<StackMonitor>>,
    pub certificate: Option<Arc<Swap<Arc<CertifiedKey>>>>,
    /// The maximum number of connections.
    pub connections_max: usize,
}

impl Node {
    /// Creates a server that is starting.
    pub fn new(data: &Path, dropped_lines: DroppedLines) -> Self {
        Self {
            data: data.to_owned(),
            started_at: SystemTime::now(),
            dropped_lines,
            lookups: Arc::default(),
            vendors: Arc::default(),
            connections: ConnectionMonitor::default(),
            low_balances: Arc::default(),
            running: OnceLock::new(),
            is_draining: AtomicBool::new(false),
        }
    }

    /// Records that the server accepts lookups.
    pub fn set_started(
        &self,
        stores: &Stores,
        stack: Arc<Swap<StackMonitor>>,
        certificate: Option<Arc<Swap<Arc<CertifiedKey>>>>,
        connections_max: usize,
    ) {
        // A server starts once.
        let _ = self.running.set(Running {
            accounts: stores.accounts.clone(),
            windows: stores.windows.clone(),
            people: stores.people.directory.clone(),
            ticks: stores.ticks.clone(),
            stack,
            certificate,
            connections_max,
        });
    }

    /// Returns the parts of a server that has started.
    pub fn running(&self) -> Option<&Running> {
        self.running.get()
    }

    /// Records that the server is stopping and should receive no new connections.
    pub fn set_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}
