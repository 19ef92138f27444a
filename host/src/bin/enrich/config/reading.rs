//! The file that a thread is reading. When a read hangs, another thread reports its name.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use enrich_provider::SecretSource;

/// Shared by the thread that reads and the one that waits for it.
#[derive(Clone, Debug, Default)]
pub struct Reading(Arc<Mutex<PathBuf>>);

impl Reading {
    /// Notes that `file` is read from here on.
    pub fn begin(&self, file: &Path) {
        file.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The same, if the secret is in a file.
    pub fn begin_secret(&self, source: &SecretSource) {
        if let SecretSource::File(path) = source {
            self.begin(path);
        }
    }

    /// The file that was begun last.
    pub fn file(&self) -> PathBuf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
