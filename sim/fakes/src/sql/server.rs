//! The database and its sessions.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};
use tempfile::TempDir;

/// A database server, whose data outlives its connections and its crashes. Every commit is durable at once.
#[derive(Clone)]
pub struct SqlServer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Reads what is committed.
    reader: Mutex<Connection>,
    commits: AtomicU64,
    _files: TempDir,
}

struct State {
    writer: Connection,
    /// The session with an open transaction. All others wait for its end.
    owner: Option<u64>,
    /// The last session.
    sessions: u64,
}

/// The result of a statement.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Value>>,
    /// The number of rows that it changed or returned.
    pub(super) count: u64,
}

/// Why a statement did not run.
pub(super) enum NotRun {
    /// Another session has an open transaction.
    Locked,
    Failed(String),
}

impl SqlServer {
    /// Creates a server with these tables. `now` returns its clock, in milliseconds since the Unix epoch.
    pub fn new(schema: &str, now: impl Fn() -> u64 + Send + 'static) -> rusqlite::Result<Self> {
        // In memory if possible: a simulated crash loses nothing.
        let memory = Path::new("/dev/shm");
        let files = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let files = files.expect("a temporary directory");
        let path = files.path().join("database");
        let writer = Connection::open(&path)?;
        writer.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
        writer.execute_batch(schema)?;
        add_clock(&writer, now)?;
        let reader = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let state = Mutex::new(State { writer, owner: None, sessions: 0 });
        let (reader, commits) = (Mutex::new(reader), AtomicU64::new(0));
        Ok(Self(Arc::new(Shared { state, reader, commits, _files: files })))
    }

    /// Reads the committed data at once, without a connection.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> T) -> T {
        read(&self.0.reader.lock())
    }

    /// Returns the number of commits so far.
    pub fn commits(&self) -> u64 {
        self.0.commits.load(Ordering::Relaxed)
    }

    pub(super) fn open_session(&self) -> u64 {
        let mut state = self.0.state.lock();
        state.sessions += 1;
        state.sessions
    }

    /// Rolls back the transaction of a session, if it has one.
    pub(super) fn roll_back(&self, session: u64) {
        let mut state = self.0.state.lock();
        if state.owner == Some(session) {
            state.owner = None;
            state.writer.execute_batch("ROLLBACK").expect("a transaction is open");
        }
    }

    /// Returns whether a session has an open transaction.
    pub(super) fn is_in_transaction(&self, session: u64) -> bool {
        self.0.state.lock().owner == Some(session)
    }

    /// Runs one statement of a session.
    pub(super) fn run(&self, session: u64, sql: &str, arguments: &[Value]) -> Result<Rows, NotRun> {
        let mut state = self.0.state.lock();
        if state.owner.is_some_and(|owner| owner != session) {
            return Err(NotRun::Locked);
        }
        let word = sql.split_whitespace().next().unwrap_or_default().to_uppercase();
        let failed = |error: rusqlite::Error| NotRun::Failed(error.to_string());
        let result = match word.trim_end_matches(';') {
            // Parameters of a session, such as timeouts.
            "SET" => Rows::default(),
            _ => execute(&state.writer, sql, arguments).map_err(failed)?,
        };
        state.owner = (!state.writer.is_autocommit()).then_some(session);
        if state.owner.is_none() {
            self.0.commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(result)
    }
}

/// Adds `clock_timestamp()`, and `date_part('epoch', …)` of its result.
fn add_clock(connection: &Connection, now: impl Fn() -> u64 + Send + 'static) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8;
    connection.create_scalar_function("clock_timestamp", 0, flags, move |_| Ok(now() as f64 / 1_000.0))?;
    connection.create_scalar_function("date_part", 2, flags, |call| match call.get_raw(0).as_str()? {
        "epoch" => call.get::<f64>(1),
        other => Err(rusqlite::Error::UserFunctionError(format!("no date_part of {other}").into())),
    })
}

fn execute(connection: &Connection, sql: &str, arguments: &[Value]) -> rusqlite::Result<Rows> {
    let mut statement = connection.prepare_cached(sql)?;
    let columns: Vec<_> = statement.column_names().map(str::to_owned).collect();
    // SQLite numbers `$1` and `$2` by their first occurrence, and PostgreSQL by their names.
    let by_name = (1..=statement.parameter_count()).map(|index| {
        let name = statement.parameter_name(index).unwrap_or_default();
        let number = name.trim_start_matches('$').parse::<usize>().ok();
        number.and_then(|number| arguments.get(number - 1)).cloned().unwrap_or(Value::Null)
    });
    let arguments = params_from_iter(by_name.collect::<Vec<_>>());
    if columns.is_empty() {
        let count = statement.execute(arguments)? as u64;
        return Ok(Rows { count, ..Rows::default() });
    }
    let read = |row: &rusqlite::Row<'_>| (0..columns.len()).map(|column| row.get(column)).collect();
    let rows = statement.query_map(arguments, read)?.collect::<rusqlite::Result<Vec<Vec<Value>>>>()?;
    Ok(Rows { count: rows.len() as u64, columns, rows })
}

impl fmt::Debug for SqlServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlServer").field("commits", &self.commits()).finish_non_exhaustive()
    }
}
