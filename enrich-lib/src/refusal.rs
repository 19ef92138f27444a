//! The nine error codes of specification 7, in its order, the port failures that cause three of them, and the
//! requests that are not lookups.

use std::error::Error;
use std::fmt;
use std::iter::successors;
use std::sync::Arc;

use thiserror::Error;

use crate::body::BodyError;
use crate::credit::Shortage;
use crate::email::{EmailError, Unsupported};

/// The reason why a request has no lookup result. `Display` gives the reason for operators; a client receives
/// only the code. Exhaustive: the codes are those of the interface, and a further one must break a gateway
/// that maps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// 400: "The request body is invalid, including any field other than `email`."
    #[error("{0}")]
    InvalidRequest(BodyError),
    /// 400: "The email input is invalid."
    #[error("{0}")]
    InvalidEmail(EmailError),
    /// 400: "The email input is not supported for enrichment."
    #[error("{0}")]
    UnsupportedEmail(Unsupported),
    /// 401: "The bearer API key is missing, invalid or revoked."
    #[error("the API key is missing, invalid or revoked")]
    Unauthorized,
    /// 402: "The workspace cannot accept another lookup at this time."
    #[error("{0}")]
    InsufficientCredits(Shortage),
    /// 429: "The workspace exceeded the public API burst limit."
    #[error("the workspace is over its burst limit")]
    RateLimited,
    /// 500: "Temporary service failure."
    #[error("a part of the service failed")]
    ServerError,
    /// 502: "The service could not complete resolver work for this request."
    #[error("the resolver failed")]
    LookupError,
    /// 503: "The service could not verify the rate-limit state, so the request was not executed."
    #[error("the burst limit could not be verified")]
    RateLimitUnavailable,
}

impl Refusal {
    /// All refusals, with their codes in the order of the specification.
    pub const ALL: &'static [Self] = &[
        Self::InvalidRequest(BodyError::MissingContentType),
        Self::InvalidRequest(BodyError::ContentType),
        Self::InvalidRequest(BodyError::TooLarge),
        Self::InvalidRequest(BodyError::CutOff),
        Self::InvalidRequest(BodyError::TooSlow),
        Self::InvalidRequest(BodyError::Json),
        Self::InvalidRequest(BodyError::DuplicateField),
        Self::InvalidRequest(BodyError::UnknownField),
        Self::InvalidRequest(BodyError::IdempotencyKey),
        Self::InvalidEmail(EmailError::Missing),
        Self::InvalidEmail(EmailError::TooLong),
        Self::InvalidEmail(EmailError::NoAt),
        Self::InvalidEmail(EmailError::LocalPart),
        Self::InvalidEmail(EmailError::Domain),
        Self::UnsupportedEmail(Unsupported::Internationalised),
        Self::UnsupportedEmail(Unsupported::QuotedLocalPart),
        Self::UnsupportedEmail(Unsupported::AddressLiteral),
        Self::UnsupportedEmail(Unsupported::NotPublic),
        Self::UnsupportedEmail(Unsupported::Disposable),
        Self::UnsupportedEmail(Unsupported::Relay),
        Self::UnsupportedEmail(Unsupported::Role),
        Self::UnsupportedEmail(Unsupported::NotAllowed),
        Self::Unauthorized,
        Self::InsufficientCredits(Shortage::Exhausted),
        Self::InsufficientCredits(Shortage::Held),
        Self::RateLimited,
        Self::ServerError,
        Self::LookupError,
        Self::RateLimitUnavailable,
    ];

    /// Returns the code of the error body (specification 2.4).
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidRequest(_) => "invalid_request",
            Self::InvalidEmail(_) => "invalid_email",
            Self::UnsupportedEmail(_) => "unsupported_email",
            Self::Unauthorized => "unauthorized",
            Self::InsufficientCredits(_) => "insufficient_credits",
            Self::RateLimited => "rate_limited",
            Self::ServerError => "server_error",
            Self::LookupError => "lookup_error",
            Self::RateLimitUnavailable => "rate_limit_unavailable",
        }
    }

    /// Returns the HTTP status (specification 7).
    pub const fn status(&self) -> u16 {
        match self {
            Self::InvalidRequest(_) | Self::InvalidEmail(_) | Self::UnsupportedEmail(_) => 400,
            Self::Unauthorized => 401,
            Self::InsufficientCredits(_) => 402,
            Self::RateLimited => 429,
            Self::ServerError => 500,
            Self::LookupError => 502,
            Self::RateLimitUnavailable => 503,
        }
    }

    /// Returns the reason of a 400, 402 or 502, for the header `Error-Reason` and the log.
    ///
    /// It depends only on what the client sent, the operator's rules for emails, and the workspace's own
    /// credits.
    pub const fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::InvalidRequest(BodyError::MissingContentType) => "missing-content-type",
            Self::InvalidRequest(BodyError::ContentType) => "wrong-content-type",
            Self::InvalidRequest(BodyError::TooLarge) => "body-too-large",
            Self::InvalidRequest(BodyError::CutOff) => "body-cut-off",
            Self::InvalidRequest(BodyError::TooSlow) => "body-too-slow",
            Self::InvalidRequest(BodyError::Json) => "malformed-json",
            Self::InvalidRequest(BodyError::DuplicateField) => "duplicate-field",
            Self::InvalidRequest(BodyError::UnknownField) => "unknown-field",
            Self::InvalidRequest(BodyError::IdempotencyKey) => "idempotency-key",
            Self::InvalidEmail(EmailError::Missing) => "email-missing",
            Self::InvalidEmail(EmailError::TooLong) => "email-too-long",
            Self::InvalidEmail(EmailError::NoAt | EmailError::LocalPart | EmailError::Domain) => {
                "email-syntax"
            }
            Self::UnsupportedEmail(Unsupported::Internationalised) => "internationalised",
            Self::UnsupportedEmail(Unsupported::QuotedLocalPart) => "quoted-local-part",
            Self::UnsupportedEmail(Unsupported::AddressLiteral) => "address-literal",
            Self::UnsupportedEmail(Unsupported::NotPublic) => "domain-not-public",
            Self::UnsupportedEmail(Unsupported::Disposable) => "disposable-domain",
            Self::UnsupportedEmail(Unsupported::Relay) => "private-relay",
            Self::UnsupportedEmail(Unsupported::Role) => "role-account",
            Self::UnsupportedEmail(Unsupported::NotAllowed) => "provider-not-allowed",
            Self::InsufficientCredits(Shortage::Exhausted) => "credits-exhausted",
            Self::InsufficientCredits(Shortage::Held) => "credits-held",
            Self::LookupError => "sources-failed",
            Self::Unauthorized | Self::RateLimited | Self::ServerError | Self::RateLimitUnavailable => {
                return None;
            }
        })
    }
}

