//! Permits for concurrent requests to a vendor, shared fairly between workspaces.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use enrich_lib::model::WorkspaceId;
use tokio::sync::oneshot;

use crate::lock::lock;

/// A bounded number of permits, with a bounded queue of lookups that wait for one.
///
/// Permits are granted round-robin over the waiting workspaces, and first come, first served within a workspace. When the
/// queue is full, a new lookup replaces the newest one of the workspace with the most waiting lookups, unless that is its
/// own workspace. A burst of lookups therefore delays the lookups of its own workspace, and those of other workspaces by at
/// most one turn.
pub struct Permits(Mutex<State>);

/// Permission to send requests. Dropping it grants the permit to the next waiter.
#[must_use = "a permit that is dropped is passed on"]
pub struct Permit {
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
    /// Identifies the next waiter.
    next_number: u64,
    /// The waiting workspaces, in the order of their turns.
    turns: VecDeque<WorkspaceId>,
    /// The waiters of each workspace in `turns`, oldest first.
    lines: BTreeMap<WorkspaceId, VecDeque<Waiter>>,
}

/// A waiting lookup. A message grants the permit. A closed channel means that another lookup replaced this one.
struct Waiter {
    number: u64,
    grant: oneshot::Sender<()>,
}

/// A lookup's place in the queue. Dropping it gives up the place, or the permit if it was granted and not received.
struct Place<'a> {
    permits: &'a Arc<Permits>,
    workspace: &'a WorkspaceId,
    number: u64,
    granted: oneshot::Receiver<()>,
}

impl Permits {
    /// Creates `permits` permits (at least one) and a queue of `waiting_max` places.
    pub fn new(permits: usize, waiting_max: usize) -> Arc<Self> {
        let (turns, lines) = (VecDeque::new(), BTreeMap::new());
        let state = State { free: permits.max(1), waiting: 0, waiting_max, next_number: 0, turns, lines };
        Arc::new(Self(Mutex::new(state)))
    }

    /// Takes a permit if one is free.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        lock(&self.0).take_free().then(|| Permit { permits: self.clone() })
    }

    /// Waits for a permit. Cancel safe: dropping the future releases its place in the queue or its permit.
    pub(crate) async fn acquire(self: &Arc<Self>, workspace: &WorkspaceId) -> Result<Permit, QueueFull> {
        let permit = || Permit { permits: self.clone() };
        let mut place = {
            let mut state = lock(&self.0);
            if state.take_free() {
                drop(state);
                return Ok(permit());
            }
            let (number, granted) = state.enqueue(workspace)?;
            Place { permits: self, workspace, number, granted }
        };
        (&mut place.granted).await.map(|()| permit()).map_err(|_| QueueFull)
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
            self.make_room(workspace)?;
        }
        let (grant, granted) = oneshot::channel();
        let number = self.next_number;
        self.next_number += 1;
        self.waiting += 1;
        let line = self.lines.entry(workspace.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(workspace.clone());
        }
        line.push_back(Waiter { number, grant });
        Ok((number, granted))
    }

    /// Removes the newest waiter of the longest line, if that line is longer than the line of `workspace` would become.
    fn make_room(&mut self, workspace: &WorkspaceId) -> Result<(), QueueFull> {
        let length = self.lines.get(workspace).map_or(0, VecDeque::len);
        let longest = self.lines.iter_mut().max_by_key(|(_, line)| line.len());
        let Some((_, longest)) = longest.filter(|(_, line)| line.len() > length + 1) else {
            return Err(QueueFull);
        };
        longest.pop_back();
        self.waiting -= 1;
        Ok(())
    }

    /// Grants a returned permit to the oldest waiter of the workspace whose turn it is.
    fn pass_on(&mut self) {
        while let Some(workspace) = self.turns.pop_front() {
            let Some(line) = self.lines.get_mut(&workspace) else { continue };
            let waiter = line.pop_front();
            if line.is_empty() {
                self.lines.remove(&workspace);
            } else {
                self.turns.push_back(workspace);
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
    fn remove(&mut self, workspace: &WorkspaceId, number: u64) -> bool {
        let Some(line) = self.lines.get_mut(workspace) else { return false };
        let Some(at) = line.iter().position(|waiter| waiter.number == number) else { return false };
        line.remove(at);
        if line.is_empty() {
            self.lines.remove(workspace);
            self.turns.retain(|turn| turn != workspace);
        }
        self.waiting -= 1;
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.permits.0).pass_on();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.permits.0);
        let is_waiting = state.remove(self.workspace, self.number);
        if !is_waiting && self.granted.try_recv().is_ok() {
            state.pass_on();
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0);
        f.debug_struct("Permits").field("free", &state.free).field("waiting", &state.waiting).finish()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
