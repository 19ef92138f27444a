//! The data of the response.

use std::time::Duration;

use crate::key::KeyId;
use crate::model::{LookupId, ProfileUrl, WorkspaceId};
use crate::refusal::{PortError, Refusal};
use crate::resolver::SourceName;
use crate::window::RateLimitStatus;

/// The result of a completed lookup (specification 3). Exhaustive: the interface has these two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `found`: "A professional profile match was found."
    Found(ProfileUrl),
    /// `not_found`: "The lookup completed and no match could be returned."
    NotFound,
}

/// The data of the response and of the log line.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reply {
    /// The lookup's id, which the log and the header `Request-Id` contain.
    pub lookup_id: LookupId,
    /// The workspace, if the key was valid.
    pub workspace: Option<WorkspaceId>,
    /// Whether the key was a test key.
    pub is_test: bool,
    /// The id of the key, if the key was valid.
    pub key: Option<KeyId>,
    /// The rate-limit headers, if the request was counted.
    pub rate_limit: Option<RateLimitStatus>,
    /// The result, or the reason for the refusal.
    pub result: Result<Outcome, Refusal>,
    /// How long the server has to wait before it sends the response. Not 0 only for a [`TestReply`](super::TestReply).
    pub delay: Duration,
    /// The number of credits spent.
    pub credits_spent: u64,
    /// The lookup that paid for this result, if an earlier one with the same receipt did. It is the
    /// `lookup_id` of the result.
    pub paid_by: Option<LookupId>,
    /// The credits that are available afterwards, for the header `Credits-Available`.
    pub credits_available: Option<u64>,
    /// The source that found the profile. For the log.
    pub source: Option<SourceName>,
    /// Whether the resolver's answer came from a cache. For the log.
    pub is_cached: bool,
    /// The port failure that caused the refusal, or the failure of a release. For the log.
    pub error: Option<PortError>,
}

impl Reply {
    /// Creates a refusal of a request without a known workspace.
    pub fn unauthenticated(lookup_id: LookupId, refusal: Refusal) -> Self {
        let result = Err(refusal);
        Self {
            lookup_id,
            workspace: None,
            is_test: false,
            key: None,
            rate_limit: None,
            result,
            delay: Duration::ZERO,
            credits_spent: 0,
            paid_by: None,
            credits_available: None,
            source: None,
            is_cached: false,
            error: None,
        }
    }

    /// Returns the HTTP status (specification 4).
    pub const fn status(&self) -> u16 {
        match &self.result {
            Ok(Outcome::Found(_)) => 200,
            Ok(Outcome::NotFound) => 404,
            Err(refusal) => refusal.status(),
        }
    }

    /// Returns the `status` of a result or the `error` of a refusal, for the log.
    pub const fn outcome(&self) -> &'static str {
        match &self.result {
            Ok(Outcome::Found(_)) => "found",
            Ok(Outcome::NotFound) => "not_found",
            Err(refusal) => refusal.code(),
        }
    }

    pub(super) fn refused(
        lookup_id: LookupId,
        workspace: WorkspaceId,
        key: KeyId,
        rate_limit: Option<RateLimitStatus>,
        refusal: Refusal,
    ) -> Self {
        Self {
            workspace: Some(workspace),
            key: Some(key),
            rate_limit,
            ..Self::unauthenticated(lookup_id, refusal)
        }
    }
}
