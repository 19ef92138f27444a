//! Pending spends: the state shared between a lookup that waits and the writer that replies.

use std::mem;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};

use enrich_lib::credit::Hold;

use crate::error::StoreError;
use crate::shared::Slot;
use crate::sync::{Mutex, lock};

/// A spend that [`enrich_lib::credit::Account::begin_spend`] has begun.
pub(crate) struct Spend {
    pub(crate) slot: Arc<Slot>,
    pub(crate) hold: Hold,
    pub(crate) credits: u64,
    /// Acknowledged before it was durable (relaxed mode).
    pub(crate) is_told: bool,
    answer: Mutex<Answer>,
}

enum Answer {
    Awaited(Option<Waiter>),
    /// The result, and the waiters that the task that takes the result must wake.
    Given(Result<(), StoreError>, Vec<Sleeper>),
    /// The result was taken, or the caller stopped waiting.
    Over,
}

struct Waiter {
    waker: Waker,
    thread: ThreadId,
}

/// A spend with a result, and the waker of the task that waits for it.
type Sleeper = (Arc<Spend>, Waker);

impl Spend {
    pub(crate) fn new(slot: Arc<Slot>, hold: Hold, credits: u64, is_told: bool) -> Self {
        let answer = if is_told { Answer::Over } else { Answer::Awaited(None) };
        Self { slot, hold, credits, is_told, answer: Mutex::new(answer) }
    }

    pub(crate) fn is_given_up(&self) -> bool {
        !self.is_told && matches!(*lock(&self.answer), Answer::Over)
    }

    /// Polls the result. Returns [`StoreError::Stopped`] if it was taken before.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let mut answer = lock(&self.answer);
        match mem::replace(&mut *answer, Answer::Over) {
            Answer::Awaited(_) => {
                let waiter = Waiter { waker: cx.waker().clone(), thread: thread::current().id() };
                *answer = Answer::Awaited(Some(waiter));
                Poll::Pending
            }
            Answer::Given(result, others) => {
                drop(answer);
                others.into_iter().for_each(|(_, waker)| waker.wake());
                Poll::Ready(result)
            }
            Answer::Over => Poll::Ready(Err(StoreError::Stopped)),
        }
    }

    /// Stops waiting for the result. Returns the result if it was ready but not taken.
    pub(crate) fn give_up(&self) -> Option<Result<(), StoreError>> {
        let given = mem::replace(&mut *lock(&self.answer), Answer::Over);
        let Answer::Given(result, others) = given else { return None };
        others.into_iter().for_each(|(_, waker)| waker.wake());
        Some(result)
    }

    /// Makes the task that takes this spend's result wake `others` too.
    ///
    /// Errors: returns `others` if the result was already taken.
    fn hand_over(&self, others: Vec<Sleeper>) -> Result<(), Vec<Sleeper>> {
        match &mut *lock(&self.answer) {
            Answer::Given(_, sleepers) => {
                sleepers.extend(others);
                Ok(())
            }
            Answer::Awaited(_) | Answer::Over => Err(others),
        }
    }
}

/// A spend owned by the writer. Dropping it without a result reports that the writer has ended.
pub(crate) struct Asked(pub(crate) Arc<Spend>);

impl Asked {
    /// Sets the result and adds the waiting task to `woken`. Returns `false` if the caller stopped waiting.
    pub(crate) fn answer(&self, result: Result<(), StoreError>, woken: &mut Woken) -> bool {
        let mut answer = lock(&self.answer);
        let Answer::Awaited(waiter) = &mut *answer else { return false };
        let waiter = waiter.take();
        *answer = Answer::Given(result, Vec::new());
        if let Some(Waiter { waker, thread }) = waiter {
            woken.of(thread).push((self.0.clone(), waker));
        }
        true
    }
}

impl Deref for Asked {
    type Target = Arc<Spend>;

    fn deref(&self) -> &Arc<Spend> {
        &self.0
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut woken = Woken::default();
        self.answer(Err(StoreError::Stopped), &mut woken);
        woken.wake();
    }
}

/// Tasks to wake, grouped by the thread on which they wait.
///
/// Waking a task on another thread takes a system call, and one commit completes many spends. Therefore only one task
/// per thread is woken directly, and it wakes the others on its thread.
#[derive(Default)]
pub(crate) struct Woken(Vec<(ThreadId, Vec<Sleeper>)>);

impl Woken {
    fn of(&mut self, thread: ThreadId) -> &mut Vec<Sleeper> {
        let known = self.0.iter().position(|(known, _)| *known == thread);
        let at = known.unwrap_or_else(|| {
            self.0.push((thread, Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    pub(crate) fn wake(self) {
        for (_, mut sleepers) in self.0 {
            while let Some((spend, waker)) = sleepers.pop() {
                match spend.hand_over(sleepers) {
                    Ok(()) => {
                        waker.wake();
                        break;
                    }
                    // The task has already taken its result, so it cannot wake the others.
                    Err(others) => sleepers = others,
                }
            }
        }
    }
}
