//! Pending spends: the state shared between a lookup that waits and the writer that replies.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use enrich_lib::credit::Account;

use crate::shared::WorkspaceState;
use crate::usage::BilledLookup;
use enrich_store::StoreError;
use enrich_store::sync::Mutex;

/// A spend that [`enrich_lib::credit::Account::begin_spend`] has begun.
pub(crate) struct Spend {
    pub(crate) state: Arc<WorkspaceState>,
    pub(crate) lookup: BilledLookup,
    /// When it was queued, on the ledger's monotonic clock.
    pub(crate) queued_at: Duration,
    result: Mutex<SpendResult>,
}

enum SpendResult {
    Pending(Option<Waiter>),
    /// The result, and the tasks that the receiver of the result must wake.
    Ready(Result<(), StoreError>, Vec<PendingWake>),
    /// The result was received, or no task waits for it.
    Taken,
}

struct Waiter {
    waker: Waker,
    thread: ThreadId,
}

/// A spend with a result, and the waker of the task that waits for it.
type PendingWake = (Arc<Spend>, Waker);

impl Spend {
    pub(crate) fn new(state: Arc<WorkspaceState>, lookup: BilledLookup, queued_at: Duration) -> Self {
        Self { state, lookup, queued_at, result: Mutex::new(SpendResult::Pending(None)) }
    }

    /// Polls the result. Returns [`StoreError::Stopped`] if it was received before.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let mut current = self.result.lock();
        match mem::replace(&mut *current, SpendResult::Taken) {
            SpendResult::Pending(_) => {
                let waiter = Waiter { waker: cx.waker().clone(), thread: thread::current().id() };
                *current = SpendResult::Pending(Some(waiter));
                Poll::Pending
            }
            SpendResult::Ready(result, others) => {
                drop(current);
                others.into_iter().for_each(|(_, waker)| waker.wake());
                Poll::Ready(result)
            }
            SpendResult::Taken => Poll::Ready(Err(StoreError::Stopped)),
        }
    }

    /// Stops waiting for the result. The spend itself continues.
    pub(crate) fn stop_waiting(&self) {
        let previous = mem::replace(&mut *self.result.lock(), SpendResult::Taken);
        if let SpendResult::Ready(_, others) = previous {
            others.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }

    /// Makes the receiver of this spend's result wake `others` too.
    ///
    /// Errors: returns `others` if the result was already received.
    fn add_wakes(&self, others: Vec<PendingWake>) -> Result<(), Vec<PendingWake>> {
        match &mut *self.result.lock() {
            SpendResult::Ready(_, wakes) => {
                wakes.extend(others);
                Ok(())
            }
            SpendResult::Pending(_) | SpendResult::Taken => Err(others),
        }
    }

    /// Ends a spend that is durable. `account` is its workspace's, which stays locked, so that a caller that receives the
    /// result finds the credits spent.
    pub(crate) fn succeed(self: &Arc<Self>, account: &mut Account, wakes: &mut WakeBatch) {
        account.commit_spend(self.lookup.lookup_id);
        self.complete(Ok(()), wakes);
    }

    /// Ends a spend that is not durable and never will be.
    pub(crate) fn fail(self: &Arc<Self>, account: &mut Account, error: StoreError, wakes: &mut WakeBatch) {
        self.end_unspent(account, Err(error), wakes);
    }

    /// Ends a spend that was not written: it failed, or its lookup has a spend already.
    pub(crate) fn end_unspent(
        self: &Arc<Self>,
        account: &mut Account,
        result: Result<(), StoreError>,
        wakes: &mut WakeBatch,
    ) {
        account.abort_spend(self.lookup.lookup_id);
        self.complete(result, wakes);
    }

    /// Sets the result and adds the waiting task, if any, to `wakes`.
    fn complete(self: &Arc<Self>, result: Result<(), StoreError>, wakes: &mut WakeBatch) {
        let mut current = self.result.lock();
        let SpendResult::Pending(waiter) = &mut *current else { return };
        let waiter = waiter.take();
        *current = SpendResult::Ready(result, Vec::new());
        if let Some(Waiter { waker, thread }) = waiter {
            wakes.on(thread).push((self.clone(), waker));
        }
    }
}

/// A spend in the queue. Its transaction has not begun, so that it can still be withdrawn. Dropping it reports that the
/// writer has ended.
pub(crate) struct QueuedSpend(Option<Arc<Spend>>);

impl QueuedSpend {
    pub(crate) fn new(spend: Arc<Spend>) -> Self {
        Self(Some(spend))
    }

    /// Takes the spend out of the queue. From then on, it has no result until its outcome is known. If the outcome stays
    /// unknown, its caller waits for ever.
    pub(crate) fn begin(mut self) -> Option<Arc<Spend>> {
        self.0.take()
    }

    /// Returns whether the spend was queued at `time` or earlier.
    pub(crate) fn is_overdue(&self, time: Duration) -> bool {
        self.0.as_ref().is_some_and(|spend| spend.queued_at <= time)
    }
}

impl Drop for QueuedSpend {
    fn drop(&mut self) {
        if let Some(spend) = self.0.take() {
            let mut wakes = WakeBatch::default();
            spend.fail(&mut spend.state.account(), StoreError::Stopped, &mut wakes);
            wakes.wake();
        }
    }
}

/// Tasks to wake, grouped by the thread on which they wait.
///
/// Waking a task on another thread takes a system call, and one commit completes many spends. Therefore only one task
/// per thread is woken directly, and it wakes the others on its thread.
#[derive(Default)]
pub(crate) struct WakeBatch(Vec<(ThreadId, Vec<PendingWake>)>);

impl WakeBatch {
    fn on(&mut self, thread: ThreadId) -> &mut Vec<PendingWake> {
        let known = self.0.iter().position(|(other, _)| *other == thread);
        let index = known.unwrap_or_else(|| {
            self.0.push((thread, Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[index].1
    }

    pub(crate) fn wake(self) {
        for (_, mut wakes) in self.0 {
            while let Some((spend, waker)) = wakes.pop() {
                match spend.add_wakes(wakes) {
                    Ok(()) => {
                        waker.wake();
                        break;
                    }
                    // The task has already received its result, so it cannot wake the others.
                    Err(others) => wakes = others,
                }
            }
        }
    }
}
