//! Limits on attempts with a password or a code (ASVS 5.0, 6.3.1), and on changes. All nodes share the
//! counts.
//!
//! A browser in which the user has signed in or set the password has a limit of its own, so that strangers who
//! guess a password do not lock out its user ("device cookies" of OWASP). Attempts of strangers are limited per
//! address, and then per account.

use std::net::{IpAddr, Ipv6Addr};

use enrich_host::client_network;
use enrich_lib::model::WorkspaceId;
use enrich_lib::refusal::PortError;
use enrich_lib::window::Quota;
use enrich_store::TokenDigest;
use enrich_store::users::{Session, User};
use enrich_store::workspace::RESERVED;

use crate::console::Console;
use crate::error::Error;

/// The length of a window of attempts, in seconds.
const WINDOW_SECONDS: u32 = 15 * 60;

/// Attempts of strangers per account and window, and attempts of a known browser.
const PER_ACCOUNT: u32 = 10;

/// Attempts of strangers per network and window. Several users may share an address.
const PER_NETWORK: u32 = 100;

/// The length of a window of changes, in seconds.
const CHANGE_SECONDS: u32 = 60;

/// Changes per user and window. A session can end accesses as often.
const CHANGES_PER_USER: u32 = 60;

/// Changes per workspace, role and window.
const CHANGES_PER_ROLE: u32 = 120;

/// Ends of accesses per workspace, role and window.
const ENDS_PER_ROLE: u32 = 600;

/// The number of counters of accounts, and of networks. Names whose hashes agree share a counter, so that an
/// attacker who invents many names does not fill the memory. To use up all counters of accounts, and so to keep
/// out all unknown browsers for a window, an attacker needs 1,639 networks.
const COUNTERS_MAX: u16 = 1 << 14;

/// An attempt that was counted. Passwords and codes are verified only for an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Attempt(());

#[cfg(test)]
impl Attempt {
    pub(crate) const fn uncounted() -> Self {
        Self(())
    }
}

/// Counts an attempt of a stranger for the account of `email` in `workspace`, whether or not it exists. An
/// attempt over the limit of the network is not counted for the account.
///
/// Errors: [`Error::TooManyAttempts`]; [`Error::Unlimited`] if the attempts cannot be counted.
pub(crate) async fn admit_stranger(
    console: &Console,
    workspace: &WorkspaceId,
    email: &str,
    address: Option<IpAddr>,
) -> Result<Attempt, Error> {
    if let Some(address) = address {
        let counter = shared_counter("network", &network(address).to_string());
        count_attempt(console, &counter, PER_NETWORK).await.map_err(not_of_account)?;
    }
    let account = format!("{} {email}", workspace.as_str().to_ascii_lowercase());
    count_attempt(console, &shared_counter("account", &account), PER_ACCOUNT).await
}

/// Returns the address of IPv4, or the network of IPv6 (/48). A larger prefix would let one network use up the
/// counters of all accounts.
fn network(address: IpAddr) -> IpAddr {
    match client_network(address) {
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

/// Counts an attempt to set a password with a one-time link.
///
/// Errors: as [`admit_stranger`].
pub(crate) async fn admit_link(console: &Console, link: &TokenDigest) -> Result<Attempt, Error> {
    count_attempt(console, &own_counter("link", &link.id()), PER_ACCOUNT).await.map_err(not_of_account)
}

/// Marks an attempt that was refused for another reason than the number of attempts for an account.
fn not_of_account(error: Error) -> Error {
    match error {
        Error::TooManyAttempts { retry_after, .. } => Error::TooManyAttempts { retry_after, is_first: false },
        error => error,
    }
}

/// Counts an attempt of a known browser, which `device` identifies. It gets another number only after an attempt
/// as a stranger, with a link, or to change the password. These attempts are limited, too.
///
/// Errors: as [`admit_stranger`].
pub(crate) async fn admit_device(console: &Console, device: &str) -> Result<Attempt, Error> {
    count_attempt(console, &own_counter("device", device), PER_ACCOUNT).await
}

/// Counts an attempt of a signed-in user. All sessions of the user share the limit, because a new session
/// must not be a way around it.
///
/// Errors: as [`admit_stranger`].
pub(crate) async fn admit_user(console: &Console, user: &User) -> Result<Attempt, Error> {
    count_attempt(console, &own_counter("signed-in", &user.id.0.to_string()), PER_ACCOUNT).await
}

/// Counts a change by `user`. Changes of one workspace would otherwise delay the lookups of others. Members
/// must not use up the changes of the admins, who can remove them.
///
/// Errors: [`Error::TooManyChanges`]; [`Error::Unlimited`] if the changes cannot be counted.
pub(crate) async fn admit_change(console: &Console, user: &User) -> Result<(), Error> {
    for (kind, name, limit) in [
        ("user", user.id.0.to_string(), CHANGES_PER_USER),
        (user.role.as_str(), user.workspace.to_string(), CHANGES_PER_ROLE),
    ] {
        count_change(console, &own_counter(kind, &name), limit).await?;
    }
    Ok(())
}

/// Counts a change by which `session` of `user` ends a session, or disables or revokes a key.
///
/// Errors: as [`admit_change`].
pub(crate) async fn admit_end(console: &Console, user: &User, session: &Session) -> Result<(), Error> {
    count_change(console, &own_counter("session", &session.digest.id()), CHANGES_PER_USER).await?;
    let role = format!("ending-{}", user.role.as_str());
    count_change(console, &own_counter(&role, &user.workspace.to_string()), ENDS_PER_ROLE).await
}

async fn count_change(console: &Console, counter: &str, limit: u32) -> Result<(), Error> {
    count(console, counter, limit, CHANGE_SECONDS).await.map_err(|error| match error {
        Error::TooManyAttempts { retry_after, .. } => Error::TooManyChanges { retry_after },
        error => error,
    })
}

/// Returns the counter of a name that clients can invent.
fn shared_counter(kind: &str, name: &str) -> String {
    let [first, second, ..] = *TokenDigest::from_token(name.as_bytes()).as_bytes();
    format!("{RESERVED}{kind}.{:04x}", u16::from_be_bytes([first, second]) % COUNTERS_MAX)
}

/// Returns the counter of a name that the server has created, which no other name shares.
fn own_counter(kind: &str, name: &str) -> String {
    format!("{RESERVED}{kind}.{}", TokenDigest::from_token(name.as_bytes()).id())
}

async fn count_attempt(console: &Console, counter: &str, limit: u32) -> Result<Attempt, Error> {
    count(console, counter, limit, WINDOW_SECONDS).await?;
    Ok(Attempt(()))
}

/// Counts in a window with this name, which no workspace can have, and which contains no email and no address.
async fn count(console: &Console, name: &str, limit: u32, seconds: u32) -> Result<(), Error> {
    let name: WorkspaceId = name.parse().map_err(|error| Error::Unlimited(PortError::new(error)))?;
    let quota = Quota::new(limit, seconds).map_err(|error| Error::Unlimited(PortError::new(error)))?;
    let now = console.now();
    let window = quota.window(&name, now);
    let counted = console.config.windows.count(&window).await.map_err(Error::Unlimited)?;
    match window.admit(counted, now) {
        Ok(_) => Ok(()),
        Err(status) => {
            let is_first = counted == u64::from(limit) + 1;
            Err(Error::TooManyAttempts { retry_after: status.reset_seconds, is_first })
        }
    }
}
