//! Counts requests to vendors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorError, VendorErrorKind};
use enrich_store::histogram::DurationHistogram;
use enrich_store::sync::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::exposition::Exposition;

/// The outcomes of a request, in the order of [`Outcome`].
const OUTCOMES: [&str; 11] = [
    "found",
    "not_found",
    "key_rejected",
    "out_of_credits",
    "rate_limited",
    "unavailable",
    "timed_out",
    "invalid_response",
    "request_rejected",
    "too_many_open_files",
    "failed",
];

/// The outcome of a request, an index of [`OUTCOMES`].
#[derive(Clone, Copy)]
enum Outcome {
    Found,
    NotFound,
    KeyRejected,
    OutOfCredits,
    RateLimited,
    Unavailable,
    TimedOut,
    InvalidResponse,
    RequestRejected,
    TooManyOpenFiles,
    /// Another error.
    Failed,
}

/// Counts the requests to each vendor by outcome, and their durations. The name of a vendor is a label.
///
/// A request that is dropped counts as `timed_out`: its time or that of the lookup was over, or no lookup waited for it
/// any more.
#[derive(derive_more::Debug, Default)]
#[debug("{:?}", vendors.lock().keys())]
pub struct VendorMetrics {
    vendors: Mutex<BTreeMap<String, Arc<Requests>>>,
}

/// The requests to one vendor.
#[derive(Default)]
struct Requests {
    outcomes: [AtomicU64; OUTCOMES.len()],
    durations: DurationHistogram,
}

impl VendorMetrics {
    /// Wraps a resolver that sends one request per call. Resolvers with the same name share their counts, so
    /// that a reload continues them.
    ///
    /// Wrap the vendor itself, inside of its retries and its circuit breaker, to count each request that is
    /// sent.
    pub fn observe(&self, vendor: &str, resolver: Arc<dyn Resolver>) -> Arc<dyn Resolver> {
        let requests = self.vendors.lock().entry(vendor.to_owned()).or_default().clone();
        Arc::new(Observed { resolver, requests })
    }

    /// Adds the metrics to a registry.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register_collector(Box::new(VendorCollector(self.clone())));
    }
}

struct Observed {
    resolver: Arc<dyn Resolver>,
    requests: Arc<Requests>,
}

#[async_trait]
impl Resolver for Observed {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let mut request =
            Request { requests: &self.requests, begun: Instant::now(), outcome: Outcome::TimedOut };
        let result = self.resolver.find(query).await;
        request.outcome = Outcome::of(&result);
        result
    }
}

/// A request in progress. Counted on drop, because it is dropped when its time or that of the lookup is over.
struct Request<'a> {
    requests: &'a Requests,
    begun: Instant,
    outcome: Outcome,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.requests.outcomes[self.outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.requests.durations.record_duration(self.begun.elapsed());
    }
}

impl Outcome {
    fn of(result: &Result<Answer, PortError>) -> Self {
        use VendorErrorKind as Kind;
        match result {
            Ok(answer) if answer.profile.is_some() => Self::Found,
            Ok(_) => Self::NotFound,
            Err(error) => match VendorError::find_in(error).map(|error| error.kind) {
                Some(Kind::KeyRejected) => Self::KeyRejected,
                Some(Kind::OutOfCredits) => Self::OutOfCredits,
                Some(Kind::RateLimited) => Self::RateLimited,
                Some(Kind::Unavailable) => Self::Unavailable,
                Some(Kind::TimedOut) => Self::TimedOut,
                Some(Kind::InvalidResponse | Kind::UnusableAnswer) => Self::InvalidResponse,
                Some(Kind::RequestRejected) => Self::RequestRejected,
                Some(Kind::TooManyOpenFiles) => Self::TooManyOpenFiles,
                _ => Self::Failed,
            },
        }
    }
}

#[derive(Debug)]
struct VendorCollector(Arc<VendorMetrics>);

impl Collector for VendorCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let vendors = self.0.vendors.lock().clone();
        let mut out = Exposition::new(encoder);
        let labels: Vec<_> = vendors
            .iter()
            .flat_map(|(vendor, requests)| {
                let counts = OUTCOMES.iter().zip(&requests.outcomes);
                counts.map(move |(outcome, count)| {
                    ([("vendor", vendor.as_str()), ("outcome", *outcome)], count)
                })
            })
            .collect();
        let counts = labels.iter().map(|(labels, count)| (&labels[..], count.load(Ordering::Relaxed)));
        out.counter("enrich_vendor_requests", "Requests to a vendor.", counts)?;
        let labels: Vec<_> =
            vendors.iter().map(|(vendor, requests)| ([("vendor", vendor.as_str())], requests)).collect();
        let durations = labels.iter().map(|(labels, requests)| (&labels[..], requests.durations.snapshot()));
        out.histogram("enrich_vendor_duration_seconds", "Duration of a request to a vendor.", 1e9, durations)
    }
}
