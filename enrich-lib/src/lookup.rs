//! One lookup as a state machine.
//!
//! ```text
//! receive ──► Received ─identify─► Identified ─admit─► Admitted ─validate─► Validated ─fund─► Funded ─resolve─► Resolved ─settle─► Reply
//!       401           401, 500        429, 503          400 ×3          402, 500           (502)       200, 404, 500, 502
//! ```
//!
//! | state | contains | requests | transition |
//! |---|---|---|---|
//! | [`Received`] | a well-formed key | the workspace of [`Lookup::key`] | [`Lookup::identify`] |
//! | [`Identified`] | the workspace | the count of [`Lookup::window`] | [`Lookup::admit`] |
//! | [`Admitted`] | its rate-limit status | nothing | [`Lookup::validate`] |
//! | [`Validated`] | a supported email | the outcome of [`Lookup::hold`] | [`Lookup::fund`] |
//! | [`Funded`] | a granted hold | the profile for [`Lookup::query`] | [`Lookup::resolve`] |
//! | [`Resolved`] | the result | the outcome of [`Lookup::settlement`] | [`Lookup::settle`] |
//!
//! Each transition consumes its state and is pure: no I/O, no clock, no randomness. Checks in the wrong order
//! do not compile. A granted hold is always settled: [`Funded`] leads only to [`Resolved`], and [`Resolved`]
//! leads only to [`Lookup::settle`], which requires the result of the settlement. A lookup with a test key ends
//! at [`Lookup::validate`], and only [`Validated`] has a hold, so that it takes no credits.
//!
//! [`crate::drive`] runs the transitions over the ports. A caller with its own I/O runs them itself:
//!
//! ```
//! use enrich_lib::credit::{HoldOutcome, Settlement};
//! use enrich_lib::key::ApiKey;
//! use enrich_lib::lookup::{Lookup, Policy, Reply, Request};
//! use enrich_lib::model::{Arrival, ProfileUrl, Timestamp};
//! use enrich_lib::resolver::Answer;
//! use enrich_lib::window::{Quota, Workspace};
//!
//! # fn main() {
//! fn walk(policy: &Policy, request: Request) -> Result<Reply, Reply> {
//!     // Random bytes, which must be new for each request.
//!     let arrival = Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), [7; 10]);
//!     let demo = Workspace::new("demo".parse().unwrap(), Quota::default());
//!
//!     let lookup = Lookup::receive(policy, arrival, request)?;
//!     let lookup = lookup.identify(Ok(Some(demo)))?; //        the key store found lookup.key()
//!     let lookup = lookup.admit(Ok(1))?; //                    the first request in lookup.window()
//!     let lookup = lookup.validate()?;
//!     let lookup = lookup.fund(Ok(HoldOutcome::Granted))?; //      the ledger granted lookup.hold()
//!     let ada = ProfileUrl::from_name("ada-marlowe").unwrap();
//!     let lookup = lookup.resolve(Ok(Answer::from(ada))); //   the resolver's answer
//!     assert_eq!(lookup.settlement(), Settlement::Spend(1));
//!     Ok(lookup.settle(Ok(None))) //                            the ledger settled it
//! }
//!
//! let key = ApiKey::generate(|| 1);
//! let body = br#"{"email":"ada.marlowe@gmail.com"}"#;
//! let request = Request::new(Some(key.digest()), Ok(body[..].into()));
//! let reply = walk(&Policy::default(), request).unwrap();
//! assert_eq!(reply.status(), 200);
//! # }
//! ```
//!
//! The compiler rejects a wrong order, for example a resolver's result before the credits are held:
//!
//! ```compile_fail,E0599
//! # use enrich_lib::lookup::{Validated, Resolved, Lookup};
//! # use enrich_lib::resolver::Answer;
//! fn free_lunch(lookup: Lookup<'_, Validated>) -> Lookup<'_, Resolved> {
//!     lookup.resolve(Ok(Answer::default()))
//! }
//! ```

