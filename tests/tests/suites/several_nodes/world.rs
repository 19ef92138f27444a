//! A database, nodes that use it, and a network with fault injection between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_postgres::{Config, Ledger, PostgresError, Server};
use enrich_store::{Accounts, Clocks, Ledger as _};
use enrich_tests::contract::START;
use enrich_tests::eventually;
use enrich_tests::servers::{Client, Pooler, Postgres, Proxy};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The timeout of a node's calls.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// The timeout of a node whose test is not about it. Calls take longer on a busy machine.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(5);

/// A test database and its operator.
pub(crate) struct World<'a> {
    pub(crate) postgres: &'a Postgres,
    pub(crate) database: String,
    /// Between the nodes and the server, if the run requests it.
    pooler: Option<Pooler>,
    lookups: AtomicU32,
}

impl World<'static> {
    /// Creates a database without a workspace.
    pub(crate) async fn new() -> Self {
        let postgres = Postgres::shared();
        World::in_database(postgres, postgres.create_database().await)
    }

    /// Creates a database with the workspace `demo`, which has `credits`.
    pub(crate) async fn with_credits(credits: u64) -> Self {
        World::on(Postgres::shared(), credits).await
    }
}

impl<'a> World<'a> {
    /// Creates a database with the workspace `demo`, which has `credits`, on a server.
    pub(crate) async fn on(postgres: &'a Postgres, credits: u64) -> Self {
        let world = Self::in_database(postgres, postgres.create_database().await);
        world.workspace("demo", credits).await;
        world
    }

    pub(crate) fn in_database(postgres: &'a Postgres, database: String) -> Self {
        let pooler = Pooler::if_requested(postgres);
        Self { postgres, database, pooler, lookups: AtomicU32::new(0) }
    }

    /// Returns the port of the server, or of the pooler.
    fn port(&self) -> u16 {
        self.pooler.as_ref().map_or_else(|| self.postgres.port(), Pooler::port)
    }

    /// Returns the address of the database for a part of a node, without faults.
    pub(crate) fn server(&self) -> Server {
        url(&self.database, &[self.port()]).parse().unwrap()
    }

    pub(crate) async fn sql(&self, statements: &str) {
        self.postgres.sql(&self.database, statements).await;
    }

    /// Returns the columns of a query that yields one row of `bigint`s.
    pub(crate) async fn numbers(&self, query: &str) -> Vec<i64> {
        self.postgres.numbers(&self.database, query).await
    }

    /// Begins a transaction of another session. It ends with its `COMMIT`, or when the client is dropped.
    pub(crate) async fn begin(&self, statements: &str) -> Client {
        let client = self.postgres.client(&self.database).await;
        client.batch_execute(&format!("BEGIN; {statements}")).await.unwrap();
        client
    }

    /// Begins a transaction of another session that locks the workspaces with names like `pattern`, and their balances.
    pub(crate) async fn lock_balances(&self, pattern: &str) -> Client {
        let lock = "SELECT FROM balance JOIN workspace ON rowid = workspace WHERE id SIMILAR TO";
        self.begin(&format!("{lock} '{pattern}' FOR UPDATE")).await
    }

