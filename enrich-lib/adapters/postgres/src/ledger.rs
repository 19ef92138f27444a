//! Keys and credits for one of several serving nodes.
//!
//! Holds live in memory, on credits that the node has leased. A spend is queued for the [`crate::writer`] and acknowledged
//! when it is durable in PostgreSQL.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{AccountError, Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Workspace;
use enrich_net::reply_channel;
use enrich_store::statistics::{CommitCounter, LeaseStatistics, LedgerStatistics};
use enrich_store::usage::UsageCounter;
use enrich_store::{ClockSkew, Clocks, ServerClock, StoreError, TickError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::column::{Uuid, credits, time};
use crate::connect::Server;
use crate::database;
use crate::error::PostgresError;
use crate::heartbeat::Heartbeat;
use crate::keys::NodeKeys;
use crate::listener;
use crate::pool::Pool;
use crate::session::Sessions;
use crate::spend::{Pending, Spend};
use crate::upkeep::Upkeep;
use crate::workspace::{LeaseOutcome, WorkspaceState};
use crate::writer::{Job, Writer};

/// How long [`Ledger::close`] waits for pending spends, and how long it then returns leases.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout for finding a key.
const KEY_TIMEOUT: Duration = Duration::from_secs(1);

/// The timeout for a hold.
const HOLD_TIMEOUT: Duration = Duration::from_secs(5);

/// The connections of the heartbeat, the periodic work, the writer, the listener and the opt-outs.
const OWN_CONNECTIONS: usize = 5;

/// The configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The node's name as shown to operators. Several nodes may share a name.
    pub name: String,
    /// How long the node's leases last without a heartbeat. After a crash, the node's credits are unavailable to other nodes
    /// for this time.
    pub lease: Duration,
    /// The timeout for one database request.
    pub timeout: Duration,
    /// The maximum number of connections for keys and holds, half of them for each. See [`Config::connections`].
    pub connections_max: usize,
}

impl Config {
    /// Returns the maximum number of connections of a node, including that of [`SharedOptOuts`](crate::SharedOptOuts).
    pub fn connections(&self) -> usize {
        self.connections_max + OWN_CONNECTIONS
    }
}

impl Default for Config {
    fn default() -> Self {
        let (lease, timeout) = (Duration::from_secs(10), Duration::from_secs(1));
        Self { name: "node".to_owned(), lease, timeout, connections_max: 8 }
    }
}

/// [`Keys`] and [`Credits`] of a database that several nodes share. To the store, dropping the ledger without
/// [`Ledger::close`] looks like a crash: its leases return when the session expires.
pub struct Ledger {
    keys: Arc<NodeKeys>,
    usage: Arc<UsageCounter>,
    sessions: Arc<Sessions>,
    heartbeat: Arc<Heartbeat>,
    upkeep: Upkeep,
    /// For holds.
    pool: Pool,
    queue: mpsc::UnboundedSender<Job>,
    /// The number of spends without a result.
    pending: Arc<AtomicU64>,
    commits: Arc<CommitCounter>,
    changed: Arc<Notify>,
    clock: ServerClock,
    heartbeat_task: JoinHandle<()>,
    tasks: [JoinHandle<()>; 2],
}

impl Ledger {
    /// Registers the node with the database, and starts the tasks of the heartbeat, the writer and the listener. The ledger
    /// reads no wall clock: `now` is the initial time, and [`Ledger::tick`] advances it. A [`Timestamp`] stands for both clocks.
    ///
    /// Errors: [`PostgresError::NotMigrated`] or [`StoreError::NewerSchema`] if the schema has another version than this program
    /// or the next one.
    pub async fn open(server: Server, config: Config, now: impl Into<Clocks>) -> Result<Self, PostgresError> {
        let now = now.into();
        let Config { name, lease, timeout, connections_max } = config;
        let key_connections = (connections_max / 2).max(1);
        let key_pool = Pool::new(server.clone(), key_connections, timeout);
        let pool = Pool::new(server.clone(), connections_max.saturating_sub(key_connections).max(1), timeout);
        // Each sends one statement at a time, and must not wait for lookups or for each other.
        let own_pool = || Pool::new(server.clone(), 1, timeout);
        let (heartbeat_pool, upkeep_pool, writer_pool) = (own_pool(), own_pool(), own_pool());
        database::check(&upkeep_pool).await?;
        let (sessions, usage): (Arc<Sessions>, Arc<UsageCounter>) = Default::default();
        sessions.advance(now.elapsed);
        let keys = Arc::new(NodeKeys::new(key_pool, key_connections, now.wall));
        let heartbeat = Heartbeat::begin(heartbeat_pool, name, lease, sessions.clone(), keys.clone()).await?;
        let heartbeat = Arc::new(heartbeat);
        let heartbeat_task = tokio::spawn(heartbeat.clone().run());
        let changed = Arc::new(Notify::new());
        let (queue, jobs) = mpsc::unbounded_channel();
        let commits = Arc::new(CommitCounter::default());
        let notified = {
            let (heartbeat, changed) = (heartbeat.clone(), changed.clone());
            move || {
                heartbeat.request();
                changed.notify_one();
            }
        };
        let tasks = [
            tokio::spawn(Writer::new(writer_pool, commits.clone()).run(jobs)),
            tokio::spawn(listener::run(server, timeout, notified)),
        ];
        let upkeep = Upkeep::new(upkeep_pool, sessions.clone(), keys.clone(), usage.clone(), changed.clone());
        let clock = ServerClock::default();
        Ok(Self {
            keys,
            usage,
            sessions,
            heartbeat,
            upkeep,
            pool,
            queue,
            pending: Arc::default(),
            commits,
            changed,
            clock,
            heartbeat_task,
            tasks,
        })
    }

