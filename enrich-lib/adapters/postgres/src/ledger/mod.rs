//! Keys and credits of one of several serving nodes, which has no state of its own.
//!
//! ```text
//! hold    lock the balances of a batch; grant what they cover; insert a row per hold  asynchronous commit
//! settle  delete the rows; insert the spends and receipts of those that existed       synchronous commit
//! expire  delete the rows of expired holds, whichever node placed them                asynchronous commit
//! return  return what was held and not spent to the balances                          asynchronous commit
//! count   add spends to the usage                                                     asynchronous commit
//! ```
//!
//! Each is one statement and one transaction. The lookups of all connections of the node share them: what
//! arrives while a statement is being executed forms the next batch. A single lookup is sent at once.
//!
//! Modules are declared in reading order; each uses only those before it.

mod batch;
mod sweep;
mod settle;
mod release;
mod spend;
mod hold;
mod held;
mod keys;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{LookupId, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Workspace;
use enrich_store::batch::{BatchSender, batch_queue};
use enrich_store::statistics::{CommitCounter, LedgerStatistics};
use enrich_store::sync::Mutex;
use enrich_store::usage::UsageCounter;
use enrich_store::{Clocks, StoreError, TickError};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::Type;

use crate::column::credits;
use crate::connect::pool::{Pool, Sizes};
use crate::connect::schema;
use crate::connect::server::Server;
use crate::error::PostgresError;
use crate::health::Health;

use self::held::Held;
use self::hold::{Available, HoldResult, Holder};
use self::keys::NodeKeys;
use self::release::{Releaser, Releases};
use self::settle::{Settle, SettleResult};
use self::spend::{QUEUE_TIMEOUT, Spender};
use self::sweep::Sweep;

/// How long a node that closes waits for pending settlements, and how long it then writes the usage.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which the last uses of keys are written.
const USES_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of connections for keys.
const KEY_CONNECTIONS: usize = 3;

/// The configuration of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The timeout for one statement.
    pub timeout: Duration,
    /// The maximum sizes of statements.
    pub sizes: Sizes,
}

impl Config {
    /// The number of connections of a node: three for keys, one each for holds, for spends, for releases and for
    /// statistics, and that of [`People`](crate::People).
    pub const CONNECTIONS: usize = KEY_CONNECTIONS + 5;
}

impl Default for Config {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(1), sizes: Sizes::default() }
    }
}

/// [`Keys`] and [`Credits`] of a database that several nodes share. Dropping the ledger without
/// [`close`](enrich_store::Ledger::close) is a crash: its holds expire.
#[derive(derive_more::Debug)]
#[debug("Ledger {{ .. }}")]
pub struct Ledger {
    keys: Arc<NodeKeys>,
    /// The health of holds and of spends.
    health: [Arc<Health>; 2],
    usage: Arc<UsageCounter>,
    sweep: Arc<Sweep>,
    holds: BatchSender<Hold, HoldResult>,
    spends: BatchSender<Settle, SettleResult>,
    releases: Releases,
    /// For ticks.
    pool: Pool,
    held: Held,
    available: Available,
    /// Spends without a result that were taken from their queue.
    taken: Arc<AtomicUsize>,
    commits: Arc<CommitCounter>,
    /// When the last uses of keys were written.
    uses_written_at: Mutex<Option<Instant>>,
    /// The tasks that end when their queue is closed: settlements, then releases.
    settling: tokio::sync::Mutex<[Option<JoinHandle<()>>; 2]>,
    tasks: Vec<tokio::task::AbortHandle>,
}

impl Ledger {
    /// The timeout for finding a key.
    pub const KEY_TIMEOUT: Duration = Duration::from_secs(1);

    /// The timeout for a hold, including the time in its queue. A lookup that cannot find its key, be counted
    /// or hold ends within 5 s.
    pub const HOLD_TIMEOUT: Duration = Duration::from_secs(3);

