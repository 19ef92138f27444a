//! The store contract for the PostgreSQL adapter on the simulation's fake server, whose clock is that of the
//! contract.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use enrich_contract::fixture::Fixture;
use enrich_contract::{CreditStore, Durable, KeyStore, START, Store, machine};
use enrich_fakes::postgres::{Postgres, Workspace};
use enrich_lib::credit::{AccountError, Balance, Settlement};
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::observe::{Ending, LookupEvent};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::resolver::OptOuts;
use enrich_lib::window::Quota;
use enrich_postgres::{Config, Connect, Ledger, People, Server, Stream};
use enrich_store::EmailHasher;
use tokio::io::duplex;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

enrich_contract::store_contract!(durable open);

#[test]
fn random_steps_match_the_model() {
    machine::compare_with_crashes(100, open);
}

#[test]
fn random_steps_match_the_model_although_statements_conflict() {
    machine::compare_with_crashes(30, open_with_conflicts);
}

#[tokio::test(start_paused = true)]
async fn statement_that_conflicts_is_repeated() {
    let node = open_with_conflicts().await;
    let fixture = Fixture::open(node.clone(), 10).await;
    let key = ApiKey::generate(|| 1);
    node.create_key(&fixture.workspace, &key).await;
    assert!(node.ledger.find(&key.digest()).await.unwrap().is_some());
    let (spent, released) = (fixture.place(1, 2).await, fixture.place(2, 3).await);
    fixture.spend(&spent, 2).await.unwrap();
    fixture.release(&released).await.unwrap();
    // The statements of a tick also write the use of the key and the free lookup.
    let mut event = LookupEvent::new(released.lookup_id, Ending::NotFound);
    (event.workspace, event.key) = (Some(&fixture.workspace), Some(released.key));
    node.ledger.usage().record(&event);
    fixture.tick(START).await;
    assert_eq!(fixture.totals().await, (8, 0, 2));
    assert_eq!(node.ledger.statistics().commits.failed, 0);
    let hasher = EmailHasher::new([7; 16]);
    let people = People::open(node.server.address(), Duration::from_secs(1), hasher, 0.8).await.unwrap();
    assert!(!people.contains(&Email::parse("ada@posteo.net").unwrap()).await.unwrap());
}

