//! Why a vendor gave no answer, for the log and for the resolvers around this one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use enrich_compose::{FaultKind, VendorFault};
use enrich_lib::refusal::PortError;
use thiserror::Error;

/// A failed ask. It has the vendor's name and what happened, and nothing that the vendor or a client said; its source is
/// the [`VendorFault`] by which others decide.
#[derive(Debug, Error)]
#[error("{vendor}: {what}")]
pub(crate) struct AskFault {
    vendor: Arc<str>,
    what: String,
    #[source]
    fault: VendorFault,
}

/// What happened, before it is known who asked.
#[derive(Debug)]
pub(crate) struct Trouble {
    what: String,
    fault: VendorFault,
}

impl Trouble {
    pub(crate) fn new(kind: FaultKind, what: impl fmt::Display) -> Self {
        Self { what: what.to_string(), fault: VendorFault::new(kind) }
    }

    pub(crate) fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        match retry_after {
            Some(wait) => Self { fault: self.fault.with_retry_after(wait), ..self },
            None => self,
        }
    }

    pub(crate) fn at(self, vendor: &Arc<str>) -> PortError {
        PortError::new(AskFault { vendor: Arc::clone(vendor), what: self.what, fault: self.fault })
    }
}
