//! The queue of jobs for the writer, which takes all queued jobs at once when it is notified.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::sync::{Mutex, lock};

/// Creates a queue for one writer.
pub(crate) fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let gathered = Gathered { jobs: Vec::new(), is_due: false, is_closed: false, writer: None };
    let gathered = Arc::new(Mutex::new(gathered));
    (Sender(gathered.clone()), Receiver { gathered, has_taken: false })
}

struct Gathered<T> {
    jobs: Vec<T>,
    /// The writer has been notified.
    is_due: bool,
    /// The sender or the receiver was dropped.
    is_closed: bool,
    /// The waker of the writer while it waits.
    writer: Option<Waker>,
}

/// The sending side of a queue. When it is dropped, the writer finishes the queued jobs and ends.
pub(crate) struct Sender<T>(Arc<Mutex<Gathered<T>>>);

impl<T> Sender<T> {
    /// Adds a job. Returns whether it is the first job that the writer has not taken. If so, the caller must call
    /// [`Sender::ring`], also on behalf of later jobs.
    ///
    /// Errors: returns the job if the writer has ended.
    pub(crate) fn send(&self, job: T) -> Result<bool, T> {
        let mut gathered = lock(&self.0);
        if gathered.is_closed {
            return Err(job);
        }
        gathered.jobs.push(job);
        Ok(gathered.jobs.len() == 1)
    }

    /// Notifies the writer that it may take the queued jobs. Does nothing if it has taken them already.
    pub(crate) fn ring(&self) {
        let mut gathered = lock(&self.0);
        gathered.is_due = gathered.is_closed || !gathered.jobs.is_empty();
        let writer = if gathered.is_due { gathered.writer.take() } else { None };
        drop(gathered);
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        lock(&self.0).is_closed = true;
        self.ring();
    }
}

/// The receiving side of a queue. Dropping it drops the queued jobs.
pub(crate) struct Receiver<T> {
    gathered: Arc<Mutex<Gathered<T>>>,
    /// It has taken jobs since it last waited.
    has_taken: bool,
}

impl<T> Receiver<T> {
    /// Takes up to `count_max` jobs. Returns `false` when the queue is closed and empty.
    ///
    /// After it has taken jobs, it waits for a notification. If it is polled again while it waits, it takes the queued
    /// jobs without one.
    pub(crate) async fn take(&mut self, jobs: &mut Vec<T>, count_max: usize) -> bool {
        poll_fn(|cx| {
            let mut gathered = lock(&self.gathered);
            let count = gathered.jobs.len().min(count_max);
            if count > 0 && (gathered.is_due || !self.has_taken) {
                jobs.extend(gathered.jobs.drain(..count));
                gathered.is_due = !gathered.jobs.is_empty();
                self.has_taken = true;
                return Poll::Ready(true);
            }
            if count == 0 && gathered.is_closed {
                return Poll::Ready(false);
            }
            self.has_taken = false;
            gathered.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut gathered = lock(&self.gathered);
        gathered.is_closed = true;
        let jobs = mem::take(&mut gathered.jobs);
        // Dropping a job may wake the task that waits for it, so the lock is released first.
        drop(gathered);
        drop(jobs);
    }
}
