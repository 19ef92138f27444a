//! The heart: one lookup as a chain of states.
//!
//! ```text
//! receive ──► Received ─identify─► Known ─admit─► Admitted ─read─► Asked ─fund─► Funded ─finish─► Finished ─close─► Reply
//!       401           401, 500        429, 503        400 ×3        402, 500          (502)       200, 404, 500, 502
//! ```
//!
//! | state | knows | asks the world for | and is told by |
//! |---|---|---|---|
//! | [`Received`] | a well-formed key | the workspace of [`Lookup::key`] | [`Lookup::identify`] |
//! | [`Known`] | the workspace | one more count in [`Lookup::window`] | [`Lookup::admit`] |
//! | [`Admitted`] | its standing | nothing | [`Lookup::read`] |
//! | [`Asked`] | a supported email | [`Lookup::hold`] | [`Lookup::fund`] |
//! | [`Funded`] | that the credits are held | the profile of [`Lookup::query`] | [`Lookup::finish`] |
//! | [`Finished`] | the result | the [`Lookup::settlement`] of the hold | [`Lookup::close`] |
//!
//! Each transition consumes its state and is pure: no I/O, no clock, no randomness. A check out of order does
//! not compile, and neither does a granted hold that nobody settles: from [`Funded`] there is no way out but
//! through [`Finished`], and from there none but [`Lookup::close`], which needs the settlement's answer.
//!
//! A caller with its own I/O walks the chain by hand; [`crate::drive`] does it over the ports:
//!
//! ```
//! use enrich_lib::credit::{Holding, Settlement};
//! use enrich_lib::key::ApiKey;
//! use enrich_lib::lookup::{Lookup, Policy, Reply, Request};
//! use enrich_lib::model::{Arrival, ProfileUrl, Timestamp};
//! use enrich_lib::window::{Quota, Workspace};
//!
//! # fn main() {
//! fn walk(policy: &Policy, request: Request) -> Result<Reply, Reply> {
//!     let arrival = Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), [7; 10]);
//!     let demo = Workspace { id: "demo".parse().unwrap(), quota: Quota::default() };
//!
//!     let lookup = Lookup::receive(policy, arrival, request)?;
//!     let lookup = lookup.identify(Ok(Some(demo)))?; //        the key store found lookup.key()
//!     let lookup = lookup.admit(Ok(1))?; //                    the first request in lookup.window()
//!     let lookup = lookup.read()?;
//!     let lookup = lookup.fund(Ok(Holding::Granted))?; //      the ledger set lookup.hold() aside
//!     let lookup = lookup.finish(Ok(ProfileUrl::from_name("ada-marlowe").ok())); // found lookup.query()
//!     assert_eq!(lookup.settlement(), Settlement::Spend(1));
//!     Ok(lookup.close(Ok(()))) //                              the ledger settled it
//! }
//!
//! let key = ApiKey::generate(|| 1);
//! let body = br#"{"email":"ada.marlowe@gmail.com"}"#;
//! let request = Request { key: Some(key.digest()), body: Ok(body[..].into()) };
//! let reply = walk(&Policy::default(), request).unwrap();
//! assert_eq!(reply.status(), 200);
//! # }
//! ```
//!
//! and a wrong order is refused by the compiler, here a resolver asked before the credits are held:
//!
//! ```compile_fail,E0599
//! # use enrich_lib::lookup::{Asked, Finished, Lookup};
//! fn free_lunch(lookup: Lookup<'_, Asked>) -> Lookup<'_, Finished> {
//!     lookup.finish(Ok(None))
//! }
//! ```

use std::time::Duration;

use crate::body::{self, Body};
use crate::credit::{Hold, Holding, Price, Settlement};
use crate::email::{Email, EmailFault, EmailPolicy};
use crate::key::KeyDigest;
use crate::model::{Arrival, LookupId, ProfileUrl, WorkspaceId};
use crate::query::Query;
use crate::refusal::{PortError, Refusal};
use crate::window::{Standing, Window, Workspace};

/// What the operator decides for all lookups.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What a lookup costs.
    pub price: Price,
    /// How long credits are held before they return by themselves: longer than a lookup can take.
    pub hold_ttl: Duration,
    /// Which emails are looked up.
    pub emails: EmailPolicy,
}

impl Default for Policy {
    fn default() -> Self {
        Self { price: Price::default(), hold_ttl: Duration::from_secs(30), emails: EmailPolicy::default() }
    }
}

/// A request as the chain takes it; [`crate::wire::request`] makes it of HTTP.
#[derive(Clone, Debug)]
pub struct Request {
    /// The digest of the bearer key, if there is one of the right form.
    pub key: Option<KeyDigest>,
    /// The body, or why there is none. The chain decides when that matters.
    pub body: Body,
}

/// One lookup, in a state that owns exactly what is known so far.
#[derive(Debug)]
#[must_use = "a lookup ends with a reply"]
pub struct Lookup<'p, State> {
    policy: &'p Policy,
    arrival: Arrival,
    state: State,
}

