//! An error as a person reads it: what happened, and what to do.

use std::error::Error;
use std::path::Path;

use enrich_sqlite::StoreError;

#[derive(Debug)]
pub struct Failure {
    pub what: String,
    pub advice: Option<String>,
}

impl Failure {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), advice: None }
    }

    /// A file that can't be used, and why.
    pub fn file(verb: &str, path: &Path, why: impl Error) -> Self {
        Self::new(format!("can't {verb} {}: {why}", path.display()))
    }

    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let failure = Self::new(error.to_string());
        match error {
            StoreError::NoData(_) => failure.advise(
                "`enrich serve --sample` makes sample data to try; `enrich workspace create NAME` starts your own; \
                 --data DIR or ENRICH_DATA names another directory",
            ),
            StoreError::UnknownWorkspace(_) => failure.advise("`enrich workspace list` shows all workspaces"),
            StoreError::WorkspaceExists(_) => failure.advise("`enrich credits grant` gives it more credits"),
            StoreError::UnknownKey(_) => failure.advise("`enrich key list WORKSPACE` shows the ids of its keys"),
            _ => failure,
        }
    }
}
