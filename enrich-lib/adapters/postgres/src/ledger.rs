//! Keys and credits for a process that serves, as one of several.
//!
//! Holds live in memory, on credits that the node has leased; a spend is queued for the [`crate::writer`], and is answered
//! when it is durable in PostgreSQL.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::credit::{Balance, Hold, Holding, Settlement, SpendStart};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Workspace;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::column::credits;
use crate::connect::Server;
use crate::database;
use crate::error::StoreError;
use crate::keys::KeyCache;
use crate::listener;
use crate::pool::Pool;
use crate::session::{Beat, Session, Sessions};
use crate::slot::{Slot, Taking};
use crate::writer::{Job, Spend, Untold, Writer};

/// How often operators are shown what is held, and leases of nodes that are gone are ended.
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// How long [`Ledger::close`] waits for spends and voids that are under way.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Connections for what must not wait for holds: the beat, and the writer.
const OWN_CONNECTIONS: usize = 2;

/// How a node uses the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What the node is called, for operators to see. Nodes may share a name.
    pub name: String,
    /// How long the node's leases live when it is not heard of: a node that crashed keeps its credits from the others for
    /// so long.
    pub lease: Duration,
    /// How long PostgreSQL may take for one answer.
    pub deadline: Duration,
    /// The most connections for keys and holds; the node has three more.
    pub connections_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        let (lease, deadline) = (Duration::from_secs(10), Duration::from_secs(1));
        Self { name: "node".to_owned(), lease, deadline, connections_max: 8 }
    }
}

/// [`Keys`] and [`Credits`] of a database that several nodes share. When it is dropped without [`Ledger::close`], that is a
/// crash to the store: its leases return when their time is over.
pub struct Ledger {
    keys: KeyCache,
    sessions: Sessions,
    pool: Pool,
    own_pool: Pool,
    queue: mpsc::UnboundedSender<Job>,
    changed: Arc<Notify>,
    /// When operators were last shown anything. Held while a tick talks to the store.
    shown_at: tokio::sync::Mutex<Option<Instant>>,
    tasks: [JoinHandle<()>; 2],
}

impl Ledger {
    /// Comes to the database as a node, and starts a task that writes and one that listens. The ledger reads no wall clock:
    /// it learns the time `now`, and then by [`Ledger::tick`].
    ///
    /// Errors: [`StoreError::NotMigrated`] and [`StoreError::NewerSchema`] if the tables are of another version.
    pub async fn open(server: Server, config: Config, now: Timestamp) -> Result<Self, StoreError> {
        let Config { name, lease, deadline, connections_max } = config;
        let pool = Pool::new(server.clone(), connections_max, deadline);
        let own_pool = Pool::new(server.clone(), OWN_CONNECTIONS, deadline);
        database::check(&own_pool).await?;
        let sessions = Sessions::begin(own_pool.clone(), name, lease, now).await?;
        let keys = KeyCache::default();
        keys.set_time(now);
        let (queue, jobs) = mpsc::unbounded_channel();
        let changed = Arc::new(Notify::new());
        let tasks = [
            tokio::spawn(Writer::new(own_pool.clone()).run(jobs)),
            tokio::spawn(listener::run(server, deadline, changed.clone())),
        ];
        let shown_at = tokio::sync::Mutex::default();
        Ok(Self { keys, sessions, pool, own_pool, queue, changed, shown_at, tasks })
    }

    /// Tells the ledger that it is `now`, and the store that the node lives: holds past their time expire, what changed in
    /// the store counts from here on, and credits that others need go back. To be called four times a second or more, and
    /// whenever [`Ledger::changed`] says so.
    pub async fn tick(&self, now: Timestamp) -> Result<(), StoreError> {
        self.keys.set_time(now);
        self.sessions.advance(now);
        let mut shown_at = self.shown_at.lock().await;
        self.beat().await?;
        let slots = self.sessions.newest().slots();
        for slot in &slots {
            slot.withdraw_idle();
        }
        self.tell_returns(&slots).await?;
        if shown_at.is_none_or(|at| at.elapsed() >= SHOW_EVERY) {
            *shown_at = Some(Instant::now());
            self.own_pool.query("SELECT nodes_end()", &[]).await?;
            self.show_held(&slots).await?;
            self.keys.show_used(&self.own_pool).await?;
        }
        Ok(())
    }

    /// Waits until the store says that something changed: a key was revoked, or credits are wanted. A tick sees to it. That
    /// the store does say so is not sure: a ledger that ticks needs it only to be faster.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The credits of a workspace: what is granted and spent as of now, what other nodes hold as of their last second.
    pub async fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        let session = self.sessions.newest();
        let own = session.find(workspace).map_or(0, |slot| slot.books().account.balance().held);
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

