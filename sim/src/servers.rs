//! Simulated Redis and PostgreSQL servers, and the nodes' real adapters for them.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_fakes::postgres::{Database, Person, Postgres, Workspace};
use enrich_fakes::redis::Redis;
use enrich_lib::email::Email;
use enrich_node::SharedDatabase;
use enrich_postgres::{Config, Sizes};
use enrich_redis::{Login, RedisPolicy, RedisWindows};
use enrich_sqlite::People;
use enrich_store::EmailHasher;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use turmoil::net::{TcpListener, TcpStream};

use crate::clock::Clock;
use crate::own_database::CreditDatabase;
use crate::plan::Plan;
use crate::topology::{DATABASE_PORT, Server};
use crate::workspaces::initial_workspaces;

const PORT: u16 = 1_024;

/// The maximum message latency between a node and a server without faults. Servers are closer to nodes than
/// clients are.
pub(crate) const LATENCY_MAX: Duration = Duration::from_millis(10);

/// Each message takes at least one step of 10 ms, so counts get a longer timeout than in production.
const REDIS: RedisPolicy = RedisPolicy {
    timeout: Duration::from_millis(250),
    connect_timeout: Duration::from_secs(1),
    pause_first: Duration::from_millis(20),
    pause_max: Duration::from_millis(500),
};

/// Both servers, for the duration of the run. A crash clears Redis's data; PostgreSQL loses its connections,
/// and the transactions that are not durable.
pub(crate) struct Servers {
    pub(crate) redis: Redis,
    pub(crate) postgres: Postgres,
    /// The maximum sizes of the nodes' statements.
    sizes: Sizes,
    /// The database of a gateway, on the machine of PostgreSQL.
    pub(crate) database: Option<Arc<dyn CreditDatabase>>,
}

impl Servers {
    pub(crate) fn new(
        plan: &Plan,
        opt_outs: &[Email],
        own_database: Option<Arc<dyn CreditDatabase>>,
    ) -> turmoil::Result<Self> {
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
            initial.keys.iter().for_each(|key| database.create_key(rowid, key.digest().as_bytes(), false));
        }
        opt_outs.iter().for_each(|email| database.opt_out(hasher().opt_out_hash(email)));
        for (email, profile) in plan.imported_people() {
            let profile = profile.name().to_owned();
            database.add_person(hasher().hash(&Email::parse(&email)?), Person { confidence: 1.0, profile });
        }
        let time = |clock: Clock| move || clock.now().unix_ms();
        let (rng, max) = (Mutex::new(StdRng::seed_from_u64(plan.seed)), plan.servers.commit_max);
        let commit_time = move || rng.lock().random_range(Duration::ZERO..=max);
        let redis = Redis::new(time(plan.servers.redis));
        Ok(Self {
            redis,
            postgres: Postgres::new(database, time(plan.servers.postgres)).with_commit_time(commit_time),
            sizes: plan.servers.sizes,
            database: own_database,
        })
    }

    /// Runs a server until it crashes.
    pub(crate) async fn serve(self: Arc<Self>, server: Server) -> turmoil::Result {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        if let (Server::Postgres, Some(database)) = (server, self.database.clone()) {
            let own = TcpListener::bind((Ipv4Addr::UNSPECIFIED, DATABASE_PORT)).await?;
            tokio::spawn(async move {
                while let Ok((stream, _)) = own.accept().await {
                    let database = database.clone();
                    tokio::spawn(async move { database.serve(stream).await });
                }
            });
        }
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

    /// Returns the location of the accounts and people for a starting node.
    pub(crate) fn database(&self) -> turmoil::Result<enrich_node::Database> {
        let address = "postgres://enrich@postgres/enrich?sslmode=disable";
        let server = address.parse::<enrich_postgres::Server>()?.through(SimulatedConnect(Server::Postgres));
        let mut config = Config::default();
        config.sizes = self.sizes;
        Ok(enrich_node::Database::Server(Box::new(SharedDatabase {
            server,
            config,
            hasher: hasher(),
            confidence_min: People::CONFIDENCE_MIN,
        })))
    }
}

pub(crate) fn hasher() -> EmailHasher {
    EmailHasher::new([7; 16])
}

/// Connects to a server over the simulated network.
struct SimulatedConnect(Server);

#[async_trait]
impl enrich_postgres::Connect for SimulatedConnect {
    async fn connect(&self) -> io::Result<Box<dyn enrich_postgres::Stream>> {
        Ok(Box::new(TcpStream::connect((self.0.name(), PORT)).await?))
    }
}
