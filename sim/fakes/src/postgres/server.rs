//! The server: its data, its clock, its standby and its faults.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::database::Database;
use super::rows::Lookup;
use super::values::{Severity, SqlError};

/// A fake PostgreSQL server. Its data outlives connections. Cheap to clone.
#[derive(Clone)]
pub struct Postgres {
    pub(super) state: Arc<Mutex<State>>,
    /// Notified when sessions may have been terminated or a commit has been replicated. It wakes the waiting
    /// tasks in their order, so that a simulation is deterministic.
    changes: Arc<Notify>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
    commit_time: Arc<dyn Fn() -> Duration + Send + Sync>,
}

pub(super) struct State {
    /// With all executed transactions. Those that write run on it.
    pub(super) executed: Database,
    /// With the durable transactions. Those that only read run on it, unless they read holds.
    pub(super) durable: Database,
    /// The numbers of the last executed and the last durable transaction.
    pub(super) executed_number: u64,
    pub(super) durable_number: u64,
    /// The data of the synchronous standby when it went away. `None` if it has all durable transactions.
    pub(super) away: Option<Replica>,
    /// The data of another standby, to which the address leads.
    pub(super) standby: Database,
    /// The first session on the primary. Those before are on the standby.
    pub(super) primary_from: u64,
    /// The last session.
    pub(super) sessions: u64,
    /// Sessions up to this one have ended.
    pub(super) terminated: u64,
    /// The lookups whose holds a transaction locks that is being committed, and its session.
    pub(super) locked: BTreeMap<Lookup, u64>,
    /// A table that another session locks.
    pub(super) locked_table: Option<&'static str>,
    /// The sessions that execute a statement, and whether it was canceled.
    pub(super) executing: BTreeMap<u64, bool>,
    pub(super) is_read_only: bool,
    /// Other clients use all connections.
    pub(super) is_full: bool,
    /// No session can be opened.
    pub(super) is_down: bool,
    /// The next synchronous commit fails in this way.
    pub(super) failing_commit: Option<FailingCommit>,
    /// Messages to sessions up to this one are delayed for this long.
    pub(super) late: Option<(u64, Duration)>,
}

pub(super) struct Replica {
    pub(super) database: Database,
    /// The last transaction that it has.
    pub(super) number: u64,
}

#[derive(Clone, Copy)]
pub(super) struct FailingCommit {
    pub(super) severity: Severity,
    pub(super) is_replayed: bool,
}

/// An executed transaction, and the data after it.
pub(super) struct Commit {
    number: u64,
    after: Database,
    /// False if nothing was written to the log.
    has_written: bool,
}

impl Postgres {
    /// Creates a server with this data and a synchronous standby. `now` returns its clock, in milliseconds
    /// since the Unix epoch.
    pub fn new(database: Database, now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let state = State {
            durable: database.clone(),
            executed: database,
            executed_number: 0,
            durable_number: 0,
            away: None,
            standby: Database::default(),
            primary_from: 0,
            sessions: 0,
            terminated: 0,
            locked: BTreeMap::new(),
            locked_table: None,
            executing: BTreeMap::new(),
            is_read_only: false,
            is_full: false,
            is_down: false,
            failing_commit: None,
            late: None,
        };
        let (now, commit_time) = (Arc::new(now), Arc::new(|| Duration::ZERO));
        Self { state: Arc::new(Mutex::new(state)), changes: Arc::default(), now, commit_time }
    }

    /// Sets how long a transaction takes to become durable after it was executed.
    #[must_use]
    pub fn with_commit_time(self, commit_time: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { commit_time: Arc::new(commit_time), ..self }
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
}

impl Postgres {
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.lock());
        self.changes.notify_waiters();
        changed
    }

    async fn wait_until(&self, is_reached: impl Fn(&State) -> bool) {
        loop {
            let mut change = pin!(self.changes.notified());
            change.as_mut().enable();
            if is_reached(&self.state.lock()) {
                return;
            }
            change.await;
        }
    }
}

impl Postgres {
    /// Begins a session and returns its number.
    pub(super) fn open_session(&self) -> u64 {
        let mut state = self.state.lock();
        state.sessions += 1;
        state.sessions
    }

    /// Fails if no session can be opened.
    pub(super) fn admits(&self) -> Result<(), SqlError> {
        let state = self.state.lock();
        let (code, message) = match (state.is_down, state.is_full) {
            (true, _) => ("57P03", "the database system is starting up"),
            (_, true) => ("53300", "sorry, too many clients already"),
            _ => return Ok(()),
        };
        Err(SqlError::ending(Severity::Fatal, code, message))
    }

    /// Begins a statement of a session, which ends when the result is dropped.
    pub(super) fn begin_statement(&self, session: u64) -> Executing {
        self.state.lock().executing.insert(session, false);
        Executing(self.clone(), session)
    }

    /// Cancels the statement that a session executes, if there is one.
    pub(super) fn cancel(&self, session: u64) {
        self.change(|state| {
            state.executing.entry(session).and_modify(|is_canceled| *is_canceled = true);
        });
    }

    pub(super) fn is_canceled(&self, session: u64) -> bool {
        self.state.lock().is_canceled(session)
    }