    /// Replaces the balances of workspaces by settlements that have not been returned, one for each credit.
    pub(crate) async fn owe(&self, ids: &[&str]) {
        let statement = format!(
            "WITH old AS (
                 SELECT workspace, available FROM balance JOIN workspace ON rowid = workspace
                 WHERE id = ANY ('{{{}}}') FOR UPDATE
             ), new AS (
                 UPDATE balance b SET available = 0, version = b.version + 1
                 FROM old WHERE b.workspace = old.workspace
             )
             INSERT INTO settlement (settled_at, workspace, day, key, lookups, credits, rest)
                 SELECT extract(epoch FROM now()) * 1000, workspace, 0, 0, 0, 0, 1
                 FROM old CROSS JOIN LATERAL generate_series(1, old.available)",
            ids.join(",")
        );
        self.sql(&statement).await;
    }

    /// Creates a workspace with `credits`.
    pub(crate) async fn workspace(&self, id: &str, credits: u64) {
        self.sql(&format!(
            "INSERT INTO workspace (id, quota_limit, window_seconds, created_at, granted)
                 VALUES ('{id}', 500, 60, 0, {credits});
             INSERT INTO credit_grant (workspace, credits, at)
                 SELECT rowid, granted, 0 FROM workspace WHERE id = '{id}' AND granted > 0"
        ))
        .await;
    }

    pub(crate) async fn key(&self, seed: u8) -> ApiKey {
        let key = ApiKey::generate(|| seed);
        let (id, masked) = (key.digest().key_id().number(), key.masked());
        let digest: String = key.digest().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        self.sql(&format!(
            "INSERT INTO api_key (id, workspace, label, digest, masked, created_by, created_at)
             SELECT {id}, rowid, 'test', '\\x{digest}', '{masked}', 'operator', 0 FROM workspace"
        ))
        .await;
        key
    }

    /// Changes the columns of a key.
    pub(crate) async fn update_key(&self, key: &ApiKey, columns: &str) {
        let id = key.digest().key_id().number();
        self.sql(&format!("UPDATE api_key SET {columns} WHERE id = {id}")).await;
    }

    /// Returns the workspace's granted, spent and held credits. Panics if they differ from the sums of the
    /// rows, or if the usage differs from the spends.
    pub(crate) async fn totals(&self) -> [i64; 3] {
        let select = "SELECT a.granted, a.spent, a.held,
                 (SELECT sum(credits)::bigint FROM credit_grant),
                 (SELECT coalesce(sum(credits), 0)::bigint FROM credit_spend),
                 (SELECT coalesce(sum(credits), 0)::bigint FROM credit_hold),
                 (SELECT coalesce(sum(credits), 0)::bigint FROM (SELECT credits FROM usage_day UNION ALL SELECT credits FROM uncounted_usage) AS u)
             FROM account a";
        let all = self.numbers(select).await;
        assert_eq!(all[..3], all[3..6], "the totals are what the rows add up to");
        assert_eq!(all[6], all[1], "the usage is what the spends add up to");
        [all[0], all[1], all[2]]
    }

    /// Waits until a statement waits for a lock.
    pub(crate) async fn statement_waits_for_a_lock(&self) {
        let waits = async || self.postgres.waiting_statements(&self.database).await > 0;
        eventually("a statement waits for a lock", waits).await;
    }

    /// Opens a connection of an operator.
    pub(crate) async fn admin(&self) -> Accounts {
        enrich_postgres::accounts(&self.postgres.server(&self.database)).await.unwrap()
    }

    pub(crate) async fn node(&self) -> Node {
        self.node_with(TIMEOUT).await
    }

    /// Starts a node whose calls have this `timeout`.
    pub(crate) async fn node_with(&self, timeout: Duration) -> Node {
        self.node_of(config(timeout)).await
    }

    pub(crate) async fn node_of(&self, config: Config) -> Node {
        let network = Proxy::start(self.port()).await;
        Node::start(&url(&self.database, &[network.port()]), network, config).await
    }

    /// Starts a node that connects to the servers of `url` without the network of the world, and whose calls
    /// have this `timeout`.
    pub(crate) async fn node_at(&self, url: &str, timeout: Duration) -> Node {
        Node::start(url, Proxy::start(self.port()).await, config(timeout)).await
    }

    /// Creates the hold of a new lookup at `node` without placing it.
    pub(crate) fn lookup(&self, node: &Node, credits: u64) -> Hold {
        let n = self.lookups.fetch_add(1, Ordering::Relaxed);
        let mut random = [0; 10];
        random[6..].copy_from_slice(&n.to_be_bytes());
        let mut hold = Hold::new(LookupId::new(START, random), demo(), credits);
        hold.key = key_id();
        hold.placed_at = node.now();
        hold.ttl = Duration::from_secs(60);
        hold
    }

    /// As [`World::lookup`], for one credit of another workspace.
    pub(crate) fn lookup_of(&self, node: &Node, workspace: &str) -> Hold {
        let mut hold = self.lookup(node, 1);
        hold.workspace = workspace.parse().unwrap();
        hold
    }

    /// Places the hold of a new lookup.
    pub(crate) async fn hold(&self, node: &Node, credits: u64) -> (Hold, Result<HoldOutcome, PortError>) {
        let hold = self.lookup(node, credits);
        let holding = node.ledger.hold(&hold).await;
        (hold, holding)
    }

    /// Places the hold of a new lookup. Panics unless it is granted.
    pub(crate) async fn holding(&self, node: &Node, credits: u64) -> Hold {
        let (hold, holding) = self.hold(node, credits).await;
        assert_eq!(holding.unwrap(), HoldOutcome::Granted);
        hold
    }

    /// Spends one credit with a new lookup. Returns `false` if there is none, which is a 402 for the client.
    pub(crate) async fn spend(&self, node: &Node) -> Result<bool, PortError> {
        let (hold, holding) = self.hold(node, 1).await;
        match holding? {
            HoldOutcome::Insufficient(_) => Ok(false),
            HoldOutcome::Granted => node.ledger.settle(&hold, Settlement::Spend(1)).await.map(|_| true),
        }
    }
}

