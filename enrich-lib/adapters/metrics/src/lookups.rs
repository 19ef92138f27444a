//! Counts lookups.

use std::cell::Cell;
use std::fmt;
use std::iter::zip;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use enrich_lib::observe::{Durations, Ending, LookupEvent, Observer, Step};
use enrich_lib::refusal::Refusal;
use enrich_store::histogram::{DurationHistogram, HistogramSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::exposition::{Exposition, UNLABELLED};

/// The outcomes, in the order of [`outcome_index`].
const OUTCOMES: [&str; 13] = [
    "found",
    "not_found",
    "invalid_request",
    "invalid_email",
    "unsupported_email",
    "unauthorized",
    "insufficient_credits",
    "rate_limited",
    "server_error",
    "lookup_error",
    "rate_limit_unavailable",
    "abandoned",
    "test",
];

/// The index of "found".
const FOUND: usize = 0;

/// The ports, in the order in which a lookup calls them.
const PORTS: [&str; 5] = ["keys", "windows", "hold", "resolver", "settle"];

/// The number of shards. More threads share shards.
const SHARDS: usize = 16;

/// The time between two lookups whose port calls are timed.
const TIMING_INTERVAL: Duration = Duration::from_millis(10);

/// An [`Observer`] that counts lookups by outcome, their durations and those of their port calls, failures of
/// ports, spent credits, and results that an earlier request has paid for.
///
/// Each thread counts in its own shard, so that threads do not contend; a scrape adds up all shards. Timing
/// the port calls of a lookup takes four more clock readings, so at most one lookup in 10 ms is timed.
///
/// In a pair of observers, it must be the first one, because a pair has the clock of the first one.
#[derive(derive_more::Debug)]
#[debug("LookupMetrics {{ .. }}")]
pub struct LookupMetrics {
    shards: [Shard; SHARDS],
    /// The earliest start of the next lookup whose ports are timed, in nanoseconds after `origin`.
    timed_from: AtomicU64,
    origin: Instant,
}

/// The counts of one thread. Aligned to cache lines, so that shards do not share any.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    outcomes: [AtomicU64; OUTCOMES.len()],
    durations: DurationHistogram,
    ports: [DurationHistogram; PORTS.len()],
    failures: [AtomicU64; PORTS.len()],
    credits: AtomicU64,
    repeats: AtomicU64,
}

impl Default for LookupMetrics {
    fn default() -> Self {
        Self { shards: Default::default(), timed_from: AtomicU64::new(0), origin: Instant::now() }
    }
}

impl LookupMetrics {
    /// Adds the metrics to a registry.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register_collector(Box::new(LookupCollector(self.clone())));
    }

    fn shard(&self) -> &Shard {
        &self.shards[shard_index() % SHARDS]
    }

    fn sum(&self, count: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| count(shard).load(Ordering::Relaxed)).sum()
    }

    fn histogram(&self, histogram: impl Fn(&Shard) -> &DurationHistogram) -> HistogramSnapshot {
        let mut sum = HistogramSnapshot::default();
        self.shards.iter().for_each(|shard| sum.add(&histogram(shard).snapshot()));
        sum
    }
}

// Few lookups have timed ports or a failure. Inlined, recording them would cost all others twenty
// instructions.
impl Shard {
    #[cold]
    fn record_ports(&self, durations: &Durations) {
        let Durations { keys, windows, hold, resolver, settle, .. } = *durations;
        for (port, duration) in zip(&self.ports, [keys, windows, hold, resolver, settle]) {
            if let Some(duration) = duration {
                port.record_duration(duration);
            }
        }
    }

