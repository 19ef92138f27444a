//! The burst limit (specification 8): fixed windows, as pure arithmetic.
//!
//! The number and the bounds of a window depend only on the workspace, the quota and the time. All nodes with
//! the correct time compute the same window, so that a store only has to increment a named counter.

use std::num::NonZeroU32;
use std::time::Duration;

use thiserror::Error;

use crate::model::{Timestamp, WorkspaceId};

/// The maximum number of requests in a window, and the length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    limit: NonZeroU32,
    window_seconds: NonZeroU32,
}

/// The reason why two numbers are not a valid [`Quota`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// The limit is 0, which would refuse every request.
    #[error("a burst limit is at least 1 request")]
    Limit,
    /// The window is 0 s or longer than a day.
    #[error("a burst window lasts from 1 to 86,400 seconds")]
    Window,
}

impl Quota {
    /// The maximum length of a window, in seconds: one day.
    pub const WINDOW_SECONDS_MAX: u32 = 86_400;

    /// Creates a quota of `limit` requests per `window_seconds`. Fails if the limit is 0, or if the window is
    /// 0 s or longer than [`Quota::WINDOW_SECONDS_MAX`].
    pub fn new(limit: u32, window_seconds: u32) -> Result<Self, QuotaError> {
        let limit = NonZeroU32::new(limit).ok_or(QuotaError::Limit)?;
        let window_seconds = NonZeroU32::new(window_seconds)
            .filter(|seconds| seconds.get() <= Self::WINDOW_SECONDS_MAX)
            .ok_or(QuotaError::Window)?;
        Ok(Self { limit, window_seconds })
    }

    /// Returns the maximum number of requests in a window.
    pub const fn limit(&self) -> u32 {
        self.limit.get()
    }

    /// Returns the length of a window in seconds.
    pub const fn window_seconds(&self) -> u32 {
        self.window_seconds.get()
    }

    /// Returns the window of a request that `workspace` makes at `now`.
    ///
    /// Windows are shifted by a hash of the workspace, so that workspaces do not all reset in the same
    /// second. The hash is CRC-32, because every node and every version must compute the same bounds.
    pub fn window(&self, workspace: &WorkspaceId, now: Timestamp) -> Window {
        let length_ms = u64::from(self.window_seconds.get()) * 1_000;
        let shift_ms = u64::from(crc32fast::hash(workspace.as_str().as_bytes())) % length_ms;
        let number = now.unix_ms().saturating_add(shift_ms) / length_ms;
        let closes_at =
            Timestamp::from_unix_ms((number.saturating_add(1)).saturating_mul(length_ms) - shift_ms);
        Window { workspace: workspace.clone(), number, closes_at, quota: *self }
    }
}

impl Default for Quota {
    /// 500 requests per 60 s, the order of magnitude that comparable APIs use.
    fn default() -> Self {
        const LIMIT: NonZeroU32 = NonZeroU32::new(500).unwrap();
        const WINDOW_SECONDS: NonZeroU32 = NonZeroU32::new(60).unwrap();
        Self { limit: LIMIT, window_seconds: WINDOW_SECONDS }
    }
}

/// The workspace behind an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workspace {
    /// Its name.
    pub id: WorkspaceId,
    /// Its burst limit.
    pub quota: Quota,
    /// Whether the key is a test key. The address of a lookup determines its
    /// [reply](crate::lookup::TEST_REPLIES) then, no port but the keys and the windows is called, and nothing is
    /// spent.
    pub is_test: bool,
}

impl Workspace {
    /// Creates a workspace with this name and burst limit, and a live key.
    pub fn new(id: WorkspaceId, quota: Quota) -> Self {
        Self { id, quota, is_test: false }
    }

    /// Sets whether the key is a test key.
    #[must_use]
    pub fn with_test(self, is_test: bool) -> Self {
        Self { is_test, ..self }
    }

    /// Returns the window of a request with this key at `now`. Live keys and test keys have separate windows.
    pub fn window(&self, now: Timestamp) -> Window {
        let window = self.quota.window(&self.id, now);
        if self.is_test { window.of_test_keys() } else { window }
    }
}

