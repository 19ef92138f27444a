//! The person enrichment service as a [tower] layer, for gateways built on axum, hyper, tonic and others.
//!
//! [`EnrichLayer`] answers `POST /api/v1/person/enrich` with a [`Service`](enrich_lib::drive::Service) and
//! passes every other request to the inner service. It reads a request's body within [limits](BodyLimits),
//! reads the clock, and completes a lookup whose client disconnects, so that its hold is settled.
//!
//! It requires a tokio runtime with its timer enabled.
//!
//! [tower]: https://docs.rs/tower
//!
//! # Example
//!
//! These commands create a gateway next to the sources of the service:
//!
//! ```sh
//! cargo new gateway && cd gateway
//! cargo add axum rand && cargo add tokio --features macros,net,rt-multi-thread,signal,sync,time
//! cargo add --path ../enrich/enrich-lib && cargo add --path ../enrich/enrich-lib/adapters/tower
//! ```
//!
//! The complete `main.rs`:
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::Router;
//! use axum::routing::get;
//! use enrich_lib::drive::Service;
//! use enrich_lib::email::Email;
//! use enrich_lib::key::ApiKey;
//! use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
//! use enrich_lib::model::ProfileUrl;
//! use enrich_lib::window::{Quota, Workspace};
//! use enrich_tower::EnrichLayer;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // A workspace with a key, 10 credits and 500 requests a minute, and a directory of one person.
//!     let demo = Workspace::new("demo".parse()?, Quota::new(500, 60)?);
//!     let key = ApiKey::generate(rand::random);
//!     let (keys, windows) = (Arc::new(KeyTable::default()), Arc::new(WindowTable::default()));
//!     let (credits, people) = (Arc::new(AccountTable::default()), Arc::new(Directory::default()));
//!     credits.grant(&demo.id, 10)?;
//!     keys.insert(key.digest(), demo);
//!     people.insert(&Email::parse("ada.marlowe@gmail.com")?, ProfileUrl::from_name("ada-marlowe")?);
//!
//!     let service = Service::new(keys, windows, credits, people);
//!     let enrich = EnrichLayer::new(service);
//!     let gateway = Router::new().route("/hello", get(async || "hello")).layer(enrich.clone());
//!
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//!     let url = format!("http://{}/api/v1/person/enrich", listener.local_addr()?);
//!     println!(
//!         "curl {url} -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' \
//!          -d '{{\"email\":\"ada.marlowe@gmail.com\"}}'",
//!         key.reveal()
//!     );
//! #   let request = http::Request::post(&url)
//! #       .header("authorization", format!("Bearer {}", key.reveal()))
//! #       .header("content-type", "application/json")
//! #       .body(axum::body::Body::from(r#"{"email":"ada.marlowe@gmail.com"}"#))?;
//! #   let response = tower::ServiceExt::oneshot(gateway.clone(), request).await?;
//! #   assert_eq!(response.status(), 200);
//! #   if true { return Ok(()) }
//!     let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
//!     let serving = async {
//!         axum::serve(listener, gateway).with_graceful_shutdown(async { drop(stopping.await) }).await?;
//!         enrich.drain().await;
//!         Ok(())
//!     };
//!     // A spend whose outcome is unknown may never complete.
//!     let timeout = async {
//!         tokio::signal::ctrl_c().await?; // and SIGTERM, in a container
//!         drop(stop);
//!         tokio::time::sleep(std::time::Duration::from_secs(15)).await;
//!         Ok(())
//!     };
//!     tokio::select! { ended = serving => ended, ended = timeout => ended }
//! }
//! ```
//!
//! The printed curl command returns `200 OK` with the person's profile. `examples/axum.rs` is a complete
//! gateway, and `examples/hyper.rs` is one without tower: `cargo run -p enrich-tower --example axum`. The
//! [guide](enrich_lib::guide) has the rest: keys of your own, own ports, vendors and tests.
//!
//! # Integration
//!
//! - Layers outside of it run before it: a connection limit, tracing, CORS. Those are the layers that
//!   `Router::layer` adds later, and that `ServiceBuilder` adds earlier.
//! - It answers [`wire::PATH`](enrich_lib::wire::PATH). Layer the outermost router: under `Router::nest`, it would see
//!   another path, `Router::route_layer` applies to existing routes only, and `Router::merge` can drop it. A router
//!   that is merged or nested has the route `.route_service(wire::PATH, enrich.layer(Router::new()))` instead.
//! - No layer outside of it may limit the time of a lookup, which would complete and be billed without a
//!   reply. Limit the time of the resolver, as `enrich_vendors::middleware::Deadline` does, and of each call to a
//!   store. A client that repeats a request sends an `Idempotency-Key`.
//! - A request waits until the inner service is ready, as in every tower stack. Put limits on concurrency outside of
//!   this layer: an inner one reserves a permit before each request, and a lookup does not use it.
//! - The feature `tracing`, which is on by default, reports lookups and failed ports as events: see
//!   [`TracingObserver`]. Another [`Observer`](enrich_lib::observe::Observer) replaces it.
//! - Add it with `Router::layer` after the routes and the fallback, so that it also answers other methods on
//!   its path. A handler with axum's extractors would answer an oversized body with its own 413, and a wrong
//!   method with a bare 405.
//! - `axum::serve` has no timeout for the head of a request, and `auto` of hyper-util has none until it has detected
//!   the version. Put a proxy in front that has one.
//! - An outer limit on bodies must allow at least [`BodyLimits::bytes_max`]: a body over it is a 400 of the
//!   layer.
//! - Services of one layer, and their clones, share all ports, and with them the burst limits.
//! - Over HTTP/1, a connection closes if its request's body is refused before the end, because hyper cannot
//!   find the next request.
//! - A server or proxy without tower uses the [`Endpoint`], as the standalone host and `examples/hyper.rs`
//!   do.
//!
//! Modules are declared in reading order.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod arrivals;
mod body;
mod endpoint;
mod layer;

#[cfg(feature = "tracing")]
mod trace;

pub use crate::arrivals::{Arrivals, SystemArrivals};
pub use crate::body::{BodyFuture, BodyLimits};
pub use crate::endpoint::{Endpoint, LookupFuture};
pub use crate::layer::{Enrich, EnrichLayer, ResponseBody, ResponseFuture};
#[cfg(feature = "tracing")]
pub use crate::trace::TracingObserver;
