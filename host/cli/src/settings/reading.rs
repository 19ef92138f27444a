//! The name of the file that is being read, so that another thread can report a read that hangs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use enrich_provider::SecretSource;

/// Shared by the reading thread and the thread that waits for it.
#[derive(Clone, Debug, Default)]
pub struct Reading(Arc<Mutex<PathBuf>>);

impl Reading {
    /// Records that `file` is about to be read.
    pub fn begin(&self, file: &Path) {
        file.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Records the file of a secret. Does nothing for a variable.
    pub fn begin_secret(&self, source: &SecretSource) {
        if let SecretSource::File(path) = source {
            self.begin(path);
        }
    }

    /// Returns the file that was recorded last.
    pub fn file(&self) -> PathBuf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