/// Repeats an attempt to open a store: a busy machine may take longer than the timeout of one.
pub(crate) async fn opened<T>(open: impl AsyncFn() -> Result<T, PostgresError>) -> T {
    let mut opened = None;
    eventually("the store opens", async || {
        opened = open().await.ok();
        opened.is_some()
    })
    .await;
    opened.unwrap()
}

/// Returns the id of the key of all lookups.
pub(crate) fn key_id() -> KeyId {
    ApiKey::generate(|| 1).digest().key_id()
}

pub(crate) fn demo() -> WorkspaceId {
    "demo".parse().unwrap()
}

fn config(timeout: Duration) -> Config {
    let mut config = Config::default();
    config.timeout = timeout;
    config
}

/// Returns the URL of a database on several ports of this machine.
pub(crate) fn url(database: &str, ports: &[u16]) -> String {
    let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    format!("postgres://postgres@{}/{database}", hosts.join(","))
}

/// A node: a ledger and a task that ticks it as a server does.
pub(crate) struct Node {
    pub(crate) ledger: Arc<Ledger>,
    ticks: JoinHandle<()>,
    pub(crate) network: Arc<Proxy>,
    started: Instant,
}

impl Node {
    async fn start(url: &str, network: Proxy, config: Config) -> Self {
        let open =
            async || Ledger::open(url.parse().unwrap(), config.clone(), Clocks::simulated(START)).await;
        let ledger = Arc::new(opened(open).await);
        let (started, ticking) = (Instant::now(), ledger.clone());
        let ticks = tokio::spawn(async move {
            loop {
                // The next ones retry whatever failed.
                let _ = ticking.tick(Clocks::simulated(START + started.elapsed())).await;
                let _ = ticking.write_statistics().await;
                sleep(Duration::from_millis(250)).await;
            }
        });
        Self { ledger, ticks, network: Arc::new(network), started }
    }

    pub(crate) fn now(&self) -> Timestamp {
        START + self.started.elapsed()
    }

    /// Begins to spend all credits of a hold.
    pub(crate) fn begin_spend(&self, hold: &Hold) -> JoinHandle<Result<(), PortError>> {
        let (ledger, hold) = (self.ledger.clone(), hold.clone());
        tokio::spawn(async move { ledger.settle(&hold, Settlement::Spend(hold.credits)).await.map(drop) })
    }

    /// Stops the background ticks. The node still reads which keys have changed.
    pub(crate) async fn stop_ticking(&mut self) {
        self.ticks.abort();
        let _ = (&mut self.ticks).await;
    }

    pub(crate) async fn accepts(&self, key: &ApiKey) -> Result<bool, PortError> {
        Ok(self.ledger.find(&key.digest()).await?.is_some())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.ticks.abort();
    }
}

/// Checks that a change that was just made applies within the second that the manual promises: a request that
/// begins later is not answered as before the change. `applies` returns `None` for a request without an
/// answer.
///
/// The duration of a request is not part of the promise, so a busy machine breaks no test.
pub(crate) async fn applies_within_a_second(what: &str, mut applies: impl AsyncFnMut() -> Option<bool>) {
    let changed_at = Instant::now();
    eventually(what, async || {
        let is_late = changed_at.elapsed() > Duration::from_secs(1);
        let applies = applies().await;
        assert!(applies != Some(false) || !is_late, "{what}: not within a second");
        applies == Some(true)
    })
    .await;
}
