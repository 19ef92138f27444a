//! Simulated Redis and PostgreSQL servers, and the nodes' real adapters for them.

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

/// The maximum message latency between a node and a server without faults. Servers are closer to nodes than clients are.
pub(crate) const LATENCY_MAX: Duration = Duration::from_millis(10);

/// Each message takes at least one step of 10 ms, so counts get a longer deadline than in production.
const REDIS: RedisPolicy = RedisPolicy {
    deadline: Duration::from_millis(250),
    connect_timeout: Duration::from_secs(1),
    pause_first: Duration::from_millis(20),
    pause_max: Duration::from_millis(500),
};

/// The interval between two ticks of a node's ledger, the same as in the host's command line.
const TICK: Duration = Duration::from_millis(250);

/// How long a node waits between two attempts to start.
const PAUSE: Duration = Duration::from_millis(100);

/// Both servers, for the duration of the world. A crash clears Redis's data; PostgreSQL loses only its connections.
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

    /// Runs one life of a server's machine.
    pub(crate) async fn serve(self: Arc<Self>, server: Server) -> turmoil::Result {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            let servers = self.clone();
            // The client observes the end of the connection.
            tokio::spawn(async move {
                match server {
                    Server::Redis => servers.redis.serve(stream).await,
                    Server::Postgres => servers.postgres.serve(stream).await,
                }
            });
        }
    }

    /// Creates the rate-limit windows of a starting node.
    pub(crate) fn windows(seed: u64) -> RedisWindows {
        RedisWindows::new(Arc::new(Network(Server::Redis)), Login::default(), REDIS, seed)
    }

    /// Opens the ledger of a starting node under this name.
    ///
    /// Retries until PostgreSQL accepts it, like a process that is restarted whenever it exits.
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

/// Advances a ledger's clock for as long as its node lives.
pub(crate) async fn keep_current(ledger: Arc<Ledger>, clock: Clock) {
    loop {
        // The next successful tick makes up for a failed one.
        let _ = ledger.tick(clock.now()).await;
        let _ = timeout(TICK, ledger.changed()).await;
    }
}

/// Returns a node's name in PostgreSQL during one of its lives.
pub(crate) fn life(node: usize, life: usize) -> String {
    format!("{} life {life}", node_name(node))
}

/// Connects to a server over the simulated network.
struct Network(Server);

#[async_trait]
impl enrich_postgres::Connect for Network {
    async fn connect(&self) -> io::Result<Box<dyn enrich_postgres::Stream>> {
        Ok(Box::new(TcpStream::connect((self.0.name(), PORT)).await?))
    }
}
