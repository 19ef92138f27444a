//! Resolvers around resolvers: how to ask vendors whom one pays, and to survive them.
//!
//! Each type here is a [`Resolver`](enrich_lib::ports::Resolver) around others, and knows nothing of what those are.
//! Time is tokio's, so tests can pause it and simulations can own it; randomness is a seed. What goes wrong is a
//! [`VendorFault`] inside a [`PortError`](enrich_lib::refusal::PortError). No email is in any error or `Debug`, and none
//! is kept: what is remembered, is remembered by a keyed hash.
//!
//! # In which order
//!
//! From the outside in. All of it is optional, but what is there works best in this order:
//!
//! ```text
//! Deadline     one budget for the whole lookup
//! Suppress     before anything that remembers
//! Cache        what it knows costs nothing
//! Coalesce     what is not known yet is asked once
//! Waterfall    shares its budget out
//!   ├─ Breaker     an open one costs no time
//!   │  Deadline    a vendor that hangs is a vendor that fails
//!   │  Retry       inside the breaker: a lookup counts once, and its pauses hold no permit
//!   │  Hedge       only where asks are free
//!   │  Limit       each ask, the second too
//!   │  a vendor
//!   └─ …
//! ```
//!
//! A [`Hedge`] around a [`Breaker`] would be wrong: the ask that lost is dropped, and counts as a failure.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use enrich_compose::{Breaker, BreakerPolicy, Coalesce, Deadline, EmailHasher, Limit, Retry, RetryPolicy, Waterfall};
//! use enrich_lib::email::Email;
//! use enrich_lib::memory::Directory;
//! use enrich_lib::model::ProfileUrl;
//! use enrich_lib::ports::Resolver;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! /// What every vendor of ours is put behind.
//! fn guarded(vendor: Arc<dyn Resolver>, seed: u64) -> Arc<dyn Resolver> {
//!     let vendor = Arc::new(Limit::new(vendor, 50, 200));
//!     let vendor = Arc::new(Retry::new(vendor, RetryPolicy::default(), seed));
//!     let vendor = Arc::new(Deadline::new(vendor, RetryPolicy::default().budget));
//!     Arc::new(Breaker::new(vendor, BreakerPolicy::default()))
//! }
//!
//! // In earnest: vendors, and randomness.
//! let (ours, bought) = (Directory::default(), Directory::default());
//! bought.insert(&Email::parse("ada.marlowe@gmail.com")?, ProfileUrl::from_name("ada-marlowe")?);
//! let (key, seed) = ([7; 32], 7);
//!
//! let budget = Deadline::BUDGET;
//! let vendors = Waterfall::starting_with("ours", Arc::new(ours))
//!     .then("bought", guarded(Arc::new(bought), seed))
//!     .within(budget - Duration::from_millis(100)); // ends before the whole, so that errors name the vendors
//! let once = Coalesce::new(Arc::new(vendors), EmailHasher::new(key));
//! let resolver = Deadline::new(Arc::new(once), budget);
//!
//! assert!(resolver.find(&Email::parse("Ada.Marlowe@gmail.com")?).await?.is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! Each module uses only those before it: `fault` the vocabulary · `lock` · `hash` how an email is remembered ·
//! `timeout` · `deadline` · `waterfall` · `retry` · `circuit` the states of a `breaker` · `hedge` · `limit` · `coalesce` ·
//! `cache` · `suppress`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod fault;

mod lock;

mod hash;

mod timeout;

mod deadline;

mod waterfall;

mod retry;

mod circuit;

mod breaker;

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
pub use fault::{FaultKind, VendorFault};
pub use hash::{EmailHash, EmailHasher};
pub use hedge::{Hedge, HedgeDelay};
pub use limit::Limit;
pub use retry::{Retry, RetryPolicy};
pub use suppress::{HashedOptOuts, OptOuts, Suppress};
pub use timeout::{Timeout, timeout};
pub use waterfall::{Waterfall, WaterfallFault};
