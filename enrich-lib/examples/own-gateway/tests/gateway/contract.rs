//! The ports keep the contract on a real PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use enrich_contract::{CreditStore, KeyStore, START, Store, machine};
use enrich_lib::credit::{Balance, Hold};
use enrich_lib::key::ApiKey;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys, async_trait};
use enrich_lib::window::Quota;
use enrich_tests::servers::Postgres;
use own_gateway::credits::CreditTable;
use own_gateway::database::{Database, SCHEMA, connect_to};
use own_gateway::keys::ApiKeys;

struct Tables {
    keys: ApiKeys,
    credits: CreditTable,
    workspaces: AtomicU32,
    database: String,
}

/// Replaces the clock of a database: `clock_timestamp` of `public` comes before that of PostgreSQL.
const CLOCK: &str = "CREATE TABLE test_clock AS SELECT clock_timestamp() AS now;
    CREATE FUNCTION clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql AS 'SELECT now FROM test_clock';
    ALTER DATABASE <name> SET search_path = public, pg_catalog;";

impl Tables {
    async fn set_clock(&self, now: Timestamp) {
        let update = format!("UPDATE test_clock SET now = to_timestamp({} / 1000.0)", now.unix_ms());
        let set = self.credits.0.transaction(async |client| Ok(client.batch_execute(&update).await?));
        set.await.unwrap();
    }
}

#[async_trait]
impl Store for Tables {
    async fn create_workspace(&self, quota: Quota, credits: u64) -> WorkspaceId {
        let id = format!("workspace-{}", self.workspaces.fetch_add(1, Ordering::Relaxed)).parse().unwrap();
        self.credits.grant(&id, quota, credits).await.unwrap();
        id
    }

    async fn tick(&self, now: Timestamp) {
        self.set_clock(now).await;
        self.credits.expire().await.unwrap();
    }
}

#[async_trait]
impl KeyStore for Tables {
    fn keys(&self) -> &dyn Keys {
        &self.keys
    }

    async fn create_key(&self, workspace: &WorkspaceId, key: &ApiKey) {
        self.keys.create(&key.digest(), workspace).await.unwrap();
    }

    async fn revoke(&self, key: &ApiKey) {
        self.keys.revoke(&key.digest()).await.unwrap();
    }

    fn has_test_keys(&self) -> bool {
        false
    }
}

#[async_trait]
impl CreditStore for Tables {
    fn credits(&self) -> &dyn Credits {
        &self.credits
    }

    async fn grant(&self, workspace: &WorkspaceId, credits: u64) {
        self.credits.grant(workspace, Quota::default(), credits).await.unwrap();
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Balance {
        self.credits.balance(workspace).await.unwrap()
    }
}

async fn open() -> Arc<Tables> {
    let postgres = Postgres::shared();
    let name = postgres.create_empty_database().await;
    postgres.sql(&name, &(SCHEMA.to_owned() + &CLOCK.replace("<name>", &name))).await;
    let database = Arc::new(Database::new(connect_to(postgres.tcp_url(&name))));
    let (keys, credits) = (ApiKeys(database.clone()), CreditTable(database));
    let tables = Tables { keys, credits, workspaces: AtomicU32::new(0), database: name };
    tables.set_clock(START).await;
    Arc::new(tables)
}

enrich_contract::store_contract!(open);

#[test]
fn behaves_like_the_table_in_memory() {
    machine::compare(20, open);
}

#[tokio::test]
async fn gives_back_any_number_of_expired_holds() {
    let tables = open().await;
    let workspace = tables.create_workspace(Quota::default(), 50_000).await;
    let insert = format!(
        "INSERT INTO hold SELECT n, '{workspace}', 1, 0 FROM generate_series(1, 50000) AS n;
         UPDATE account SET available = 0"
    );
    Postgres::shared().sql(&tables.database, &insert).await;
    tables.credits.expire().await.unwrap();
    let balance = tables.balance(&workspace).await;
    assert_eq!((balance.available, balance.held), (50_000, 0));
}

#[tokio::test]
async fn statement_that_waits_for_a_lock_ends_with_its_transaction() {
    let (tables, postgres) = (open().await, Postgres::shared());
    let workspace = tables.create_workspace(Quota::default(), 1).await;
    let other = postgres.client(&tables.database).await;
    other.batch_execute("BEGIN; UPDATE account SET available = 0").await.unwrap();
    let hold = Hold::new(LookupId::new(START, [1; 10]), workspace, 1);
    assert!(tables.credits.hold(&hold).await.is_err());
    let is_over = async || postgres.waiting_statements(&tables.database).await == 0;
    enrich_tests::eventually("the statement has ended", is_over).await;
}
