//! What a store keeps in memory of each workspace, for many threads.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::model::WorkspaceId;
use crate::sync::{Mutex, MutexGuard, lock};

/// A value by workspace.
pub type Map<V> = FxHashMap<WorkspaceId, V>;

/// A map in parts that are locked one by one: threads seldom meet. Which part a workspace is in, and where in it, is
/// the same in every run.
#[derive(Debug)]
pub struct ByWorkspace<V>([Mutex<Map<V>>; SHARDS]);

const SHARDS: usize = 64;

impl<V> ByWorkspace<V> {
    /// The part that has `workspace`, or would have it.
    pub fn lock(&self, workspace: &WorkspaceId) -> MutexGuard<'_, Map<V>> {
        // Not the bits by which the part itself goes.
        let number = FxBuildHasher.hash_one(workspace) >> 32;
        lock(&self.0[number as usize % SHARDS])
    }

    /// All parts, one after the other.
    pub fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Map<V>>> {
        self.0.iter().map(lock)
    }
}

impl<V> Default for ByWorkspace<V> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}
