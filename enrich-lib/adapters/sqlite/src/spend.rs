//! A spend on its way to the disk: between the lookup that asks for it and the writer that answers.

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
    /// Its lookup was told that it is spent, before it is on the disk.
    pub(crate) is_told: bool,
    answer: Mutex<Answer>,
}

enum Answer {
    Awaited(Option<Waiter>),
    /// With those whom the one who takes it has to wake.
    Given(Result<(), StoreError>, Vec<Sleeper>),
    /// It was taken, or nobody waits for it any more.
    Over,
}

struct Waiter {
    waker: Waker,
    thread: ThreadId,
}

/// Whose answer is there, and who does not know yet.
type Sleeper = (Arc<Spend>, Waker);

impl Spend {
    pub(crate) fn new(slot: Arc<Slot>, hold: Hold, credits: u64, is_told: bool) -> Self {
        let answer = if is_told { Answer::Over } else { Answer::Awaited(None) };
        Self { slot, hold, credits, is_told, answer: Mutex::new(answer) }
    }

    pub(crate) fn is_given_up(&self) -> bool {
        !self.is_told && matches!(*lock(&self.answer), Answer::Over)
    }

    /// The answer, when it is there.
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

    /// Nobody waits for the answer any more. An answer that is there and was not taken.
    pub(crate) fn give_up(&self) -> Option<Result<(), StoreError>> {
        let given = mem::replace(&mut *lock(&self.answer), Answer::Over);
        let Answer::Given(result, others) = given else { return None };
        others.into_iter().for_each(|(_, waker)| waker.wake());
        Some(result)
    }

    /// Leaves the waking of `others` to whoever takes the answer of this one; they come back if it was taken already.
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

/// A spend in the hands of the writer. Dropped without an answer, it tells that the writer has ended.
pub(crate) struct Asked(pub(crate) Arc<Spend>);

impl Asked {
    /// Gives the answer, and notes in `woken` who has to hear of it. False if nobody waits for it any more.
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

/// Whom to wake, by the thread on which they wait.
///
/// To wake a task of another thread takes a call of the system, and a commit answers many of them. So one of each thread is
/// woken, and wakes the others there.
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
                    // It looked by itself, and wakes nobody any more.
                    Err(others) => sleepers = others,
                }
            }
        }
    }
}
