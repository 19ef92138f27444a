//! The log of lookups.

use std::time::Duration;

use enrich_lib::model::WorkspaceId;
use enrich_lib::observe::{Durations, Ending, Observed, Observer};
use tokio::time::Instant;

use crate::causes::chain;

/// One event a lookup, and never an email, a key or a profile in it. At debug level a second one tells of its steps.
pub(crate) struct Log {
    started: Instant,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Observer for Log {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn times_ports(&self) -> bool {
        tracing::enabled!(target: "enrich::lookup", tracing::Level::DEBUG)
    }

    fn ended(&self, lookup: &Observed<'_>) {
        let lookup_id = lookup.lookup_id;
        let workspace = lookup.workspace.map(WorkspaceId::as_str);
        let (outcome, status, credits) =
            (lookup.ending.outcome(), lookup.ending.status(), lookup.credits_spent);
        let duration_us = us(lookup.durations.whole);
        match (lookup.ending, lookup.fault) {
            // The client is told of a panic as of any failure: 500. Its message stays out of the log: it could quote the email.
            (Ending::Panicked, _) => tracing::error!(
                target: "enrich::lookup", %lookup_id, outcome = "server_error", status = 500, duration_us,
                fault = "panicked",
            ),
            // Only the end of the process abandons lookups; `run` has told how many there were.
            (Ending::Abandoned, _) => return,
            (_, Some(fault)) => tracing::warn!(
                target: "enrich::lookup", %lookup_id, workspace, outcome, status, credits, duration_us,
                fault = chain(fault),
            ),
            (_, None) => tracing::info!(
                target: "enrich::lookup", %lookup_id, workspace, outcome, status, credits, duration_us,
            ),
        }
        let Durations { keys, windows, hold, resolver, settle, .. } = lookup.durations;
        tracing::debug!(
            target: "enrich::lookup", %lookup_id, ended_by = lookup.step.as_str(), keys_us = keys.map(us),
            windows_us = windows.map(us), hold_us = hold.map(us), resolver_us = resolver.map(us),
            settle_us = settle.map(us),
        );
    }
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
