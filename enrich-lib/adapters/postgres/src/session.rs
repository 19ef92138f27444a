//! The sessions of a node, from registration to expiry, and the workspace states in them.
//!
//! A session expires on the node before it expires in the store, independently of the wall clocks: see [`crate::heartbeat`].
//! New holds are placed only under an active session. An expired session is kept while its lookups may still be settled.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use enrich_lib::credit::Hold;
use enrich_lib::model::WorkspaceId;
use enrich_store::sync::Mutex;
use tokio::time::Instant;

use crate::workspace::{Return, WorkspaceState};

pub(crate) struct Session {
    pub(crate) epoch: i64,
    /// When the session expires on this node, or `None` once it has ended in the store.
    ends_at: Mutex<Option<Instant>>,
    states: Mutex<BTreeMap<WorkspaceId, Arc<WorkspaceState>>>,
    leases_begun: Arc<AtomicI64>,
    /// The returns that the store has not confirmed, by workspace and lease. A later return of a lease replaces the earlier one.
    returns: Mutex<BTreeMap<(i64, i64), Return>>,
}

impl Session {
    pub(crate) fn new(epoch: i64, ends_at: Instant) -> Arc<Self> {
        Arc::new(Self {
            epoch,
            ends_at: Mutex::new(Some(ends_at)),
            states: Mutex::default(),
            leases_begun: Arc::default(),
            returns: Mutex::default(),
        })
    }

    pub(crate) fn is_active(&self) -> bool {
        self.ends_at.lock().is_some_and(|ends_at| Instant::now() < ends_at)
    }

    /// Returns `true` if the session has ended in the store.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends_at.lock().is_none()
    }

    /// Extends the session, unless it has ended in the store.
    pub(crate) fn renew(&self, until: Instant) {
        if let Some(ends_at) = &mut *self.ends_at.lock() {
            *ends_at = until;
        }
    }

    /// Ends the session for good, because it has ended in the store.
    pub(crate) fn end(&self) {
        *self.ends_at.lock() = None;
    }

    /// Returns the workspace states ordered by workspace name, so that every run uses the same order.
    pub(crate) fn states(&self) -> Vec<Arc<WorkspaceState>> {
        self.states.lock().values().cloned().collect()
    }

    pub(crate) fn find(&self, workspace: &WorkspaceId) -> Option<Arc<WorkspaceState>> {
        self.states.lock().get(workspace).cloned()
    }

    /// Adds a return to those to report.
    pub(crate) fn add_return(&self, unreported: Return) {
        self.returns.lock().insert((unreported.rowid, unreported.number), unreported);
    }

    /// Returns up to `count_max` returns to report, after the one with the key `after`.
    pub(crate) fn returns(&self, after: (i64, i64), count_max: usize) -> Vec<Return> {
        let returns = self.returns.lock();
        returns
            .range((Excluded(after), Unbounded))
            .map(|(_, unreported)| *unreported)
            .take(count_max)
            .collect()
    }

    /// Removes returns that the store has confirmed.
    pub(crate) fn confirm_returns<'a>(&self, confirmed: impl IntoIterator<Item = &'a Return>) {
        let mut returns = self.returns.lock();
        for confirmed in confirmed {
            let key = (confirmed.rowid, confirmed.number);
            if returns.get(&key) == Some(confirmed) {
                returns.remove(&key);
            }
        }
    }

    /// Expires holds, and removes states that have nothing to remember.
    fn advance(&self, now: Duration, is_newest: bool) {
        let mut disposable = Vec::new();
        for state in self.states() {
            state.lease().account.advance(now);
            if state.is_disposable(is_newest) {
                disposable.push(state.workspace.clone());
            }
        }
        let mut states = self.states.lock();
        for workspace in disposable {
            // Others can obtain a reference only from this map, which is locked.
            let is_unused =
                |state: &Arc<WorkspaceState>| Arc::strong_count(state) == 1 && state.is_disposable(is_newest);
            if states.get(&workspace).is_some_and(is_unused) {
                states.remove(&workspace);
            }
        }
    }
}

/// The newest session, and the expired ones that still have lookups.
#[derive(Default)]
pub(crate) struct Sessions {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Ordered from oldest to newest.
    sessions: Vec<Arc<Session>>,
    now: Duration,
}

impl Sessions {
    /// Returns the newest session, which may have expired. There is one when the ledger is open.
    pub(crate) fn newest(&self) -> Arc<Session> {
        self.state.lock().sessions.last().expect("a ledger has a session").clone()
    }

    /// Returns the newest session unless it has ended in the store.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        self.state.lock().sessions.last().filter(|session| !session.has_ended()).cloned()
    }

    /// Adds the next session, which replaces the newest one.
    pub(crate) fn push(&self, session: Arc<Session>) {
        self.state.lock().sessions.push(session);
    }

    /// Returns the state of a workspace in `session`, creating it if necessary.
    pub(crate) fn state(&self, session: &Session, workspace: &WorkspaceId) -> Arc<WorkspaceState> {
        if let Some(state) = session.find(workspace) {
            return state;
        }
        let now = self.state.lock().now;
        let mut states = session.states.lock();
        let begun = &session.leases_begun;
        let new = || Arc::new(WorkspaceState::new(workspace.clone(), session.epoch, begun.clone(), now));
        states.entry(workspace.clone()).or_insert_with(new).clone()
    }

    /// Returns the workspace state with this lookup's hold or settlement, or else the state in the newest session.
    pub(crate) fn state_of(&self, hold: &Hold) -> Arc<WorkspaceState> {
        self.find_earlier(hold).unwrap_or_else(|| self.state(&self.newest(), &hold.workspace))
    }

    /// Like [`Sessions::state_of`], but searches only sessions before the newest. There are rarely any.
    pub(crate) fn find_earlier(&self, hold: &Hold) -> Option<Arc<WorkspaceState>> {
        let earlier = match self.state.lock().sessions.split_last() {
            Some((_, earlier)) if !earlier.is_empty() => earlier.to_vec(),
            _ => return None,
        };
        let mut states = earlier.iter().rev().filter_map(|session| session.find(&hold.workspace));
        states.find(|state| state.lease().account.tracks(hold.lookup_id))
    }

    /// Sets the time to `now`, on a monotonic clock, and expires holds. Removes states and expired sessions that no longer
    /// remember a lookup.
    pub(crate) fn advance(&self, now: Duration) {
        let sessions = {
            let mut state = self.state.lock();
            state.now = now;
            state.sessions.clone()
        };
        for (n, session) in (1..).zip(&sessions) {
            session.advance(now, n == sessions.len());
        }
        let mut state = self.state.lock();
        // Determined under the lock: a session that was begun meanwhile has no states yet.
        let newest = state.sessions.last().map(|session| session.epoch);
        state.sessions.retain(|session| Some(session.epoch) == newest || !session.states.lock().is_empty());
    }
}
