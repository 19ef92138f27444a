//! The vocabulary of faults: what can go wrong between us and a vendor, and what follows from it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::refusal::PortError;
use thiserror::Error;

/// Why a vendor did not answer a lookup. It travels inside a [`PortError`], as itself or as a source of what is there;
/// [`VendorFault::of`] finds it.
///
/// It has no text of the vendor's: that could hold the email.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct VendorFault {
    /// What happened.
    pub kind: FaultKind,
    /// How long the vendor asks us to wait before the next ask (RFC 9110, 10.2.3), if it says so.
    pub retry_after: Option<Duration>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FaultKind {
    /// The vendor refuses our key: its 401 or 403.
    #[error("the vendor refuses our key")]
    KeyRefused,
    /// Our credits at the vendor are used up: its 402.
    #[error("our credits at the vendor are used up")]
    OutOfCredits,
    /// We ask too often: its 429.
    #[error("the vendor asks us to slow down")]
    SlowDown,
    /// No connection, or the vendor's 5xx.
    #[error("the vendor is unavailable")]
    Unavailable,
    /// No answer in time. Whether the vendor did the work, and bills it, is not known.
    #[error("the vendor did not answer in time")]
    TimedOut,
    /// An answer that is hostile, too large or makes no sense.
    #[error("the vendor's answer makes no sense")]
    BadAnswer,
    /// The vendor can't take what we asked: its 400, 404 of a path, 422. Another lookup may be fine.
    #[error("the vendor does not take this request")]
    BadRequest,
    /// Not asked: its [`Breaker`](crate::Breaker) is open.
    #[error("the vendor is not asked for now, as it failed too often")]
    BreakerOpen,
    /// Not asked: the queue of its [`Limit`](crate::Limit) is full.
    #[error("the queue of lookups that wait for the vendor is full")]
    QueueFull,
    /// Not asked: the lookup got no permit of its [`Limit`](crate::Limit) in time.
    #[error("the lookup waited too long for its turn at the vendor")]
    QueueTimeout,
    /// Not asked: this process has no file descriptor left for a connection.
    #[error("this process has too many open files to connect to the vendor")]
    TooManyOpenFiles,
}

impl VendorFault {
    /// A fault of this kind, after which the vendor names no time to wait.
    pub const fn new(kind: FaultKind) -> Self {
        Self { kind, retry_after: None }
    }

    /// The same fault, with the time that the vendor asks us to wait.
    pub const fn with_retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// The vendor's fault in `error`, if there is one in it or in the chain of its sources.
    pub fn of(error: &PortError) -> Option<&Self> {
        if let Some(SharedFault(shared)) = error.downcast_ref() {
            return Self::of(shared);
        }
        let sources = std::iter::successors(error.source(), |error| (*error).source());
        error.downcast_ref().or_else(|| sources.filter_map(|source| source.downcast_ref()).next())
    }

    /// Whether the same ask may be made again at once or after a pause: it did nothing, cost nothing, and may succeed.
    ///
    /// A lookup that timed out is not: the vendor may have done and billed it.
    pub const fn is_safe_to_repeat(&self) -> bool {
        matches!(self.kind, FaultKind::SlowDown | FaultKind::Unavailable | FaultKind::TooManyOpenFiles)
    }

    /// Whether a guard of ours kept the lookup from the vendor: its breaker or its limit.
    pub const fn is_skipped(&self) -> bool {
        matches!(self.kind, FaultKind::BreakerOpen | FaultKind::QueueFull | FaultKind::QueueTimeout)
    }

    /// Whether it says something about the vendor's health. A request that the vendor can't take does not, nor does a
    /// request that was never sent.
    pub const fn is_the_vendors(&self) -> bool {
        !self.is_skipped() && !matches!(self.kind, FaultKind::BadRequest | FaultKind::TooManyOpenFiles)
    }
}

impl From<VendorFault> for PortError {
    fn from(fault: VendorFault) -> Self {
        Self::new(fault)
    }
}

impl From<FaultKind> for PortError {
    fn from(kind: FaultKind) -> Self {
        VendorFault::new(kind).into()
    }
}

/// One failure that several callers get.
#[derive(Clone, Debug, Error)]
#[error(transparent)]
pub(crate) struct SharedFault(pub(crate) Arc<PortError>);
