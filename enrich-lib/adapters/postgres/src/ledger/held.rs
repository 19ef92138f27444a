//! The credits that lookups of this node hold, for metrics.

use std::collections::BTreeMap;

use enrich_lib::credit::Hold;
use enrich_lib::model::LookupId;
use enrich_store::sync::Mutex;
use tokio::time::Instant;

/// The holds of lookups in progress: their credits, and when they expire.
#[derive(Default)]
pub(crate) struct Held(Mutex<BTreeMap<LookupId, (u64, Instant)>>);

impl Held {
    /// Adds a hold that was granted.
    pub(crate) fn add(&self, hold: &Hold) {
        self.0.lock().insert(hold.lookup_id, (hold.credits, Instant::now() + hold.ttl));
    }

    /// Removes a hold that ends.
    pub(crate) fn remove(&self, hold: &Hold) {
        self.0.lock().remove(&hold.lookup_id);
    }

    /// Removes the holds that have expired: their lookups have ended without a settlement.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        self.0.lock().retain(|_, (_, expires_at)| *expires_at > now);
    }

    /// Returns the sum of the credits.
    pub(crate) fn credits(&self) -> u64 {
        self.0.lock().values().fold(0, |sum, (credits, _)| sum.saturating_add(*credits))
    }
}
