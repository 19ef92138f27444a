//! Limits on sign-in attempts, per account and per address (ASVS 5.0, 6.3.1). All nodes share the counts.

use std::net::IpAddr;

use enrich_host::client_network;
use enrich_lib::model::WorkspaceId;
use enrich_lib::refusal::PortError;
use enrich_lib::window::Quota;
use enrich_store::TokenDigest;

use crate::console::Console;
use crate::error::Error;

/// The length of a window, in seconds.
const WINDOW_SECONDS: u32 = 15 * 60;

/// Attempts per account and window.
const PER_ACCOUNT: u32 = 10;

/// Attempts per address and window. Several users may share an address.
const PER_ADDRESS: u32 = 100;

/// Counts an attempt with a password or a code for the account of `email` in `workspace`, whether or not it exists.
///
/// Errors: [`Error::TooManyAttempts`]; [`Error::Unlimited`] if the attempts cannot be counted.
pub(crate) async fn admit(
    console: &Console,
    workspace: &WorkspaceId,
    email: &str,
    address: Option<IpAddr>,
) -> Result<(), Error> {
    count(console, "account", &format!("{workspace} {email}"), PER_ACCOUNT).await?;
    match address {
        Some(address) => count(console, "address", &client_network(address).to_string(), PER_ADDRESS).await,
        None => Ok(()),
    }
}

async fn count(console: &Console, kind: &str, name: &str, limit: u32) -> Result<(), Error> {
    // Names of counters have the form of a workspace's name. They contain no email and no address.
    let counter = format!("console.{kind}.{}", TokenDigest::of(name.as_bytes()).id());
    let counter: WorkspaceId = counter.parse().map_err(|error| Error::Unlimited(PortError::new(error)))?;
    let quota = Quota::new(limit, WINDOW_SECONDS).map_err(|error| Error::Unlimited(PortError::new(error)))?;
    let now = console.now();
    let window = quota.window(&counter, now);
    let counted = console.config.windows.count(&window).await.map_err(Error::Unlimited)?;
    match window.admit(counted, now) {
        Ok(_) => Ok(()),
        Err(status) => Err(Error::TooManyAttempts { retry_after: status.reset_seconds }),
    }
}
