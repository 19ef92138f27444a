//! Redis and PostgreSQL on machines of their own, and what the real adapters of a node need to reach them.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_fakes::postgres::Postgres;
use enrich_fakes::postgres::books::{Books, Workspace};
use enrich_fakes::redis::Redis;
use enrich_postgres::{Config, Ledger};
use enrich_redis::{Login, RedisPolicy, RedisWindows};
use tokio::time::{sleep, timeout};
use turmoil::net::{TcpListener, TcpStream};

use crate::clock::Clock;
use crate::plan::{Plan, node_name};
use crate::stores::customers;
use crate::trouble::Server;

const PORT: u16 = 1_024;

/// The longest that a message takes between a node and a server while nothing is wrong: they are closer to each other than
/// to clients.
pub(crate) const LATENCY_MAX: Duration = Duration::from_millis(10);

/// A step takes 10 ms, and so does every message: a count gets more time than in earnest.
const REDIS: RedisPolicy = RedisPolicy {
    deadline: Duration::from_millis(250),
    connect_within: Duration::from_secs(1),
    pause_first: Duration::from_millis(20),
    pause_max: Duration::from_millis(500),
};

/// How often a node is told the time, as the host's command line does it.
const TICK: Duration = Duration::from_millis(250);

/// How long to wait before a node that can't come up tries again.
const PAUSE: Duration = Duration::from_millis(100);

/// Both servers, as long as the world lasts: crashes cost Redis what it knows, and PostgreSQL nothing but its connections.
pub(crate) struct Servers {
    pub(crate) redis: Redis,
    pub(crate) postgres: Postgres,
    lease: Duration,
}

impl Servers {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut books = Books::default();
        for customer in customers(plan) {
            let quota = customer.workspace.quota;
            let rowid = books.create_workspace(Workspace {
                id: customer.workspace.id.to_string(),
                quota_limit: quota.limit().into(),
                window_seconds: quota.window_seconds().try_into().expect("a day at most"),
                granted: customer.credits.try_into().expect("a few"),
                ..Workspace::default()
            });
            books.create_key(rowid, customer.key.digest().as_bytes());
        }
        let time = |clock: Clock| move || clock.now().unix_ms();
        let redis = Redis::new(time(plan.servers.redis));
        Self { redis, postgres: Postgres::new(books, time(plan.servers.postgres)), lease: plan.servers.lease }
    }

    /// One life of a server's machine.
    pub(crate) async fn serve(self: Arc<Self>, server: Server) -> turmoil::Result {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            let servers = self.clone();
            // What becomes of a connection is the other side's to know.
            tokio::spawn(async move {
                match server {
                    Server::Redis => servers.redis.serve(stream).await,
                    Server::Postgres => servers.postgres.serve(stream).await,
                }
            });
        }
    }

    /// The windows of a node that comes up.
    pub(crate) fn windows(seed: u64) -> RedisWindows {
        RedisWindows::new(Arc::new(Network(Server::Redis)), Login::default(), REDIS, seed)
    }

    /// The ledger of a node that comes up, under this name: it tries until PostgreSQL lets it, as a process does that is
    /// started again whenever it ends.
    pub(crate) async fn ledger(&self, name: &str, clock: Clock) -> turmoil::Result<Arc<Ledger>> {
        let address = "postgres://enrich@postgres/enrich?sslmode=disable";
        let server = address.parse::<enrich_postgres::Server>()?.through(Network(Server::Postgres));
        let config = Config { name: name.to_owned(), lease: self.lease, ..Config::default() };
        loop {
            if let Ok(ledger) = Ledger::open(server.clone(), config.clone(), clock.now()).await {
                return Ok(Arc::new(ledger));
            }
            sleep(PAUSE).await;
        }
    }
}

/// Tells a ledger the time, for as long as its node lives.
pub(crate) async fn keep_current(ledger: Arc<Ledger>, clock: Clock) {
    loop {
        // What a tick meets is made up for by the next one that works.
        let _ = ledger.tick(clock.now()).await;
        let _ = timeout(TICK, ledger.changed()).await;
    }
}

/// What a node calls itself in one of its lives.
pub(crate) fn life(node: usize, life: usize) -> String {
    format!("{} life {life}", node_name(node))
}

/// The simulated network, to a server.
struct Network(Server);

#[async_trait]
impl enrich_redis::Connect for Network {
    async fn connect(&self) -> io::Result<Box<dyn enrich_redis::Stream>> {
        Ok(Box::new(TcpStream::connect((self.0.name(), PORT)).await?))
    }
}

#[async_trait]
impl enrich_postgres::Connect for Network {
    async fn connect(&self) -> io::Result<Box<dyn enrich_postgres::Stream>> {
        Ok(Box::new(TcpStream::connect((self.0.name(), PORT)).await?))
    }
}
