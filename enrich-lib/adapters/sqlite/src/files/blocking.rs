//! Calls of callers without an async runtime.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use enrich_store::StoreError;

use crate::error::SqliteError;

/// Completes an operation of [`accounts`](super::accounts), which blocks and never waits for another task.
pub fn complete<T>(operation: impl Future<Output = Result<T, StoreError>>) -> Result<T, SqliteError> {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done?),
        Poll::Pending => unreachable!("SQLite completes each operation at once"),
    }
}