    /// Leaves the database: waits for what is under way, and gives back all leases. To be called when no lookup is left.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (done, flushed) = oneshot::channel();
        self.queue.send(Job::Flush(done)).map_err(|_| StoreError::Stopped)?;
        // What is not taken back by then stands, as if the process had ended a moment ago.
        let _ = timeout(CLOSE_MAX, flushed).await;
        self.sessions.leave().await
    }

    async fn beat(&self) -> Result<(), StoreError> {
        let Beat { asked_at, revision, recalls } = self.sessions.beat().await?;
        self.keys.heard(revision, asked_at);
        for recall in recalls {
            recall.slot.answer_recall(recall.rowid, recall.taken, recall.number);
        }
        Ok(())
    }

    async fn tell_returns(&self, slots: &[Arc<Slot>]) -> Result<(), StoreError> {
        for slot in slots {
            if let Some(what) = slot.untold_return() {
                slot.tell(what, &self.own_pool).await?;
            }
        }
        Ok(())
    }

    /// Tells the store what lookups hold, where that has changed.
    async fn show_held(&self, slots: &[Arc<Slot>]) -> Result<(), StoreError> {
        let mut changed = Vec::new();
        for slot in slots {
            let books = slot.books();
            let held = books.account.balance().held;
            if let (Some(rowid), true) = (books.rowid, books.held_shown != held) {
                changed.push((slot, rowid, held));
            }
        }
        if let Some((first, ..)) = changed.first() {
            let rowids: Vec<_> = changed.iter().map(|(_, rowid, _)| *rowid).collect();
            let holds: Vec<_> = changed.iter().map(|(.., held)| crate::column::bigint(*held)).collect();
            let call = "SELECT lease_show($1, $2, $3)";
            self.own_pool.query(call, &[&first.epoch, &rowids, &holds]).await?;
        }
        for (slot, _, held) in changed {
            slot.books().held_shown = held;
        }
        Ok(())
    }

    /// The session that lives. If none does, the store is asked: it may never have noticed, or begin a new one.
    async fn live(&self) -> Result<Arc<Session>, StoreError> {
        let session = self.sessions.newest();
        if session.lives() {
            return Ok(session);
        }
        self.beat().await?;
        Ok(self.sessions.newest())
    }

    async fn place(&self, hold: &Hold) -> Result<Holding, StoreError> {
        loop {
            let session = self.live().await?;
            if self.sessions.earlier_slot_of(hold).is_some() {
                return Err(StoreError::LeaseEnded);
            }
            let slot = self.sessions.slot(&session, &hold.workspace);
            let came = slot.begun();
            if slot.hold(hold)? == Holding::Granted {
                return Ok(Holding::Granted);
            }
            match slot.take(hold.credits, came, &self.pool).await? {
                Taking::Again => {}
                Taking::Short => return Ok(Holding::Insufficient),
                Taking::Ended => session.end(),
            }
        }
    }

    async fn spend(&self, slot: Arc<Slot>, hold: &Hold, credits: u64) -> Result<(), StoreError> {
        let rowid = {
            let mut books = slot.books();
            if books.account.begin_spend(hold, credits)? == SpendStart::AlreadySpent {
                return Ok(());
            }
            if credits == 0 {
                // Nothing is owed, so nothing has to be durable.
                books.account.commit_spend(hold);
                return Ok(());
            }
            let Some(rowid) = books.rowid else {
                books.account.abort_spend(hold);
                return Err(StoreError::UnknownWorkspace(hold.workspace.clone()));
            };
            rowid
        };
        let (done, answer) = oneshot::channel();
        let (slot_, hold_) = (slot.clone(), hold.clone());
        let spend =
            Spend { slot: slot_, rowid, hold: hold_, credits, done, is_ambiguous: false, is_late: false };
        if self.queue.send(Job::Spend(spend)).is_err() {
            slot.books().account.abort_spend(hold);
            return Err(StoreError::Stopped);
        }
        Waiting { ledger: self, slot: &slot, rowid, hold, credits, answer }.await
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
    async fn hold(&self, hold: &Hold) -> Result<Holding, PortError> {
        Ok(self.place(hold).await?)
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let slot = self.sessions.slot_of(hold);
        let settled = match settlement {
            Settlement::Release => slot.books().account.release(hold).map_err(StoreError::from),
            Settlement::Spend(credits) => self.spend(slot, hold, credits).await,
        };
        Ok(settled?)
    }
}

/// Waits for the answer to a spend. If nobody waits any more, nobody will be told of the spend, and it must not
/// stand: the writer sees to what is still in its queue, and what it answered in this very moment is voided.
struct Waiting<'a> {
    ledger: &'a Ledger,
    slot: &'a Arc<Slot>,
    rowid: i64,
    hold: &'a Hold,
    credits: u64,
    answer: oneshot::Receiver<Result<(), StoreError>>,
}

impl Future for Waiting<'_> {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        Poll::Ready(answer.unwrap_or(Err(StoreError::Stopped)))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.answer.close();
        // An answer that was taken is not here any more.
        if let Ok(Ok(())) = self.answer.try_recv() {
            self.slot.books().account.reopen_spend(self.hold, self.credits);
            let (slot, hold) = (self.slot.clone(), self.hold.clone());
            let untold = Untold { slot, rowid: self.rowid, hold, is_final: false };
            // Without a writer the spend stands: it is as if the process had ended a moment ago.
            let _ = self.ledger.queue.send(Job::Void(untold));
        }
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
