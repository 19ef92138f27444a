//! The runtime of commands.

use tokio::runtime::{Builder, Runtime};

use crate::failure::Failure;

/// Creates a single-threaded Tokio runtime.
pub fn single_threaded() -> Result<Runtime, Failure> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(format!("cannot start the async runtime: {e}")))
}
