//! The service as its clients meet it: the real host on real sockets, over the stores that it has by default.
//!
//! # Layout
//!
//! `tap` ports that fail, hang or forget when told to · `tls` a certificate · [`World`] the host and its operator ·
//! [`Client`] one that speaks HTTP well · [`Raw`] one that says exactly what it is told to.

mod client;
mod raw;
mod tap;
mod tls;
mod world;

use std::time::Duration;

pub use client::{Client, Payload, Reply, Transport};
pub use raw::{Lookup, Raw, RawReply};
pub use tap::{FAULT, Mood, Step, Tap};
pub use tls::client_hello;
pub use world::{Settings, Tenant, World};

/// An email that is found, and the profile that it is found as.
pub const KNOWN: &str = "ada.marlowe@gmail.com";
pub const KNOWN_URL: &str = "https://www.linkedin.com/in/ada-marlowe";

/// A supported email that nobody has.
pub const UNKNOWN: &str = "nobody.here@gmail.com";

/// Long enough for the slowest machine: only a test that fails waits for it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The time that a port gets which is going to fail anyway.
pub const HURRY: Duration = Duration::from_millis(100);

/// Waits until `probe` holds. For what happens by itself and can't be awaited.
pub async fn eventually(what: &str, mut probe: impl FnMut() -> bool) {
    let poll = async {
        while !probe() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, poll).await.is_ok(), "not in {PATIENCE:?}: {what}");
}
