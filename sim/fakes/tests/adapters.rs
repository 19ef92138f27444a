//! Runs the real adapters on the fakes.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_fakes::postgres::Postgres;
use enrich_fakes::postgres::books::{Books, Workspace};
use enrich_fakes::redis::Redis;
use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::key::ApiKey;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys, Windows};
use enrich_lib::window::Quota;
use enrich_postgres::{Config, Ledger, Server};
use enrich_redis::{Login, RedisPolicy, RedisWindows};
use tokio::io::duplex;
use tokio::time::timeout;

/// Connects through an in-memory pipe to a task that serves it.
struct Pipe<S>(S);

#[async_trait]
impl enrich_postgres::Connect for Pipe<Postgres> {
    async fn connect(&self) -> io::Result<Box<dyn enrich_postgres::Stream>> {
        let (ours, theirs) = duplex(4096);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve(theirs).await });
        Ok(Box::new(ours))
    }
}

#[async_trait]
impl enrich_redis::Connect for Pipe<Redis> {
    async fn connect(&self) -> io::Result<Box<dyn enrich_redis::Stream>> {
        let (ours, theirs) = duplex(4096);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve(theirs).await });
        Ok(Box::new(ours))
    }
}

fn demo() -> WorkspaceId {
    "demo".parse().unwrap()
}

fn key() -> ApiKey {
    ApiKey::generate(|| 1)
}

fn now() -> Timestamp {
    Timestamp::from_unix_ms(1_700_000_000_000)
}

fn postgres(granted: i64) -> Postgres {
    let mut books = Books::default();
    let workspace = Workspace {
        id: demo().to_string(),
        quota_limit: 500,
        window_seconds: 60,
        granted,
        ..Workspace::default()
    };
    let rowid = books.create_workspace(workspace);
    books.create_key(rowid, key().digest().as_bytes());
    Postgres::new(books, || now().unix_ms())
}

async fn ledger(postgres: &Postgres) -> Ledger {
    let server: Server = "postgres://enrich@postgres/enrich?sslmode=disable".parse().unwrap();
    Ledger::open(server.through(Pipe(postgres.clone())), Config::default(), now()).await.unwrap()
}

fn hold(lookup: u8) -> Hold {
    let lookup_id = LookupId::from_bytes([lookup; 16]);
    let expires_at = now() + Duration::from_secs(30);
    Hold { lookup_id, workspace: demo(), credits: 1, placed_at: now(), expires_at }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_finds_a_key_holds_spends_and_leaves() {
    let postgres = postgres(10);
    let ledger = ledger(&postgres).await;
    let found = ledger.find(&key().digest()).await.unwrap();
    assert_eq!(found.map(|workspace| workspace.id), Some(demo()));
    assert_eq!(ledger.hold(&hold(1)).await.unwrap(), HoldOutcome::Granted);
    ledger.settle(&hold(1), Settlement::Spend(1)).await.unwrap();
    ledger.tick(now()).await.unwrap();
    let balance = ledger.balance(&demo()).await.unwrap();
    assert_eq!(balance, Balance { granted: 10, available: 9, held: 0, spent: 1 });
    assert_eq!(postgres.with(|books| books.spent_by(&[1; 16])), Some(1));
    ledger.close().await.unwrap();
    postgres.with(|books| assert!(books.leases().is_empty() && books.workspaces()[0].free() == 9));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_listens_hears_of_a_revoked_key() {
    let postgres = postgres(10);
    let ledger = ledger(&postgres).await;
    ledger.changed().await; // wait until the listener is connected
    assert!(ledger.find(&key().digest()).await.unwrap().is_some());
    postgres.with(|books| books.revoke_key(key().digest().as_bytes()));
    timeout(Duration::from_millis(10), ledger.changed()).await.unwrap();
    ledger.tick(now()).await.unwrap();
    assert!(ledger.find(&key().digest()).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn two_ledgers_share_the_last_credit() {
    let postgres = postgres(1);
    let (one, two) = (ledger(&postgres).await, ledger(&postgres).await);
    one.changed().await; // wait until the listener is connected
    assert_eq!(one.hold(&hold(1)).await.unwrap(), HoldOutcome::Granted);
    one.settle(&hold(1), Settlement::Release).await.unwrap();
    // The credit is idle on the first node, which returns it after a recall.
    let second = hold(2);
    let (held, ()) = tokio::join!(two.hold(&second), async {
        one.changed().await;
        one.tick(now()).await.unwrap();
    });
    assert_eq!(held.unwrap(), HoldOutcome::Granted);
    two.settle(&second, Settlement::Spend(1)).await.unwrap();
    assert_eq!(one.hold(&hold(3)).await.unwrap(), HoldOutcome::Insufficient);
}

#[tokio::test(start_paused = true)]
async fn windows_count_until_their_server_forgets() {
    let redis = Redis::new(|| now().unix_ms());
    let connect = Arc::new(Pipe(redis.clone()));
    let windows = RedisWindows::new(connect, Login::default(), RedisPolicy::default(), 7);
    let window = Quota::default().window(&demo(), now());
    for count in 1..=3 {
        assert_eq!(windows.count(&window).await.unwrap(), count);
    }
    redis.forget();
    assert_eq!(windows.count(&window).await.unwrap(), 1);
}
