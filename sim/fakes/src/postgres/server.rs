//! The server: its data, clock and notifications.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::database::Database;

/// A fake PostgreSQL server. Its data outlives connections. Cheap to clone.
#[derive(Clone)]
pub struct Postgres {
    database: Arc<Mutex<Database>>,
    notifications: watch::Sender<u64>,
    /// The id of the last process.
    processes: Arc<AtomicU32>,
    has_shared_process: Arc<AtomicBool>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Postgres {
    /// Creates a server with this data. `now` returns its clock, in milliseconds since the Unix epoch.
    pub fn new(database: Database, now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let notifications = watch::Sender::new(database.notifications());
        let (database, processes) = (Arc::new(Mutex::new(database)), Arc::default());
        let has_shared_process = Arc::default();
        Self { database, notifications, processes, has_shared_process, now: Arc::new(now) }
    }

    /// From now on, one process serves all connections, as behind PgBouncer in transaction mode.
    pub fn share_process(&self) {
        self.has_shared_process.store(true, Ordering::Relaxed);
    }

    /// Runs `transaction` on the data atomically, and sends the notifications that it causes.
    pub fn with<T>(&self, transaction: impl FnOnce(&mut Database) -> T) -> T {
        let mut database = self.lock();
        let result = transaction(&mut database);
        let notifications = database.notifications();
        self.notifications.send_if_modified(|sent| std::mem::replace(sent, notifications) != notifications);
        result
    }

    /// Returns the id of the process for a new connection.
    pub(super) fn next_process(&self) -> u32 {
        if self.has_shared_process.load(Ordering::Relaxed) {
            return 0;
        }
        self.processes.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn now_ms(&self) -> i64 {
        i64::try_from((self.now)()).unwrap_or(i64::MAX)
    }

    pub(super) fn notifications(&self) -> watch::Receiver<u64> {
        self.notifications.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Database> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("database", &*self.lock()).finish_non_exhaustive()
    }
}
