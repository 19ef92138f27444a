//! The receivers of lookup events.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::observe::{LookupEvent, Observer};
use enrich_metrics::LookupMetrics;

/// Passes each event to the usage of the accounts, and to the metrics.
pub struct Observers {
    pub usage: Arc<dyn Observer>,
    pub metrics: Arc<LookupMetrics>,
}

impl Observer for Observers {
    fn now(&self) -> Duration {
        self.metrics.now()
    }

    fn times_ports(&self, started_at: Duration) -> bool {
        self.metrics.times_ports(started_at)
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        self.usage.finished(event);
        self.metrics.finished(event);
    }
}
