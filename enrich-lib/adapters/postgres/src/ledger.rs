//! Keys and credits for one of several serving nodes.
//!
//! Holds live in memory, on credits that the node has leased. A spend is queued for the [`crate::writer`] and acknowledged
//! when it is durable in PostgreSQL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement, SpendStart};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::WorkspaceId;
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Workspace;
use enrich_store::usage::UsageCounter;
use enrich_store::{Clocks, StoreError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::column::{at, bigint, credits, key_number};
use crate::connect::Server;
use crate::database;
use crate::error::PostgresError;
use crate::keys::NodeKeys;
use crate::listener;
use crate::pool::{Pool, Value};
use crate::session::{Heartbeat, Session, Sessions};
use crate::workspace::{LeaseOutcome, WorkspaceState};
use crate::writer::{Job, Spend, Writer};

/// The interval at which the node reports its holds and the use of keys, and ends the leases of expired nodes.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// How long [`Ledger::close`] waits for pending spends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of rows in one statement that writes usage.
const USAGE_ROWS_MAX: usize = 1_000;

/// Connections reserved for the heartbeat and the writer, which must not wait for holds.
const OWN_CONNECTIONS: usize = 2;

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
    /// The maximum number of connections for keys and holds. The node uses three more.
    pub connections_max: usize,
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
    keys: NodeKeys,
    usage: Arc<UsageCounter>,
    sessions: Sessions,
    pool: Pool,
    own_pool: Pool,
    queue: mpsc::UnboundedSender<Job>,
    changed: Arc<Notify>,
    /// When the last report was sent. Locked while a tick communicates with the store.
    reported_at: tokio::sync::Mutex<Option<Instant>>,
    tasks: [JoinHandle<()>; 2],
}

impl Ledger {
    /// Registers the node with the database, and starts the writer task and the listener task. The ledger reads no wall
    /// clock: `now` is the initial time, and [`Ledger::tick`] advances it. A [`Timestamp`](enrich_lib::model::Timestamp)
    /// stands for both clocks.
    ///
    /// Errors: [`PostgresError::NotMigrated`] or [`StoreError::NewerSchema`] if the schema version does not match.
    pub async fn open(server: Server, config: Config, now: impl Into<Clocks>) -> Result<Self, PostgresError> {
        let now = now.into();
        let Config { name, lease, timeout, connections_max } = config;
        let pool = Pool::new(server.clone(), connections_max, timeout);
        let own_pool = Pool::new(server.clone(), OWN_CONNECTIONS, timeout);
        database::check(&own_pool).await?;
        let sessions = Sessions::begin(own_pool.clone(), name, lease, now.elapsed).await?;
        let (keys, usage) = (NodeKeys::default(), Arc::default());
        keys.set_time(now.wall);
        let (queue, jobs) = mpsc::unbounded_channel();
        let changed = Arc::new(Notify::new());
        let tasks = [
            tokio::spawn(Writer::new(own_pool.clone()).run(jobs)),
            tokio::spawn(listener::run(server, timeout, changed.clone())),
        ];
        let reported_at = tokio::sync::Mutex::default();
        Ok(Self { keys, usage, sessions, pool, own_pool, queue, changed, reported_at, tasks })
    }

