//! One vendor after the other, until one knows the person.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use thiserror::Error;
use tokio::time::Instant;

use crate::deadline::in_time;

/// Vendors that are asked in order; the first trusted match wins, and the vendors after it are not asked.
///
/// A vendor that fails is passed over. If all answered and none knows the person, there is no match; if nobody knows
/// the person and at least one failed, the lookup fails with a [`WaterfallFault`]: a client is never told `not_found` on
/// half the evidence.
pub struct Waterfall {
    vendors: Vec<Vendor>,
    budget: Option<Duration>,
    on_failure: Option<Box<OnFailure>>,
}

struct Vendor {
    name: Arc<str>,
    resolver: Arc<dyn Resolver>,
}

type OnFailure = dyn Fn(&Query, &str, &PortError) + Send + Sync;

impl Waterfall {
    /// A waterfall of one vendor; [`Waterfall::then`] adds the next. Errors call it by `name`, as the operator does.
    pub fn starting_with(name: &str, resolver: Arc<dyn Resolver>) -> Self {
        Self { vendors: Vec::new(), budget: None, on_failure: None }.then(name, resolver)
    }

    /// Asks this vendor when the ones before it know nobody, or failed.
    #[must_use]
    pub fn then(mut self, name: &str, resolver: Arc<dyn Resolver>) -> Self {
        self.vendors.push(Vendor { name: name.into(), resolver });
        self
    }

    /// Gives each lookup this budget in all. Each vendor gets an equal share of what is left when its turn comes: a
    /// vendor that hangs leaves the others theirs, and what one does not use is the next one's.
    ///
    /// A vendor may be put behind a tighter [`Deadline`](crate::Deadline) of its own.
    #[must_use]
    pub fn within(mut self, budget: Duration) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Calls `on_failure` with the lookup, the vendor's name and the error of each vendor that failed, also when a later
    /// vendor finds the person: a vendor that refuses our key would otherwise go unnoticed.
    #[must_use]
    pub fn on_failure(
        mut self,
        on_failure: impl Fn(&Query, &str, &PortError) + Send + Sync + 'static,
    ) -> Self {
        self.on_failure = Some(Box::new(on_failure));
        self
    }
}

#[async_trait]
impl Resolver for Waterfall {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        let started = Instant::now();
        let mut failures = Vec::new();
        for (vendor, turns) in self.vendors.iter().zip((1..=self.vendors.len() as u32).rev()) {
            let found = match self.budget {
                Some(budget) => {
                    let share = budget.saturating_sub(started.elapsed()) / turns;
                    in_time(share, &*vendor.resolver, query).await
                }
                None => vendor.resolver.find(query).await,
            };
            match found {
                Ok(Some(profile)) => return Ok(Some(profile)),
                Ok(None) => {}
                Err(fault) => {
                    if let Some(on_failure) = &self.on_failure {
                        on_failure(query, &vendor.name, &fault);
                    }
                    failures.push((vendor.name.clone(), fault));
                }
            }
        }
        if failures.is_empty() {
            Ok(None)
        } else {
            Err(PortError::new(WaterfallFault { failures, vendors: self.vendors.len() }))
        }
    }
}

/// Nobody found the person, and not all vendors answered. `Display` tells which failed, and why.
#[derive(Debug, Error)]
#[error("{} of {vendors} vendors failed{}", .failures.len(), Reasons(.failures))]
pub struct WaterfallFault {
    failures: Vec<(Arc<str>, PortError)>,
    vendors: usize,
}

impl WaterfallFault {
    /// The vendors that failed, in the order of the waterfall: name and reason.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &PortError)> {
        self.failures.iter().map(|(name, fault)| (&**name, fault))
    }
}

struct Reasons<'a>(&'a [(Arc<str>, PortError)]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, fault)| write!(f, "; {name}: {fault}"))
    }
}

impl fmt::Debug for Waterfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.vendors.iter().map(|vendor| &vendor.name).collect();
        f.debug_struct("Waterfall")
            .field("vendors", &names)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}
