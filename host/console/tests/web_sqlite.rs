//! The tests of the web application on SQLite.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed step fails the test")]

mod web;

use enrich_console::OpenAccounts;
use enrich_sqlite::DataDir;
use enrich_store::{Accounts, StoreError};
use tempfile::TempDir;

/// The accounts of one test.
struct Store {
    dir: DataDir,
    _files: TempDir,
}

impl Store {
    async fn new() -> Self {
        let files = TempDir::new().unwrap();
        let dir = DataDir::create(files.path().join("data")).unwrap();
        Self { dir, _files: files }
    }
}

#[async_trait::async_trait]
impl OpenAccounts for Store {
    async fn open(&self) -> Result<Box<dyn Accounts>, StoreError> {
        Ok(Box::new(enrich_sqlite::accounts(&self.dir)?))
    }
}
