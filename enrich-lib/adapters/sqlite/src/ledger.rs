//! Keys and credits for the process that serves.
//!
//! Holds live in memory and end with the process; grants and spends are on the disk. A spend is queued for the
//! [`crate::writer`], which commits all that have gathered as one, and is answered when it is durable.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread;

use async_trait::async_trait;
use enrich_lib::credit::{Balance, Hold, Holding, Settlement, SpendStart};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Workspace;

use crate::database::{self, Schema};
use crate::dir::DataDir;
use crate::error::StoreError;
use crate::shared::{Shared, Slot};
use crate::sync::{mpsc, oneshot};
use crate::writer::{Job, Spend, Untold, Writer};

/// The work of the writer, for the executor of the caller's choice.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs the writer on a thread of its own: what a server wants. A simulation spawns it on its own executor.
pub fn on_a_thread(work: Work) {
    thread::spawn(move || futures_executor::block_on(work));
}

/// [`Keys`] and [`Credits`] of a data directory. One process has it at a time: until the ledger is dropped and its
/// writer has ended.
pub struct Ledger {
    shared: Arc<Shared>,
    queue: mpsc::UnboundedSender<Job>,
}

impl Ledger {
    /// Takes the data directory and starts its writer with `spawn`. The ledger reads no clock: it learns the time
    /// `now`, and then by [`Ledger::tick`].
    ///
    /// Errors: [`StoreError::Served`] if another process has it, [`StoreError::Moved`] if another store has its
    /// accounts.
    pub fn open(dir: &DataDir, now: Timestamp, spawn: impl FnOnce(Work)) -> Result<Self, StoreError> {
        let lock = dir.lock()?;
        dir.check_not_moved()?;
        let writer_db = database::create(&dir.accounts(), Schema::Accounts)?;
        let shared = Arc::new(Shared::new(database::open(&dir.accounts())?, lock));
        shared.keys.set_time(now);
        let (queue, jobs) = mpsc::unbounded_channel();
        let writer = Writer::new(writer_db, shared.clone())?;
        spawn(Box::pin(writer.run(jobs)));
        Ok(Self { shared, queue })
    }

    /// Tells the ledger that it is `now`: holds past their time expire, and what other processes changed since the
    /// last tick counts from here on. To be called twice a second or more.
    pub async fn tick(&self, now: Timestamp) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.queue.send(Job::Tick { now, done }).map_err(|_| StoreError::Stopped)?;
        answer.await.map_err(|_| StoreError::Stopped)?
    }

    /// The credits of a workspace, to the moment.
    pub fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Ok(self.shared.slot(workspace)?.account().balance())
    }
}

#[async_trait]
impl Keys for Ledger {
    async fn find(&self, key: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        Ok(self.shared.find_key(key)?)
    }
}

#[async_trait]
impl Credits for Ledger {
    async fn hold(&self, hold: &Hold) -> Result<Holding, PortError> {
        let slot = self.shared.slot(&hold.workspace)?;
        let held = slot.account().hold(hold);
        held.map_err(|fault| StoreError::from(fault).into())
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let slot = self.shared.slot(&hold.workspace)?;
        let settled = match settlement {
            Settlement::Release => slot.account().release(hold).map_err(StoreError::from),
            Settlement::Spend(credits) => self.spend(slot, hold, credits).await,
        };
        Ok(settled?)
    }
}

impl Ledger {
    async fn spend(&self, slot: Arc<Slot>, hold: &Hold, credits: u64) -> Result<(), StoreError> {
        if slot.account().begin_spend(hold, credits)? == SpendStart::AlreadySpent {
            return Ok(());
        }
        if credits == 0 {
            // Nothing is owed, so nothing has to be on the disk.
            slot.account().commit_spend(hold);
            return Ok(());
        }
        let (done, answer) = oneshot::channel();
        let spend = Spend { slot: slot.clone(), hold: hold.clone(), credits, done };
        if self.queue.send(Job::Spend(spend)).is_err() {
            slot.account().abort_spend(hold);
            return Err(StoreError::Stopped);
        }
        Waiting { ledger: self, slot: &slot, hold, credits, answer }.await
    }
}

/// Waits for the answer to a spend. If nobody waits any more, nobody will be told of the spend, and it must not
/// stand: what is still in the queue the writer leaves out, and what it answered in this very moment is voided.
struct Waiting<'a> {
    ledger: &'a Ledger,
    slot: &'a Arc<Slot>,
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
            self.slot.account().reopen_spend(self.hold, self.credits);
            let untold = Untold { slot: self.slot.clone(), hold: self.hold.clone() };
            // Without a writer the spend stands: it is as if the process had ended a moment ago.
            let _ = self.ledger.queue.send(Job::Void(untold));
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
