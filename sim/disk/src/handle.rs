//! An open file: SQLite's operations on it, in safe Rust. Errors are SQLite's result codes.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard};

use rusqlite::ffi;

use crate::locks::{Busy, HandleId, Level};
use crate::shm::{Shm, lock};
use crate::state::{DiskError, Inode, Kind, Node, State};

#[derive(Debug)]
pub(crate) struct Handle {
    state: Arc<Mutex<State>>,
    inode: Inode,
    id: HandleId,
    /// Set if the first sync must also make the name durable. SQLite does this on Unix for logs and journals
    /// that it creates.
    syncs_directory: bool,
    shm: Option<Arc<Shm>>,
}

impl Handle {
    pub(crate) fn open(state: &Arc<Mutex<State>>, name: &str, flags: c_int) -> Result<Self, c_int> {
        let has = |flag| flags & flag != 0;
        let is_journal = has(ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL);
        let kind = match () {
            () if has(ffi::SQLITE_OPEN_MAIN_DB) => Kind::Database,
            () if has(ffi::SQLITE_OPEN_WAL) => Kind::Log,
            () => Kind::Other,
        };
        // A database always exists: the adapter creates the empty file itself, so that only its owner can
        // read it.
        let create = has(ffi::SQLITE_OPEN_CREATE) || kind == Kind::Database;
        let mut disk = lock(state);
        let inode = disk.open(name, kind, create).or(Err(ffi::SQLITE_CANTOPEN))?;
        let inode = inode.ok_or(ffi::SQLITE_CANTOPEN)?;
        let id = disk.new_id();
        Ok(Self { state: state.clone(), inode, id, syncs_directory: is_journal && create, shm: None })
    }

    pub(crate) fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<(), c_int> {
        let count = self.disk().read(self.inode, offset, buffer).or(Err(ffi::SQLITE_IOERR_READ))?;
        if count == buffer.len() { Ok(()) } else { Err(ffi::SQLITE_IOERR_SHORT_READ) }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), c_int> {
        self.disk().write(self.inode, offset, bytes).map_err(|error| match error {
            DiskError::Io => ffi::SQLITE_IOERR_WRITE,
            DiskError::Full => ffi::SQLITE_FULL,
        })
    }

    pub(crate) fn truncate(&self, size: usize) -> Result<(), c_int> {
        self.disk().truncate(self.inode, size).or(Err(ffi::SQLITE_IOERR_TRUNCATE))
    }

    pub(crate) fn sync(&mut self) -> Result<(), c_int> {
        let mut disk = lock(&self.state);
        disk.sync(self.inode).or(Err(ffi::SQLITE_IOERR_FSYNC))?;
        if std::mem::take(&mut self.syncs_directory) {
            disk.sync_directory();
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> Result<usize, c_int> {
        self.disk().len(self.inode).or(Err(ffi::SQLITE_IOERR_FSTAT))
    }

    pub(crate) fn lock(&self, level: c_int) -> Result<(), c_int> {
        let wanted = level_of(level);
        self.with_node(|node| node.locks.raise(self.id, wanted))
            .or(Err(ffi::SQLITE_IOERR_LOCK))?
            .map_err(busy)
    }

    pub(crate) fn unlock(&self, level: c_int) -> Result<(), c_int> {
        let kept = level_of(level);
        self.with_node(|node| node.locks.lower(self.id, kept)).or(Err(ffi::SQLITE_IOERR_UNLOCK))
    }

    pub(crate) fn is_reserved(&self) -> Result<bool, c_int> {
        self.with_node(|node| node.locks.is_reserved()).or(Err(ffi::SQLITE_IOERR_CHECKRESERVEDLOCK))
    }

    /// Maps a region of shared memory. Returns a null pointer if it does not exist and `make` is `false`.
    pub(crate) fn map_region(&mut self, index: usize, make: bool) -> Result<*mut c_void, c_int> {
        let shm = lock(&self.state).shm(self.inode).or(Err(ffi::SQLITE_IOERR_SHMMAP))?;
        let shm = self.shm.get_or_insert(shm);
        Ok(shm.region(index, make).unwrap_or_default())
    }

    /// Takes or releases `count` locks, starting with `first`.
    pub(crate) fn lock_log(&self, first: c_int, count: c_int, flags: c_int) -> Result<(), c_int> {
        let shm = self.shm.as_ref().ok_or(ffi::SQLITE_IOERR_SHMLOCK)?;
        let bits = (first..first + count).fold(0, |bits, n| bits | 1 << n);
        let mut locks = shm.locks();
        let result = if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            locks.release(self.id, bits);
            Ok(())
        } else if flags & ffi::SQLITE_SHM_SHARED != 0 {
            locks.share(self.id, bits)
        } else {
            locks.exclude(self.id, bits)
        };
        result.map_err(busy)
    }

    pub(crate) fn unmap(&mut self) {
        if let Some(shm) = self.shm.take() {
            shm.locks().release(self.id, u8::MAX);
        }
    }

    fn with_node<T>(&self, act: impl FnOnce(&mut Node) -> T) -> Result<T, DiskError> {
        self.disk().node(self.inode).map(act)
    }

    fn disk(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.unmap();
        // Ignore the error: after a cut, the file and its locks no longer exist.
        let _ = self.with_node(|node| node.locks.lower(self.id, Level::Unlocked));
    }
}

fn level_of(level: c_int) -> Level {
    match level {
        ffi::SQLITE_LOCK_NONE => Level::Unlocked,
        ffi::SQLITE_LOCK_SHARED => Level::Shared,
        ffi::SQLITE_LOCK_RESERVED => Level::Reserved,
        ffi::SQLITE_LOCK_PENDING => Level::Pending,
        _ => Level::Exclusive,
    }
}

fn busy(Busy: Busy) -> c_int {
    ffi::SQLITE_BUSY
}
