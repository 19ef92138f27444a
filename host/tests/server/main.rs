//! Tests of the server's public API: `run` over in-memory connections, mostly with a paused clock.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod client;
mod log;
mod test_server;
mod tls;
mod connections;
mod floods;
mod lookups;
mod malformed;
mod shutdown;
mod sockets;
mod timeouts;
