//! Tests of the server's public API: `run` over in-memory connections, mostly with a paused clock.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod client;
mod test_server;

mod connections;
mod drain;
mod floods;
mod http1;
mod http2;
mod lookups;
mod malformed;
mod pages;
mod request_ids;
mod restarts;
mod shutdown;
mod tcp;
mod timeouts;
mod tls;
mod workers;
