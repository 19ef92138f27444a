//! Runs the real adapters on the fakes.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use enrich_fakes::postgres::{Database, HoldRequest, Person, Postgres, Workspace};
use enrich_lib::credit::Hold;
use enrich_lib::email::Email;
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys, Resolver};
use enrich_lib::query::Query;
use enrich_postgres::{Config, Ledger, People, Server};
use enrich_store::EmailHasher;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};

/// A network to a fake server, with one in-memory pipe per connection.
#[derive(Clone)]
struct Network {
    server: Postgres,
    state: Arc<NetworkState>,
}

#[derive(Default)]
struct NetworkState {
    connections: AtomicU32,
    /// Whether connections are refused.
    is_down: AtomicBool,
    /// The connection that makes this write is lost, counted over all connections. 0 stands for none.
    lost_at: AtomicU32,
}

impl Network {
    fn new(server: Postgres) -> Self {
        Self { server, state: Arc::default() }
    }

    /// Returns a configuration that connects through this network.
    fn url(&self) -> Server {
        let server: Server = "postgres://enrich@postgres/enrich?sslmode=disable".parse().unwrap();
        server.through(self.clone())
    }
}

#[async_trait]
impl enrich_postgres::Connect for Network {
    async fn connect(&self) -> io::Result<Box<dyn enrich_postgres::Stream>> {
        if self.state.is_down.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.state.connections.fetch_add(1, Ordering::Relaxed);
        let (client, stream) = duplex(4096);
        let server = self.server.clone();
        tokio::spawn(async move { server.serve(stream).await });
        Ok(Box::new(NetworkStream(client, self.state.clone())))
    }
}

struct NetworkStream(DuplexStream, Arc<NetworkState>);

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
    let mut database = Database::default();
    let workspace = Workspace {
        id: demo().to_string(),
        quota_limit: 500,
        window_seconds: 60,
        granted,
        ..Workspace::default()
    };
    let rowid = database.create_workspace(workspace);
    database.create_key(rowid, key().digest().as_bytes(), false);
    Postgres::new(database, || now().unix_ms())
}

fn hold(lookup: u8) -> Hold {
    let lookup_id = LookupId::from_bytes([lookup; 16]);
    let mut hold = Hold::new(lookup_id, demo(), 1);
    hold.key = KeyId::from_number(1);
    hold.placed_at = now();
    hold
}

#[tokio::test(start_paused = true)]
async fn pooled_connection_is_replaced_after_its_maximum_age() {
    let network = Network::new(postgres(10));
    let ledger = Ledger::open(network.url(), Config::default(), now()).await.unwrap();
    let age_max = Duration::from_secs(600);
    for (elapsed, opened) in [(Duration::ZERO, false), (age_max / 2, false), (age_max, true)] {
        tokio::time::advance(elapsed).await;
        let before = network.state.connections.load(Ordering::Relaxed);
        ledger.hold(&hold(1)).await.unwrap();
        let after = network.state.connections.load(Ordering::Relaxed);
        assert_eq!(after > before, opened, "after {elapsed:?}");
    }
}

/// Once a minute, a sweep begins at the first row.
#[tokio::test(start_paused = true)]
async fn hold_that_expired_before_the_last_sweep_is_ended_within_a_minute() {
    let network = Network::new(postgres(10));
    let ledger = Ledger::open(network.url(), Config::default(), now()).await.unwrap();
    ledger.write_statistics().await.unwrap();
    let workspace = demo().to_string();
    let hold = HoldRequest { lookup: [1; 16], workspace, credits: 1, ttl_ms: 30_000, receipt: None };
    network.server.with(|database| database.hold(&[hold], 0)).unwrap(); // by a clock that is behind
    tokio::time::advance(Duration::from_secs(61)).await;
    ledger.write_statistics().await.unwrap();
    assert!(network.server.with(|database| database.holds().is_empty()));
}

/// The connection is lost at each of the statements between which a node applies the revocation.
#[tokio::test(start_paused = true)]
async fn revoked_key_is_refused_within_a_second_of_a_lost_connection() {
    for writes in 1..=10 {
        let network = Network::new(postgres(10));
        let ledger = Ledger::open(network.url(), Config::default(), now()).await.unwrap();
        assert!(ledger.find(&key().digest()).await.unwrap().is_some());
        network.server.with(|database| database.revoke_key(key().digest().as_bytes()));
        network.state.lost_at.store(writes, Ordering::Relaxed);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let found = ledger.find(&key().digest()).await;
            assert!(!matches!(found, Ok(Some(_))), "lost at write {writes}");
        }
        assert_eq!(network.state.lost_at.load(Ordering::Relaxed), 0, "write {writes} did not occur");
        assert!(ledger.find(&key().digest()).await.unwrap().is_none());
    }
}

/// A vendor may have answered already, so that a lookup waits for the database as long as it can.
#[tokio::test(start_paused = true)]
async fn person_is_found_after_an_outage_of_some_seconds() {
    let hasher = EmailHasher::new([7; 16]);
    let email = Email::parse("ada@posteo.net").unwrap();
    let network = Network::new(postgres(0));
    let person = Person { confidence: 0.9, profile: "someone".to_owned() };
    network.server.with(|database| database.add_person(hasher.hash(&email), person));
    let people = People::open(network.url(), Duration::from_secs(1), hasher, 0.8).await.unwrap();
    for _ in 0..2 {
        network.state.lost_at.store(1, Ordering::Relaxed);
        network.state.is_down.store(true, Ordering::Relaxed);
        let heal = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            network.state.is_down.store(false, Ordering::Relaxed);
        };
        let query = Query::new(LookupId::from_bytes([0; 16]), demo(), email.clone());
        let (found, ()) = tokio::join!(people.find(&query), heal);
        assert!(found.unwrap().profile.is_some());
    }
}