use std::time::Duration;

use crate::body::{self, BodyError};
use crate::credit::{Hold, HoldOutcome, Settlement};
use crate::email::{Email, EmailError};
use crate::key::{KeyDigest, KeyId};
use crate::model::{Arrival, LookupId, WorkspaceId};
use crate::query::Query;
use crate::refusal::{PortError, Refusal};
use crate::resolver::{Answer, SourceName};
use crate::window::{RateLimitStatus, Window, Workspace};

mod policy;
mod reply;
mod request;
mod test_reply;

pub use self::policy::Policy;
pub use self::reply::{Outcome, Reply};
pub use self::request::Request;
pub use self::test_reply::{TEST_DOMAIN, TEST_REPLIES, TestReply};

/// One lookup. `State` owns exactly the data that is available so far.
#[derive(Debug)]
#[must_use = "a lookup ends with a reply"]
pub struct Lookup<'p, State> {
    policy: &'p Policy,
    arrival: Arrival,
    state: State,
}

/// The state of a lookup with a well-formed key.
#[derive(Debug)]
pub struct Received {
    key: KeyDigest,
    request: Request,
}

impl<'p> Lookup<'p, Received> {
    /// Starts a lookup. Fails with 401 if the request has no well-formed key, before any store is accessed.
    pub fn receive(policy: &'p Policy, arrival: Arrival, request: Request) -> Result<Self, Reply> {
        match request.key {
            Some(key) => Ok(Self { policy, arrival, state: Received { key, request } }),
            None => Err(Reply::unauthenticated(arrival.id, Refusal::Unauthorized)),
        }
    }

    /// Returns the key to find.
    pub fn key(&self) -> &KeyDigest {
        &self.state.key
    }

    /// Continues with the result of [`crate::ports::Keys`]. Fails with 401 if the key is unknown or revoked,
    /// and with 500 if the store failed.
    pub fn identify(
        self,
        found: Result<Option<Workspace>, PortError>,
    ) -> Result<Lookup<'p, Identified>, Reply> {
        let (refusal, error) = match found {
            Ok(Some(workspace)) => {
                let window = workspace.window(self.arrival.now);
                let next = |Received { key, request }| Identified { key: key.key_id(), window, request };
                return Ok(self.with(next));
            }
            Ok(None) => (Refusal::Unauthorized, None),
            Err(error) => (Refusal::ServerError, Some(error)),
        };
        Err(Reply { error, ..Reply::unauthenticated(self.arrival.id, refusal) })
    }
}

/// The state of a lookup by a known workspace.
#[derive(Debug)]
pub struct Identified {
    key: KeyId,
    window: Window,
    request: Request,
}

impl<'p> Lookup<'p, Identified> {
    /// Returns the window in which to count the request.
    pub fn window(&self) -> &Window {
        &self.state.window
    }

    /// Continues with the result of [`crate::ports::Windows`]. Fails with 429 if the count exceeds the limit,
    /// and with 503 if the store failed: "the request was not executed" (specification 8.3).
    pub fn admit(self, counted: Result<u64, PortError>) -> Result<Lookup<'p, Admitted>, Reply> {
        let counted = counted.and_then(|count| match count {
            0 => Err(PortError::new("the window counted a request and is still at 0")),
            count => Ok(count),
        });
        let counted = counted.map(|count| self.state.window.admit(count, self.arrival.now));
        let Identified { key, window, request } = self.state;
        let is_test = window.is_test();
        let workspace = window.into_workspace();
        let (rate_limit, refusal, error) = match counted {
            Ok(Ok(rate_limit)) => {
                let state = Admitted { workspace, is_test, key, rate_limit, request };
                return Ok(Lookup { policy: self.policy, arrival: self.arrival, state });
            }
            Ok(Err(rate_limit)) => (Some(rate_limit), Refusal::RateLimited, None),
            Err(error) => (None, Refusal::RateLimitUnavailable, Some(error)),
        };
        let reply = Reply::refused(self.arrival.id, workspace, key, rate_limit, refusal);
        Err(Reply { error, is_test, ..reply })
    }
}

