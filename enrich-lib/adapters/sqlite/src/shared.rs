//! What requests and the writer share: the accounts and the keys in memory.

use std::collections::HashMap;
use std::sync::Arc;

use enrich_lib::credit::Account;
use enrich_lib::key::KeyDigest;
use enrich_lib::model::WorkspaceId;
use enrich_lib::window::Workspace;
use rusqlite::{Connection, OptionalExtension};

use crate::dir::ServeLock;
use crate::error::StoreError;
use crate::keys::KeyCache;
use crate::sync::{Mutex, MutexGuard, lock};

pub(crate) struct Shared {
    pub(crate) keys: KeyCache,
    slots: Mutex<HashMap<WorkspaceId, Arc<Slot>>>,
    /// For what is not in memory yet.
    reader: Mutex<Connection>,
    /// Here, as a writer may still have spends to write when its ledger is dropped.
    _serve: ServeLock,
}

/// A workspace's account in memory.
pub(crate) struct Slot {
    pub(crate) rowid: i64,
    account: Mutex<Account>,
}

impl Shared {
    pub(crate) fn new(reader: Connection, serve: ServeLock) -> Self {
        Self { keys: KeyCache::default(), slots: Mutex::default(), reader: Mutex::new(reader), _serve: serve }
    }

    pub(crate) fn find_key(&self, key: &KeyDigest) -> Result<Option<Workspace>, StoreError> {
        self.keys.find(key, &self.reader)
    }

    /// The account of a workspace, read from the disk the first time. The map stays locked while it is read: so no
    /// grant is committed between the reading and the filing and missed by both.
    pub(crate) fn slot(&self, workspace: &WorkspaceId) -> Result<Arc<Slot>, StoreError> {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get(workspace) {
            return Ok(slot.clone());
        }
        let db = lock(&self.reader);
        let mut select = db.prepare_cached("SELECT rowid, granted, spent FROM workspace WHERE id = ?")?;
        let row = select.query_row([workspace.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let Some((rowid, granted, spent)) = row.optional()? else {
            return Err(StoreError::UnknownWorkspace(workspace.clone()));
        };
        let slot = Arc::new(Slot { rowid, account: Mutex::new(Account::new(granted, spent)?) });
        slots.insert(workspace.clone(), slot.clone());
        Ok(slot)
    }

    /// The accounts in memory, by row: an order that is the same in every run.
    pub(crate) fn slots(&self) -> Vec<Arc<Slot>> {
        #[expect(clippy::disallowed_methods, reason = "sorted below")]
        let mut slots: Vec<_> = lock(&self.slots).values().cloned().collect();
        slots.sort_unstable_by_key(|slot| slot.rowid);
        slots
    }
}

impl Slot {
    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        lock(&self.account)
    }
}