/// The runtime of the node's tasks ends while the commit takes a second. The spend may be durable, so neither
/// a success nor a failure is an answer.
#[test]
fn spend_with_an_unknown_outcome_has_no_result() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (node, hold) = runtime.block_on(async {
        let postgres = Postgres::new(Default::default(), || START.unix_ms());
        let postgres = postgres.with_commit_time(|| Duration::from_secs(1));
        let server = Fake { postgres, now: Arc::default(), workspaces: Arc::default() };
        let fixture = Fixture::open(Arc::new(Node::serve(server).await), 1).await;
        let hold = fixture.place(1, 1).await;
        (fixture.store, hold)
    });
    let mut spend = node.ledger.settle(&hold, Settlement::Spend(1));
    runtime.block_on(async {
        let is_pending = poll_fn(|cx| Poll::Ready(spend.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending);
        sleep(Duration::from_millis(500)).await;
    });
    drop(runtime);
    assert!(spend.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tokio::test(start_paused = true)]
async fn spend_of_more_than_held_has_this_reason() {
    let fixture = Fixture::open(open().await, 10).await;
    let hold = fixture.place(1, 2).await;
    let refused = fixture.store.ledger.settle(&hold, Settlement::Spend(3)).await.unwrap_err();
    assert!(refused.to_string().contains(&AccountError::OverHold.to_string()), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn node_without_pending_settlements_closes_at_once() {
    let fixture = Fixture::open(open().await, 10).await;
    let hold = fixture.place(1, 2).await;
    fixture.release(&hold).await.unwrap();
    let begun = Instant::now();
    fixture.store.ledger.close().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// A serving ledger and its server.
struct Node {
    ledger: Ledger,
    server: Fake,
}

#[derive(Clone)]
struct Fake {
    postgres: Postgres,
    now: Arc<AtomicU64>,
    workspaces: Arc<AtomicU32>,
}

async fn open() -> Arc<Node> {
    open_on(|postgres| postgres).await
}

async fn open_with_conflicts() -> Arc<Node> {
    open_on(Postgres::with_conflicts).await
}

async fn open_on(configure: impl FnOnce(Postgres) -> Postgres) -> Arc<Node> {
    let now = Arc::new(AtomicU64::new(START.unix_ms()));
    let clock = now.clone();
    let postgres = configure(Postgres::new(Default::default(), move || clock.load(Ordering::Relaxed)));
    Arc::new(Node::serve(Fake { postgres, now, workspaces: Arc::default() }).await)
}

impl Fake {
    /// Returns the server's address.
    fn address(&self) -> Server {
        let server: Server = "postgres://enrich@fake/enrich?sslmode=disable".parse().unwrap();
        server.through(self.clone())
    }
}

impl Node {
    async fn serve(server: Fake) -> Self {
        let ledger = Ledger::open(server.address(), Config::default(), START).await.unwrap();
        Self { ledger, server }
    }

    /// Returns the row id of a workspace.
    fn rowid(&self, workspace: &WorkspaceId) -> i64 {
        self.server.postgres.read(|database| database.workspace_rowid(workspace.as_str())).unwrap()
    }
}

#[async_trait]
impl Connect for Fake {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let (client, stream) = duplex(4096);
        let postgres = self.postgres.clone();
        tokio::spawn(async move { postgres.serve(stream).await });
        Ok(Box::new(client))
    }
}

#[async_trait]
impl Store for Node {
    async fn create_workspace(&self, quota: Quota, credits: u64) -> WorkspaceId {
        let n = self.server.workspaces.fetch_add(1, Ordering::Relaxed);
        let id: WorkspaceId = format!("workspace-{n}").parse().unwrap();
        let workspace = Workspace {
            id: id.to_string(),
            quota_limit: quota.limit().into(),
            window_seconds: quota.window_seconds() as i32,
            granted: credits as i64,
            used: 0,
            ..Workspace::default()
        };
        self.server.postgres.with(|database| database.create_workspace(workspace));
        id
    }

    async fn tick(&self, now: Timestamp) {
        self.server.now.fetch_max(now.unix_ms(), Ordering::Relaxed);
        self.ledger.refresh_keys().await.unwrap();
        self.ledger.tick(now).await.unwrap();
    }
}

#[async_trait]
impl KeyStore for Node {
    fn keys(&self) -> &dyn Keys {
        &self.ledger
    }

    async fn create_key(&self, workspace: &WorkspaceId, key: &ApiKey) {
        let (rowid, is_test) = (self.rowid(workspace), ApiKey::is_test(&key.masked()));
        self.server.postgres.with(|database| database.create_key(rowid, key.digest().as_bytes(), is_test));
    }

    async fn revoke(&self, key: &ApiKey) {
        self.server.postgres.with(|database| database.revoke_key(key.digest().as_bytes()));
    }
}

#[async_trait]
impl CreditStore for Node {
    fn credits(&self) -> &dyn Credits {
        &self.ledger
    }

    async fn grant(&self, workspace: &WorkspaceId, credits: u64) {
        let rowid = self.rowid(workspace);
        self.server.postgres.with(|database| database.grant(rowid, credits as i64));
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Balance {
        let balance = self.ledger.balance(workspace).await.unwrap();
        let rowid = self.rowid(workspace);
        let spent: i64 = self.server.postgres.read(|database| {
            let spends = database.spends().values().filter(|spend| spend.workspace == rowid);
            spends.map(|spend| spend.credits).sum()
        });
        assert_eq!(spent as u64, balance.spent, "a spend that counts has its row");
        balance
    }
}

#[async_trait]
impl Durable for Node {
    async fn crash(self: Arc<Self>) -> Arc<Self> {
        let server = self.server.clone();
        drop(self);
        Arc::new(Self::serve(server).await)
    }
}