    /// The timeout for a release, including the time in its queue, and for a spend to be sent. A spend that
    /// was sent has none.
    pub const SETTLE_TIMEOUT: Duration = QUEUE_TIMEOUT;

    /// Connects to the database, and starts the tasks of the node. The ledger reads no wall clock: `now` is
    /// the initial time, and [`tick`](enrich_store::Ledger::tick) advances it.
    ///
    /// Errors: [`PostgresError::NotMigrated`] or [`StoreError::NewerSchema`] if the schema has another
    /// version than this program or the next one.
    pub async fn open(server: Server, config: Config, now: Clocks) -> Result<Self, PostgresError> {
        let new_pool = |count| Pool::new(server.clone(), count, config.timeout, config.sizes);
        let own_pool = || new_pool(1);
        // A release does not wait while statistics are locked.
        let pool = own_pool();
        schema::check(&pool).await?;
        let (keys, queues) = NodeKeys::new(new_pool(KEY_CONNECTIONS), now.wall);
        let keys = Arc::new(keys);
        keys.refresh().await?;
        let (sweep, commits) = (Arc::new(Sweep::default()), Arc::new(CommitCounter::default()));
        let (taken, available) = (Arc::new(AtomicUsize::new(0)), Available::default());
        let (releases, released) = batch_queue();
        let releases = Releases::new(releases);
        let (spends, spent) = batch_queue();
        let (holds, held) = batch_queue();
        let health: [Arc<Health>; 2] = Default::default();
        let [holding, spending] = health.clone();
        let spender = Spender::new(own_pool(), releases.clone(), commits.clone(), taken.clone(), spending);
        let settling =
            [tokio::spawn(spender.run(spent)), tokio::spawn(Releaser::new(own_pool()).run(released))];
        let holder = Holder::new(own_pool(), sweep.clone(), releases.clone(), holding, available.clone());
        let others = [tokio::spawn(holder.run(held)), tokio::spawn(keys.clone().run())];
        let reading = queues.map(|queue| tokio::spawn(keys.clone().read_queued(queue)));
        let tasks = settling.iter().chain(&others).chain(&reading).map(JoinHandle::abort_handle).collect();
        Ok(Self {
            keys,
            health,
            available,
            usage: Arc::default(),
            sweep,
            holds,
            spends,
            releases,
            pool,
            held: Held::default(),
            taken,
            commits,
            uses_written_at: Mutex::default(),
            settling: tokio::sync::Mutex::new(settling.map(Some)),
            tasks,
        })
    }

    /// Reads which keys have changed, as the node does four times a second.
    pub async fn refresh_keys(&self) -> Result<(), PostgresError> {
        self.keys.refresh().await
    }