    /// Sets the time to `now`, which expires holds and keys. Returns credits that other nodes need or that are idle, ends the
    /// leases of expired nodes, and writes reports. Call it at least four times a second, and whenever [`Ledger::changed`]
    /// returns. The session does not depend on it: the heartbeat has its own task.
    pub async fn tick(&self, now: impl Into<Clocks>) -> Result<(), PostgresError> {
        let now = now.into();
        self.keys.set_time(now.wall);
        self.sessions.advance(now.elapsed);
        self.upkeep.run().await
    }

    /// Sends a heartbeat before its regular time and waits for its reply, which applies changes of keys and quotas.
    pub async fn heartbeat(&self) -> Result<(), PostgresError> {
        self.heartbeat.requested().await
    }

    /// Returns statistics for metrics.
    pub fn statistics(&self) -> LedgerStatistics {
        let states = self.sessions.newest().states();
        LedgerStatistics {
            credits_held: states.iter().map(|state| state.lease().account.balance().held).sum(),
            queue_depth: self.pending.load(Ordering::Relaxed),
            commits: self.commits.snapshot(),
            leases: Some(self.leases()),
        }
    }

    /// Returns the number of the node's leases, and the number of recalls by other nodes that it has answered.
    fn leases(&self) -> LeaseStatistics {
        let states = self.sessions.newest().states();
        let leases = states.iter().filter(|state| state.lease().id().is_some()).count();
        LeaseStatistics { leases: leases as u64, recalls: self.upkeep.recalls() }
    }

    /// Fails if the node's session is not current: the last heartbeat failed, or heartbeats have stopped. Sends no statement.
    pub fn check(&self) -> Result<(), PostgresError> {
        self.heartbeat.check()
    }

    /// Returns the counter of free lookups. The caller passes every lookup event to [`UsageCounter::record`]. Each tick and
    /// [`Ledger::close`] add the counts to the usage.
    pub fn usage(&self) -> &Arc<UsageCounter> {
        &self.usage
    }

