//! Types that resolvers and their middleware share: answers, errors of vendors, and the list of people who
//! opted out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

use crate::email::Email;
use crate::model::ProfileUrl;
use crate::refusal::PortError;

/// The answer of a resolver. The default is no match.
///
/// ```
/// use enrich_lib::model::ProfileUrl;
/// use enrich_lib::resolver::Answer;
///
/// let answer = Answer::from(ProfileUrl::from_name("ada-marlowe")?).from_source("crm");
/// assert_eq!(answer.source.as_ref().map(|source| source.as_str()), Some("crm"));
/// # Ok::<_, enrich_lib::model::ProfileUrlError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The profile, or `None` if there is no trusted match.
    pub profile: Option<ProfileUrl>,
    /// The source that found the profile, for the log. `None` if there is no match, or if the resolver has no
    /// name.
    pub source: Option<SourceName>,
    /// Whether the answer comes from a cache, for the log.
    pub is_cached: bool,
}

impl Answer {
    /// Names the source of a match. An answer without a match is unchanged.
    #[must_use]
    pub fn from_source(self, source: impl Into<SourceName>) -> Self {
        let source = self.profile.is_some().then(|| source.into());
        Self { source, ..self }
    }
}

impl From<Option<ProfileUrl>> for Answer {
    fn from(profile: Option<ProfileUrl>) -> Self {
        Self { profile, source: None, is_cached: false }
    }
}

impl From<ProfileUrl> for Answer {
    fn from(profile: ProfileUrl) -> Self {
        Some(profile).into()
    }
}

/// The name of a source of profiles, such as a vendor. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceName(Name);

#[derive(Clone, PartialEq, Eq)]
enum Name {
    /// Costs no reference count.
    Static(&'static str),
    Shared(Arc<str>),
}

impl SourceName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Static(name) => name,
            Name::Shared(name) => name,
        }
    }
}

impl From<&'static str> for SourceName {
    fn from(name: &'static str) -> Self {
        Self(Name::Static(name))
    }
}

impl From<Arc<str>> for SourceName {
    fn from(name: Arc<str>) -> Self {
        Self(Name::Shared(name))
    }
}

impl fmt::Debug for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A list of people who opted out.
#[async_trait]
pub trait OptOuts: Send + Sync {
    /// Returns whether the person with this `email`, in any of its equivalent forms, opted out.
    async fn contains(&self, email: &Email) -> Result<bool, PortError>;
}

/// The reason why a vendor did not answer a lookup. It is passed inside a [`PortError`], directly or as a
/// source of its error; [`VendorError::find_in`] finds it.
///
/// It never contains text from the vendor, as that could include the email.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
#[non_exhaustive]
pub struct VendorError {
    /// The kind of failure.
    pub kind: VendorErrorKind,
    /// How long to wait before the next request (RFC 9110, 10.2.3), if the vendor specified it.
    pub retry_after: Option<Duration>,
}

/// The kind of a vendor failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VendorErrorKind {
    /// The vendor rejected the API key (401 or 403).
    #[error("the vendor rejected the API key")]
    KeyRejected,
    /// The credits at the vendor are used up (402).
    #[error("the vendor account has no credits left")]
    OutOfCredits,
    /// Too many requests (429).
    #[error("the vendor's rate limit is exceeded")]
    RateLimited,
    /// The connection failed, or the vendor returned a 5xx other than 504 and 524.
    #[error("the vendor is unavailable")]
    Unavailable,
    /// No response in time, or 504 or 524. The vendor may still have processed and billed the request.
    #[error("the vendor did not respond in time")]
    TimedOut,
    /// The response is malicious or malformed.
    #[error("the vendor's response is invalid")]
    InvalidResponse,
    /// The body is larger than 256 KiB. Or it is well-formed, and a value in it about this person cannot be used
    /// or reports a failure.
    /// Other lookups may succeed.
    #[error("the vendor's answer about this person is unusable")]
    UnusableAnswer,
    /// The vendor rejected this request (400, 404 for a path, 422). Other lookups may succeed.
    #[error("the vendor rejected the request")]
    RequestRejected,
    /// Not sent: the vendor's circuit breaker is open.
    #[error("the vendor's circuit breaker is open")]
    CircuitOpen,
    /// Not sent: the queue for the vendor is full.
    #[error("the queue for the vendor is full")]
    QueueFull,
    /// Not sent: the lookup waited too long in the queue for the vendor.
    #[error("the lookup timed out in the queue for the vendor")]
    QueueTimeout,
    /// Not sent: this process has no file descriptor left for a connection.
    #[error("too many open files to connect to the vendor; raise the limit with `ulimit -n`")]
    TooManyOpenFiles,
}

