//! The store contract for the PostgreSQL adapter on the simulation's fake server, whose clock is that of the
//! contract, and lost connections to it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use enrich_contract::fixture::Fixture;
use enrich_contract::{CreditStore, Durable, KeyStore, START, Store, machine};
use enrich_fakes::postgres::{HoldRequest, Person, Postgres, Workspace};
use enrich_lib::credit::{Balance, Settlement};
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys, Resolver};
use enrich_lib::query::Query;
use enrich_lib::window::Quota;
use enrich_postgres::{Config, Connect, Ledger, People, Server, Stream};
use enrich_store::{Clocks, EmailHasher, Ledger as _};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::runtime::Builder;
use tokio::time::{Instant, advance, sleep};

enrich_contract::store_contract!(durable open);

#[test]
fn random_steps_match_the_model() {
    machine::compare_with_crashes(100, open);
}

/// The runtime of the node's tasks ends while the commit takes a second. The spend may be durable, so neither
/// a success nor a failure is an answer.
#[test]
fn spend_with_an_unknown_outcome_has_no_result() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (node, hold) = runtime.block_on(async {
        let server = Fake::new(|postgres| postgres.with_commit_time(|| Duration::from_secs(1)));
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
async fn node_without_pending_settlements_closes_at_once() {
    let fixture = Fixture::open(open().await, 10).await;
    let hold = fixture.place(1, 2).await;
    fixture.release(&hold).await.unwrap();
    let begun = Instant::now();
    fixture.store.ledger.close().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn pooled_connection_is_replaced_after_its_maximum_age() {
    let fixture = Fixture::open(open().await, 10).await;
    let connections = || fixture.store.server.network.connections.load(Ordering::Relaxed);
    let age_max = Duration::from_secs(600);
    for (lookup, elapsed, opens) in [(1, Duration::ZERO, false), (2, age_max / 2, false), (3, age_max, true)]
    {
        advance(elapsed).await;
        let before = connections();
        fixture.place(lookup, 1).await;
        assert_eq!(connections() > before, opens, "after {elapsed:?}");
    }
}

/// Once a minute, a sweep begins at the first row.
#[tokio::test(start_paused = true)]
async fn hold_that_expired_before_the_last_sweep_is_ended_within_a_minute() {
    let node = open().await;
    let workspace = node.create_workspace(Quota::default(), 10).await.to_string();
    node.ledger.write_statistics().await.unwrap();
    let hold = HoldRequest { lookup: [1; 16], workspace, credits: 1, ttl_ms: 30_000, receipt: None };
    node.server.postgres.with(|database| database.hold(&[hold], 0)).unwrap(); // by a clock that is behind
    advance(Duration::from_secs(61)).await;
    node.ledger.write_statistics().await.unwrap();
    assert!(node.server.postgres.with(|database| database.holds().is_empty()));
}

/// The connection is lost at each of the statements between which a node applies the revocation.
#[tokio::test(start_paused = true)]
async fn revoked_key_is_refused_within_a_second_of_a_lost_connection() {
    for writes in 1..=10 {
        let (node, key) = (open().await, ApiKey::generate(|| 1));
        let workspace = node.create_workspace(Quota::default(), 10).await;
        node.create_key(&workspace, &key).await;
        assert!(node.ledger.find(&key.digest()).await.unwrap().is_some());
        node.revoke(&key).await;
        let lost_at = &node.server.network.lost_at;
        lost_at.store(writes, Ordering::Relaxed);
        for _ in 0..3 {
            sleep(Duration::from_secs(1)).await;
            let found = node.ledger.find(&key.digest()).await;
            assert!(!matches!(found, Ok(Some(_))), "lost at write {writes}");
        }
        assert_eq!(lost_at.load(Ordering::Relaxed), 0, "write {writes} did not occur");
        assert!(node.ledger.find(&key.digest()).await.unwrap().is_none());
    }
}

/// A vendor may have answered already, so that a lookup waits for the database as long as it can.
#[tokio::test(start_paused = true)]
async fn person_is_found_after_an_outage_of_some_seconds() {
    let (server, hasher) = (Fake::new(|postgres| postgres), EmailHasher::new([7; 16]));
    let email = Email::parse("ada@posteo.net").unwrap();
    let person = Person { confidence: 0.9, profile: "someone".to_owned() };
    server.postgres.with(|database| database.add_person(hasher.hash(&email), person));
    let people = People::open(server.address(), Duration::from_secs(1), hasher, 0.8).await.unwrap();
    for _ in 0..2 {
        server.network.lost_at.store(1, Ordering::Relaxed);
        server.network.is_down.store(true, Ordering::Relaxed);
        let heal = async {
            sleep(Duration::from_secs(3)).await;
            server.network.is_down.store(false, Ordering::Relaxed);
        };
        let query = Query::new(LookupId::from_bytes([0; 16]), "demo".parse().unwrap(), email.clone());
        let (found, ()) = tokio::join!(people.find(&query), heal);
        assert!(found.unwrap().profile.is_some());
    }
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
    network: Arc<Network>,
}

/// The network to the server, with one pipe in memory per connection.
#[derive(Default)]
struct Network {
    connections: AtomicU32,
    /// Whether connections are refused.
    is_down: AtomicBool,
    /// The connection that makes this write is lost, counted over all connections. 0 stands for none.
    lost_at: AtomicU32,
}

async fn open() -> Arc<Node> {
    Arc::new(Node::serve(Fake::new(|postgres| postgres)).await)
}

impl Fake {
    fn new(configure: impl FnOnce(Postgres) -> Postgres) -> Self {
        let now = Arc::new(AtomicU64::new(START.unix_ms()));
        let clock = now.clone();
        let postgres = configure(Postgres::new(Default::default(), move || clock.load(Ordering::Relaxed)));
        Self { postgres, now, workspaces: Arc::default(), network: Arc::default() }
    }

    /// Returns the server's address.
    fn address(&self) -> Server {
        let server: Server = "postgres://enrich@fake/enrich?sslmode=disable".parse().unwrap();
        server.through(self.clone())
    }
}

impl Node {
    async fn serve(server: Fake) -> Self {
        let ledger =
            Ledger::open(server.address(), Config::default(), Clocks::simulated(START)).await.unwrap();
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
        if self.network.is_down.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.network.connections.fetch_add(1, Ordering::Relaxed);
        let (client, stream) = duplex(4096);
        let postgres = self.postgres.clone();
        tokio::spawn(async move { postgres.serve(stream).await });
        Ok(Box::new(NetworkStream(client, self.network.clone())))
    }
}

struct NetworkStream(DuplexStream, Arc<Network>);

impl AsyncRead for NetworkStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl AsyncWrite for NetworkStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let lost_at = &self.1.lost_at;
        match lost_at.fetch_sub(lost_at.load(Ordering::Relaxed).min(1), Ordering::Relaxed) {
            1 => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            _ => Pin::new(&mut self.0).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
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
            ..Workspace::default()
        };
        self.server.postgres.with(|database| database.create_workspace(workspace));
        id
    }

    async fn tick(&self, now: Timestamp) {
        self.server.now.fetch_max(now.unix_ms(), Ordering::Relaxed);
        self.ledger.refresh_keys().await.unwrap();
        self.ledger.tick(Clocks::simulated(now)).await.unwrap();
        self.ledger.write_statistics().await.unwrap();
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
