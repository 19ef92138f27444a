//! Permits for concurrent requests to a vendor, shared fairly between workspaces.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use enrich_lib::model::WorkspaceId;
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, Semaphore, SemaphorePermit};

/// A bounded number of permits. Each workspace has a bounded queue of lookups that wait for one.
///
/// Only the first lookup of each queue waits for the semaphore, which is first come, first served. The waiting
/// workspaces therefore get permits in turn: between two lookups of a workspace, each other one gets at most
/// one permit.
pub struct Permits {
    free: Semaphore,
    waiting_max: usize,
    /// The workspaces with waiting lookups.
    queues: Mutex<BTreeMap<WorkspaceId, Queue>>,
}

/// The waiting lookups of a workspace. The first one has the turn.
#[derive(Default)]
struct Queue {
    turn: Arc<Turn<()>>,
    waiting: usize,
}

/// The queue has no free place for the lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// A place in the queue of a workspace.
struct Place<'a> {
    permits: &'a Permits,
    workspace: &'a WorkspaceId,
    turn: Arc<Turn<()>>,
}

impl Permits {
    /// Creates `permits` permits (at least one), and queues of `waiting_max` places.
    pub fn new(permits: usize, waiting_max: usize) -> Arc<Self> {
        let free = Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS));
        Arc::new(Self { free, waiting_max, queues: Mutex::default() })
    }

    /// Waits for a permit. Cancel safe: dropping the future releases its place in the queue or its permit.
    pub(crate) async fn acquire(&self, workspace: &WorkspaceId) -> Result<SemaphorePermit<'_>, QueueFull> {
        if let Ok(permit) = self.free.try_acquire() {
            return Ok(permit);
        }
        let place = self.enqueue(workspace)?;
        let _turn = place.turn.lock().await;
        // The semaphore is never closed.
        self.free.acquire().await.map_err(|_| QueueFull)
    }

    fn enqueue<'a>(&'a self, workspace: &'a WorkspaceId) -> Result<Place<'a>, QueueFull> {
        let mut queues = self.queues.lock();
        let waiting = queues.get(workspace).map_or(0, |queue| queue.waiting);
        if waiting >= self.waiting_max {
            return Err(QueueFull);
        }
        let queue = queues.entry(workspace.clone()).or_default();
        queue.waiting += 1;
        Ok(Place { permits: self, workspace, turn: queue.turn.clone() })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queues = self.permits.queues.lock();
        let Some(queue) = queues.get_mut(self.workspace) else { return };
        queue.waiting -= 1;
        if queue.waiting == 0 {
            queues.remove(self.workspace);
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: usize = self.queues.lock().values().map(|queue| queue.waiting).sum();
        let free = self.free.available_permits();
        f.debug_struct("Permits").field("free", &free).field("waiting", &waiting).finish()
    }
}
