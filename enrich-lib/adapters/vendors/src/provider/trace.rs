//! The trace context of requests to the vendor (W3C Trace Context).

use std::sync::atomic::{AtomicU64, Ordering};

use enrich_lib::context::TraceContext;
use enrich_lib::model::LookupId;
use enrich_lib::query::Query;
use enrich_lib::wire::{TRACEPARENT, TRACESTATE};
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

/// Continues the traces of lookups in requests to one vendor.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    /// Number of traced requests so far, so that each one has an id of its own.
    requests: AtomicU64,
}

impl Tracer {
    /// Returns the headers of one request for a lookup, or no headers if its own request was not traced.
    pub(crate) fn headers(&self, vendor: &str, query: &Query) -> HeaderMap {
        query.trace().map_or_else(HeaderMap::new, |trace| {
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            headers(trace, request_id(query.lookup_id, vendor, number))
        })
    }
}

fn headers(trace: &TraceContext, request_id: [u8; 8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let state = trace.state().map(|state| (TRACESTATE, state.to_owned()));
    for (name, value) in [(TRACEPARENT, trace.traceparent(request_id))].into_iter().chain(state) {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    headers
}

/// Returns the id of a request within its trace. It reveals nothing about the lookup, whose id the client
/// knows.
fn request_id(lookup_id: LookupId, vendor: &str, number: u64) -> [u8; 8] {
    let hash = Sha256::new()
        .chain_update(lookup_id.as_bytes())
        .chain_update(number.to_be_bytes())
        .chain_update(vendor)
        .finalize();
    let mut id = [0; 8];
    id.copy_from_slice(&hash[..8]);
    id[7] |= 1; // an id of zeros is invalid
    id
}
