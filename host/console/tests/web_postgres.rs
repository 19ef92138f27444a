//! The tests of the web application on PostgreSQL.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a failed step fails the test")]

mod web;

use enrich_console::OpenAccounts;
use enrich_postgres::{Admin, Server};
use enrich_store::{Accounts, StoreError};
use enrich_tests::servers::Postgres;

/// The accounts of one test.
struct Store(Server);

impl Store {
    async fn new() -> Self {
        let postgres = Postgres::shared();
        Self(postgres.server(&postgres.create_database().await))
    }
}

#[async_trait::async_trait]
impl OpenAccounts for Store {
    async fn open(&self) -> Result<Box<dyn Accounts>, StoreError> {
        Ok(Box::new(Admin::open(&self.0).await?))
    }
}
