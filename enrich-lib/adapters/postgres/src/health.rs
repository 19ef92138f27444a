//! Whether the statements that lookups need succeed.

use std::time::Duration;

use enrich_store::sync::Mutex;
use tokio::time::Instant;

use crate::error::PostgresError;

/// The results of one statement of lookups. Its task executes it at least every [`Health::INTERVAL`], with an
/// empty batch if there is no lookup.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Option<Failing>>);

#[derive(Debug)]
struct Failing {
    since: Instant,
    reason: String,
}

impl Health {
    /// How long a task waits for lookups until it executes an empty batch.
    pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

    /// How long the statement fails until [`Health::check`] does, from the first failure that was recorded: at the
    /// end of its timeout, and of that of its repetition.
    const AGE_MAX: Duration = Duration::from_secs(3);

    /// Records the result of the statement.
    pub(crate) fn record<T>(&self, result: &Result<T, PostgresError>) {
        let mut failing = self.0.lock();
        match result {
            Ok(_) => *failing = None,
            Err(error) => {
                let since = failing.take().map_or_else(Instant::now, |failing| failing.since);
                *failing = Some(Failing { since, reason: error.to_string() });
            }
        }
    }

    /// Fails if the statement has failed for [`Health::AGE_MAX`].
    pub(crate) fn check(&self) -> Result<(), PostgresError> {
        match &*self.0.lock() {
            Some(Failing { since, reason }) if since.elapsed() >= Self::AGE_MAX => {
                Err(PostgresError::Failing { age: since.elapsed(), reason: reason.clone() })
            }
            _ => Ok(()),
        }
    }
}