    /// Returns whether another session locks one of the tables.
    pub(super) fn is_locked(&self, tables: &[&'static str]) -> bool {
        self.state.lock().locked_table.is_some_and(|locked| tables.contains(&locked))
    }

    /// Waits until a session is terminated.
    pub(super) async fn terminated(&self, session: u64) {
        let is_full = |state: &State| state.is_full && session % 2 == 1;
        self.wait_until(|state| state.terminated >= session || is_full(state)).await;
    }

    /// Returns how long it takes until a session receives what was sent to it.
    pub(super) fn delay(&self, session: u64) -> Option<Duration> {
        self.state.lock().late.filter(|(last, _)| session <= *last).map(|(_, delay)| delay)
    }

    /// Returns whether a session can only read.
    pub(super) fn is_read_only(&self, session: u64) -> bool {
        self.state.lock().is_read_only_in(session)
    }

    /// Executes a transaction of `session` that may write, unless another one locks one of the `lookups`. It
    /// locks them itself until [`Postgres::unlock`].
    pub(super) fn write_in<T>(
        &self,
        session: u64,
        lookups: Vec<Lookup>,
        transaction: impl FnOnce(&mut Database) -> T,
    ) -> Result<(T, Commit), SqlError> {
        let mut state = self.state.lock();
        if state.is_read_only_in(session) {
            return Err(SqlError::read_only());
        }
        if lookups.iter().any(|lookup| state.locked.contains_key(lookup)) {
            return Err(SqlError::locked());
        }
        state.locked.extend(lookups.into_iter().map(|lookup| (lookup, session)));
        Ok(state.execute(transaction))
    }

    /// Runs a transaction of `session` that only reads. Asynchronous commits are visible before they are durable,
    /// which matters for holds only.
    pub(super) fn read_in<T>(
        &self,
        session: u64,
        reads_holds: bool,
        transaction: impl FnOnce(&mut Database) -> T,
    ) -> T {
        let mut state = self.state.lock();
        transaction(match session < state.primary_from {
            true => &mut state.standby,
            false if reads_holds => &mut state.executed,
            false => &mut state.durable,
        })
    }

    /// Ends the locks of a session.
    pub(super) fn unlock(&self, session: u64) {
        self.state.lock().locked.retain(|_, locked_by| *locked_by != session);
    }

    pub(super) fn now_ms(&self) -> i64 {
        i64::try_from((self.now)()).unwrap_or(i64::MAX)
    }
}

impl Postgres {
    /// Returns how long the next commit takes.
    pub(super) fn commit_time(&self) -> Duration {
        (self.commit_time)()
    }

    /// Makes a transaction durable, together with all earlier ones.
    pub(super) fn make_durable(&self, Commit { number, after, .. }: Commit) {
        let mut state = self.state.lock();
        if number > state.durable_number {
            (state.durable, state.durable_number) = (after, number);
        }
    }

    /// Waits until the synchronous standby has a transaction of `session`, or its statement is canceled. Returns
    /// whether the standby has it. A promoted standby never has what it lacked: the session has ended.
    pub(super) async fn replicated(&self, number: u64, session: u64) -> bool {
        let has_it = |state: &State| {
            session > state.terminated && state.away.as_ref().is_none_or(|away| number <= away.number)
        };
        self.wait_until(|state| has_it(state) || state.is_canceled(session)).await;
        has_it(&self.state.lock())
    }

    /// Fails a synchronous commit, if the next one fails. Returns the commit otherwise.
    pub(super) fn fail_commit(&self, commit: Commit) -> Result<Commit, SqlError> {
        let failing = self.state.lock().failing_commit.take_if(|_| commit.has_written);
        let Some(FailingCommit { severity, is_replayed }) = failing else { return Ok(commit) };
        if is_replayed {
            self.make_durable(commit);
        }
        self.change(|state| {
            state.crash();
            state.stop();
        });
        Err(SqlError::ending(severity, "58030", "could not sync the log: Input/output error"))
    }
}

/// A statement of a session.
pub(super) struct Executing(Postgres, u64);

impl Drop for Executing {
    fn drop(&mut self) {
        self.0.state.lock().executing.remove(&self.1);
    }
}

impl Commit {
    /// Returns the number of the transaction if it has written to the log. Otherwise, its commit waits for
    /// nothing.
    pub(super) fn written(&self) -> Option<u64> {
        self.has_written.then_some(self.number)
    }
}

impl State {
    fn execute<T>(&mut self, transaction: impl FnOnce(&mut Database) -> T) -> (T, Commit) {
        let log_len = self.executed.log_len();
        let result = transaction(&mut self.executed);
        self.executed_number += 1;
        let has_written = self.executed.log_len() > log_len;
        (result, Commit { number: self.executed_number, after: self.executed.clone(), has_written })
    }

    pub(super) fn crash(&mut self) {
        self.durable.unlock_workspaces();
        self.executed = self.durable.clone();
        // Commits in progress have no effect any more.
        self.durable_number = self.executed_number;
        self.locked.clear();
    }

    pub(super) fn stop(&mut self) {
        (self.terminated, self.is_down) = (self.sessions, true);
    }

    fn is_canceled(&self, session: u64) -> bool {
        self.executing.get(&session).is_some_and(|is_canceled| *is_canceled)
    }

    fn is_read_only_in(&self, session: u64) -> bool {
        self.is_read_only || session < self.primary_from
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("database", &self.state.lock().durable).finish_non_exhaustive()
    }
}
