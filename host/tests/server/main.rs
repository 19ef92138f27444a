//! Tests of the server's public API: `run` over in-memory connections, mostly with a paused clock.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod client;
mod world;

mod deadlines;
mod http1;
mod http2;
mod lookups;
mod malformed;
mod rest;
mod shutdown;
mod tcp;
mod tls;
mod workers;