    /// Waits until a tick is needed before its regular time: another node needs credits, or the last tick has left work. Delivery is
    /// not guaranteed; notifications only make a periodically ticking ledger react sooner.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns a workspace's balance. Grants and spends are current; holds of other nodes are up to a second old.
    pub async fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, PostgresError> {
        let session = self.sessions.newest();
        let own = session.find(workspace).map_or(0, |state| state.lease().account.balance().held);
        let select = "SELECT a.granted, a.spent, coalesce((
                 SELECT sum(least(l.held, l.taken - l.returned - l.spent))::bigint FROM lease l
                 WHERE l.workspace = a.rowid AND l.epoch <> $2
             ), 0)
             FROM account a WHERE a.id = $1";
        let rows = self.pool.query(select, &[&workspace.as_str(), &session.epoch]).await?;
        let row = rows.first().ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()))?;
        let (granted, spent) = (credits(row.get(0)), credits(row.get(1)));
        let held = (own + credits(row.get(2))).min(granted - spent);
        Ok(Balance { granted, available: granted - spent - held, held, spent })
    }

    /// Compares the node's clock, which `now` reads, with PostgreSQL's clock.
    pub async fn compare_clocks(&self, now: impl Fn() -> Timestamp) -> Result<ClockSkew, PostgresError> {
        let select = "SELECT clock_timestamp()";
        let read = async { Ok(time(self.pool.query_one(select, &[]).await?.get(0))) };
        self.clock.compare(now, read).await
    }

    /// Returns the result of the last [`Ledger::compare_clocks`] that succeeded.
    pub fn clock_skew(&self) -> Option<ClockSkew> {
        self.clock.skew()
    }

    /// Closes the ledger: waits for pending spends, writes the usage, then returns all leases. Call it after the last lookup
    /// has finished.
    pub async fn close(&self) -> Result<(), PostgresError> {
        let (done, flushed) = oneshot::channel();
        self.queue.send(Job::Flush(done)).map_err(|_| StoreError::Stopped)?;
        // The outcome of a spend that is still pending stays unknown, as after a crash.
        let _ = timeout(CLOSE_TIMEOUT, flushed).await;
        self.heartbeat_task.abort();
        self.upkeep.close(CLOSE_TIMEOUT).await
    }

    async fn place_hold(&self, hold: &Hold) -> Result<HoldOutcome, PostgresError> {
        loop {
            let session = self.heartbeat.active_session().await?;
            if self.sessions.find_earlier(hold).is_some() {
                return Err(PostgresError::LeaseEnded);
            }
            let state = self.sessions.state(&session, &hold.workspace);
            let started_before = state.requests_started();
            if state.hold(hold)? == HoldOutcome::Granted {
                return Ok(HoldOutcome::Granted);
            }
            match state.lease_more(hold.credits, started_before, &self.pool).await? {
                LeaseOutcome::Retry => {}
                LeaseOutcome::Insufficient => return Ok(HoldOutcome::Insufficient),
                LeaseOutcome::SessionEnded => session.end(),
            }
        }
    }

    /// Returns the credits that a lookup has spent, if its spend is kept.
    async fn spent(&self, hold: &Hold) -> Result<Option<u64>, PostgresError> {
        let select = "SELECT s.credits FROM credit_spend s JOIN workspace w ON w.rowid = s.workspace
             WHERE s.lookup_id = $1 AND w.id = $2";
        let rows = self.pool.query(select, &[&Uuid(hold.lookup_id), &hold.workspace.as_str()]).await?;
        Ok(rows.first().map(|row| credits(row.get(0))))
    }

    async fn spend(
        &self,
        state: Arc<WorkspaceState>,
        hold: &Hold,
        credits: u64,
    ) -> Result<(), PostgresError> {
        let rowid = {
            let mut lease = state.lease();
            lease.account.begin_spend(hold, credits)?;
            if let Some(spent) = lease.spends.get(&hold.lookup_id).copied() {
                lease.account.abort_spend(hold.lookup_id);
                return Ok(Settlement::Spend(credits).without_hold(Some(spent))?);
            }
            let Some(rowid) = lease.rowid else {
                lease.account.abort_spend(hold.lookup_id);
                return Err(StoreError::UnknownWorkspace(hold.workspace.clone()).into());
            };
            rowid
        };
        let (reply, result) = reply_channel();
        let queued_at = Instant::now();
        let (hold, is_ambiguous, is_late) = (hold.clone(), false, false);
        let _pending = Pending::count(&self.pending);
        let spend = Spend { state, rowid, hold, credits, reply, queued_at, is_ambiguous, is_late, _pending };
        if let Err(mpsc::error::SendError(Job::Spend(spend))) = self.queue.send(Job::Spend(spend)) {
            spend.state.lease().account.abort_spend(spend.hold.lookup_id);
            return Err(StoreError::Stopped.into());
        }
        match result.await {
            Ok(result) => result,
            // The writer has ended or has given up, and the outcome is unknown.
            Err(_) => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Keys for Ledger {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        within(KEY_TIMEOUT, self.keys.find(key)).await
    }
}

#[async_trait]
impl Credits for Ledger {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        within(HOLD_TIMEOUT, self.place_hold(hold)).await
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let state = self.sessions.state_of(hold);
        let settled = match settlement {
            Settlement::Release | Settlement::Spend(0) => {
                state.lease().account.release(hold).map_err(PostgresError::from)
            }
            Settlement::Spend(credits) => self.spend(state, hold, credits).await,
        };
        if let Err(PostgresError::Store(StoreError::Account(AccountError::NoHold))) = settled {
            return settlement.without_hold(self.spent(hold).await?).map_err(PortError::new);
        }
        Ok(settled?)
    }
}

/// Fails if `result` takes longer than `limit`, whatever the number of its statements.
async fn within<T>(
    limit: Duration,
    result: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PortError> {
    Ok(timeout(limit, result).await.unwrap_or(Err(PostgresError::TimedOut(limit)))?)
}

#[async_trait]
impl enrich_store::Ledger for Ledger {
    fn database(&self) -> &'static str {
        "postgresql"
    }

    async fn tick(&self, now: Clocks) -> Result<(), TickError> {
        self.tick(now).await.map_err(|error| TickError::Transient(error.into()))
    }

    async fn changed(&self) {
        self.changed().await;
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(self.close().await?)
    }

    fn check(&self) -> Result<(), StoreError> {
        Ok(self.check()?)
    }

    fn statistics(&self) -> LedgerStatistics {
        self.statistics()
    }

    fn usage(&self) -> &Arc<UsageCounter> {
        self.usage()
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Ok(self.balance(workspace).await?)
    }

    async fn compare_clocks(
        &self,
        now: &(dyn Fn() -> Timestamp + Send + Sync),
    ) -> Result<Option<ClockSkew>, StoreError> {
        Ok(Some(self.compare_clocks(now).await?))
    }

    fn clock_skew(&self) -> Option<ClockSkew> {
        self.clock_skew()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.heartbeat_task.abort();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
