//! The sessions of a node, from registration to expiry.
//!
//! A session expires on the node before it expires in the store, independently of the wall clocks. The node measures the
//! session from just *before* it sent the heartbeat, on a monotonic clock, and subtracts a tenth of the lifetime. New holds
//! are placed only under an active session. An expired session is kept while its lookups may still be settled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::credit::Hold;
use enrich_lib::model::WorkspaceId;
use tokio::time::Instant;

use crate::column::credits;
use crate::error::PostgresError;
use crate::pool::Pool;
use crate::workspace::WorkspaceState;
use enrich_store::sync::Mutex;

pub(crate) struct Session {
    pub(crate) epoch: i64,
    ends_at: Mutex<Instant>,
    states: Mutex<BTreeMap<WorkspaceId, Arc<WorkspaceState>>>,
}

impl Session {
    fn new(epoch: i64, ends_at: Instant) -> Arc<Self> {
        Arc::new(Self { epoch, ends_at: Mutex::new(ends_at), states: Mutex::default() })
    }

    pub(crate) fn is_active(&self) -> bool {
        Instant::now() < *self.ends_at.lock()
    }

    /// Ends the session now, for example because the store reported that it has ended.
    pub(crate) fn end(&self) {
        *self.ends_at.lock() = Instant::now();
    }

    /// Returns the workspace states ordered by workspace name, so that every run uses the same order.
    pub(crate) fn states(&self) -> Vec<Arc<WorkspaceState>> {
        self.states.lock().values().cloned().collect()
    }

    pub(crate) fn find(&self, workspace: &WorkspaceId) -> Option<Arc<WorkspaceState>> {
        self.states.lock().get(workspace).cloned()
    }
}

/// The newest session, and the expired ones that still have lookups.
pub(crate) struct Sessions {
    pool: Pool,
    name: String,
    ttl: Duration,
    state: Mutex<State>,
    heartbeat_lock: tokio::sync::Mutex<()>,
}

struct State {
    /// Ordered from oldest to newest.
    sessions: Vec<Arc<Session>>,
    now: Duration,
}

/// The reply to a heartbeat.
pub(crate) struct Heartbeat {
    pub(crate) requested_at: Instant,
    pub(crate) revision: i64,
    pub(crate) recalls: Vec<Recall>,
}

/// A request of other nodes for the idle credits of a workspace.
pub(crate) struct Recall {
    pub(crate) state: Arc<WorkspaceState>,
    pub(crate) rowid: i64,
    pub(crate) taken: u64,
    pub(crate) number: i64,
}

impl Sessions {
    /// Registers the node and begins the first session.
    pub(crate) async fn begin(
        pool: Pool,
        name: String,
        ttl: Duration,
        now: Duration,
    ) -> Result<Self, PostgresError> {
        let state = Mutex::new(State { sessions: Vec::new(), now });
        let sessions = Self { pool, name, ttl, state, heartbeat_lock: tokio::sync::Mutex::default() };
        sessions.begin_next().await?;
        Ok(sessions)
    }

    /// Returns the newest session, which may have expired.
    pub(crate) fn newest(&self) -> Arc<Session> {
        self.state.lock().sessions.last().expect("a ledger has a session").clone()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.state.lock().sessions.clone()
    }

    /// Returns the state of a workspace in `session`, creating it if necessary.
    pub(crate) fn state(&self, session: &Session, workspace: &WorkspaceId) -> Arc<WorkspaceState> {
        if let Some(state) = session.find(workspace) {
            return state;
        }
        let now = self.state.lock().now;
        let mut states = session.states.lock();
        let new = || Arc::new(WorkspaceState::new(workspace.clone(), session.epoch, now));
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

    /// Sets the time to `now`, on a monotonic clock, and expires holds. Removes expired sessions that no longer remember a lookup.
    pub(crate) fn advance(&self, now: Duration) {
        self.state.lock().now = now;
        let sessions = self.all();
        for state in sessions.iter().flat_map(|session| session.states()) {
            state.lease().account.advance(now);
        }
        let newest = self.newest().epoch;
        let is_at_rest =
            |session: &Session| session.states().iter().all(|state| state.lease().account.is_at_rest());
        self.state.lock().sessions.retain(|session| session.epoch == newest || !is_at_rest(session));
    }

    /// Sends a heartbeat. Begins the next session if the store has ended this one.
    pub(crate) async fn heartbeat(&self) -> Result<Heartbeat, PostgresError> {
        let _one_at_a_time = self.heartbeat_lock.lock().await;
        let session = self.newest();
        let requested_at = Instant::now();
        let call = "SELECT is_active, revision, names, workspaces, takes, recalls FROM node_beat($1, $2)";
        let row = self.pool.query_one(call, &[&session.epoch, &self.ttl_ms()]).await?;
        if row.get(0) {
            *session.ends_at.lock() = self.end_of(requested_at);
        } else {
            session.end();
            self.begin_next().await?;
        }
        let (names, rowids): (Vec<&str>, Vec<i64>) = (row.get(2), row.get(3));
        let (takes, numbers): (Vec<i64>, Vec<i64>) = (row.get(4), row.get(5));
        let recalls = names.into_iter().zip(rowids).zip(takes.into_iter().zip(numbers));
        let recalls = recalls.filter_map(|((name, rowid), (taken, number))| {
            let state = session.find(&name.parse().ok()?)?;
            Some(Recall { state, rowid, taken: credits(taken), number })
        });
        Ok(Heartbeat { requested_at, revision: row.get(1), recalls: recalls.collect() })
    }

    async fn begin_next(&self) -> Result<(), PostgresError> {
        let requested_at = Instant::now();
        let row = self.pool.query_one("SELECT node_begin($1, $2)", &[&self.name, &self.ttl_ms()]).await?;
        let session = Session::new(row.get(0), self.end_of(requested_at));
        self.state.lock().sessions.push(session);
        Ok(())
    }

    /// Returns when a session expires on this node, where `requested_at` is the time just before the request was sent.
    fn end_of(&self, requested_at: Instant) -> Instant {
        requested_at + self.ttl - self.ttl / 10
    }

    fn ttl_ms(&self) -> i64 {
        i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX)
    }

    /// Ends the sessions in the store, which returns the rest of their leases to the workspaces.
    pub(crate) async fn close(&self) -> Result<(), PostgresError> {
        let session = self.newest();
        session.end();
        self.pool.query("SELECT node_leave($1)", &[&session.epoch]).await?;
        self.pool.query("SELECT nodes_end()", &[]).await?;
        Ok(())
    }
}
