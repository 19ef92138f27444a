//! The service as its clients use it: the real server on real sockets, with its default stores.
//!
//! # Layout
//!
//! `ports` fault injection between the server and its ports · `tls` a certificate · `workspace` and its keys · `server` the server
//! and its operator · `client` a well-behaved HTTP client.

mod client;
mod ports;
mod server;
mod tls;
mod workspace;

use std::time::Duration;

pub use client::{Client, HttpClient, Reply, Transport};
pub use ports::{PortCall, Ports};
pub use server::{Settings, TestServer};
pub use tls::server as tls_server;
pub use workspace::TestWorkspace;

/// An email in the people directory.
pub const KNOWN: &str = "ada.marlowe@gmail.com";

/// The timeout for operations that are expected to succeed. Only a failing test waits this long.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Polls `probe` until it returns `true`, for background work that cannot be awaited.
///
/// Panics after [`TIMEOUT`].
pub async fn eventually(what: &str, mut probe: impl FnMut() -> bool) {
    let poll = async {
        while !probe() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, poll).await.is_ok(), "not in {TIMEOUT:?}: {what}");
}