/// The request has a key of the right form.
#[derive(Debug)]
pub struct Received {
    key: KeyDigest,
    body: Body,
}

impl<'p> Lookup<'p, Received> {
    /// Takes a request. Errors: 401 without a key of the right form, before any store is asked.
    pub fn receive(policy: &'p Policy, arrival: Arrival, request: Request) -> Result<Self, Reply> {
        match request.key {
            Some(key) => Ok(Self { policy, arrival, state: Received { key, body: request.body } }),
            None => Err(Reply::stranger(arrival.id, Refusal::Unauthorized)),
        }
    }

    /// The question: whose key is this?
    pub fn key(&self) -> &KeyDigest {
        &self.state.key
    }

    /// The answer of [`crate::ports::Keys`]. Errors: 401 for an unknown or revoked key, 500 if nobody could tell.
    pub fn identify(self, found: Result<Option<Workspace>, PortError>) -> Result<Lookup<'p, Known>, Reply> {
        match found {
            Ok(Some(Workspace { id, quota })) => {
                let window = quota.window(&id, self.arrival.now);
                Ok(self.with(|received| Known { window, body: received.body }))
            }
            Ok(None) => Err(Reply::stranger(self.arrival.id, Refusal::Unauthorized)),
            Err(fault) => Err(Reply::stranger(self.arrival.id, Refusal::ServerError).because(fault)),
        }
    }
}

/// The key is a workspace's.
#[derive(Debug)]
pub struct Known {
    window: Window,
    body: Body,
}

impl<'p> Lookup<'p, Known> {
    /// The question: which count has this request in this window?
    pub fn window(&self) -> &Window {
        &self.state.window
    }

    /// The answer of [`crate::ports::Windows`]. Errors: 429 over the limit; 503 if nobody could count, and "the
    /// request was not executed" (specification 8.3).
    pub fn admit(self, counted: Result<u64, PortError>) -> Result<Lookup<'p, Admitted>, Reply> {
        let counted = counted.and_then(|count| match count {
            0 => Err(PortError::new("the window counted a request and is still at 0")),
            count => Ok(count),
        });
        let workspace = self.state.window.workspace().clone();
        match counted.map(|count| self.state.window.admit(count, self.arrival.now)) {
            Ok(Ok(standing)) => Ok(self.with(|known| Admitted { workspace, standing, body: known.body })),
            Ok(Err(standing)) => {
                Err(Reply::refused(self.arrival.id, workspace, Some(standing), Refusal::RateLimited))
            }
            Err(fault) => {
                let refusal = Refusal::RateLimitUnavailable;
                Err(Reply::refused(self.arrival.id, workspace, None, refusal).because(fault))
            }
        }
    }
}

/// The workspace is within its burst limit.
#[derive(Debug)]
pub struct Admitted {
    workspace: WorkspaceId,
    standing: Standing,
    body: Body,
}

impl<'p> Lookup<'p, Admitted> {
    /// Reads the body. Errors: 400 `invalid_request`, then `invalid_email`, then `unsupported_email`.
    pub fn read(self) -> Result<Lookup<'p, Asked>, Reply> {
        match read_email(&self.state.body, &self.policy.emails) {
            Ok(email) => {
                let hold = Hold {
                    lookup_id: self.arrival.id,
                    workspace: self.state.workspace.clone(),
                    credits: self.policy.price.most(),
                    placed_at: self.arrival.now,
                    expires_at: self.arrival.now + self.policy.hold_ttl,
                };
                Ok(self.with(|admitted| {
                    let query = Query { lookup_id: hold.lookup_id, workspace: admitted.workspace, email };
                    Asked { standing: admitted.standing, hold, query }
                }))
            }
            Err(refusal) => {
                let Admitted { workspace, standing, .. } = self.state;
                Err(Reply::refused(self.arrival.id, workspace, Some(standing), refusal))
            }
        }
    }
}

fn read_email(body: &Body, policy: &EmailPolicy) -> Result<Email, Refusal> {
    let bytes = body.as_ref().map_err(|fault| Refusal::InvalidRequest(*fault))?;
    let field = body::read(bytes).map_err(Refusal::InvalidRequest)?;
    let text = field.ok_or(Refusal::InvalidEmail(EmailFault::Missing))?;
    let email = Email::parse(&text).map_err(Refusal::InvalidEmail)?;
    policy.check(&email).map_err(Refusal::UnsupportedEmail)?;
    Ok(email)
}

/// The request asks for an email that is looked up.
#[derive(Debug)]
pub struct Asked {
    standing: Standing,
    hold: Hold,
    query: Query,
}

impl<'p> Lookup<'p, Asked> {
    /// The question: can these credits be set aside?
    pub fn hold(&self) -> &Hold {
        &self.state.hold
    }