    #[cold]
    fn record_failure(&self, step: Step) {
        if let Some(port) = port_index(step) {
            self.failures[port].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Observer for LookupMetrics {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn times_ports(&self, started_at: Duration) -> bool {
        let started_at = started_at.as_nanos() as u64;
        let is_timed = started_at >= self.timed_from.load(Ordering::Relaxed);
        if is_timed {
            // Lookups that start at the same time on several threads may all be timed, which does no harm.
            self.timed_from.store(started_at + TIMING_INTERVAL.as_nanos() as u64, Ordering::Relaxed);
        }
        is_timed
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        let shard = self.shard();
        // Most lookups find a person, and need no jump table.
        let outcome = if event.ending == Ending::Found { FOUND } else { outcome_index(event.ending) };
        shard.outcomes[outcome].fetch_add(1, Ordering::Relaxed);
        if !is_excluded_from_durations(event.ending) {
            shard.durations.record_duration(event.durations.total);
        }
        if event.credits_spent > 0 {
            shard.credits.fetch_add(event.credits_spent, Ordering::Relaxed);
        } else if event.paid_by.is_some() {
            shard.repeats.fetch_add(1, Ordering::Relaxed);
        }
        // The first port is `keys`.
        if event.durations.keys.is_some() {
            shard.record_ports(&event.durations);
        }
        if event.error.is_some() {
            shard.record_failure(event.step);
        }
    }
}

/// Returns the index of the calling thread. Threads are counted in the order of their first lookups.
fn shard_index() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        /// The index plus one, or zero before the first lookup.
        static INDEX: Cell<usize> = const { Cell::new(0) };
    }
    INDEX.with(|index| {
        if index.get() == 0 {
            index.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
        }
        index.get() - 1
    })
}

// Inlined, its jump table would cost every lookup six instructions.
#[inline(never)]
const fn outcome_index(ending: Ending) -> usize {
    match ending {
        Ending::Found => FOUND,
        Ending::NotFound => 1,
        Ending::Refused(Refusal::InvalidRequest(_)) => 2,
        Ending::Refused(Refusal::InvalidEmail(_)) => 3,
        Ending::Refused(Refusal::UnsupportedEmail(_)) => 4,
        Ending::Refused(Refusal::Unauthorized) => 5,
        Ending::Refused(Refusal::InsufficientCredits(_)) => 6,
        Ending::Refused(Refusal::RateLimited) => 7,
        Ending::Refused(Refusal::ServerError) => 8,
        Ending::Refused(Refusal::LookupError) => 9,
        Ending::Refused(Refusal::RateLimitUnavailable) => 10,
        Ending::Abandoned => 11,
        Ending::Test { .. } => 12,
    }
}

/// Returns whether the duration is not recorded. Clients can cause any number of such lookups, which would hide
/// slow ones.
const fn is_excluded_from_durations(ending: Ending) -> bool {
    matches!(ending, Ending::Refused(Refusal::Unauthorized | Refusal::RateLimited) | Ending::Test { .. })
}

const fn port_index(step: Step) -> Option<usize> {
    match step {
        Step::Identify => Some(0),
        Step::Admit => Some(1),
        Step::Fund => Some(2),
        Step::Resolve => Some(3),
        Step::Settle => Some(4),
        _ => None, // no port call
    }
}

#[derive(Debug)]
struct LookupCollector(Arc<LookupMetrics>);

impl Collector for LookupCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (metrics, mut out) = (&*self.0, Exposition::new(encoder));
        let outcomes = OUTCOMES.map(|outcome| [("outcome", outcome)]);
        let counts = outcomes.iter().enumerate();
        let counts = counts.map(|(i, labels)| (&labels[..], metrics.sum(|shard| &shard.outcomes[i])));
        out.counter("enrich_lookups", "Finished lookups.", counts)?;

        let durations = metrics.histogram(|shard| &shard.durations);
        out.histogram(
            "enrich_lookup_duration_seconds",
            "Duration of a lookup, except `unauthorized`, `rate_limited` and `test`.",
            1e9,
            [(UNLABELLED, durations)],
        )?;

        let ports = PORTS.map(|port| [("port", port)]);
        let timed = ports.iter().enumerate();
        let timed = timed.map(|(i, labels)| (&labels[..], metrics.histogram(|shard| &shard.ports[i])));
        out.histogram(
            "enrich_port_duration_seconds",
            "Duration of a call of a port, timed in at most one lookup in 10 ms.",
            1e9,
            timed,
        )?;

        let failures = ports.iter().enumerate();
        let failures = failures.map(|(i, labels)| (&labels[..], metrics.sum(|shard| &shard.failures[i])));
        out.counter("enrich_port_failures", "Failed calls of a port.", failures)?;

        let credits = metrics.sum(|shard| &shard.credits);
        out.counter("enrich_credits_spent", "Credits spent by lookups.", [(UNLABELLED, credits)])?;

        let repeats = metrics.sum(|shard| &shard.repeats);
        let help =
            "Results that were free because an earlier request with the same idempotency key has paid.";
        out.counter("enrich_repeats", help, [(UNLABELLED, repeats)])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_ending_has_the_label_of_its_outcome() {
        let test = Ending::Test { status: 200, reason: None };
        let endings = [Ending::Found, Ending::NotFound, Ending::Abandoned, test];
        let mut seen = BTreeSet::new();
        for ending in endings.into_iter().chain(Refusal::ALL.iter().copied().map(Ending::Refused)) {
            assert_eq!(OUTCOMES[outcome_index(ending)], ending.outcome());
            seen.insert(ending.outcome());
        }
        assert_eq!(seen.len(), OUTCOMES.len());
    }
}
