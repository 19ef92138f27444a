//! Vendor errors, and how the middleware handles each kind.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::refusal::PortError;
use thiserror::Error;

/// Why a vendor did not answer a lookup. It is passed inside a [`PortError`], directly or as a source of its error;
/// [`VendorError::of`] finds it.
///
/// It never contains text from the vendor, as that could include the email.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct VendorError {
    /// The kind of failure.
    pub kind: VendorErrorKind,
    /// How long to wait before the next request (RFC 9110, 10.2.3), if the vendor specified it.
    pub retry_after: Option<Duration>,
}

/// The kind of a vendor failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VendorErrorKind {
    /// The vendor rejected the API key (401 or 403).
    #[error("the vendor refuses our key")]
    KeyRefused,
    /// The credits at the vendor are used up (402).
    #[error("our credits at the vendor are used up")]
    OutOfCredits,
    /// Too many requests (429).
    #[error("the vendor asks us to slow down")]
    SlowDown,
    /// The connection failed, or the vendor returned a 5xx.
    #[error("the vendor is unavailable")]
    Unavailable,
    /// No answer in time. The vendor may still have processed and billed the request.
    #[error("the vendor did not answer in time")]
    TimedOut,
    /// The answer is malicious, too large or malformed.
    #[error("the vendor's answer makes no sense")]
    BadAnswer,
    /// The vendor rejected this request (400, 404 for a path, 422). Other lookups may succeed.
    #[error("the vendor does not take this request")]
    BadRequest,
    /// Not sent: the vendor's [`Breaker`](crate::Breaker) is open.
    #[error("the vendor is not asked for now, as it failed too often")]
    BreakerOpen,
    /// Not sent: the queue of the vendor's [`Limit`](crate::Limit) is full.
    #[error("the queue of lookups that wait for the vendor is full")]
    QueueFull,
    /// Not sent: the lookup did not get a permit of the vendor's [`Limit`](crate::Limit) in time.
    #[error("the lookup waited too long for its turn at the vendor")]
    QueueTimeout,
    /// Not sent: this process has no file descriptor left for a connection.
    #[error("this process has too many open files to connect to the vendor")]
    TooManyOpenFiles,
}

impl VendorError {
    /// Creates an error of this kind without a `Retry-After`.
    pub const fn new(kind: VendorErrorKind) -> Self {
        Self { kind, retry_after: None }
    }

    /// Returns the same error with the given `Retry-After`.
    pub const fn with_retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// Returns the vendor error in `error` or in its chain of sources, if there is one.
    pub fn of(error: &PortError) -> Option<&Self> {
        if let Some(SharedError(shared)) = error.downcast_ref() {
            return Self::of(shared);
        }
        let sources = std::iter::successors(error.source(), |error| (*error).source());
        error.downcast_ref().or_else(|| sources.filter_map(|source| source.downcast_ref()).next())
    }

    /// Returns whether the same request may be sent again: it had no effect, cost nothing and may succeed next time.
    ///
    /// A request that timed out is not safe to repeat: the vendor may have processed and billed it.
    pub const fn is_safe_to_repeat(&self) -> bool {
        matches!(
            self.kind,
            VendorErrorKind::SlowDown | VendorErrorKind::Unavailable | VendorErrorKind::TooManyOpenFiles
        )
    }

    /// Returns whether the request was not sent because of the vendor's breaker or limit.
    pub const fn is_skipped(&self) -> bool {
        matches!(
            self.kind,
            VendorErrorKind::BreakerOpen | VendorErrorKind::QueueFull | VendorErrorKind::QueueTimeout
        )
    }

    /// Returns whether the error is evidence of the vendor's health. A request that the vendor rejected is not, nor is a
    /// request that was never sent.
    pub const fn is_the_vendors(&self) -> bool {
        !self.is_skipped()
            && !matches!(self.kind, VendorErrorKind::BadRequest | VendorErrorKind::TooManyOpenFiles)
    }
}

impl From<VendorError> for PortError {
    fn from(error: VendorError) -> Self {
        Self::new(error)
    }
}

impl From<VendorErrorKind> for PortError {
    fn from(kind: VendorErrorKind) -> Self {
        VendorError::new(kind).into()
    }
}

/// An error that several callers share.
#[derive(Clone, Debug, Error)]
#[error(transparent)]
pub(crate) struct SharedError(pub(crate) Arc<PortError>);
