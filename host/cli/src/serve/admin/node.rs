//! The parts of a server that the admin listener reports.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::serve::rate_limits::RateLimits;
use crate::serve::stores::{Accounts, Stores};
use crate::serve::ticks::Ticks;

/// A server, from its start to its end.
pub struct Node {
    /// The data directory.
    pub data: PathBuf,
    stores: OnceLock<NodeStores>,
    is_draining: AtomicBool,
}

/// The stores of a server that has started.
pub struct NodeStores {
    pub accounts: Accounts,
    pub windows: RateLimits,
    pub ticks: Arc<Ticks>,
}

impl Node {
    /// Creates a server that is starting.
    pub fn new(data: &Path) -> Self {
        Self { data: data.to_owned(), stores: OnceLock::new(), is_draining: AtomicBool::new(false) }
    }

    /// Records that the server accepts lookups.
    pub fn set_started(&self, stores: &Stores) {
        let Stores { accounts, windows, ticks, .. } = stores;
        let stores =
            NodeStores { accounts: accounts.clone(), windows: windows.clone(), ticks: ticks.clone() };
        // A server starts once.
        let _ = self.stores.set(stores);
    }

    /// Returns the stores, if the server has started.
    pub fn stores(&self) -> Option<&NodeStores> {
        self.stores.get()
    }

    /// Records that the server is stopping and should receive no new connections.
    pub fn set_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}