/// The reason why a request does not become a lookup. No key, limit or credit is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Rejection {
    /// 400: the request is malformed HTTP.
    #[error("the HTTP request is malformed")]
    Malformed,
    /// 404: the path is not that of the only operation.
    #[error("the path is unknown")]
    UnknownPath,
    /// 405: the method is not that of the only operation.
    #[error("the method is not POST")]
    WrongMethod,
}

impl Rejection {
    /// Returns the HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::UnknownPath => 404,
            Self::WrongMethod => 405,
        }
    }
}

/// The failure of a port. It is for the log; responses never contain it. Cheap to clone.
///
/// `{}` formats the error, and `{:#}` formats it with all its sources, separated by `: `.
#[derive(Clone, Debug)]
pub struct PortError(Arc<dyn Error + Send + Sync>);

impl PortError {
    /// Creates a failure from a source error or a message.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(source.into().into())
    }

    /// Returns the source if it is a `T`, so that an adapter can distinguish the failures of another adapter.
    pub fn downcast_ref<T: Error + 'static>(&self) -> Option<&T> {
        Self::inner(&*self.0).downcast_ref()
    }

    /// Iterates over the error and its sources.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        successors(Some(Self::inner(&*self.0)), |&error| error.source().map(Self::inner))
    }

    /// Returns the error in `error`, which an adapter may have converted to a `PortError` several times.
    fn inner<'e>(mut error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
        while let Some(Self(inner)) = error.downcast_ref() {
            error = &**inner;
        }
        error
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        if f.alternate() {
            self.chain().skip(1).try_for_each(|source| write!(f, ": {source}"))?;
        }
        Ok(())
    }
}

impl Error for PortError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_error_downcasts_to_its_source() {
        let error = PortError::new(BodyError::TooLarge);
        assert_eq!(error.downcast_ref(), Some(&BodyError::TooLarge));
        assert_eq!(error.downcast_ref::<EmailError>(), None);
        assert!(PortError::new("a sentence").downcast_ref::<BodyError>().is_none());
    }
    #[test]
    fn port_error_formats_its_sources_in_alternate_form() {
        #[derive(Debug, Error)]
        #[error("status 400")]
        struct Outer(#[source] BodyError);

        let error = PortError::new(Outer(BodyError::TooLarge));
        assert_eq!(format!("{error}"), "status 400");
        assert_eq!(format!("{error:#}"), format!("status 400: {}", BodyError::TooLarge));
    }
}
