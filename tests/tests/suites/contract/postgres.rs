//! The store contract for the PostgreSQL adapter, on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use enrich_contract::{CreditStore, Durable, KeyStore, START, Store, machine};
use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::key::ApiKey;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Quota;
use enrich_postgres::{Config, Ledger, Sizes, accounts, accounts_for_pages};
use enrich_store::records::NewKey;
use enrich_store::usage::UsageCounter;
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Accounts, Actor, Clocks, Ledger as _};
use enrich_tests::contract::Administered;
use enrich_tests::servers::{Pooler, Postgres};
use tokio::sync::Mutex;

enrich_contract::store_contract!(durable open_two);
enrich_tests::operator_contract!(open);

#[test]
fn random_steps_match_the_model() {
    machine::compare_with_crashes(24, open_two);
}

#[test]
fn random_operations_match_the_model() {
    enrich_tests::contract::machine::compare(12, open_two);
}

/// An operator has locked a row, for example in psql, and forgotten it.
#[tokio::test]
async fn change_of_a_page_gives_up_before_its_request_does() {
    let node = open().await;
    let (locked, other) =
        (node.create_workspace(Quota::default(), 0).await, node.create_workspace(Quota::default(), 0).await);
    let mut pages = accounts_for_pages(&Postgres::shared().server(&node.database)).await.unwrap();
    let lock = format!("BEGIN; SELECT FROM workspace WHERE id = '{locked}' FOR UPDATE");
    node.operator.batch_execute(&lock).await.unwrap();
    let (operator, started) = (Actor::operator(START), Instant::now());
    let mut suspend =
        async |id| pages.change_workspace(id, &[WorkspaceChange::Suspended(true)], &operator).await;
    suspend(&locked).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    suspend(&other).await.unwrap();
    node.operator.batch_execute("ROLLBACK").await.unwrap();
    suspend(&locked).await.unwrap();
}

#[tokio::test]
async fn clock_is_that_of_the_server() {
    let node = open().await;
    let select = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let read = async || node.operator.query_one(select, &[]).await.unwrap().get::<_, i64>(0).unsigned_abs();
    let before = read().await;
    let clock = node.accounts().await.clock().await.unwrap().unwrap().unix_ms();
    assert!((before - 1..=read().await + 1).contains(&clock), "{clock} {before}");
}

/// A millisecond of the contract lasts this long on the server, whose clock continues during a test.
const SCALE: u32 = 100_000;

/// A serving ledger, and an operator with separate connections, as from another process.
struct Node {
    /// The time of the last tick, in Unix milliseconds.
    now: AtomicU64,
    ledger: Ledger,
    accounts: Mutex<Accounts>,
    operator: tokio_postgres::Client,
    database: String,
    /// Between the ledger and the server, if the run requests it.
    pooler: Option<Pooler>,
    workspaces: AtomicU32,
    /// Another node on the same database, with statements of a few rows, which executes every second call.
    other: Option<Box<Self>>,
    calls: AtomicU32,
}

async fn open() -> Arc<Node> {
    let database = Postgres::shared().create_database().await;
    let pooler = Pooler::if_requested(Postgres::shared());
    Arc::new(Node::serve(database, pooler, 0, Sizes::default()).await)
}

async fn open_two() -> Arc<Node> {
    let mut node = Arc::into_inner(open().await).unwrap();
    node.other = Some(Node::serve_other(node.database.clone()).await);
    Arc::new(node)
}

impl Node {
    async fn serve(database: String, pooler: Option<Pooler>, workspaces: u32, sizes: Sizes) -> Self {
        let direct = || Postgres::shared().server(&database);
        let server = pooler.as_ref().map_or_else(direct, |pooler| pooler.url(&database).parse().unwrap());
        // Long, because many tests run at the same time.
        let mut config = Config::default();
        config.timeout = Duration::from_secs(10);
        config.sizes = sizes;
        let ledger = Ledger::open(server, config, Clocks::simulated(START)).await.unwrap();
        let accounts = Mutex::new(accounts(&Postgres::shared().server(&database)).await.unwrap());
        let operator = Postgres::shared().client(&database).await;
        let (now, calls) = (AtomicU64::new(START.unix_ms()), AtomicU32::default());
        let workspaces = AtomicU32::new(workspaces);
        Self { ledger, accounts, operator, database, pooler, workspaces, now, other: None, calls }
    }

    async fn serve_other(database: String) -> Box<Self> {
        let mut sizes = Sizes::default();
        (sizes.batch, sizes.rows, sizes.changed_keys) = (3, 2, 0);
        Box::new(Self::serve(database, None, 0, sizes).await)
    }

