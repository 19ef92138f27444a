//! Log lines about refused requests (ASVS 5.0, 16.3.2 and 16.3.3). They contain no email.

use std::net::IpAddr;
use std::sync::Arc;

use enrich_host::Sampler;
use tracing::field::display;

/// A kind of refused request that is logged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// A member requested what is for admins.
    AdminsOnly,
    /// The path names a workspace that the user does not belong to.
    OtherWorkspace,
    /// A page of another site sent a form.
    OtherSite,
    TooManyAttempts,
    TooManyChanges,
    /// An attempt to sign in as a user who does not exist.
    UnknownAccount,
}

impl Refusal {
    const COUNT: usize = 6;

    const fn as_str(self) -> &'static str {
        match self {
            Self::AdminsOnly => "admins_only",
            Self::OtherWorkspace => "other_workspace",
            Self::OtherSite => "other_site",
            Self::TooManyAttempts => "too_many_attempts",
            Self::TooManyChanges => "too_many_changes",
            Self::UnknownAccount => "unknown_account",
        }
    }
}

/// Logs the first refusal of each kind in an interval, and the number of the others.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog([Arc<Sampler>; Refusal::COUNT]);

impl RefusalLog {
    pub(crate) fn record(&self, refusal: Refusal, client: Option<IpAddr>) {
        let (reason, client) = (refusal.as_str(), client.map(display));
        let further = move |count| {
            tracing::info!(
                target: "enrich::console", reason, count,
                "further refused requests; each one is logged at debug level",
            );
        };
        if self.0[refusal as usize].admits(further) {
            tracing::info!(target: "enrich::console", reason, client, "refused a request");
        } else {
            tracing::debug!(target: "enrich::console", reason, client, "refused a request");
        }
    }
}