    /// Sets the time to `now` and sends a heartbeat. Expires holds, applies changes in the store, and returns credits that
    /// other nodes need. Call it at least four times a second, and whenever [`Ledger::changed`] returns.
    pub async fn tick(&self, now: impl Into<Clocks>) -> Result<(), PostgresError> {
        let now = now.into();
        self.keys.set_time(now.wall);
        self.sessions.advance(now.elapsed);
        let mut reported_at = self.reported_at.lock().await;
        self.heartbeat().await?;
        let states = self.sessions.newest().states();
        for state in &states {
            state.withdraw_idle();
        }
        self.report_returns(&states).await?;
        if reported_at.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            *reported_at = Some(Instant::now());
            self.own_pool.query("SELECT nodes_end()", &[]).await?;
            self.report_held(&states).await?;
            self.keys.write_last_used(&self.own_pool).await?;
        }
        self.write_usage().await
    }

    /// Returns the counter of free lookups. The caller passes every lookup event to [`UsageCounter::record`]. Each tick and
    /// [`Ledger::close`] add the counts to the usage.
    pub fn usage(&self) -> &Arc<UsageCounter> {
        &self.usage
    }

    /// Waits for a change notification from the store: a key or a quota was changed, or another node needs credits. The next tick
    /// applies the change. Delivery is not guaranteed; notifications only make a periodically ticking ledger react sooner.
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

    /// Closes the ledger: waits for pending spends, writes the usage, then returns all leases. Call it after the last lookup
    /// has finished.
    pub async fn close(&self) -> Result<(), PostgresError> {
        let (done, flushed) = oneshot::channel();
        self.queue.send(Job::Flush(done)).map_err(|_| StoreError::Stopped)?;
        // The outcome of a spend that is still pending stays unknown, as after a crash.
        let _ = timeout(CLOSE_TIMEOUT, flushed).await;
        let written = self.write_usage().await;
        self.sessions.close().await?;
        written
    }

    async fn heartbeat(&self) -> Result<(), PostgresError> {
        let Heartbeat { requested_at, revision, recalls } = self.sessions.heartbeat().await?;
        self.keys.set_revision(revision, requested_at);
        for recall in recalls {
            recall.state.answer_recall(recall.rowid, recall.taken, recall.number);
        }
        Ok(())
    }

    async fn report_returns(&self, states: &[Arc<WorkspaceState>]) -> Result<(), PostgresError> {
        for state in states {
            if let Some(unreported) = state.unreported_return() {
                state.report_return(unreported, &self.own_pool).await?;
            }
        }
        Ok(())
    }

    /// Reports changed hold totals to the store.
    async fn report_held(&self, states: &[Arc<WorkspaceState>]) -> Result<(), PostgresError> {
        let mut changed = Vec::new();
        for state in states {
            let lease = state.lease();
            let held = lease.account.balance().held;
            if let (Some(rowid), true) = (lease.rowid, lease.held_reported != held) {
                changed.push((state, rowid, held));
            }
        }
        if let Some((first, ..)) = changed.first() {
            let rowids: Vec<_> = changed.iter().map(|(_, rowid, _)| *rowid).collect();
            let holds: Vec<_> = changed.iter().map(|(.., held)| bigint(*held)).collect();
            let call = "SELECT lease_show($1, $2, $3)";
            self.own_pool.query(call, &[&first.epoch, &rowids, &holds]).await?;
        }
        for (state, _, held) in changed {
            state.lease().held_reported = held;
        }
        Ok(())
    }

    /// Adds the free lookups since the last call to the usage of the current day. Lookups whose statement fails are written
    /// later, and counted twice if the statement was executed and only its reply was lost.
    async fn write_usage(&self) -> Result<(), PostgresError> {
        let (epoch, now) = (self.sessions.newest().epoch, at(self.keys.now()));
        let mut counts = self.usage.take();
        while !counts.is_empty() {
            let later = counts.split_off(counts.len().min(USAGE_ROWS_MAX));
            let names: Vec<_> = counts.iter().map(|count| count.workspace.as_str()).collect();
            let keys: Vec<_> = counts.iter().map(|count| key_number(count.key)).collect();
            let outcomes: Vec<_> = counts.iter().map(|count| count.outcome).collect();
            let lookups: Vec<_> = counts.iter().map(|count| bigint(count.lookups)).collect();
            let call = "SELECT count_free($1, $2, $3, $4, $5, $6)";
            let values: [Value<'_>; 6] = [&epoch, &names, &keys, &outcomes, &lookups, &now];
            if let Err(error) = self.own_pool.query(call, &values).await {
                self.usage.put_back(counts);
                self.usage.put_back(later);
                return Err(error);
            }
            counts = later;
        }
        Ok(())
    }

    /// Returns the active session. If the newest session has expired, sends a heartbeat, which renews it in the store or
    /// begins a new one.
    async fn active_session(&self) -> Result<Arc<Session>, PostgresError> {
        let session = self.sessions.newest();
        if session.is_active() {
            return Ok(session);
        }
        self.heartbeat().await?;
        Ok(self.sessions.newest())
    }

    async fn place_hold(&self, hold: &Hold) -> Result<HoldOutcome, PostgresError> {
        loop {
            let session = self.active_session().await?;
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

    async fn spend(
        &self,
        state: Arc<WorkspaceState>,
        hold: &Hold,
        credits: u64,
    ) -> Result<(), PostgresError> {
        let rowid = {
            let mut lease = state.lease();
            if lease.account.begin_spend(hold, credits)? == SpendStart::AlreadySpent {
                return Ok(());
            }
            if credits == 0 {
                // A spend of 0 credits needs no commit.
                lease.account.commit_spend(hold);
                return Ok(());
            }
            let Some(rowid) = lease.rowid else {
                lease.account.abort_spend(hold);
                return Err(StoreError::UnknownWorkspace(hold.workspace.clone()).into());
            };
            rowid
        };
        let (reply, result) = oneshot::channel();
        let queued_at = Instant::now();
        let (hold, is_ambiguous, is_late) = (hold.clone(), false, false);
        let spend = Spend { state, rowid, hold, credits, reply, queued_at, is_ambiguous, is_late };
        if let Err(mpsc::error::SendError(Job::Spend(spend))) = self.queue.send(Job::Spend(spend)) {
            spend.state.lease().account.abort_spend(&spend.hold);
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
        Ok(self.keys.find(key, &self.pool).await?)
    }
}

#[async_trait]
impl Credits for Ledger {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        Ok(self.place_hold(hold).await?)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let state = self.sessions.state_of(hold);
        let settled = match settlement {
            Settlement::Release => state.lease().account.release(hold).map_err(PostgresError::from),
            Settlement::Spend(credits) => self.spend(state, hold, credits).await,
        };
        Ok(settled?)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
