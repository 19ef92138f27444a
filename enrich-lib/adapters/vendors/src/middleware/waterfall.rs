//! Vendors in a fixed order, until one returns a match.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorError, VendorErrorKind};
use thiserror::Error;
use tokio::time::Instant;

use super::deadline::find_within;

/// A resolver that calls vendors in order until one returns a trusted match. Without vendors, there is no
/// match.
///
/// A failed vendor is skipped. If all vendors answered without a match, there is no match. If there is no
/// match and at least one vendor failed, the lookup fails with a [`WaterfallError`], so that incomplete
/// evidence is never reported as `not_found`.
#[derive(derive_more::Debug)]
pub struct Waterfall {
    #[debug("{:?}", vendors.iter().map(|vendor| &vendor.name).collect::<Vec<_>>())]
    vendors: Vec<Vendor>,
    budget: Duration,
    #[debug(skip)]
    on_failure: Box<OnFailure>,
}

struct Vendor {
    name: Arc<str>,
    resolver: Arc<dyn Resolver>,
}

type OnFailure = dyn Fn(&Query, &str, &PortError) + Send + Sync;

impl Waterfall {
    /// Creates a waterfall without vendors; [`Waterfall::then`] adds them.
    ///
    /// `budget` is the time of each lookup. Each vendor gets an equal share of the time that remains when it is called,
    /// so a vendor that hangs does not consume the shares of the others, and unused time passes to the next vendors.
    /// `on_failure` receives the lookup, the vendor's name and the error of each vendor that failed, even when a later
    /// one finds the person. Otherwise a vendor that rejects the API key would go unnoticed.
    pub fn new(
        budget: Duration,
        on_failure: impl Fn(&Query, &str, &PortError) + Send + Sync + 'static,
    ) -> Self {
        Self { vendors: Vec::new(), budget, on_failure: Box::new(on_failure) }
    }

    /// Adds a vendor that is called when all earlier vendors returned no match or failed. Errors contain its
    /// `name`.
    #[must_use]
    pub fn then(mut self, name: &str, resolver: Arc<dyn Resolver>) -> Self {
        self.vendors.push(Vendor { name: name.into(), resolver });
        self
    }
}

#[async_trait]
impl Resolver for Waterfall {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let started = Instant::now();
        let mut failures = Vec::new();
        for (vendor, vendors_left) in self.vendors.iter().zip((1..=self.vendors.len() as u32).rev()) {
            let share = self.budget.saturating_sub(started.elapsed()) / vendors_left;
            match find_within(share, &*vendor.resolver, query).await {
                Ok(answer) if answer.profile.is_some() => {
                    return Ok(answer.from_source(vendor.name.clone()));
                }
                Ok(_) => {}
                Err(error) => {
                    (self.on_failure)(query, &vendor.name, &error);
                    failures.push((vendor.name.clone(), error));
                }
            }
        }
        if failures.is_empty() {
            Ok(Answer::default())
        } else {
            Err(PortError::new(WaterfallError { failures, vendors: self.vendors.len() }))
        }
    }
}

/// No vendor found the person, and at least one vendor failed. `Display` lists the failed vendors with their
/// errors.
#[derive(Debug, Error)]
#[error("{} of {vendors} vendors failed{}", .failures.len(), Reasons(.failures))]
pub struct WaterfallError {
    failures: Vec<(Arc<str>, PortError)>,
    vendors: usize,
}

struct Reasons<'a>(&'a [(Arc<str>, PortError)]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, error)| write!(f, "; {name}: {error}"))
    }
}

/// Returns whether a lookup failed, at one vendor or more, because of the queue of its workspace.
pub(crate) fn failed_in_queue(error: &PortError) -> bool {
    match error.downcast_ref::<WaterfallError>() {
        Some(WaterfallError { failures, .. }) => failures.iter().any(|(_, error)| failed_in_queue(error)),
        None => VendorError::find_in(error)
            .is_some_and(|e| matches!(e.kind, VendorErrorKind::QueueFull | VendorErrorKind::QueueTimeout)),
    }
}
