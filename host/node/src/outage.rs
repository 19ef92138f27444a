//! The lines of the log about work that a node repeats.

use std::fmt::Display;

use tracing::{info, warn};

/// Whether the work fails now, with the messages of the first failure and of the next success.
pub(crate) struct Outage {
    failed: &'static str,
    ended: &'static str,
    is_failing: bool,
}

impl Outage {
    pub(crate) const fn new(failed: &'static str, ended: &'static str) -> Self {
        Self { failed, ended, is_failing: false }
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Logs the first of consecutive failures, and their end.
    pub(crate) fn record<T>(&mut self, result: &Result<T, impl Display>) {
        match (result, self.is_failing) {
            (Err(error), false) => warn!(%error, "{}", self.failed),
            (Ok(_), true) => info!("{}", self.ended),
            _ => {}
        }
        self.is_failing = result.is_err();
    }
}
