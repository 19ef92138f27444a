//! The server: its data, clock and notifications.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::database::Database;

/// A fake PostgreSQL server. Its data outlives connections. Cheap to clone.
#[derive(Clone)]
pub struct Postgres {
    state: Arc<Mutex<State>>,
    notifications: watch::Sender<u64>,
    has_shared_process: Arc<AtomicBool>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

struct State {
    database: Database,
    /// What the standby has received.
    standby: Database,
    /// The first session on the primary. Those before are on the standby.
    primary_from: u64,
    /// The last session.
    sessions: u64,
}

impl Postgres {
    /// Creates a server with this data. `now` returns its clock, in milliseconds since the Unix epoch.
    pub fn new(database: Database, now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let notifications = watch::Sender::new(database.notifications());
        let state = State { database, standby: Database::default(), primary_from: 0, sessions: 0 };
        let (state, has_shared_process) = (Arc::new(Mutex::new(state)), Arc::default());
        Self { state, notifications, has_shared_process, now: Arc::new(now) }
    }

    /// From now on, one process serves all connections, as behind PgBouncer in transaction mode.
    pub fn share_process(&self) {
        self.has_shared_process.store(true, Ordering::Relaxed);
    }

    /// From now on, all sessions are on a standby: they are read-only, and see no later changes.
    pub fn fail_over(&self) {
        let mut state = self.lock();
        (state.standby, state.primary_from) = (state.database.clone(), u64::MAX);
    }

    /// From now on, new sessions are on the primary. The open ones stay on the standby.
    pub fn promote(&self) {
        let mut state = self.lock();
        state.primary_from = state.sessions + 1;
    }

    /// Runs `transaction` on the primary's data atomically, and sends the notifications that it causes.
    pub fn with<T>(&self, transaction: impl FnOnce(&mut Database) -> T) -> T {
        self.write(&mut self.lock(), transaction)
    }

    fn write<T>(&self, state: &mut State, transaction: impl FnOnce(&mut Database) -> T) -> T {
        let result = transaction(&mut state.database);
        let notifications = state.database.notifications();
        self.notifications.send_if_modified(|sent| std::mem::replace(sent, notifications) != notifications);
        result
    }

    /// Begins a session and returns its number.
    pub(super) fn open_session(&self) -> u64 {
        let mut state = self.lock();
        state.sessions += 1;
        state.sessions
    }

    /// Returns the id of the process that serves a session.
    pub(super) fn process(&self, session: u64) -> u64 {
        if self.has_shared_process.load(Ordering::Relaxed) { 0 } else { session }
    }

    pub(super) fn is_on_standby(&self, session: u64) -> bool {
        session < self.lock().primary_from
    }

    /// Runs a transaction of `session` that may write. Returns `None` on the standby.
    pub(super) fn write_in<T>(
        &self,
        session: u64,
        transaction: impl FnOnce(&mut Database) -> T,
    ) -> Option<T> {
        let mut state = self.lock();
        (session >= state.primary_from).then(|| self.write(&mut state, transaction))
    }

    /// Runs a transaction of `session` that only reads.
    pub(super) fn read_in<T>(&self, session: u64, transaction: impl FnOnce(&mut Database) -> T) -> T {
        let mut state = self.lock();
        let is_on_standby = session < state.primary_from;
        transaction(if is_on_standby { &mut state.standby } else { &mut state.database })
    }

    pub(super) fn now_ms(&self) -> i64 {
        i64::try_from((self.now)()).unwrap_or(i64::MAX)
    }

    pub(super) fn notifications(&self) -> watch::Receiver<u64> {
        self.notifications.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("database", &self.lock().database).finish_non_exhaustive()
    }
}
