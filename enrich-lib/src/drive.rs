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
    async fn walk<O>(
        &self,
        arrival: Arrival,
        request: Request,
        recorder: &mut Recorder<'_, O>,
    ) -> Result<Reply, Reply>
    where
        O: Observer + ?Sized,
    {
        let lookup = Lookup::receive(&self.policy, arrival, request)?; // 401
        let found = recorder.call(Step::Identify, self.keys.find(lookup.key())).await;
        let lookup = lookup.identify(found)?; // 401, 500
        let counted = recorder.call(Step::Admit, self.windows.count(lookup.window())).await;
        let lookup = lookup.admit(counted)?; // 429, 503
        recorder.enter(Step::Validate);
        let lookup = lookup.validate()?; // 400 ×3
        let held = recorder.call(Step::Fund, self.credits.hold(lookup.hold())).await;
        let lookup = lookup.fund(held)?; // 402, 500
        let found = recorder.call(Step::Resolve, self.resolver.find(lookup.query())).await;
        let lookup = lookup.resolve(found); // no `?`: a granted hold is always settled
        let settling = self.credits.settle(lookup.hold(), lookup.settlement());
        let settled = recorder.call(Step::Settle, settling).await;
        Ok(lookup.settle(settled)) // 200, 404, 500, 502
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("policy", &self.policy).finish_non_exhaustive()
    }
}
