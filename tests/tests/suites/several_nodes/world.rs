//! A database, nodes that use it, and a network with fault injection between them.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Hold, HoldOutcome, Settlement};
use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_postgres::{Config, Connect, Ledger, PostgresError, Server, Stream};
use enrich_store::Accounts;
use enrich_tests::contract::START;
use enrich_tests::eventually;
use enrich_tests::servers::{Pooler, Postgres};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// The timeout of a node's calls.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// A test database and its operator.
pub(crate) struct World<'a> {
    pub(crate) postgres: &'a Postgres,
    pub(crate) database: String,
    /// Between the nodes and the server, if the run requests it.
    pooler: Option<Pooler>,
    lookups: AtomicU32,
}

impl World<'static> {
    pub(crate) async fn new() -> Self {
        World::on(Postgres::shared()).await
    }
}

impl<'a> World<'a> {
    pub(crate) async fn on(postgres: &'a Postgres) -> Self {
        Self::in_database(postgres, postgres.create_database().await)
    }

    pub(crate) fn in_database(postgres: &'a Postgres, database: String) -> Self {
        let pooler = Pooler::if_requested(postgres);
        Self { postgres, database, pooler, lookups: AtomicU32::new(0) }
    }

    /// Returns a network without faults for a node.
    pub(crate) fn network(&self) -> Network {
        let socket = self.pooler.as_ref().map_or_else(|| self.postgres.socket(), Pooler::socket);
        Network { socket, ..Network::default() }
    }

    pub(crate) async fn sql(&self, statements: &str) {
        self.postgres.sql(&self.database, statements).await;
    }

    /// Creates the workspace `demo` with `credits`.
    pub(crate) async fn workspace(&self, credits: u64) {
        self.sql(
            "INSERT INTO workspace (id, quota_limit, window_seconds, created_at) VALUES ('demo', 500, 60, 0)",
        )
        .await;
        if credits > 0 {
            self.grant(credits).await;
        }
    }

    pub(crate) async fn grant(&self, credits: u64) {
        self.sql(&format!(
            "INSERT INTO credit_grant (workspace, credits, at) SELECT rowid, {credits}, 0 FROM workspace;
             UPDATE workspace SET granted = granted + {credits}"
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
        let all = self.postgres.numbers(&self.database, select).await;
        assert_eq!(all[..3], all[3..6], "the totals are what the rows add up to");
        assert_eq!(all[6], all[1], "the usage is what the spends add up to");
        [all[0], all[1], all[2]]
    }

    /// Waits until a statement waits for a lock.
    pub(crate) async fn statement_waits_for_a_lock(&self) {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("a statement waits for a lock", async || {
            self.postgres.numbers(&self.database, waits).await[0] > 0
        })
        .await;
    }

    /// Opens a connection of an operator.
    pub(crate) async fn admin(&self) -> Accounts {
        enrich_postgres::accounts(&self.postgres.server(&self.database)).await.unwrap()
    }

    pub(crate) async fn node(&self) -> Node {
        self.node_with(TIMEOUT, Duration::ZERO).await
    }

    /// Starts a node whose calls have this `timeout` and whose clock is `ahead`.
    pub(crate) async fn node_with(&self, timeout: Duration, ahead: Duration) -> Node {
        let network = self.network();
        let server = self.postgres.server(&self.database).through(network.clone());
        Self::node_on(server, network, timeout, ahead).await
    }

    /// Starts a node that connects to the servers of `url` over the system's network, and whose calls have
    /// this `timeout`.
    pub(crate) async fn node_at(&self, url: &str, timeout: Duration) -> Node {
        Self::node_on(url.parse().unwrap(), self.network(), timeout, Duration::ZERO).await
    }

    async fn node_on(server: Server, network: Network, timeout: Duration, ahead: Duration) -> Node {
        let mut config = Config::default();
        config.timeout = timeout;
        let ledger =
            Arc::new(opened(async || Ledger::open(server.clone(), config.clone(), START).await).await);
        let (started, ticking) = (Instant::now(), ledger.clone());
        let ticks = tokio::spawn(async move {
            loop {
                // The next tick retries whatever failed.
                let _ = ticking.tick(START + ahead + started.elapsed()).await;
                sleep(Duration::from_millis(250)).await;
            }
        });
        Node { ledger, ticks, network, started, ahead }
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

/// A node: a ledger and a task that ticks it as a server does.
pub(crate) struct Node {
    pub(crate) ledger: Arc<Ledger>,
    ticks: JoinHandle<()>,
    pub(crate) network: Network,
    started: Instant,
    ahead: Duration,
}

impl Node {
    pub(crate) fn now(&self) -> Timestamp {
        START + self.ahead + self.started.elapsed()
    }

    /// Stops the background ticks. The node still reads which keys have changed.
    pub(crate) async fn stop_ticking(&mut self) {
        self.ticks.abort();
        let _ = (&mut self.ticks).await;
    }

    /// Drops the node without a shutdown.
    pub(crate) async fn crash(mut self) {
        self.stop_ticking().await;
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

/// A node's network connection to the server, with fault injection in one or both directions.
#[derive(Clone, Default)]
pub(crate) struct Network {
    socket: PathBuf,
    drops_requests: Arc<AtomicBool>,
    drops_replies: Arc<AtomicBool>,
    connections: Arc<AtomicU32>,
}

impl Network {
    /// Loses all data from the server. Data from the node still arrives.
    pub(crate) fn drop_replies(&self) {
        self.drops_replies.store(true, Ordering::SeqCst);
    }

    /// Loses all data from the node. Data from the server still arrives.
    pub(crate) fn drop_requests(&self) {
        self.drops_requests.store(true, Ordering::SeqCst);
    }

    /// Returns the number of connections that the node has opened so far.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns whether no node uses this network, and all its connections are closed.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.connections) == 1
    }

    /// Loses all data in both directions and blocks new connections.
    pub(crate) fn cut(&self) {
        self.drop_requests();
        self.drop_replies();
    }

    /// Removes the faults for new connections. A connection that has lost data stays dead.
    pub(crate) fn heal(&mut self) {
        self.drops_requests.store(false, Ordering::SeqCst);
        self.drops_replies.store(false, Ordering::SeqCst);
    }
}

#[async_trait]
impl Connect for Network {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        if self.drops_requests.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let stream = UnixStream::connect(&self.socket).await?;
        self.connections.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Line { stream, network: self.clone(), loses: [false; 2] }))
    }
}

struct Line {
    stream: UnixStream,
    network: Network,
    /// Whether requests and replies were lost. Then all later ones are, too.
    loses: [bool; 2],
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.loses[1] |= self.network.drops_replies.load(Ordering::SeqCst);
        if self.loses[1] {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, to)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.loses[0] |= self.network.drops_requests.load(Ordering::SeqCst);
        if self.loses[0] {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
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