/// The state of a lookup within the burst limit.
#[derive(Debug)]
pub struct Admitted {
    workspace: WorkspaceId,
    is_test: bool,
    key: KeyId,
    rate_limit: RateLimitStatus,
    request: Request,
}

impl<'p> Lookup<'p, Admitted> {
    /// Parses and checks the body. Fails with 400: `invalid_request` takes precedence over `invalid_email`,
    /// and that over `unsupported_email`. A lookup with a test key ends here: a well-formed email determines
    /// its [reply](TEST_REPLIES).
    pub fn validate(self) -> Result<Lookup<'p, Validated>, Reply> {
        let (policy, arrival) = (self.policy, self.arrival);
        let refuse = |admitted: Admitted, refusal| {
            let Admitted { workspace, is_test, key, rate_limit, .. } = admitted;
            Reply { is_test, ..Reply::refused(arrival.id, workspace, key, Some(rate_limit), refusal) }
        };
        let email = match self.state.read(policy) {
            Ok(email) => email,
            Err(refusal) => return Err(refuse(self.state, refusal)),
        };
        if self.state.is_test {
            // The refusal is replaced.
            return Err(TestReply::of(&email).complete(refuse(self.state, Refusal::ServerError)));
        }
        if let Err(unsupported) = policy.emails.check(&email) {
            return Err(refuse(self.state, Refusal::UnsupportedEmail(unsupported)));
        }
        Ok(self.with(|admitted| {
            let Admitted { workspace, key, rate_limit, request, .. } = admitted;
            let receipt = request.idempotency_key.zip(policy.receipts.as_ref());
            let hold = Hold {
                lookup_id: arrival.id,
                workspace: workspace.clone(),
                key,
                credits: policy.price.most(),
                placed_at: arrival.now,
                ttl: policy.hold_ttl,
                receipt: receipt.map(|(key, receipts)| receipts.receipt(&workspace, &key, &email)),
            };
            let query = Query { lookup_id: arrival.id, workspace, email, context: request.context };
            Validated { rate_limit, hold, query }
        }))
    }
}

impl Admitted {
    /// Reads the email. A request with an idempotency key requires a store that keeps receipts.
    fn read(&self, policy: &Policy) -> Result<Email, Refusal> {
        if self.request.idempotency_key.is_some() && policy.receipts.is_none() {
            return Err(Refusal::InvalidRequest(BodyError::IdempotencyKey));
        }
        let bytes = self.request.body.as_ref().map_err(|error| Refusal::InvalidRequest(*error))?;
        let field = body::read(bytes).map_err(Refusal::InvalidRequest)?;
        let text = field.ok_or(Refusal::InvalidEmail(EmailError::Missing))?;
        Email::parse(&text).map_err(Refusal::InvalidEmail)
    }
}

/// The state of a lookup for a supported email.
#[derive(Debug)]
pub struct Validated {
    rate_limit: RateLimitStatus,
    hold: Hold,
    query: Query,
}

impl<'p> Lookup<'p, Validated> {
    /// Returns the hold to place.
    pub fn hold(&self) -> &Hold {
        &self.state.hold
    }

    /// Continues with the outcome of [`crate::ports::Credits::hold`]. Fails with 402 if the workspace has too
    /// few credits, and with 500 if the store failed. A hold that was placed in spite of the failure expires
    /// by itself.
    pub fn fund(self, held: Result<HoldOutcome, PortError>) -> Result<Lookup<'p, Funded>, Reply> {
        let (refusal, error) = match held {
            Ok(HoldOutcome::Granted) => return Ok(self.with(Funded)),
            Ok(HoldOutcome::Insufficient(shortage)) => (Refusal::InsufficientCredits(shortage), None),
            Err(error) => (Refusal::ServerError, Some(error)),
        };
        let Validated { rate_limit, hold, .. } = self.state;
        let reply = Reply::refused(self.arrival.id, hold.workspace, hold.key, Some(rate_limit), refusal);
        Err(Reply { error, ..reply })
    }
}

