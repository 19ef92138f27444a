//! Middleware for resolvers: fallback between paid vendors, and protection against vendors that are slow,
//! failing or overloaded.
//!
//! Most types here are a [`Resolver`](enrich_lib::ports::Resolver) that wraps other resolvers of any kind;
//! [`ResolverStack`] assembles all of them. Time comes from tokio, so that tests can pause it and simulations
//! can control it. Randomness comes from a seed. Failures are reported as a
//! [`VendorError`](enrich_lib::resolver::VendorError) inside a
//! [`PortError`](enrich_lib::refusal::PortError). Errors and `Debug` output never contain an email. No email
//! is stored: entries are keyed by a keyed hash.
//!
//! # Order of composition
//!
//! From the outside in. Every layer is optional. [`ResolverStack`] uses this order:
//!
//! ```text
//! Deadline     one budget for all that follow
//! OptOutFilter outside of every layer that stores results; answers for people who opted out take as long as for unknown people
//! LocalFirst   calls local sources before the first vendor; their answers are not stored
//! Cache        a cached result costs nothing
//! Coalesce     concurrent lookups of one address share one call
//! Waterfall    divides its budget between the vendors
//!   ├─ ConcurrencyLimit  waits for a permit; the vendor's deadline has not started yet
//!   │  CircuitBreaker    fails at once while it is open
//!   │  Deadline          the vendor's time, starting at the permit; a vendor that hangs counts as failed
//!   │  Retry             inside the circuit breaker: a lookup counts once
//!   │  a vendor
//!   └─ …
//! ```
//!
//! The [`Deadline`] of a vendor must be shorter than its share of the [`Waterfall`]'s budget: a
//! [`CircuitBreaker`] counts completed calls, but not calls that an outer layer drops.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use enrich_lib::email::Email;
//! use enrich_lib::memory::Directory;
//! use enrich_lib::model::{LookupId, ProfileUrl};
//! use enrich_lib::ports::Resolver;
//! use enrich_lib::query::Query;
//! use enrich_lib::refusal::PortError;
//! use enrich_lib::resolver::OptOuts;
//! use enrich_vendors::middleware::{Deadline, ResolverStack, VendorPolicy};
//!
//! struct NoOptOuts;
//!
//! #[async_trait::async_trait]
//! impl OptOuts for NoOptOuts {
//!     async fn contains(&self, _: &Email) -> Result<bool, PortError> {
//!         Ok(false)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In production, use real vendors, the list of opt-outs, and cryptographically secure random bytes as seed. The
//! // policy of a provider is `VendorPolicy::from(&description)`.
//! let (directory, vendor) = (Directory::default(), Directory::default());
//! vendor.insert(&Email::parse("ada.marlowe@gmail.com")?, ProfileUrl::from_name("ada-marlowe")?);
//!
//! let resolver = ResolverStack::new(Deadline::BUDGET, Arc::new(NoOptOuts))
//!     .local("directory", Arc::new(directory))
//!     .vendor("acme", Arc::new(vendor), VendorPolicy::default())
//!     .build([7; 32]);
//!
//! let email = Email::parse("Ada.Marlowe@gmail.com")?;
//! let query = Query::new(LookupId::from_bytes([7; 16]), "demo".parse()?, email);
//! assert!(resolver.find(&query).await?.profile.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! Modules are declared in reading order; each uses only those before it.

mod deadline;
mod waterfall;
mod retry;
mod circuit;
mod breaker;
mod permits;
mod limit;
mod coalesce;
mod cache;
mod decoy;
mod opt_out_filter;
mod local_first;
mod stack;

pub use breaker::CircuitBreaker;
pub use cache::{Cache, CachePolicy, CacheStatistics};
pub use circuit::{BreakerState, CircuitBreakerPolicy};
pub use coalesce::Coalesce;
pub use deadline::Deadline;
pub use limit::ConcurrencyLimit;
pub use opt_out_filter::OptOutFilter;
pub use permits::Permits;
pub use retry::{Retry, RetryPolicy};
pub use stack::{ResolverStack, StackMonitor, VendorPolicy, vendor_timeouts};
pub use waterfall::{Waterfall, WaterfallError};

pub use enrich_store::EmailHasher;