    async fn spend(&self, hold: &Hold, credits: u64) -> SettleResult {
        let settle = Settle { hold: hold.clone(), credits, queued_at: Instant::now() };
        match self.spends.send(settle).await {
            Some(result) => result,
            // The task has ended, and the outcome may be unknown.
            None => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Keys for Ledger {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        within(Self::KEY_TIMEOUT, self.keys.find(key)).await
    }
}

#[async_trait]
impl Credits for Ledger {
    async fn hold(&self, hold: &Hold) -> Result<HoldOutcome, PortError> {
        let reply = self.holds.send(hold.clone());
        let held = async { reply.await.unwrap_or(Err(StoreError::Stopped.into())) };
        let outcome = within(Self::HOLD_TIMEOUT, held).await?;
        if outcome == HoldOutcome::Granted {
            self.held.add(hold);
        }
        Ok(outcome)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<Option<LookupId>, PortError> {
        self.held.remove(hold);
        match settlement {
            Settlement::Release | Settlement::Spend(0) => {
                within(Self::SETTLE_TIMEOUT, self.releases.released(hold.clone())).await
            }
            Settlement::Spend(credits) => Ok(self.spend(hold, credits).await?),
        }
    }

    fn keeps_receipts(&self) -> bool {
        true
    }

    /// Returns what was available after the last hold of this node.
    fn available(&self, workspace: &WorkspaceId) -> Option<u64> {
        self.available.lock().get(workspace.as_str()).copied()
    }
}

/// Limits the time of `work`.
async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PortError> {
    Ok(timeout(limit, work).await.unwrap_or(Err(PostgresError::TimedOut(limit)))?)
}

#[async_trait]
impl enrich_store::Ledger for Ledger {
    fn database(&self) -> &'static str {
        "postgresql"
    }

    /// Sets the time by which keys expire. Sends no statement.
    ///
    /// Errors: the node could not read which keys have changed.
    async fn tick(&self, now: Clocks) -> Result<(), TickError> {
        self.keys.set_time(now.wall);
        self.held.expire();
        self.keys.check().map_err(|error| TickError::Transient(error.into()))
    }

    /// Returns the credits of expired holds of all nodes and the rest of settlements, and writes the usage. Cancel safe,
    /// except that the free lookups that it counts may be lost.
    ///
    /// Fails also if credits could not be returned for seconds, for example because another session locks a
    /// balance.
    async fn write_statistics(&self) -> Result<(), StoreError> {
        let swept = self.sweep.run(&self.pool, self.keys.now()).await;
        if matches!(&swept, Err(error) if !error.is_rejection()) {
            return Ok(swept?); // the others would fail too, each after its timeout
        }
        usage::write(&self.usage, &self.pool).await?;
        let is_due = self.uses_written_at.lock().is_none_or(|at| at.elapsed() >= USES_INTERVAL);
        if is_due {
            *self.uses_written_at.lock() = Some(Instant::now());
            self.keys.write_last_used(&self.pool).await?;
        }
        Ok(swept.and_then(|()| self.sweep.check())?)
    }

    /// Waits for pending settlements, then writes the usage.
    async fn close(&self) -> Result<(), StoreError> {
        self.spends.close();
        self.releases.close();
        let mut settling = self.settling.lock().await;
        let finished = async {
            for task in settling.iter_mut().filter_map(Option::take) {
                let _ = task.await;
            }
        };
        // The outcome of a spend that is still pending stays unknown, as after a crash.
        let _ = timeout(CLOSE_TIMEOUT, finished).await;
        let written = async {
            let swept = self.sweep.run(&self.pool, self.keys.now()).await;
            usage::write(&self.usage, &self.pool).await?;
            self.keys.write_last_used(&self.pool).await?;
            swept
        };
        Ok(timeout(CLOSE_TIMEOUT, written).await.unwrap_or(Err(PostgresError::TimedOut(CLOSE_TIMEOUT)))?)
    }

    /// Fails if the node could not read which keys have changed, or could not hold or spend for seconds. Sends
    /// no statement.
    fn check(&self) -> Result<(), StoreError> {
        self.keys.check()?;
        Ok(self.health.iter().try_for_each(|health| health.check())?)
    }

    fn statistics(&self) -> LedgerStatistics {
        LedgerStatistics {
            credits_held: self.held.credits(),
            queue_depth: (self.spends.len() + self.taken.load(Ordering::Relaxed)) as u64,
            commits: self.commits.snapshot(),
        }
    }

    fn usage(&self) -> &Arc<UsageCounter> {
        &self.usage
    }

    async fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        let select = "/* enrich: balance */ SELECT a.granted, a.spent, a.held FROM account a WHERE a.id = $1";
        let rows = self.pool.query(select, &[(&workspace.as_str(), Type::TEXT)]).await?;
        let row = rows.first().ok_or_else(|| StoreError::UnknownWorkspace(workspace.clone()))?;
        let [granted, spent, held] = [0, 1, 2].map(|column| credits(row.get(column)));
        Ok(enrich_store::credits::balance(granted, spent, held))
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}
