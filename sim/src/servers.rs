//! Simulated Redis and PostgreSQL servers, and the nodes' real adapters for them.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use enrich_fakes::postgres::{Database, Postgres, Workspace};
use enrich_fakes::redis::Redis;
use enrich_postgres::{Config, Ledger};
use enrich_redis::{Login, RedisPolicy, RedisWindows};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};
use turmoil::net::{TcpListener, TcpStream};

use crate::clock::{Clock, NodeClock};
use crate::plan::Plan;
use crate::topology::{Server, node_name};
use crate::workspaces::initial_workspaces;

const PORT: u16 = 1_024;

/// The maximum message latency between a node and a server without faults. Servers are closer to nodes than clients are.
pub(crate) const LATENCY_MAX: Duration = Duration::from_millis(10);

/// Each message takes at least one step of 10 ms, so counts get a longer timeout than in production.
const REDIS: RedisPolicy = RedisPolicy {
    timeout: Duration::from_millis(250),
    connect_timeout: Duration::from_secs(1),
    pause_first: Duration::from_millis(20),
    pause_max: Duration::from_millis(500),
};

/// The interval between two ticks of a node's ledger, the same as in the host's command line.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// How long a node waits between two attempts to start.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Both servers, for the duration of the run. A crash clears Redis's data; PostgreSQL loses its connections, and the
/// transactions that are not durable.
pub(crate) struct Servers {
    pub(crate) redis: Redis,
    pub(crate) postgres: Postgres,
    lease: Duration,
}

impl Servers {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut database = Database::default();
        for initial in initial_workspaces(plan) {
            let quota = initial.workspace.quota;
            let rowid = database.create_workspace(Workspace {
                id: initial.workspace.id.to_string(),
                quota_limit: quota.limit().into(),
                window_seconds: quota.window_seconds().try_into().expect("a day at most"),
                granted: initial.credits.try_into().expect("fits"),
                ..Workspace::default()
            });
            database.create_key(rowid, initial.key.digest().as_bytes());
        }
        let time = |clock: Clock| move || clock.now().unix_ms();
        let (rng, max) = (Mutex::new(StdRng::seed_from_u64(plan.seed)), plan.servers.commit_max);
        let commit_time = move || {
            let mut rng = rng.lock().unwrap_or_else(PoisonError::into_inner);
            rng.random_range(Duration::ZERO..=max)
        };
        let redis = Redis::new(time(plan.servers.redis));
        Self {
            redis,
            postgres: Postgres::new(database, time(plan.servers.postgres)).with_commit_time(commit_time),
            lease: plan.servers.lease,
        }
    }

    /// Runs a server until it crashes.
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
        RedisWindows::new(Arc::new(SimulatedConnect(Server::Redis)), Login::default(), REDIS, seed)
    }

    /// Opens the ledger of a starting node under this name.
    ///
    /// Retries until PostgreSQL accepts it, like a process that is restarted whenever it exits.
    pub(crate) async fn ledger(&self, name: &str, clock: &NodeClock) -> turmoil::Result<Arc<Ledger>> {
        let address = "postgres://enrich@postgres/enrich?sslmode=disable";
        let server = address.parse::<enrich_postgres::Server>()?.through(SimulatedConnect(Server::Postgres));
        let config = Config { name: name.to_owned(), lease: self.lease, ..Config::default() };
        loop {
            if let Ok(ledger) = Ledger::open(server.clone(), config.clone(), clock.read()).await {
                return Ok(Arc::new(ledger));
            }
            sleep(RETRY_INTERVAL).await;
        }
    }
}

/// Ticks a ledger until its node crashes.
pub(crate) async fn run_ticks(ledger: Arc<Ledger>, clock: NodeClock) {
    loop {
        // The next successful tick makes up for a failed one.
        let _ = ledger.tick(clock.read()).await;
        let _ = timeout(TICK_INTERVAL, ledger.changed()).await;
    }
}

/// Returns a node's name in PostgreSQL, which is different after each start.
pub(crate) fn ledger_name(node: usize, start: usize) -> String {
    format!("{} start {start}", node_name(node))
}

/// Connects to a server over the simulated network.
struct SimulatedConnect(Server);

#[async_trait]
impl enrich_postgres::Connect for SimulatedConnect {
    async fn connect(&self) -> io::Result<Box<dyn enrich_postgres::Stream>> {
        Ok(Box::new(TcpStream::connect((self.0.name(), PORT)).await?))
    }
}
