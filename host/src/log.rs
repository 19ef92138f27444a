//! The lookup log.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::observe::{Durations, Ending, LookupEvent, Observer, Step};
use enrich_lib::refusal::{Refusal, Rejection};
use enrich_lib::resolver::SourceName;
use tokio::time::{Instant, sleep};
use tracing::field::display;

use crate::sampler::Sampler;

type Limited = BTreeMap<WorkspaceId, u64>;

/// Logs one event per lookup, without email, key or profile. A second event at debug level has the timings of
/// its steps.
///
/// Clones share their counters, so all threads of a server use clones of one log.
#[derive(Clone)]
pub(crate) struct Log {
    started: Instant,
    unauthorized: Arc<Sampler>,
    unidentified: Arc<Sampler>,
    /// The workspaces that have exceeded their burst limit in the current interval, with the number of lookups that were
    /// not logged individually.
    limited: Arc<Mutex<Limited>>,
}

impl Log {
    pub(crate) fn new() -> Self {
        let (unauthorized, unidentified, limited) = Default::default();
        Self { started: Instant::now(), unauthorized, unidentified, limited }
    }

    /// Logs the count of lookups that were not logged individually.
    pub(crate) fn flush(&self) {
        self.unauthorized.flush(report_unauthorized);
        self.unidentified.flush(report_unidentified);
        report_limited(&self.limited);
    }

    /// Counts a lookup over the burst limit. Returns `true` for the first one of a workspace in an interval.
    fn admits_limited(&self, workspace: &WorkspaceId) -> bool {
        let mut limited = lock(&self.limited);
        if let Some(count) = limited.get_mut(workspace) {
            *count += 1;
            return false;
        }
        if limited.is_empty() {
            let limited = self.limited.clone();
            tokio::spawn(async move {
                sleep(Sampler::INTERVAL).await;
                report_limited(&limited);
            });
        }
        limited.insert(workspace.clone(), 0);
        true
    }
}

impl Observer for Log {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn times_ports(&self, _: Duration) -> bool {
        tracing::enabled!(target: "enrich::lookup", tracing::Level::DEBUG)
    }

    fn finished(&self, lookup: &LookupEvent<'_>) {
        let lookup_id = lookup.lookup_id;
        let (workspace, key) = (lookup.workspace.map(WorkspaceId::as_str), lookup.key.map(display));
        let vendor = lookup.source.map(SourceName::as_str);
        let (is_cached, paid_by) = (lookup.is_cached.then_some(true), lookup.paid_by.map(display));
        let (outcome, status, credits) =
            (lookup.ending.outcome(), lookup.ending.status(), lookup.credits_spent);
        let duration_us = micros(lookup.durations.total);
        let reason = reason(lookup);
        let client = lookup.context.and_then(|context| context.client).map(display);
        let trace_id =
            lookup.context.and_then(|context| context.trace.as_ref()).map(|t| display(t.trace_id()));
        match (lookup.ending, lookup.error) {
            // Lookups are abandoned only when the process exits. `run` has already logged their number.
            (Ending::Abandoned, _) => return,
            (_, Some(error))
                if lookup.workspace.is_none() && !self.unidentified.admits(report_unidentified) =>
            {
                tracing::debug!(
                    target: "enrich::lookup", %lookup_id, outcome, status, credits, duration_us, client,
                    trace_id, error = format!("{error:#}"),
                )
            }
            (_, Some(error)) => tracing::warn!(
                target: "enrich::lookup", %lookup_id, workspace, key, outcome, status, credits, duration_us, vendor,
                is_cached, client, trace_id, reason, error = format!("{error:#}"),
            ),
            (Ending::Refused(Refusal::Unauthorized), None)
                if !self.unauthorized.admits(report_unauthorized) =>
            {
                tracing::debug!(
                    target: "enrich::lookup", %lookup_id, outcome, status, credits, duration_us, client,
                    trace_id, reason,
                )
            }
            (Ending::Refused(Refusal::RateLimited) | Ending::Test { status: 429, .. }, None)
                if lookup.step == Step::Admit
                    && lookup.workspace.is_some_and(|workspace| !self.admits_limited(workspace)) =>
            {
                tracing::debug!(
                    target: "enrich::lookup", %lookup_id, workspace, key, outcome, status, credits, duration_us, client,
                    trace_id,
                )
            }
            (_, None) => tracing::info!(
                target: "enrich::lookup", %lookup_id, workspace, key, outcome, status, credits, paid_by, duration_us,
                vendor, is_cached, client, trace_id, reason,
            ),
        }
        let Durations { keys, windows, hold, resolver, settle, .. } = lookup.durations;
        tracing::debug!(
            target: "enrich::lookup", %lookup_id, ended_by = lookup.step.as_str(), keys_us = keys.map(micros),
            windows_us = windows.map(micros), hold_us = hold.map(micros), resolver_us = resolver.map(micros),
            settle_us = settle.map(micros),
        );
    }

    /// Logs at debug level, because any client can send such requests without a key.
    fn rejected(&self, lookup_id: LookupId, rejection: Rejection) {
        let (status, reason) = (rejection.status(), rejection.to_string());
        tracing::debug!(target: "enrich::lookup", %lookup_id, outcome = "invalid_request", status, reason);
    }

    fn client_gone(&self, lookup_id: LookupId) {
        tracing::debug!(target: "enrich::lookup", %lookup_id, "the client disconnected before its reply");
    }
}

/// Returns the reason of a refusal: that of its reply, or that of a 401, which its reply does not disclose.
fn reason(lookup: &LookupEvent<'_>) -> Option<&'static str> {
    match lookup.ending {
        Ending::Refused(Refusal::Unauthorized) if lookup.step == Step::Receive => {
            Some("key-missing-or-malformed")
        }
        Ending::Refused(Refusal::Unauthorized) => Some("key-unknown-or-revoked"),
        Ending::Refused(refusal) => refusal.reason(),
        Ending::Test { reason, .. } => reason,
        _ => None,
    }
}

/// Logs the number of lookups without a valid key that were not logged individually.
fn report_unauthorized(count: u64) {
    tracing::info!(
        target: "enrich::lookup", outcome = Refusal::Unauthorized.code(), count,
        "further lookups without a valid key; each one is logged at debug level",
    );
}

/// Logs the number of lookups whose key could not be read and that were not logged individually.
fn report_unidentified(count: u64) {
    tracing::warn!(
        target: "enrich::lookup", outcome = Refusal::ServerError.code(), count,
        "further lookups whose key could not be read; each one is logged at debug level",
    );
}

/// Ends the interval. Logs the number of lookups over the burst limit of each workspace that were not logged
/// individually.
fn report_limited(limited: &Mutex<Limited>) {
    for (workspace, count) in mem::take(&mut *lock(limited)) {
        if count > 0 {
            tracing::info!(
                target: "enrich::lookup", workspace = workspace.as_str(), outcome = Refusal::RateLimited.code(), count,
                "further lookups over the burst limit; each one is logged at debug level",
            );
        }
    }
}

fn lock(limited: &Mutex<Limited>) -> MutexGuard<'_, Limited> {
    limited.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
