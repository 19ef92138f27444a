//! The driver: runs a lookup over the ports.

use std::fmt;
use std::sync::Arc;

use crate::lookup::{Lookup, Policy, Reply, Request};
use crate::model::Arrival;
use crate::observe::{Observer, Recorder, Step};
use crate::ports::{Credits, Keys, Resolver, Windows};

/// A policy and the four ports. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    /// The operator's settings.
    pub policy: Arc<Policy>,
    /// Finds the workspace of an API key.
    pub keys: Arc<dyn Keys>,
    /// Counts requests.
    pub windows: Arc<dyn Windows>,
    /// Holds and settles credits.
    pub credits: Arc<dyn Credits>,
    /// Finds people.
    pub resolver: Arc<dyn Resolver>,
}

impl Service {
    /// Answers one request.
    ///
    /// This method is not cancellation safe: if the future is dropped before it completes, credits stay held until the hold
    /// expires. Run it where a disconnecting client cannot drop it, for example in its own task.
    pub async fn answer(&self, arrival: Arrival, request: Request) -> Reply {
        self.answer_with(arrival, request, &()).await
    }

    /// Answers one request and reports the lookup to `observer`, exactly once, even if the future is dropped or a port
    /// panics.
    pub async fn answer_with<O>(&self, arrival: Arrival, request: Request, observer: &O) -> Reply
    where
        O: Observer + ?Sized,
    {
        let mut recorder = Recorder::start(observer, arrival.id, request.context.clone());
        let (Ok(reply) | Err(reply)) = self.walk(arrival, request, &mut recorder).await;
        recorder.finish(&reply);
        reply
    }

    /// Runs one lookup. The order of the statements is the order of the checks.
    ///
    /// Each port call has its own block, so that the future has room for one state of the lookup instead of all. Thousands of
    /// lookups wait at once.
    async fn walk<O>(
        &self,
        arrival: Arrival,
        request: Request,
        recorder: &mut Recorder<'_, O>,
    ) -> Result<Reply, Reply>
    where
        O: Observer + ?Sized,
    {
        let identified = {
            let lookup = Lookup::receive(&self.policy, arrival, request)?; // 401
            let found = recorder.call(Step::Identify, self.keys.find(lookup.key())).await;
            lookup.identify(found)? // 401, 500
        };
        let admitted = {
            let lookup = identified;
            let counted = recorder.call(Step::Admit, self.windows.count(lookup.window())).await;
            lookup.admit(counted)? // 429, 503
        };
        recorder.enter(Step::Validate);
        let validated = admitted.validate()?; // 400 ×3
        let funded = {
            let lookup = validated;
            let held = recorder.call(Step::Fund, self.credits.hold(lookup.hold())).await;
            lookup.fund(held)? // 402, 500
        };
        let resolved = {
            let lookup = funded;
            let found = recorder.call(Step::Resolve, self.resolver.find(lookup.query())).await;
            lookup.resolve(found) // no `?`: a granted hold is always settled
        };
        let reply = {
            let lookup = resolved;
            let settling = self.credits.settle(lookup.hold(), lookup.settlement());
            let settled = recorder.call(Step::Settle, settling).await;
            lookup.settle(settled) // 200, 404, 500, 502
        };
        Ok(reply)
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("policy", &self.policy).finish_non_exhaustive()
    }
}
