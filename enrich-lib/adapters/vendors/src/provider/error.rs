//! Errors of requests to a vendor, for logs and for the middleware.

use std::fmt;
use std::time::Duration;

use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{VendorError, VendorErrorKind};
use thiserror::Error;

/// A failed request to a vendor. Its message contains no data from the vendor or a client. Its source is the
/// [`VendorError`] on which the middleware bases its decisions.
#[derive(Debug, Error)]
#[error("{what}")]
pub(crate) struct RequestError {
    what: String,
    #[source]
    error: VendorError,
}

impl RequestError {
    pub(crate) fn new(kind: VendorErrorKind, what: impl fmt::Display) -> Self {
        Self { what: what.to_string(), error: VendorError::new(kind) }
    }

    pub(crate) fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        match retry_after {
            Some(wait) => Self { error: self.error.with_retry_after(wait), ..self },
            None => self,
        }
    }
}

impl From<RequestError> for PortError {
    fn from(error: RequestError) -> Self {
        Self::new(error)
    }
}
