//! Keys and credits for the process that serves.
//!
//! Holds live in memory and end with the process; grants and spends are on the disk. A spend is queued for the
//! [`crate::writer`], which commits all that have gathered as one; when it is answered, the [`Durability`] says.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use enrich_lib::credit::{Balance, Hold, Holding, Settlement, SpendStart};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::ports::{Credits, Keys};
use enrich_lib::refusal::PortError;
use enrich_lib::window::Workspace;

use crate::database::{self, Schema};
use crate::dir::DataDir;
use crate::durability::{Durability, Work};
use crate::error::StoreError;
use crate::queue::{self, queue};
use crate::shared::{Shared, Slot};
use crate::spend::{Asked, Spend};
use crate::sync::oneshot;
use crate::writer::{Job, Writer};

/// [`Keys`] and [`Credits`] of a data directory. One process has it at a time: until the ledger is dropped and its
/// writer has ended.
pub struct Ledger {
    shared: Arc<Shared>,
    durability: Durability,
    queue: queue::Sender<Job>,
}

impl Ledger {
    /// [`Ledger::open_with`] the strict durability.
    pub fn open(dir: &DataDir, now: Timestamp, spawn: impl FnOnce(Work)) -> Result<Self, StoreError> {
        Self::open_with(Durability::Strict, dir, now, spawn)
    }

    /// Takes the data directory and starts its writer with `spawn`. The ledger reads no clock: it learns the time
    /// `now`, and then by [`Ledger::tick`].
    ///
    /// Errors: [`StoreError::Served`] if another process has it, [`StoreError::Moved`] if another store has its
    /// accounts.
    pub fn open_with(
        durability: Durability,
        dir: &DataDir,
        now: Timestamp,
        spawn: impl FnOnce(Work),
    ) -> Result<Self, StoreError> {
        let lock = dir.lock()?;
        dir.check_not_moved()?;
        let writer_db = database::create(&dir.accounts(), Schema::Accounts)?;
        let shared = Arc::new(Shared::new(database::open(&dir.accounts())?, lock, now));
        let (queue, jobs) = queue();
        let writer = Writer::new(writer_db, shared.clone(), durability)?;
        spawn(Box::pin(writer.run(jobs)));
        Ok(Self { shared, durability, queue })
    }

    /// Tells the ledger that it is `now`: holds past their time expire, and what other processes changed since the
    /// last tick counts from here on. To be called twice a second or more.
    ///
    /// What was spent before it is on the disk after it; it fails if there is anything that could not be written.
    pub async fn tick(&self, now: Timestamp) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.queue.send(Job::Tick { now, done }).map_err(|_| StoreError::Stopped)?;
        self.queue.ring();
        answer.await.map_err(|_| StoreError::Stopped)?
    }

    /// The credits of a workspace, to the moment.
    pub fn balance(&self, workspace: &WorkspaceId) -> Result<Balance, StoreError> {
        Ok(self.shared.slot(workspace)?.balance())
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
        let held = self.shared.account(&slot).hold(hold);
        held.map_err(|fault| StoreError::from(fault).into())
    }

    async fn settle(&self, hold: &Hold, settlement: Settlement) -> Result<(), PortError> {
        let slot = self.shared.slot(&hold.workspace)?;
        let settled = match settlement {
            Settlement::Release => self.shared.account(&slot).release(hold).map_err(StoreError::from),
            Settlement::Spend(credits) => match self.spend(slot, hold, credits)? {
                Some(waiting) => waiting.await,
                None => Ok(()),
            },
        };
        Ok(settled?)
    }
}

impl Ledger {
    /// Queues a spend. None if there is nothing to wait for.
    fn spend(&self, slot: Arc<Slot>, hold: &Hold, credits: u64) -> Result<Option<Waiting<'_>>, StoreError> {
        let mut account = self.shared.account(&slot);
        // One of several attempts waits: an earlier one may be about to be voided.
        let may_be_told = self.durability == Durability::Relaxed && !account.is_spending(hold.lookup_id);
        if account.begin_spend(hold, credits)? == SpendStart::AlreadySpent {
            return Ok(None);
        }
        if credits == 0 {
            // Nothing is owed, so nothing has to be on the disk.
            account.commit_spend(hold);
            return Ok(None);
        }
        let is_told = may_be_told && self.shared.owed.add();
        let spend = Arc::new(Spend::new(slot.clone(), hold.clone(), credits, is_told));
        let Ok(is_first) = self.queue.send(Job::Spend(Asked(spend.clone()))) else {
            account.abort_spend(hold);
            return Err(StoreError::Stopped);
        };
        let is_strict = self.durability == Durability::Strict;
        if is_first && !is_strict {
            // The writer lets others gather by itself.
            self.queue.ring();
        }
        if is_told {
            account.commit_spend(hold);
            return Ok(None);
        }
        let rings_after = (is_first && is_strict).then_some(TURNS);
        Ok(Some(Waiting { ledger: self, spend, rings_after }))
    }
}

/// Waits for the answer to a spend. If nobody waits any more, nobody will be told of the spend, and it must not
/// stand: what is still in the queue the writer leaves out, and what it answered in this very moment is voided.
struct Waiting<'a> {
    ledger: &'a Ledger,
    spend: Arc<Spend>,
    /// After so many turns it rings for the writer. None if others do.
    rings_after: Option<u8>,
}

/// How often the first spend of a batch goes to the end of its executor's queue before it rings for all that have come
/// meanwhile, so that one commit is for many. In the first turn those come who were ready, and in the second those who were
/// answered just then. Alone, it is its turn at once.
const TURNS: u8 = 2;

impl Future for Waiting<'_> {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.spend.poll(cx);
        if answer.is_pending()
            && let Some(turns) = self.rings_after
        {
            self.rings_after = turns.checked_sub(1);
            if turns > 0 {
                cx.waker().wake_by_ref();
            } else {
                self.ledger.queue.ring();
            }
        }
        answer
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.rings_after.is_some() {
            self.ledger.queue.ring();
        }
        if let Some(Ok(())) = self.spend.give_up() {
            let Spend { slot, hold, credits, .. } = &*self.spend;
            self.ledger.shared.account(slot).reopen_spend(hold, *credits);
            // Without a writer the spend stands: it is as if the process had ended a moment ago.
            let _ = self.ledger.queue.send(Job::Void(self.spend.clone()));
            self.ledger.queue.ring();
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
