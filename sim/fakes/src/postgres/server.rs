//! The server: its data and its clock.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::database::Database;
use super::statements::Statement;

/// A fake PostgreSQL server. Its data outlives connections. Cheap to clone.
#[derive(Clone)]
pub struct Postgres {
    state: Arc<Mutex<State>>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
    commit_time: Arc<dyn Fn() -> Duration + Send + Sync>,
}

struct State {
    /// With all executed transactions. Those that write run on it.
    executed: Database,
    /// With the durable transactions. Those that only read run on it.
    durable: Database,
    /// The numbers of the last executed and the last durable transaction.
    executed_number: u64,
    durable_number: u64,
    /// What the standby has received.
    standby: Database,
    /// The first session on the primary. Those before are on the standby.
    primary_from: u64,
    /// The last session.
    sessions: u64,
    /// The statements that have conflicted and do not conflict the next time, if statements conflict.
    conflicted: Option<HashSet<Statement>>,
}

/// An executed transaction, and the data after it.
pub(super) struct Commit {
    number: u64,
    after: Database,
}

impl Postgres {
    /// Creates a server with this data. `now` returns its clock, in milliseconds since the Unix epoch.
    pub fn new(database: Database, now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let state = State {
            durable: database.clone(),
            executed: database,
            executed_number: 0,
            durable_number: 0,
            standby: Database::default(),
            primary_from: 0,
            sessions: 0,
            conflicted: None,
        };
        let (now, commit_time) = (Arc::new(now), Arc::new(|| Duration::ZERO));
        Self { state: Arc::new(Mutex::new(state)), now, commit_time }
    }

    /// Sets how long a transaction takes to become durable after it was executed.
    #[must_use]
    pub fn with_commit_time(self, commit_time: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { commit_time: Arc::new(commit_time), ..self }
    }

    /// Fails every other execution of each statement with a serialization failure, beginning with the first.
    #[must_use]
    pub fn with_conflicts(self) -> Self {
        self.state.lock().conflicted = Some(HashSet::new());
        self
    }

    /// Loses the transactions that are not durable, as in a power failure, and ends all locks.
    pub fn crash(&self) {
        let mut state = self.state.lock();
        state.durable.unlock_workspaces();
        state.executed = state.durable.clone();
        // Commits in progress have no effect any more.
        state.durable_number = state.executed_number;
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

    /// Runs `transaction` on the primary's data atomically. It is durable at once, together with all earlier
    /// ones.
    pub fn with<T>(&self, transaction: impl FnOnce(&mut Database) -> T) -> T {
        let (result, commit) = self.state.lock().execute(transaction);
        self.make_durable(commit);
        result
    }

    /// Reads the primary's durable data.
    pub fn read<T>(&self, read: impl FnOnce(&Database) -> T) -> T {
        read(&self.state.lock().durable)
    }

    /// Makes a transaction durable, together with all earlier ones.
    pub(super) fn make_durable(&self, Commit { number, after }: Commit) {
        let mut state = self.state.lock();
        if number > state.durable_number {
            (state.durable, state.durable_number) = (after, number);
        }
    }

    /// Returns how long the next commit takes.
    pub(super) fn commit_time(&self) -> Duration {
        (self.commit_time)()
    }

    /// Begins a session and returns its number.
    pub(super) fn open_session(&self) -> u64 {
        let mut state = self.state.lock();
        state.sessions += 1;
        state.sessions
    }

    pub(super) fn is_on_standby(&self, session: u64) -> bool {
        session < self.state.lock().primary_from
    }

    /// Returns whether this execution of a statement fails with a serialization failure.
    pub(super) fn conflicts(&self, statement: Statement) -> bool {
        let mut state = self.state.lock();
        let Some(conflicted) = &mut state.conflicted else { return false };
        let is_repeated = conflicted.remove(&statement);
        if !is_repeated {
            conflicted.insert(statement);
        }
        !is_repeated
    }

    /// Executes a transaction of `session` that may write. Returns `None` on the standby.
    pub(super) fn write_in<T>(
        &self,
        session: u64,
        transaction: impl FnOnce(&mut Database) -> T,
    ) -> Option<(T, Commit)> {
        let mut state = self.state.lock();
        (session >= state.primary_from).then(|| state.execute(transaction))
    }

    /// Runs a transaction of `session` that only reads.
    pub(super) fn read_in<T>(&self, session: u64, transaction: impl FnOnce(&mut Database) -> T) -> T {
        let mut state = self.state.lock();
        let is_on_standby = session < state.primary_from;
        transaction(if is_on_standby { &mut state.standby } else { &mut state.durable })
    }

    pub(super) fn now_ms(&self) -> i64 {
        i64::try_from((self.now)()).unwrap_or(i64::MAX)
    }
}

impl State {
    fn execute<T>(&mut self, transaction: impl FnOnce(&mut Database) -> T) -> (T, Commit) {
        let result = transaction(&mut self.executed);
        self.executed_number += 1;
        (result, Commit { number: self.executed_number, after: self.executed.clone() })
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("database", &self.state.lock().durable).finish_non_exhaustive()
    }
}
