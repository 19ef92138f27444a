//! The person enrichment service as a [tower] layer, for gateways of axum, hyper, tonic and others.
//!
//! [`EnrichLayer`] answers `POST /api/v1/person/enrich` with a [`Service`](enrich_lib::drive::Service) and hands everything
//! else to the service behind it. It gathers a request's body within [limits](BodyLimits), reads the clock, and finishes
//! a lookup whose client hangs up, so that its hold is settled.
//!
//! It needs a tokio runtime, and no crate that a gateway of axum and `enrich-lib` does not have.
//!
//! [tower]: https://docs.rs/tower
//!
//! # Layout
//!
//! In reading order: [`Arrivals`] the clock and the randomness · [`BodyLimits`], [`Gathering`] a request's body ·
//! [`Lookups`] those in flight · [`Endpoint`] one request, for any server · [`ResponseBody`] · [`EnrichLayer`],
//! [`Enrich`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod arrivals;

mod gather;

mod lookups;

mod endpoint;

mod response;

mod layer;

pub use crate::arrivals::{Arrivals, SystemArrivals};
pub use crate::endpoint::{Answering, Endpoint};
pub use crate::gather::{BodyLimits, Gathering};
pub use crate::layer::{Enrich, EnrichLayer, ResponseFuture};
pub use crate::lookups::Lookups;
pub use crate::response::ResponseBody;