/// One window of one workspace, which identifies a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    workspace: WorkspaceId,
    number: u64,
    closes_at: Timestamp,
    quota: Quota,
}

impl Window {
    /// The maximum delay of a count. A node's clock may be 5 s slow, and finding the key may take 5 s between
    /// the reading of the clock and the count.
    pub const LATE_MAX: Duration = Duration::from_secs(10);

    /// Added to the numbers of windows of test keys. No window of live keys has such a number.
    const TEST: u64 = 1 << 62;

    fn of_test_keys(self) -> Self {
        Self { number: self.number | Self::TEST, ..self }
    }

    /// Returns whether requests with test keys are counted in it.
    pub const fn is_test(&self) -> bool {
        self.number >= Self::TEST
    }

    /// Returns the workspace.
    pub const fn workspace(&self) -> &WorkspaceId {
        &self.workspace
    }

    /// Returns the workspace of a window that is no longer used.
    pub(crate) fn into_workspace(self) -> WorkspaceId {
        self.workspace
    }

    /// Returns the window's number. The workspace, the number and the end identify the counter.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the length of the window, in seconds.
    pub(crate) const fn seconds(&self) -> u32 {
        self.quota.window_seconds()
    }

    /// Returns the start of the window, at the earliest the Unix epoch.
    pub fn opens_at(&self) -> Timestamp {
        self.closes_at - Duration::from_secs(self.quota.window_seconds().into())
    }

    /// Returns the end of the window.
    pub const fn closes_at(&self) -> Timestamp {
        self.closes_at
    }

    /// Returns the time from which a store may drop the counter. If a store dropped it earlier, the counter
    /// would restart for a late request and admit the full limit again.
    pub fn expires_at(&self) -> Timestamp {
        self.closes_at + Self::LATE_MAX
    }

    /// Returns the number of windows of this length in which requests may be counted at one time: the current
    /// window, and those of late requests.
    pub(crate) fn countable_max(&self) -> usize {
        let length = u64::from(self.quota.window_seconds());
        usize::try_from(Self::LATE_MAX.as_secs().div_ceil(length)).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// Returns the rate-limit state after the `count`-th request of this window, counted from 1. It is an
    /// `Err` if the count exceeds the limit.
    pub fn admit(&self, count: u64, now: Timestamp) -> Result<RateLimitStatus, RateLimitStatus> {
        let limit = u64::from(self.quota.limit());
        let left_ms = self.closes_at.unix_ms().saturating_sub(now.unix_ms());
        let status = RateLimitStatus {
            limit: self.quota.limit(),
            remaining: u32::try_from(limit.saturating_sub(count)).unwrap_or(u32::MAX),
            // Rounded up and at least 1, so that clients do not retry too early.
            reset_seconds: left_ms.div_ceil(1_000).max(1),
        };
        if count <= limit { Ok(status) } else { Err(status) }
    }
}

/// The rate-limit state of a workspace: the headers of specification 8.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimitStatus {
    /// `RateLimit-Limit`: the maximum number of requests in the current window.
    pub limit: u32,
    /// `RateLimit-Remaining`: requests left in the current window.
    pub remaining: u32,
    /// `RateLimit-Reset`, and `Retry-After` on a 429: seconds until the current window ends, rounded up, at
    /// least 1.
    pub reset_seconds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_zero_limit_and_invalid_window() {
        assert_eq!(Quota::new(0, 60), Err(QuotaError::Limit));
        assert_eq!(Quota::new(1, 0), Err(QuotaError::Window));
        assert_eq!(Quota::new(1, 86_401), Err(QuotaError::Window));
        assert_eq!(Quota::new(500, 60), Ok(Quota::default()));
    }

    /// Nodes of different versions share counters, so that these numbers must never change.
    #[test]
    fn window_bounds_are_stable_across_versions() {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let window = Quota::default().window(&"demo".parse().unwrap(), now);
        assert_eq!(window.number(), 28_333_334);
        assert_eq!(window.closes_at(), Timestamp::from_unix_ms(1_700_000_053_152));
        assert_eq!(window.expires_at(), Timestamp::from_unix_ms(1_700_000_063_152));
    }
}
