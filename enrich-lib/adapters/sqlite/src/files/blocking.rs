//! Calls of callers without an async runtime.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use enrich_store::StoreError;

use crate::error::SqliteError;

/// Completes an operation of [`accounts`](super::accounts), which blocks and never waits for another task.
///
/// Panics if the operation waits, as those of [`accounts_for_pages`](super::accounts_for_pages) do while another
/// process writes, and those of PostgreSQL always.
pub fn complete<T>(operation: impl Future<Output = Result<T, StoreError>>) -> Result<T, SqliteError> {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done?),
        Poll::Pending => unreachable!("SQLite completes each operation at once"),
    }
}