    /// The answer of [`crate::ports::Credits::hold`]. Errors: 402 without enough credits, 500 if nobody could tell;
    /// a hold that was placed all the same expires by itself.
    pub fn fund(self, held: Result<Holding, PortError>) -> Result<Lookup<'p, Funded>, Reply> {
        let (refusal, fault) = match held {
            Ok(Holding::Granted) => {
                return Ok(self.with(|Asked { standing, hold, query }| Funded { standing, hold, query }));
            }
            Ok(Holding::Insufficient) => (Refusal::InsufficientCredits, None),
            Err(fault) => (Refusal::ServerError, Some(fault)),
        };
        let Asked { standing, hold, .. } = self.state;
        Err(Reply { fault, ..Reply::refused(self.arrival.id, hold.workspace, Some(standing), refusal) })
    }
}

/// The credits are held. No transition fails from here on: a granted hold is always settled.
#[derive(Debug)]
pub struct Funded {
    standing: Standing,
    hold: Hold,
    query: Query,
}

impl<'p> Lookup<'p, Funded> {
    /// The question: who is this?
    pub fn query(&self) -> &Query {
        &self.state.query
    }

    /// The answer of [`crate::ports::Resolver`].
    pub fn finish(self, found: Result<Option<ProfileUrl>, PortError>) -> Lookup<'p, Finished> {
        let price = &self.policy.price;
        let (result, credits, fault) = match found {
            Ok(Some(profile)) => (Ok(Outcome::Found(profile)), price.found, None),
            Ok(None) => (Ok(Outcome::NotFound), price.not_found, None),
            // "The service could not complete resolver work": errors are free.
            Err(fault) => (Err(Refusal::LookupError), 0, Some(fault)),
        };
        self.with(|Funded { standing, hold, .. }| Finished { standing, hold, result, credits, fault })
    }
}

/// The resolver has answered, or failed.
#[derive(Debug)]
pub struct Finished {
    standing: Standing,
    hold: Hold,
    result: Result<Outcome, Refusal>,
    credits: u64,
    fault: Option<PortError>,
}

impl Lookup<'_, Finished> {
    /// The hold to settle.
    pub fn hold(&self) -> &Hold {
        &self.state.hold
    }

    /// How to settle it.
    pub fn settlement(&self) -> Settlement {
        Settlement::of(self.state.credits)
    }

    /// The answer of [`crate::ports::Credits::settle`]. A result whose spend failed is not given away: 500. A
    /// settlement that spends nothing may fail: nothing is owed, and the hold expires by itself.
    pub fn close(self, settled: Result<(), PortError>) -> Reply {
        let settlement = self.settlement();
        let Finished { standing, hold, result, credits, fault } = self.state;
        let (result, credits_spent) = match (&settled, settlement) {
            (Err(_), Settlement::Spend(_)) => (Err(Refusal::ServerError), 0),
            _ => (result, credits),
        };
        Reply {
            lookup_id: self.arrival.id,
            workspace: Some(hold.workspace),
            standing: Some(standing),
            result,
            credits_spent,
            fault: fault.or(settled.err()),
        }
    }
}

impl<'p, State> Lookup<'p, State> {
    fn with<Next>(self, next: impl FnOnce(State) -> Next) -> Lookup<'p, Next> {
        Lookup { policy: self.policy, arrival: self.arrival, state: next(self.state) }
    }
}

/// The result of a completed lookup (specification 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `found`: "A professional profile match was found."
    Found(ProfileUrl),
    /// `not_found`: "The lookup completed and no match could be returned."
    NotFound,
}

/// Everything that an answer needs, and everything that its log line needs.
#[derive(Debug)]
pub struct Reply {
    /// The lookup's identity. Errors don't show it to the client, but the log has it.
    pub lookup_id: LookupId,
    /// Whose request it was, if the key told.
    pub workspace: Option<WorkspaceId>,
    /// Where the workspace stands in its window, once the request was counted.
    pub standing: Option<Standing>,
    /// The result, or why there is none.
    pub result: Result<Outcome, Refusal>,
    /// What the lookup cost, in credits.
    pub credits_spent: u64,
    /// The port's failure that decided the answer, or that a release met. For the log.
    pub fault: Option<PortError>,
}

impl Reply {
    /// A refusal of a request of nobody known.
    pub fn stranger(lookup_id: LookupId, refusal: Refusal) -> Self {
        let result = Err(refusal);
        Self { lookup_id, workspace: None, standing: None, result, credits_spent: 0, fault: None }
    }

    /// The HTTP status (specification 4).
    pub const fn status(&self) -> u16 {
        match &self.result {
            Ok(Outcome::Found(_)) => 200,
            Ok(Outcome::NotFound) => 404,
            Err(refusal) => refusal.status(),
        }
    }

    /// One word for the log: the `status` of a result, the `error` of a refusal.
    pub const fn outcome(&self) -> &'static str {
        match &self.result {
            Ok(Outcome::Found(_)) => "found",
            Ok(Outcome::NotFound) => "not_found",
            Err(refusal) => refusal.code(),
        }
    }

    fn refused(
        lookup_id: LookupId,
        workspace: WorkspaceId,
        standing: Option<Standing>,
        refusal: Refusal,
    ) -> Self {
        Self { workspace: Some(workspace), standing, ..Self::stranger(lookup_id, refusal) }
    }

    fn because(self, fault: PortError) -> Self {
        Self { fault: Some(fault), ..self }
    }
}
