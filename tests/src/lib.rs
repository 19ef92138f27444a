//! Code shared by the test suites of this crate.
//!
//! * [`contract`]: the rules that every store of this repository must follow, besides those of
//!   `enrich-contract`. To test another store, add one file to `tests/suites/contract`.
//! * [`servers`]: real PostgreSQL and Redis servers for the stores that need one.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

pub mod contract;
pub mod servers;

/// Runs the examples of the library's guide, which need more crates than the library has.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../enrich-lib/src/guide/embed.md")]
    struct Embed;

    #[doc = include_str!("../../enrich-lib/src/guide/port.md")]
    struct Port;

    #[doc = include_str!("../../enrich-lib/src/guide/vendor.md")]
    struct Vendor;

    #[doc = include_str!("../../enrich-lib/src/guide/test.md")]
    struct Test;
}

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// The timeout for operations that are expected to succeed. Only a failing test waits this long.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Polls `check` until it returns `true`, for background work that cannot be awaited. Panics after 30 s.
pub async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let poll = async {
        while !check().await {
            sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(TIMEOUT, poll).await.is_ok(), "not in {TIMEOUT:?}: {what}");
}
