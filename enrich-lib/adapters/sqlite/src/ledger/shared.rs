//! State shared between requests and the writer: the accounts and the keys in memory.

use std::hash::BuildHasher;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use enrich_lib::credit::{Account, Balance, Hold};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId, whole_ms};
use enrich_lib::receipt::Receipt;
use enrich_lib::window::Workspace;
use enrich_store::statistics::CommitCounter;
use enrich_store::usage::UsageCounter;
use enrich_store::{Clocks, KeyCache, StoreError};
use rusqlite::{Connection, OptionalExtension, params};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::keys;
use crate::error::SqliteError;
use crate::files::dir::ServeLock;
use enrich_store::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;

/// The age from which the changes of keys must be read before a key is accepted. Refreshes read them more often.
const KEYS_AGE_MAX: Duration = Duration::from_secs(1);

/// How long a read waits for another one. A disk that takes longer does not respond.
const READ_TIME_MAX: Duration = Duration::from_millis(500);

/// How long a lookup waits for the refresh that reads the changes of keys, which is short.
const EVENTS_TIME_MAX: Duration = Duration::from_millis(5);

type States = FxHashMap<WorkspaceId, Arc<CachedAccount>>;

pub(crate) struct Shared {
    pub(crate) keys: KeyCache,
    /// Reads the audit log alone, so that no other read delays it. With the rowid of the last event whose workspace's
    /// keys were cleared.
    events: Mutex<(Connection, i64)>,
    /// When the last read of these events began, in milliseconds of the clock.
    events_read_ms: AtomicU64,
    pub(crate) usage: Arc<UsageCounter>,
    /// Several maps, so that threads rarely wait for the lock of one.
    states: [Mutex<States>; SHARDS],
    /// Workspaces that were used since the last tick, or have a hold.
    touched: Mutex<Vec<Arc<CachedAccount>>>,
    /// The wall clock at the last tick, in Unix milliseconds.
    wall_ms: AtomicU64,
    /// The monotonic clock at the last tick, in milliseconds.
    elapsed_ms: AtomicU64,
    /// Set while a commit that failed has not been overwritten.
    is_unwritable: AtomicBool,
    pub(crate) commits: CommitCounter,
    /// The held credits of all workspaces at the last tick.
    pub(crate) credits_held: AtomicU64,
    /// A monotonic clock, which times commits, and the age of the keys.
    pub(crate) clock: Box<dyn Fn() -> Duration + Send + Sync>,
    /// The error of a failed sync, after which the ledger no longer works.
    failure: OnceLock<String>,
    /// Reads keys and workspaces that are not in memory yet.
    reader: Mutex<Connection>,
    /// Set while a read of it does not end in time.
    is_reader_stuck: AtomicBool,
    /// Held here because the writer may still have spends to write after the ledger is dropped.
    pub(crate) serve: ServeLock,
}

/// A workspace's account in memory.
pub(crate) struct CachedAccount {
    pub(crate) rowid: i64,
    account: Mutex<Account>,
    is_touched: AtomicBool,
}

impl Shared {
    /// `open` opens a connection to the accounts.
    pub(crate) fn new(
        open: impl Fn() -> Result<Connection, SqliteError>,
        serve: ServeLock,
        now: Clocks,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Result<Self, SqliteError> {
        let (reader, log) = (open()?, open()?);
        let seen = keys::last_event(&log)?;
        Ok(Self {
            keys: KeyCache::default(),
            events: Mutex::new((log, seen)),
            events_read_ms: AtomicU64::new(0),
            usage: Arc::default(),
            states: std::array::from_fn(|_| Mutex::default()),
            touched: Mutex::default(),
            wall_ms: AtomicU64::new(now.wall.unix_ms()),
            elapsed_ms: AtomicU64::new(whole_ms(now.elapsed)),
            is_unwritable: AtomicBool::new(false),
            commits: CommitCounter::default(),
            credits_held: AtomicU64::new(0),
            clock: Box::new(clock),
            failure: OnceLock::new(),
            reader: Mutex::new(reader),
            is_reader_stuck: AtomicBool::new(false),
            serve,
        })
    }

    /// Returns the wall clock at the last tick.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.wall_ms.load(Ordering::Relaxed))
    }

