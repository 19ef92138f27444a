//! A sharded map for the in-memory state of each workspace.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::model::WorkspaceId;
use crate::sync::{Mutex, MutexGuard, lock};

/// A map from workspaces to values.
pub(crate) type Map<V> = FxHashMap<WorkspaceId, V>;

/// A sharded map from workspaces to values. Each shard has its own lock, so that threads rarely contend.
/// Hashing is not randomized: the shard of a workspace and its position there are the same in every run.
#[derive(Debug)]
pub(crate) struct ShardedMap<V>([Mutex<Map<V>>; SHARDS]);

const SHARDS: usize = 64;

impl<V> ShardedMap<V> {
    /// Locks the shard of `workspace`.
    pub(crate) fn lock(&self, workspace: &WorkspaceId) -> MutexGuard<'_, Map<V>> {
        // The shard's own map uses the other bits.
        let number = FxBuildHasher.hash_one(workspace) >> 32;
        lock(&self.0[number as usize % SHARDS])
    }

    /// Returns an iterator that locks one shard after the other.
    pub(crate) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Map<V>>> {
        self.0.iter().map(lock)
    }
}

impl<V> Default for ShardedMap<V> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}
