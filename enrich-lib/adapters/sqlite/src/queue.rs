//! The queue of jobs for the writer, which takes all queued jobs at once when it is notified.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};

use enrich_store::sync::Mutex;

/// Creates a queue for one writer.
pub(crate) fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let state = State { jobs: Vec::new(), is_notified: false, is_closed: false, writer: None };
    let state = Arc::new(Mutex::new(state));
    (Sender(state.clone()), Receiver { state, has_taken: false })
}

struct State<T> {
    jobs: Vec<T>,
    /// The writer has been notified.
    is_notified: bool,
    /// The sender or the receiver was dropped.
    is_closed: bool,
    /// The waker of the writer while it waits.
    writer: Option<Waker>,
}

/// The sending side of a queue. Dropping it closes the queue.
pub(crate) struct Sender<T>(Arc<Mutex<State<T>>>);

impl<T> Sender<T> {
    /// Adds a job. Returns whether it is the first job that the writer has not taken. If so, the caller must call
    /// [`Sender::notify`], also on behalf of later jobs.
    ///
    /// Errors: returns the job if the writer has ended.
    pub(crate) fn send(&self, job: T) -> Result<bool, T> {
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(job);
        }
        state.jobs.push(job);
        Ok(state.jobs.len() == 1)
    }

    /// Notifies the writer that it may take the queued jobs. Does nothing if it has taken them already.
    pub(crate) fn notify(&self) {
        let mut state = self.0.lock();
        state.is_notified = state.is_closed || !state.jobs.is_empty();
        let writer = if state.is_notified { state.writer.take() } else { None };
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// Returns the number of jobs that the writer has not taken.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().jobs.len()
    }

    /// Removes the jobs that the writer has not taken and for which `is_removed` is true, and returns them.
    pub(crate) fn remove(&self, is_removed: impl FnMut(&mut T) -> bool) -> Vec<T> {
        self.0.lock().jobs.extract_if(.., is_removed).collect()
    }

    /// Closes the queue. The writer finishes the queued jobs and ends.
    pub(crate) fn close(&self) {
        self.0.lock().is_closed = true;
        self.notify();
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The receiving side of a queue. Dropping it drops the queued jobs.
pub(crate) struct Receiver<T> {
    state: Arc<Mutex<State<T>>>,
    /// Set if it has taken jobs since it last waited.
    has_taken: bool,
}

impl<T> Receiver<T> {
    /// Takes up to `count_max` jobs. Returns `false` when the queue is closed and empty.
    ///
    /// After it has taken jobs, it waits for a notification. If it is polled again while it waits, it takes the queued
    /// jobs without one.
    pub(crate) async fn take(&mut self, jobs: &mut Vec<T>, count_max: usize) -> bool {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            let count = state.jobs.len().min(count_max);
            if count > 0 && (state.is_notified || !self.has_taken) {
                jobs.extend(state.jobs.drain(..count));
                state.is_notified = !state.jobs.is_empty();
                self.has_taken = true;
                return Poll::Ready(true);
            }
            if count == 0 && state.is_closed {
                return Poll::Ready(false);
            }
            self.has_taken = false;
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let jobs = mem::take(&mut state.jobs);
        // Dropping a job may wake the task that waits for it, so the lock is released first.
        drop(state);
        drop(jobs);
    }
}
