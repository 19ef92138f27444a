//! The driver: runs a lookup over the ports.

use std::fmt;
use std::sync::Arc;

use crate::body::BodyError;
use crate::key::KeyDigest;
use crate::lookup::{Lookup, Policy, Reply, Request};
use crate::model::{Arrival, WorkspaceId};
use crate::observe::{Observer, Recorder, Step, catch_panic};
use crate::ports::{Credits, Keys, Resolver, Windows, async_trait};
use crate::refusal::PortError;
use crate::window::Workspace;

/// A policy and the four ports. Cheap to clone.
#[derive(Clone)]
#[non_exhaustive]
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
    /// Creates a service with the default policy.
    pub fn new(
        keys: Arc<dyn Keys>,
        windows: Arc<dyn Windows>,
        credits: Arc<dyn Credits>,
        resolver: Arc<dyn Resolver>,
    ) -> Self {
        Self { policy: Arc::default(), keys, windows, credits, resolver }
    }

    /// Returns a service for requests of one workspace that the gateway has authenticated already. It finds
    /// this workspace for each key, and shares all other ports. Requests still need a key id: see
    /// [`Request::authenticated`].
    #[must_use]
    pub fn for_workspace(&self, workspace: Workspace) -> Self {
        Self { keys: Arc::new(Authenticated(workspace)), ..self.clone() }
    }

    /// Answers one request.
    ///
    /// This method is not cancellation safe: if the future is dropped before it completes, credits stay held
    /// until the hold expires, or have been spent if it had begun to settle the hold. Run it where a
    /// disconnecting client cannot drop it, for example in its own task.
    pub async fn answer(&self, arrival: Arrival, request: Request) -> Reply {
        self.answer_with(arrival, request, &()).await
    }

    /// Answers one request and reports the lookup to `observer`, exactly once, also if the future is dropped after its
    /// first poll. Not cancellation safe, like [`Service::answer`].
    pub async fn answer_with<O>(&self, arrival: Arrival, request: Request, observer: &O) -> Reply
    where
        O: Observer + ?Sized,
    {
        let mut recorder = Recorder::start(observer, arrival.id, request.context.clone());
        let (Ok(mut reply) | Err(mut reply)) = self.walk(arrival, request, &mut recorder).await;
        if self.policy.shows_credits && !reply.is_test && matches!(reply.status(), 200 | 402 | 404) {
            let available = |workspace: &WorkspaceId| self.credits.available(workspace);
            // A panic must not turn a result that was paid for into a 500.
            let available = catch_panic(|| reply.workspace.as_ref().and_then(available));
            reply.credits_available = available.flatten();
        }
        recorder.finish(&reply);
        reply
    }

    /// Makes a request with an idempotency key invalid if the store of credits keeps no receipts: it would be charged
    /// again when it is repeated.
    fn require_receipts(&self, mut request: Request) -> Request {
        if request.idempotency_key.is_some() && !self.credits.keeps_receipts() {
            request.body = Err(BodyError::IdempotencyKey);
        }
        request
    }

    /// Runs one lookup. The order of the statements is the order of the checks.
    ///
    /// Each port call has its own block, so that the future has room for one state of the lookup instead of
    /// all. Thousands of lookups wait at once.
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
            let lookup = Lookup::receive(&self.policy, arrival, self.require_receipts(request))?; // 401
            let found = recorder.call(Step::Identify, || self.keys.find(lookup.key())).await;
            lookup.identify(found)? // 401, 500
        };
        let admitted = {
            let lookup = identified;
            let counted = recorder.call(Step::Admit, || self.windows.count(lookup.window())).await;
            lookup.admit(counted)? // 429, 503
        };
        recorder.enter(Step::Validate);
        let validated = admitted.validate()?; // 400 ×3
        let funded = {
            let lookup = validated;
            let held = recorder.call(Step::Fund, || self.credits.hold(lookup.hold())).await;
            lookup.fund(held)? // 402, 500
        };
        let resolved = {
            let lookup = funded;
            let found = recorder.call(Step::Resolve, || self.resolver.find(lookup.query())).await;
            lookup.resolve(found) // no `?`: a granted hold is always settled
        };
        let reply = {
            let lookup = resolved;
            let settle = || self.credits.settle(lookup.hold(), lookup.settlement());
            let settled = recorder.call(Step::Settle, settle).await;
            lookup.settle(settled) // 200, 404, 500, 502
        };
        Ok(reply)
    }
}

/// The workspace of all requests.
struct Authenticated(Workspace);

#[async_trait]
impl Keys for Authenticated {
    async fn find(&self, _: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        Ok(Some(self.0.clone()))
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("policy", &self.policy).finish_non_exhaustive()
    }
}
