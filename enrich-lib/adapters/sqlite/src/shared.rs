//! State shared between requests and the writer: the accounts and the keys in memory.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use enrich_lib::credit::{Account, Balance};
use enrich_lib::key::KeyDigest;
use enrich_lib::model::{Timestamp, WorkspaceId};
use enrich_lib::sharded_map::ShardedMap;
use enrich_lib::window::Workspace;
use rusqlite::{Connection, OptionalExtension};

use crate::dir::ServeLock;
use crate::error::StoreError;
use crate::keys::KeyCache;
use crate::sync::{Mutex, MutexGuard, lock};

pub(crate) struct Shared {
    pub(crate) keys: KeyCache,
    pub(crate) owed: Owed,
    slots: ShardedMap<Arc<Slot>>,
    /// Workspaces that were used since the last tick.
    touched: Mutex<Vec<Arc<Slot>>>,
    /// Time of the last tick, in Unix milliseconds.
    now_ms: AtomicU64,
    /// Reads keys and workspaces that are not in memory yet.
    reader: Mutex<Connection>,
    /// Held here because the writer may still have spends to write after the ledger is dropped.
    _serve: ServeLock,
}

/// A workspace's account in memory.
pub(crate) struct Slot {
    pub(crate) rowid: i64,
    account: Mutex<Account>,
    is_touched: AtomicBool,
    /// When the writer processes the account next, in Unix milliseconds. Only the writer uses it.
    pub(crate) due_ms: AtomicU64,
}

impl Shared {
    pub(crate) fn new(reader: Connection, serve: ServeLock, now: Timestamp) -> Self {
        Self {
            keys: KeyCache::default(),
            owed: Owed::default(),
            slots: ShardedMap::default(),
            touched: Mutex::default(),
            now_ms: AtomicU64::new(now.unix_ms()),
            reader: Mutex::new(reader),
            _serve: serve,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn set_time(&self, now: Timestamp) {
        self.now_ms.store(now.unix_ms(), Ordering::Relaxed);
    }

    pub(crate) fn find_key(&self, key: &KeyDigest) -> Result<Option<Workspace>, StoreError> {
        self.keys.find(key, self.now(), &self.reader)
    }

    /// Returns the account of a workspace. Reads it from disk the first time.
    ///
    /// The shard stays locked while the account is read. Otherwise a grant committed between the read and the insert
    /// could be missed.
    pub(crate) fn slot(&self, workspace: &WorkspaceId) -> Result<Arc<Slot>, StoreError> {
        let mut slots = self.slots.lock(workspace);
        if let Some(slot) = slots.get(workspace) {
            return Ok(slot.clone());
        }
        let db = lock(&self.reader);
        // The tail of `crate::totals` has no spends of a workspace that is not in memory, so `spent` is complete.
        let mut select = db.prepare_cached("SELECT rowid, granted, spent FROM workspace WHERE id = ?")?;
        let row = select.query_row([workspace.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let Some((rowid, granted, spent)) = row.optional()? else {
            return Err(StoreError::UnknownWorkspace(workspace.clone()));
        };
        let slot = Arc::new(Slot {
            rowid,
            account: Mutex::new(Account::new(granted, spent)?),
            is_touched: AtomicBool::new(false),
            due_ms: AtomicU64::new(u64::MAX),
        });
        slots.insert(workspace.clone(), slot.clone());
        Ok(slot)
    }

    /// Returns the account of a workspace if it is in memory.
    pub(crate) fn known_slot(&self, workspace: &WorkspaceId) -> Option<Arc<Slot>> {
        self.slots.lock(workspace).get(workspace).cloned()
    }

    /// Locks the account to change its holds. Advances its time to the last tick and marks it for the next one.
    pub(crate) fn account<'s>(&self, slot: &'s Arc<Slot>) -> MutexGuard<'s, Account> {
        let mut account = lock(&slot.account);
        account.catch_up(self.now());
        if !slot.is_touched.load(Ordering::Relaxed) && !slot.is_touched.swap(true, Ordering::Relaxed) {
            lock(&self.touched).push(slot.clone());
        }
        account
    }

    /// Returns all accounts in memory.
    pub(crate) fn all_slots(&self) -> Vec<Arc<Slot>> {
        #[expect(clippy::disallowed_methods, reason = "this map has the same order in every run")]
        self.slots.shards().flat_map(|shard| shard.values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Returns the accounts used since the last call.
    pub(crate) fn take_touched(&self) -> Vec<Arc<Slot>> {
        let touched = mem::take(&mut *lock(&self.touched));
        // Clear the flags before the caller reads the accounts, so that a concurrent use marks an account again.
        touched.iter().for_each(|slot| slot.is_touched.store(false, Ordering::Relaxed));
        touched
    }
}

impl Slot {
    /// Locks the account to read it or to advance its time. Does not mark it as used.
    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        lock(&self.account)
    }

    pub(crate) fn balance(&self) -> Balance {
        self.account().balance()
    }
}

/// Counts the unflushed spends: acknowledged, not yet durable.
#[derive(Default)]
pub(crate) struct Owed {
    count: AtomicUsize,
    /// Set if some of them could not be written.
    is_failing: AtomicBool,
}

impl Owed {
    /// Maximum number of unflushed spends: 40 ms of load on a busy server. Beyond it, spends wait for the disk.
    const COUNT_MAX: usize = 4_096;

    /// Returns whether one more spend may be acknowledged before it is written. If so, counts it.
    pub(crate) fn add(&self) -> bool {
        if self.is_failing.load(Ordering::Relaxed) {
            return false;
        }
        let fits = self.count.fetch_add(1, Ordering::Relaxed) < Self::COUNT_MAX;
        if !fits {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        fits
    }

    /// Subtracts the spends that were written, and records whether the remaining ones failed.
    pub(crate) fn settle(&self, written: usize, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
        self.count.fetch_sub(written, Ordering::Relaxed);
    }
}
