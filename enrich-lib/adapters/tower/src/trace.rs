//! The observer that reports lookups to `tracing`.

use std::time::{Duration, Instant};

use enrich_lib::model::LookupId;
use enrich_lib::observe::{Ending, LookupEvent, Observer};
use enrich_lib::refusal::Rejection;
use tracing::{debug, error, warn};

/// Reports each lookup as an event of `tracing`, with the target `enrich_tower`.
///
/// | level | event |
/// |---|---|
/// | `ERROR` | `port failed`, also if only the release of a hold failed, with its error, the error's causes and its step |
/// | `WARN` | `lookup did not complete`: the lookup was dropped with the runtime |
/// | `DEBUG` | `lookup finished`, `request rejected`; `client gone` before its reply, whose lookup goes on |
///
/// Events contain ids, the outcome, the credits spent and the duration. They contain no email, key, profile
/// or client address.
#[derive(Clone, Copy, Debug)]
pub struct TracingObserver {
    started: Instant,
}

impl Default for TracingObserver {
    #[expect(clippy::disallowed_methods, reason = "durations of events are real ones")]
    fn default() -> Self {
        Self { started: Instant::now() }
    }
}

impl Observer for TracingObserver {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        let (lookup_id, outcome, step) = (event.lookup_id, event.ending.outcome(), event.step.as_str());
        if let Some(error) = event.error {
            let error = format_args!("{error:#}");
            error!(target: TARGET, %lookup_id, step, %error, "port failed");
        }
        if event.ending == Ending::Abandoned {
            warn!(target: TARGET, %lookup_id, step, outcome, "lookup did not complete");
            return;
        }
        let (status, workspace) = (event.ending.status(), event.workspace.map(tracing::field::display));
        let (key, credits_spent) = (event.key.map(tracing::field::display), event.credits_spent);
        let paid_by = event.paid_by.map(tracing::field::display);
        let duration_us = u64::try_from(event.durations.total.as_micros()).unwrap_or(u64::MAX);
        debug!(
            target: TARGET,
            %lookup_id, outcome, status, workspace, key, credits_spent, paid_by, duration_us, "lookup finished"
        );
    }

    fn rejected(&self, request_id: LookupId, rejection: Rejection) {
        debug!(target: TARGET, %request_id, status = rejection.status(), "request rejected");
    }

    fn client_gone(&self, lookup_id: LookupId) {
        debug!(target: TARGET, %lookup_id, "client gone");
    }

    fn times_ports(&self, _: Duration) -> bool {
        false
    }
}

const TARGET: &str = "enrich_tower";
