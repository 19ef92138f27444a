//! The faults of the server.

use std::time::Duration;

use super::rows::Lookup;
use super::server::{FailingCommit, Postgres, Replica, State};
use super::values::Severity;

impl Postgres {
    /// The tables that the statements of a node use.
    pub const TABLES: [&'static str; 11] = [
        "api_key",
        "balance",
        "credit_hold",
        "credit_receipt",
        "credit_spend",
        "opt_out",
        "person",
        "revision",
        "settlement",
        Self::USAGE,
        "workspace",
    ];

    /// The table that no lookup needs.
    pub const USAGE: &'static str = "usage_day";

    /// Loses the transactions that are not durable, as in a power failure, and ends all locks.
    pub fn crash(&self) {
        self.state.lock().crash();
    }

    /// From now on, all sessions are on a standby: they are read-only, and see no later changes.
    pub fn fail_over(&self) {
        let mut state = self.state.lock();
        (state.standby, state.primary_from) = (state.durable.clone(), u64::MAX);
    }

    /// From now on, new sessions are on the primary. The open ones stay on the standby.
    pub fn promote(&self) {
        let mut state = self.state.lock();
        state.primary_from = state.sessions + 1;
    }

    /// The synchronous standby receives nothing any more. Synchronous commits wait for it.
    pub fn detach_standby(&self) {
        let mut state = self.state.lock();
        if state.away.is_none() {
            state.away = Some(Replica { database: state.durable.clone(), number: state.durable_number });
        }
    }

    /// Returns whether synchronous commits wait for the standby.
    pub fn is_standby_away(&self) -> bool {
        self.state.lock().away.is_some()
    }

    /// The synchronous standby receives what it lacks.
    pub fn attach_standby(&self) {
        self.change(|state| state.away = None);
    }

    /// The synchronous standby becomes the primary, with what it has. Returns the spends that it lacks.
    pub fn promote_standby(&self) -> Vec<Lookup> {
        self.change(|state| {
            let mut lost = Vec::new();
            if let Some(Replica { database, .. }) = state.away.take() {
                let spends = state.durable.spends().keys();
                lost.extend(spends.filter(|lookup| !database.spends().contains_key(*lookup)));
                state.durable = database;
            }
            state.crash();
            state.terminated = state.sessions;
            state.is_down = false;
            lost
        })
    }

    /// Ends all sessions. A commit that waits for the standby is then visible.
    pub fn terminate(&self) {
        self.change(|state| state.terminated = state.sessions);
    }

    /// Cancels all statements. A commit that waits for the standby is then visible, and has a reply.
    pub fn cancel_all(&self) {
        self.change(|state| state.executing.values_mut().for_each(|is_canceled| *is_canceled = true));
    }

    /// Stops the server: ends all sessions, and opens none.
    pub fn stop(&self) {
        self.change(State::stop);
    }

    /// Starts the server again. No commit fails any more.
    pub fn start(&self) {
        let mut state = self.state.lock();
        (state.is_down, state.failing_commit) = (false, None);
    }

    /// Fails the next synchronous commit with an error of this severity, and stops the server. The commit is
    /// executed when the server starts again, or lost.
    pub fn fail_next_commit(&self, severity: Severity, is_replayed: bool) {
        self.state.lock().failing_commit = Some(FailingCommit { severity, is_replayed });
    }

    /// Locks a table, as another session could. `None` ends the lock.
    pub fn lock_table(&self, table: Option<&'static str>) {
        self.state.lock().locked_table = table;
    }

    /// Lets other clients use all connections, or not: ends half of the sessions, and opens none.
    pub fn set_full(&self, is_full: bool) {
        self.change(|state| state.is_full = is_full);
    }

    /// Makes the server read-only, or not.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.state.lock().is_read_only = is_read_only;
    }

    /// Delays all messages to the sessions that are open now, also after their clients have closed the
    /// connections. `None` ends the delay.
    pub fn delay_open_sessions(&self, delay: Option<Duration>) {
        let mut state = self.state.lock();
        state.late = delay.map(|delay| (state.sessions, delay));
    }
}