    /// Returns the monotonic clock at the last tick.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn set_time(&self, now: Clocks) {
        self.wall_ms.store(now.wall.unix_ms(), Ordering::Relaxed);
        self.elapsed_ms.fetch_max(whole_ms(now.elapsed), Ordering::Relaxed);
    }

    pub(crate) fn set_unwritable(&self, is_unwritable: bool) {
        self.is_unwritable.store(is_unwritable, Ordering::Relaxed);
    }

    /// Fails if a hold would be pointless, because its spend could not be written.
    pub(crate) fn check_writable(&self) -> Result<(), SqliteError> {
        self.failure()?;
        if self.is_unwritable.load(Ordering::Relaxed) {
            return Err(StoreError::Unwritable("the last commit failed".to_owned()).into());
        }
        Ok(())
    }

    /// Records a failed sync. The first one counts.
    pub(crate) fn fail(&self, error: &rusqlite::Error) {
        self.failure.get_or_init(|| error.to_string());
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Returns the error of a failed sync.
    pub(crate) fn failure(&self) -> Result<(), SqliteError> {
        self.failure.get().map_or(Ok(()), |error| Err(SqliteError::SyncFailed(error.clone())))
    }

    /// Fails if changes of keys could not be read for a second, or if the key must be read, and the disk does not
    /// respond.
    pub(crate) fn find_key(&self, key: &KeyDigest) -> Result<Option<Workspace>, SqliteError> {
        self.check_keys()?;
        keys::find(&self.keys, key, self.wall(), || self.reader())
    }

    /// Fails if changes of keys could not be read for a second.
    pub(crate) fn check_keys(&self) -> Result<(), SqliteError> {
        let read_at = Duration::from_millis(self.events_read_ms.load(Ordering::Relaxed));
        if (self.clock)() < read_at + KEYS_AGE_MAX { Ok(()) } else { self.refresh_keys() }
    }

    /// Locks the connection for reads. Those after one that does not end in time wait for nothing, so that they do not
    /// block their threads.
    fn reader(&self) -> Result<MutexGuard<'_, Connection>, SqliteError> {
        let is_stuck = self.is_reader_stuck.load(Ordering::Relaxed);
        let reader = self.reader.try_lock_for(if is_stuck { Duration::ZERO } else { READ_TIME_MAX });
        self.is_reader_stuck.store(reader.is_none(), Ordering::Relaxed);
        reader.ok_or(SqliteError::Unresponsive)
    }

    /// Clears the cached keys that other processes may have changed since the last call. Fails if another call does not
    /// end.
    pub(crate) fn refresh_keys(&self) -> Result<(), SqliteError> {
        self.keys.clear_unknown();
        let begun_at = (self.clock)();
        let mut events = self.events.try_lock_for(EVENTS_TIME_MAX).ok_or(SqliteError::Unresponsive)?;
        let (log, seen) = &mut *events;
        // If it fails, any key may be one that was revoked.
        keys::clear_changed_keys(log, &self.keys, seen).inspect_err(|_| self.keys.clear())?;
        self.events_read_ms.fetch_max(whole_ms(begun_at), Ordering::Relaxed);
        Ok(())
    }

    /// Returns the account of a workspace. Reads it from disk the first time.
    pub(crate) fn workspace(&self, workspace: &WorkspaceId) -> Result<Arc<CachedAccount>, SqliteError> {
        if let Some(state) = self.cached(workspace) {
            return Ok(state);
        }
        // Locked until the account is in memory, so that one lookup reads it, and `cached_accounts` misses none.
        let db = self.reader()?;
        if let Some(state) = self.cached(workspace) {
            return Ok(state);
        }
        let mut select = db.prepare_cached("SELECT rowid, granted, spent FROM workspace WHERE id = ?")?;
        let row = select.query_row([workspace.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let Some((rowid, granted, spent)) = row.optional()? else {
            return Err(StoreError::UnknownWorkspace(workspace.clone()).into());
        };
        let state = Arc::new(CachedAccount {
            rowid,
            account: Mutex::new(Account::new(granted, spent)?),
            is_touched: AtomicBool::new(false),
        });
        self.states_of(workspace).insert(workspace.clone(), state.clone());
        Ok(state)
    }

    /// Locks the map that contains a workspace if it is in memory.
    fn states_of(&self, workspace: &WorkspaceId) -> MutexGuard<'_, States> {
        // The map itself uses the other bits.
        let number = FxBuildHasher.hash_one(workspace) >> 32;
        self.states[number as usize % SHARDS].lock()
    }

    /// Returns the account of a workspace if it is in memory.
    fn cached(&self, workspace: &WorkspaceId) -> Option<Arc<CachedAccount>> {
        self.states_of(workspace).get(workspace).cloned()
    }

    /// Returns the accounts that are in memory. Fails if a read in progress does not end in time.
    pub(crate) fn cached_accounts(&self, of: &[WorkspaceId]) -> Result<Vec<Arc<CachedAccount>>, SqliteError> {
        let _reader = self.reader()?;
        Ok(of.iter().filter_map(|workspace| self.cached(workspace)).collect())
    }

    /// Fails if a read does not end.
    pub(crate) fn check_reader(&self) -> Result<(), SqliteError> {
        self.reader().map(drop)
    }

    /// Locks the account to change its holds. Advances its time to the last tick and marks it for the next
    /// one.
    pub(crate) fn account<'s>(&self, state: &'s Arc<CachedAccount>) -> MutexGuard<'s, Account> {
        let mut account = state.account.lock();
        account.advance(self.elapsed());
        self.touch(state);
        account
    }

    /// Marks an account for the next tick.
    pub(crate) fn touch(&self, state: &Arc<CachedAccount>) {
        if !state.is_touched.load(Ordering::Relaxed) && !state.is_touched.swap(true, Ordering::Relaxed) {
            self.touched.lock().push(state.clone());
        }
    }

    /// Returns the credits that a lookup of a workspace has spent, if its spend is kept.
    pub(crate) fn spent(&self, workspace: i64, lookup_id: LookupId) -> Result<Option<u64>, SqliteError> {
        spent(&*self.reader()?, workspace, lookup_id)
    }

    /// Returns the lookup of a workspace that has paid for the receipt of a hold.
    pub(crate) fn payer(&self, workspace: i64, hold: &Hold) -> Result<Option<LookupId>, SqliteError> {
        let Some(receipt) = hold.receipt else { return Ok(None) };
        payer(&*self.reader()?, workspace, receipt)
    }

    /// Returns the accounts used since the last call.
    pub(crate) fn take_touched(&self) -> Vec<Arc<CachedAccount>> {
        let touched = mem::take(&mut *self.touched.lock());
        // Clear the flags before the caller reads the accounts, so that a concurrent use marks an account
        // again.
        touched.iter().for_each(|state| state.is_touched.store(false, Ordering::Relaxed));
        touched
    }
}

impl CachedAccount {
    /// Locks the account to read it or to advance its time. Does not mark it as used.
    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock()
    }

    pub(crate) fn balance(&self) -> Balance {
        self.account().balance()
    }
}

/// Reads the credits that a lookup of a workspace has spent.
pub(crate) fn spent(
    db: &Connection,
    workspace: i64,
    lookup_id: LookupId,
) -> Result<Option<u64>, SqliteError> {
    let select = "SELECT credits FROM credit_spend WHERE lookup_id = ? AND workspace = ?";
    let mut select = db.prepare_cached(select)?;
    Ok(select.query_row(params![lookup_id.as_bytes(), workspace], |row| row.get(0)).optional()?)
}

/// Reads the lookup of a workspace that has paid for a receipt.
pub(crate) fn payer(
    db: &Connection,
    workspace: i64,
    receipt: Receipt,
) -> Result<Option<LookupId>, SqliteError> {
    let select = "SELECT lookup_id FROM credit_receipt WHERE workspace = ? AND receipt = ?";
    let mut select = db.prepare_cached(select)?;
    let lookup_id = select.query_row(params![workspace, receipt.as_bytes()], |row| row.get(0)).optional()?;
    Ok(lookup_id.map(LookupId::from_bytes))
}
