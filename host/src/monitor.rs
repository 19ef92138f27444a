//! Statistics of the connections of a running server, for metrics.

use std::sync::{Arc, OnceLock};

use crate::registry::{ConnectionStatistics, Registry};

/// Reads the connections of the server that it is passed to. Clones read the same server.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMonitor(Arc<OnceLock<Arc<Registry>>>);

impl ConnectionMonitor {
    /// Sets the server. The first call counts.
    pub(crate) fn watch(&self, registry: &Arc<Registry>) {
        self.0.get_or_init(|| registry.clone());
    }

    /// Returns the connections, or none before the server runs.
    pub fn statistics(&self) -> ConnectionStatistics {
        self.0.get().map(|registry| registry.statistics()).unwrap_or_default()
    }
}
