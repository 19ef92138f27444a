//! Permits for concurrent requests to a vendor, shared fairly between workspaces.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use enrich_lib::model::WorkspaceId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A bounded number of permits, with a bounded queue of lookups that wait for one.
///
/// Permits are granted round-robin over the waiting workspaces, and first come, first served within a
/// workspace. When the queue is full, a new lookup replaces the newest one of the workspace with the most
/// waiting lookups, unless that is its own workspace. A burst therefore delays mostly its own workspace:
/// between two lookups of another workspace it gets at most one permit.
pub struct Permits(Mutex<State>);

/// Permission to send requests. Dropping it grants the permit to the next waiter.
#[must_use = "dropping a permit releases it"]
pub(crate) struct Permit {
    permits: Arc<Permits>,
}

/// The queue has no free place for the lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// The state of the permits. Invariant: a permit is free only while no lookup waits.
struct State {
    free: usize,
    waiting: usize,
    waiting_max: usize,
    next_waiter_id: u64,
    /// The waiting workspaces, in round-robin order.
    round_robin: VecDeque<WorkspaceId>,
    /// The waiters of each workspace in `round_robin`, oldest first.
    queues: BTreeMap<WorkspaceId, VecDeque<Waiter>>,
}

/// A waiting lookup. A message grants the permit. A closed channel means that another lookup replaced this
/// one.
struct Waiter {
    id: u64,
    grant: oneshot::Sender<()>,
}

/// Removes a waiter from the queue on drop, or releases its permit if it was granted and not received.
struct WaiterGuard<'a> {
    permits: &'a Arc<Permits>,
    workspace: &'a WorkspaceId,
    id: u64,
    granted: oneshot::Receiver<()>,
}

impl Permits {
    /// Creates `permits` permits (at least one) and a queue of `waiting_max` places.
    pub fn new(permits: usize, waiting_max: usize) -> Arc<Self> {
        let (round_robin, queues) = (VecDeque::new(), BTreeMap::new());
        let state =
            State { free: permits.max(1), waiting: 0, waiting_max, next_waiter_id: 0, round_robin, queues };
        Arc::new(Self(Mutex::new(state)))
    }

    /// Waits for a permit. Cancel safe: dropping the future releases its place in the queue or its permit.
    pub(crate) async fn acquire(self: &Arc<Self>, workspace: &WorkspaceId) -> Result<Permit, QueueFull> {
        let permit = || Permit { permits: self.clone() };
        let mut waiter = {
            let mut state = self.0.lock();
            if state.take_free() {
                drop(state);
                return Ok(permit());
            }
            let (id, granted) = state.enqueue(workspace)?;
            WaiterGuard { permits: self, workspace, id, granted }
        };
        (&mut waiter.granted).await.map(|()| permit()).map_err(|_| QueueFull)
    }
}

impl State {
    fn take_free(&mut self) -> bool {
        let is_free = self.free > 0;
        self.free -= usize::from(is_free);
        is_free
    }

    fn enqueue(&mut self, workspace: &WorkspaceId) -> Result<(u64, oneshot::Receiver<()>), QueueFull> {
        if self.waiting == self.waiting_max {
            self.evict_newest(workspace)?;
        }
        let (grant, granted) = oneshot::channel();
        let id = self.next_waiter_id;
        self.next_waiter_id += 1;
        self.waiting += 1;
        let queue = self.queues.entry(workspace.clone()).or_default();
        if queue.is_empty() {
            self.round_robin.push_back(workspace.clone());
        }
        queue.push_back(Waiter { id, grant });
        Ok((id, granted))
    }

    /// Removes the newest waiter of the longest queue, if that queue is longer than the queue of `workspace`
    /// would become.
    fn evict_newest(&mut self, workspace: &WorkspaceId) -> Result<(), QueueFull> {
        let length = self.queues.get(workspace).map_or(0, VecDeque::len);
        let longest = self.queues.iter_mut().max_by_key(|(_, queue)| queue.len());
        let Some((_, longest)) = longest.filter(|(_, queue)| queue.len() > length + 1) else {
            return Err(QueueFull);
        };
        longest.pop_back();
        self.waiting -= 1;
        Ok(())
    }

    /// Grants a released permit to the oldest waiter of the next workspace.
    fn release(&mut self) {
        while let Some(workspace) = self.round_robin.pop_front() {
            let Some(queue) = self.queues.get_mut(&workspace) else { continue };
            let waiter = queue.pop_front();
            if queue.is_empty() {
                self.queues.remove(&workspace);
            } else {
                self.round_robin.push_back(workspace);
            }
            let Some(waiter) = waiter else { continue };
            self.waiting -= 1;
            if waiter.grant.send(()).is_ok() {
                return;
            }
        }
        self.free += 1;
    }

    /// Removes a waiter. Returns whether it was in the queue.
    fn remove(&mut self, workspace: &WorkspaceId, id: u64) -> bool {
        let Some(queue) = self.queues.get_mut(workspace) else { return false };
        let Some(at) = queue.iter().position(|waiter| waiter.id == id) else { return false };
        queue.remove(at);
        if queue.is_empty() {
            self.queues.remove(workspace);
            self.round_robin.retain(|waiting| waiting != workspace);
        }
        self.waiting -= 1;
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.0.lock().release();
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.permits.0.lock();
        let is_waiting = state.remove(self.workspace, self.id);
        if !is_waiting && self.granted.try_recv().is_ok() {
            state.release();
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("Permits").field("free", &state.free).field("waiting", &state.waiting).finish()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
