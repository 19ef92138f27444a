//! The way to the writer: what has gathered is taken as a whole, when somebody rings for it.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::sync::{Mutex, lock};

/// A queue for one writer.
pub(crate) fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let gathered = Gathered { jobs: Vec::new(), is_due: false, is_closed: false, writer: None };
    let gathered = Arc::new(Mutex::new(gathered));
    (Sender(gathered.clone()), Receiver { gathered, has_taken: false })
}

struct Gathered<T> {
    jobs: Vec<T>,
    /// Somebody has rung.
    is_due: bool,
    /// One side is gone.
    is_closed: bool,
    /// The writer, while it waits.
    writer: Option<Waker>,
}

/// When it is dropped, the writer ends with what is left.
pub(crate) struct Sender<T>(Arc<Mutex<Gathered<T>>>);

impl<T> Sender<T> {
    /// Adds a job. Whether it is the first that the writer has not taken: whoever added it is to [`Sender::ring`] for all
    /// that come after it. An error if the writer has ended.
    pub(crate) fn send(&self, job: T) -> Result<bool, T> {
        let mut gathered = lock(&self.0);
        if gathered.is_closed {
            return Err(job);
        }
        gathered.jobs.push(job);
        Ok(gathered.jobs.len() == 1)
    }

    /// The writer may take what is there. It does nothing if that was taken already.
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

/// When it is dropped, so is what was not taken.
pub(crate) struct Receiver<T> {
    gathered: Arc<Mutex<Gathered<T>>>,
    /// It took something, and did not wait since.
    has_taken: bool,
}

impl<T> Receiver<T> {
    /// Takes up to `count_max` jobs. It waits until somebody rings; polled again before, it takes what is there. False when
    /// there will be none any more.
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
        // To drop a job may wake who waits for it.
        drop(gathered);
        drop(jobs);
    }
}
