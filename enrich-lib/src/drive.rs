//! The driver: asks the ports and tells the lookup.

use std::fmt;
use std::sync::Arc;

use crate::lookup::{Lookup, Policy, Reply, Request};
use crate::model::Arrival;
use crate::ports::{Credits, Keys, Resolver, Windows};

/// The service: a policy and the four ports. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    /// What the operator decides.
    pub policy: Arc<Policy>,
    /// Knows API keys.
    pub keys: Arc<dyn Keys>,
    /// Counts requests.
    pub windows: Arc<dyn Windows>,
    /// Keeps accounts.
    pub credits: Arc<dyn Credits>,
    /// Finds people.
    pub resolver: Arc<dyn Resolver>,
}

impl Service {
    /// Answers one request.
    ///
    /// If this future is dropped half-way, credits stay held until they expire: run it where a client that hangs up
    /// can't drop it, for example in a task of its own.
    pub async fn answer(&self, arrival: Arrival, request: Request) -> Reply {
        match self.walk(arrival, request).await {
            Ok(reply) | Err(reply) => reply,
        }
    }

    /// The order of these lines is the order of the checks.
    async fn walk(&self, arrival: Arrival, request: Request) -> Result<Reply, Reply> {
        let lookup = Lookup::receive(&self.policy, arrival, request)?; // 401
        let found = self.keys.find(lookup.key()).await;
        let lookup = lookup.identify(found)?; // 401, 500
        let counted = self.windows.count(lookup.window()).await;
        let lookup = lookup.admit(counted)?; // 429, 503
        let lookup = lookup.read()?; // 400 ×3
        let held = self.credits.hold(lookup.hold()).await;
        let lookup = lookup.fund(held)?; // 402, 500
        let found = self.resolver.find(lookup.email()).await;
        let lookup = lookup.finish(found); // no `?`: a granted hold is always settled
        let settled = self.credits.settle(lookup.hold(), lookup.settlement()).await;
        Ok(lookup.close(settled)) // 200, 404, 500, 502
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("policy", &self.policy).finish_non_exhaustive()
    }
}
