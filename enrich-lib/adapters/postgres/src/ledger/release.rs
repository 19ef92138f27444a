//! Releases of holds. One that fails is repeated until its hold has expired.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::{Hold, Settlement};
use enrich_store::batch::{BatchReceiver, BatchSender, Job, Replies};
use enrich_store::{Backoff, StoreError};
use tokio::time::{Instant, sleep};

use super::settle::{Settle, SettleResult, release};
use crate::connect::pool::Pool;
use crate::error::PostgresError;

/// The backoff before a retry.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));

/// The sending side of the task that releases holds.
#[derive(Clone)]
pub(crate) struct Releases(Arc<BatchSender<Settle, SettleResult>>);

impl Releases {
    pub(crate) fn new(queue: BatchSender<Settle, SettleResult>) -> Self {
        Self(Arc::new(queue))
    }

    /// Queues the release of a hold, and returns without waiting for it.
    pub(crate) fn release(&self, hold: Hold) {
        drop(self.0.send(Settle { hold, credits: 0, queued_at: Instant::now() }));
    }

    /// Releases a hold. Fails if the first attempt fails.
    pub(crate) async fn released(&self, hold: Hold) -> SettleResult {
        let settle = Settle { hold, credits: 0, queued_at: Instant::now() };
        self.0.send(settle).await.unwrap_or(Err(StoreError::Stopped.into()))
    }

    /// Closes the queue: the task ends when it has released the queued holds.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}

/// The task that releases holds.
pub(crate) struct Releaser {
    pool: Pool,
    /// Releases that have failed. Their callers have the error: a lookup without a charge does not wait.
    failed: Vec<Settle>,
}

impl Releaser {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, failed: Vec::new() }
    }

    /// Runs until the queue is closed and no hold is left to release.
    pub(crate) async fn run(mut self, mut queue: BatchReceiver<Settle, SettleResult>) {
        let (mut jobs, mut backoff) = (Vec::new(), BACKOFF);
        loop {
            if self.failed.is_empty() && !queue.take(&mut jobs, self.pool.sizes.batch).await {
                return;
            }
            queue.yield_and_take_queued(&mut jobs, self.pool.sizes.batch);
            if self.release(std::mem::take(&mut jobs)).await {
                backoff.reset();
            } else {
                sleep(backoff.next_pause()).await;
            }
        }
    }

    /// Releases the holds of the jobs, whose callers wait, and with them releases that have failed. Returns
    /// whether it succeeded.
    async fn release(&mut self, jobs: Vec<Job<Settle, SettleResult>>) -> bool {
        self.failed.retain(|settle| settle.queued_at.elapsed() < settle.hold.ttl);
        let again = self.failed.len().min(self.pool.sizes.batch.saturating_sub(jobs.len()));
        let batch = self.failed[..again].iter().chain(jobs.iter().map(|job| &job.item));
        let released = release(&self.pool, batch).await;
        let mut replies = Replies::default();
        match &released {
            Ok(stored) => {
                self.failed.drain(..again);
                for job in jobs {
                    let result = Settlement::Release.without_hold(stored.spent(&job.item.hold));
                    replies.add(job, result.map(|()| None).map_err(PostgresError::from));
                }
            }
            Err(error) => {
                for job in jobs {
                    let (settle, reply) = job.into_parts();
                    replies.add(reply, Err(PostgresError::NotReleased(error.to_string())));
                    self.failed.push(settle);
                }
            }
        }
        released.is_ok()
    }
}