    fn next_ledger(&self) -> &Ledger {
        self.ledger_of(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    fn ledger_of(&self, call: u32) -> &Ledger {
        let other = self.other.as_ref().filter(|_| !call.is_multiple_of(2));
        other.map_or(&self.ledger, |other| &other.ledger)
    }
}

#[async_trait]
impl Store for Node {
    async fn create_workspace(&self, quota: Quota, credits: u64) -> WorkspaceId {
        let n = self.workspaces.fetch_add(1, Ordering::Relaxed);
        let id: WorkspaceId = format!("workspace-{n}").parse().unwrap();
        self.accounts.lock().await.create_workspace(&id, quota, credits, START).await.unwrap();
        id
    }

    async fn tick(&self, now: Timestamp) {
        let before = self.now.fetch_max(now.unix_ms(), Ordering::Relaxed);
        let passed = now.unix_ms().saturating_sub(before) * u64::from(SCALE);
        let update = "UPDATE credit_hold SET expires_at = greatest(expires_at - $1::bigint, (extract(epoch FROM now()) * 1000)::bigint - 1)
             WHERE $1::bigint > 0";
        self.operator.execute(update, &[&i64::try_from(passed).unwrap()]).await.unwrap();
        // The server's clock is ahead of that of the nodes, by which receipts end then.
        let update = "UPDATE credit_receipt SET at = $1 WHERE at > $1";
        self.operator.execute(update, &[&i64::try_from(before).unwrap()]).await.unwrap();
        for node in self.nodes() {
            node.ledger.refresh_keys().await.unwrap();
            node.ledger.tick(Clocks::simulated(now)).await.unwrap();
            node.ledger.write_statistics().await.unwrap();
        }
    }
}

#[async_trait]
impl KeyStore for Node {
    fn keys(&self) -> &dyn Keys {
        &self.ledger
    }

    async fn create_key(&self, workspace: &WorkspaceId, key: &ApiKey) {
        let new = NewKey::new(workspace, "test", key);
        self.accounts.lock().await.create_key(&new, &Actor::operator(START)).await.unwrap();
    }

    async fn revoke(&self, key: &ApiKey) {
        let id = key.digest().key_id();
        self.accounts.lock().await.revoke_key(id, &Actor::operator(START)).await.unwrap();
    }
}

#[async_trait]
impl CreditStore for Node {
    fn credits(&self) -> &dyn Credits {
        self
    }

    async fn grant(&self, workspace: &WorkspaceId, credits: u64) {
        self.accounts.lock().await.grant(workspace, credits, START).await.unwrap();
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Balance {
        let balance = self.ledger.balance(workspace).await.unwrap();
        let select = "SELECT coalesce(sum(credits), 0)::bigint FROM workspace w
             JOIN (SELECT workspace, credits FROM credit_spend UNION ALL SELECT workspace, credits FROM removed_spends) AS s
                 ON w.rowid = s.workspace
             WHERE w.id = $1";
        let spent: i64 = self.operator.query_one(select, &[&workspace.as_str()]).await.unwrap().get(0);
        assert_eq!(spent as u64, balance.spent, "a spend that counts has its row");
        balance
    }
}

/// The ledgers, with longer holds.
#[async_trait]
impl Credits for Node {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let mut hold = hold.clone();
        hold.ttl *= SCALE;
        self.next_ledger().hold(&hold).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        self.next_ledger().settle(hold, settlement).await
    }

    fn keeps_receipts(&self) -> bool {
        true
    }

    /// Returns what the node shows that executed the last call.
    fn available(&self, workspace: &WorkspaceId) -> Option<u64> {
        self.ledger_of(self.calls.load(Ordering::Relaxed).wrapping_sub(1)).available(workspace)
    }
}

#[async_trait]
impl Administered for Node {
    async fn accounts(&self) -> Accounts {
        accounts(&Postgres::shared().server(&self.database)).await.unwrap()
    }

    fn usage(&self) -> &UsageCounter {
        self.ledger.usage()
    }

    fn nodes(&self) -> Vec<&Self> {
        [self].into_iter().chain(self.other.as_deref()).collect()
    }
}

#[async_trait]
impl Durable for Node {
    async fn crash(self: Arc<Self>) -> Arc<Self> {
        let Self { ledger, database, pooler, workspaces, now, other, .. } = Arc::into_inner(self).unwrap();
        let has_other = other.is_some();
        drop((ledger, other));
        let mut next = Self::serve(database.clone(), pooler, workspaces.into_inner(), Sizes::default()).await;
        if has_other {
            next.other = Some(Self::serve_other(database).await);
        }
        next.now = now;
        next.tick(START).await;
        Arc::new(next)
    }
}