impl VendorError {
    /// Creates an error of this kind without a `Retry-After`.
    pub const fn new(kind: VendorErrorKind) -> Self {
        Self { kind, retry_after: None }
    }

    /// Returns the same error with the given `Retry-After`.
    #[must_use]
    pub const fn with_retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// Returns the vendor error in `error` or in its chain of sources, if there is one.
    pub fn find_in(error: &PortError) -> Option<&Self> {
        error.chain().find_map(|error| error.downcast_ref())
    }

    /// Returns whether the same request may be sent again: it had no effect, cost nothing and may succeed
    /// next time.
    ///
    /// A request that timed out is not retryable: the vendor may have processed and billed it.
    pub const fn is_retryable(&self) -> bool {
        use VendorErrorKind::*;
        matches!(self.kind, RateLimited | Unavailable | TooManyOpenFiles)
    }

    /// Returns whether the request was not sent because of the vendor's circuit breaker or concurrency limit.
    pub const fn is_skipped(&self) -> bool {
        use VendorErrorKind::*;
        matches!(self.kind, CircuitOpen | QueueFull | QueueTimeout)
    }

    /// Returns whether a circuit breaker counts the error as a failure of the vendor. It does not count a
    /// request that the vendor rejected, an answer that is unusable only for one person, which a client could
    /// repeat, nor a request that was never sent.
    pub const fn is_vendor_failure(&self) -> bool {
        use VendorErrorKind::*;
        !self.is_skipped() && !matches!(self.kind, UnusableAnswer | RequestRejected | TooManyOpenFiles)
    }
}

impl From<VendorErrorKind> for VendorError {
    fn from(kind: VendorErrorKind) -> Self {
        Self::new(kind)
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

#[cfg(test)]
mod tests {
    use super::VendorErrorKind::*;
    use super::*;

    /// An adapter's own error type with the error as its source.
    #[derive(Debug, Error)]
    #[error("acme: page 3")]
    struct Detailed(#[source] VendorError);

    /// An adapter's own error type around the port that it wraps.
    #[derive(Debug, Error)]
    #[error("the inner port failed")]
    struct Outer(#[source] PortError);

    #[test]
    fn finds_vendor_error_in_source_chain() {
        let error = VendorError::new(RateLimited).with_retry_after(Duration::from_secs(7));
        assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
        for inner in [PortError::from(error), PortError::new(Detailed(error))] {
            let converted_twice = PortError::new(PortError::new(inner.clone()));
            for error_in in [&inner, &converted_twice, &PortError::new(Outer(converted_twice.clone()))] {
                assert_eq!(VendorError::find_in(error_in), Some(&error), "{error_in:?}");
            }
        }
        assert_eq!(VendorError::find_in(&PortError::new("another error")), None);
    }

    #[test]
    fn only_unbilled_transient_errors_are_retryable() {
        let is_retryable = |kind| VendorError::new(kind).is_retryable();
        assert!([RateLimited, Unavailable, TooManyOpenFiles].into_iter().all(is_retryable));
        let never = [
            KeyRejected,
            OutOfCredits,
            TimedOut,
            InvalidResponse,
            UnusableAnswer,
            RequestRejected,
            CircuitOpen,
            QueueFull,
            QueueTimeout,
        ];
        assert!(!never.into_iter().any(is_retryable));
    }

    #[test]
    fn errors_of_one_request_and_unsent_requests_are_no_vendor_failures() {
        let is_failure = |kind| VendorError::new(kind).is_vendor_failure();
        let failures = [KeyRejected, OutOfCredits, RateLimited, Unavailable, TimedOut, InvalidResponse];
        assert!(failures.into_iter().all(is_failure));
        let others =
            [UnusableAnswer, RequestRejected, CircuitOpen, QueueFull, QueueTimeout, TooManyOpenFiles];
        assert!(!others.into_iter().any(is_failure));
    }
}