/// The state of a lookup with a granted hold. No later transition fails, so that the hold is always settled.
#[derive(Debug)]
pub struct Funded(Validated);

impl<'p> Lookup<'p, Funded> {
    /// Returns the query for the resolver.
    pub fn query(&self) -> &Query {
        &self.state.0.query
    }

    /// Continues with the result of [`crate::ports::Resolver`].
    pub fn resolve(self, found: Result<Answer, PortError>) -> Lookup<'p, Resolved> {
        let price = &self.policy.price;
        let (answer, error) = match found {
            Ok(answer) => (answer, None),
            Err(error) => (Answer::default(), Some(error)),
        };
        let Answer { profile, source, is_cached } = answer;
        let (result, credits) = match (profile, &error) {
            (Some(profile), _) => (Ok(Outcome::Found(profile)), price.found),
            (None, None) => (Ok(Outcome::NotFound), price.not_found),
            // "The service could not complete resolver work": errors are free.
            (None, Some(_)) => (Err(Refusal::LookupError), 0),
        };
        self.with(|Funded(Validated { rate_limit, hold, .. })| Resolved {
            rate_limit,
            hold,
            result,
            credits,
            source,
            is_cached,
            error,
        })
    }
}

/// The state of a lookup after the resolver returned or failed.
#[derive(Debug)]
pub struct Resolved {
    rate_limit: RateLimitStatus,
    hold: Hold,
    result: Result<Outcome, Refusal>,
    credits: u64,
    source: Option<SourceName>,
    is_cached: bool,
    error: Option<PortError>,
}

impl Lookup<'_, Resolved> {
    /// Returns the hold to settle.
    pub fn hold(&self) -> &Hold {
        &self.state.hold
    }

    /// Returns how to settle the hold.
    pub fn settlement(&self) -> Settlement {
        Settlement::from_credits(self.state.credits)
    }

    /// Completes the lookup with the result of [`crate::ports::Credits::settle`]. If a spend failed, the
    /// reply is 500 and contains no result. A failed release does not change the reply: no credits are due,
    /// and the hold expires by itself. A result that another lookup has paid for is free. A payer is
    /// ignored if the hold has no receipt, or if it is this lookup: the store is wrong, and may have spent the credits.
    pub fn settle(self, settled: Result<Option<LookupId>, PortError>) -> Reply {
        let settlement = self.settlement();
        let Resolved { rate_limit, hold, result, credits, source, is_cached, error } = self.state;
        let is_other_payer = |payer: &LookupId| hold.receipt.is_some() && *payer != hold.lookup_id;
        let (result, credits_spent, paid_by) = match (&settled, settlement) {
            (Err(_), Settlement::Spend(_)) => (Err(Refusal::ServerError), 0, None),
            (Ok(Some(payer)), Settlement::Spend(_)) if is_other_payer(payer) => (result, 0, Some(*payer)),
            _ => (result, credits, None),
        };
        Reply {
            lookup_id: self.arrival.id,
            workspace: Some(hold.workspace),
            is_test: false,
            key: Some(hold.key),
            rate_limit: Some(rate_limit),
            result,
            delay: Duration::ZERO,
            credits_spent,
            paid_by,
            credits_available: None,
            source,
            is_cached,
            error: error.or(settled.err()),
        }
    }
}

impl<'p, State> Lookup<'p, State> {
    fn with<Next>(self, next: impl FnOnce(State) -> Next) -> Lookup<'p, Next> {
        Lookup { policy: self.policy, arrival: self.arrival, state: next(self.state) }
    }
}
