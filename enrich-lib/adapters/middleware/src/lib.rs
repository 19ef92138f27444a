//! Resolver middleware: fallback between paid vendors, and protection against vendors that are slow, failing or overloaded.
//!
//! Each type here is a [`Resolver`](enrich_lib::ports::Resolver) that wraps other resolvers of any kind. Time comes from
//! tokio, so that tests can pause it and simulations can control it. Randomness comes from a seed. Failures are reported as
//! a [`VendorError`] inside a [`PortError`](enrich_lib::refusal::PortError). Errors and `Debug` output never contain an
//! email. No email is stored: entries are keyed by a keyed hash.
//!
//! # Order of composition
//!
//! From the outside in. Every layer is optional. The recommended order is:
//!
//! ```text
//! Deadline     one budget for the whole lookup
//! Suppress     outside of every layer that stores results
//! Cache        a cached result costs nothing
//! Coalesce     concurrent lookups of one person share one call
//! Waterfall    divides its budget between the vendors
//!   ├─ Limit       waits for a permit; the vendor's deadline has not started yet
//!   │  Breaker     fails at once while it is open
//!   │  Deadline    the vendor's time, starting at the permit; a vendor that hangs counts as failed
//!   │  Retry       inside the breaker: a lookup counts once
//!   │  Hedge       only where requests are free; the second request needs a free permit of the Limit
//!   │  a vendor
//!   └─ …
//! ```
//!
//! The [`Deadline`] of a vendor must be shorter than its share of the [`Waterfall`]'s budget: a [`Breaker`] counts
//! completed calls, but not calls that an outer layer drops.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use enrich_middleware::{
//!     Breaker, BreakerPolicy, Coalesce, Deadline, EmailHasher, Limit, Permits, Retry, RetryPolicy, Waterfall,
//! };
//! use enrich_lib::email::Email;
//! use enrich_lib::memory::Directory;
//! use enrich_lib::model::{LookupId, ProfileUrl};
//! use enrich_lib::ports::Resolver;
//! use enrich_lib::query::Query;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! /// Wraps a vendor in the standard middleware.
//! fn guarded(vendor: Arc<dyn Resolver>, seed: u64) -> Arc<dyn Resolver> {
//!     let vendor = Arc::new(Retry::new(vendor, RetryPolicy::default(), seed));
//!     let vendor = Arc::new(Deadline::new(vendor, RetryPolicy::default().budget));
//!     let vendor = Arc::new(Breaker::new(vendor, BreakerPolicy::default()));
//!     Arc::new(Limit::new(vendor, Permits::new(50, 200), Duration::from_secs(2)))
//! }
//!
//! // In production, use real vendors and a random key and seed.
//! let (ours, bought) = (Directory::default(), Directory::default());
//! bought.insert(&Email::parse("ada.marlowe@gmail.com")?, ProfileUrl::from_name("ada-marlowe")?);
//! let (key, seed) = ([7; 32], 7);
//!
//! let budget = Deadline::BUDGET;
//! let vendors = Waterfall::starting_with("ours", Arc::new(ours))
//!     .then("bought", guarded(Arc::new(bought), seed))
//!     .within(budget - Duration::from_millis(100)); // ends before the outer deadline, so that errors name the vendors
//! let once = Coalesce::new(Arc::new(vendors), EmailHasher::new(key));
//! let resolver = Deadline::new(Arc::new(once), budget);
//!
//! let query = Query {
//!     lookup_id: LookupId::from_bytes([7; 16]),
//!     workspace: "demo".parse()?,
//!     email: Email::parse("Ada.Marlowe@gmail.com")?,
//! };
//! assert!(resolver.find(&query).await?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! Each module uses only those before it: `error` the error types · `lock` · `hash` keyed hashes of emails ·
//! `timeout` · `deadline` · `waterfall` · `retry` · `circuit` the states of a `breaker` · `permits` · `hedge` · `limit` ·
//! `coalesce` · `cache` · `suppress`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;

mod lock;

mod hash;

mod timeout;

mod deadline;

mod waterfall;

mod retry;

mod circuit;

mod breaker;

mod permits;

mod hedge;

mod limit;

mod coalesce;

mod cache;

mod suppress;

pub use breaker::Breaker;
pub use cache::{Cache, CachePolicy};
pub use circuit::BreakerPolicy;
pub use coalesce::Coalesce;
pub use deadline::Deadline;
pub use error::{VendorError, VendorErrorKind};
pub use hash::{EmailHash, EmailHasher};
pub use hedge::{Hedge, HedgeDelay};
pub use limit::Limit;
pub use permits::{Permit, Permits};
pub use retry::{Retry, RetryPolicy};
pub use suppress::{HashedOptOuts, OptOuts, Suppress};
pub use timeout::{Timeout, timeout};
pub use waterfall::{Waterfall, WaterfallError};
