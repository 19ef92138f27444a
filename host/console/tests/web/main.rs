//! The web application over HTTP, on SQLite. The tests follow OWASP ASVS 5.0, level 2.
//!
//! The contract of `Accounts` proves that PostgreSQL behaves alike, and the journey of a browser runs on it.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed step fails the test")]

mod escaping;
mod guards;
mod headers;
mod keys;
mod late;
mod limits;
mod links;
mod lists;
mod members;
mod passwords;
mod refusals;
mod routes;
mod rows;
mod sessions;
mod sign_in;
mod site;
mod store;
mod two_factor;
mod usage;
mod world;

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
    async fn open(&self) -> Result<Accounts, StoreError> {
        Ok(enrich_sqlite::accounts_for_pages(&self.dir)?)
    }
}
