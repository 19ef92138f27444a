//! The service as its clients use it: the real server on real sockets, with its default stores.
//!
//! # Layout
//!
//! `ports` fault injection between the server and its ports · `tls` a certificate · `workspace` and its keys · `server` the server
//! and its operator · `client` a well-behaved HTTP client · `raw` a client that sends arbitrary bytes.

mod client;
mod ports;
mod raw;
mod server;
mod tls;
mod workspace;

use std::time::Duration;

pub use client::{Client, HttpClient, Reply, Transport};
pub use ports::{Behavior, FAULT_MESSAGE, PortCall, Ports};
pub use raw::{RawConnection, RawReply, RawRequest};
pub use server::{Settings, TestServer};
pub use tls::{client_hello, server as tls_server};
pub use workspace::TestWorkspace;

/// An email in the people directory. Its profile is [`KNOWN_URL`].
pub const KNOWN: &str = "ada.marlowe@gmail.com";
pub const KNOWN_URL: &str = "https://www.linkedin.com/in/ada-marlowe";

/// A supported email that is not in the people directory.
pub const UNKNOWN: &str = "nobody.here@gmail.com";

/// The timeout for operations that are expected to succeed. Only a failing test waits this long.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout of port calls that are expected to fail.
pub const SHORT_TIMEOUT: Duration = Duration::from_millis(100);

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
