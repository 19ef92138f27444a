//! The files of a disk, their names and the disk's power.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::file::File;
use crate::locks::FileLocks;
use crate::shm::Shm;

/// Syncs that a disk falsely reports as done. Used to verify that the tests detect them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncFault {
    /// All syncs are done.
    None,
    /// Write-ahead logs are synced only when a checkpoint begins, as with `synchronous=NORMAL`.
    LogNotSynced,
    /// Databases are not synced.
    DatabaseNotSynced,
}

/// An error of operations on a write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogError {
    /// A write fails and writes nothing, as on a full disk.
    Write,
    /// A write reports an error, but its data is in the cache.
    WriteDone,
    /// A sync fails. Any of the data that it was to sync may be durable.
    Sync,
    /// A sync fails, and none of its data becomes durable, although reads return it and later syncs succeed:
    /// the operating system considers it written.
    SyncLost,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskError {
    /// The power is off, or an error was injected.
    Io,
    /// A file cannot grow.
    Full,
}

/// The id of a file while the power is on. A cut invalidates all ids.
pub(crate) type Inode = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Database,
    Log,
    Other,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The directory on the real file system. It shows the databases and logs with their lengths, which a store may
    /// examine without SQLite.
    dir: PathBuf,
    sector_bytes: usize,
    sync_fault: SyncFault,
    rng: StdRng,
    is_on: bool,
    /// Number of writes, syncs and deletions before the power cut.
    steps_left: Option<u32>,
    /// The next error of a log, after a number of other writes or syncs of logs.
    log_error: Option<(LogError, u32, u32)>,
    /// Number of reads that succeed before all others fail.
    reads_left: Option<u32>,
    /// No file can grow.
    is_full: bool,
    nodes: BTreeMap<Inode, Node>,
    names: BTreeMap<String, Inode>,
    /// The directory entries that survive any cut.
    durable_names: BTreeMap<String, Inode>,
    last_id: u64,
    database_syncs: u64,
}

#[derive(Debug)]
pub(crate) struct Node {
    name: String,
    kind: Kind,
    content: File,
    pub(crate) locks: FileLocks,
    shm: Weak<Shm>,
}

impl State {
    pub(crate) fn new(dir: &Path, sector_bytes: usize, sync_fault: SyncFault, seed: u64) -> Self {
        Self {
            dir: dir.to_owned(),
            sector_bytes,
            sync_fault,
            rng: StdRng::seed_from_u64(seed),
            is_on: true,
            steps_left: None,
            log_error: None,
            reads_left: None,
            is_full: false,
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            last_id: 0,
            database_syncs: 0,
        }
    }

    /// Returns an id that was not used on this disk before.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(crate) fn set_steps_left(&mut self, steps: Option<u32>) {
        self.steps_left = steps;
    }

    pub(crate) fn set_log_error(&mut self, error: Option<(LogError, u32, u32)>) {
        self.log_error = error;
    }

    pub(crate) fn set_reads_left(&mut self, count: Option<u32>) {
        self.reads_left = count;
    }

    pub(crate) fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// Returns whether this operation on a file of `kind` fails. Counts it.
    fn fails(&mut self, kind: Kind, possible: &[LogError]) -> Option<LogError> {
        let (error, before, times) = self.log_error.as_mut()?;
        if kind != Kind::Log || !possible.contains(error) {
            return None;
        }
        if *before > 0 {
            *before -= 1;
            return None;
        }
        let error = *error;
        *times -= 1;
        if *times == 0 {
            self.log_error = None;
        }
        Some(error)
    }

    pub(crate) fn power_on(&mut self) {
        self.is_on = true;
        self.steps_left = None;
    }

    pub(crate) fn database_syncs(&self) -> u64 {
        self.database_syncs
    }

    /// Returns the current files by name.
    pub(crate) fn files(&self) -> BTreeMap<String, File> {
        self.names.iter().map(|(name, inode)| (name.clone(), self.nodes[inode].content.clone())).collect()
    }

    /// Replaces all files with `files`, as durable content.
    pub(crate) fn put(&mut self, files: BTreeMap<String, File>) {
        self.nodes.clear();
        for name in std::mem::take(&mut self.names).into_keys() {
            self.hide(&name);
        }
        for (name, content) in files {
            let kind = if name.ends_with("-wal") { Kind::Log } else { Kind::Other };
            self.add(name, kind, content);
        }
        self.durable_names = self.names.clone();
    }

    pub(crate) fn open(&mut self, name: &str, kind: Kind, create: bool) -> Result<Option<Inode>, DiskError> {
        self.check_power()?;
        let inode = match self.names.get(name) {
            Some(inode) => *inode,
            None if create => self.add(name.to_owned(), kind, File::new(self.sector_bytes)),
            None => return Ok(None),
        };
        self.node(inode)?.kind = kind;
        Ok(Some(inode))
    }

    pub(crate) fn exists(&self, name: &str) -> Result<bool, DiskError> {
        self.check_power()?;
        Ok(self.names.contains_key(name))
    }

    /// Deletes a file. Returns whether it existed.
    pub(crate) fn delete(&mut self, name: &str, sync_directory: bool) -> Result<bool, DiskError> {
        self.check_power()?;
        let existed = self.names.remove(name).is_some();
        self.hide(name);
        self.step()?;
        if sync_directory {
            self.sync_directory();
        }
        Ok(existed)
    }

    pub(crate) fn read(
        &mut self,
        inode: Inode,
        offset: usize,
        buffer: &mut [u8],
    ) -> Result<usize, DiskError> {
        if let Some(left) = &mut self.reads_left {
            *left = left.checked_sub(1).ok_or(DiskError::Io)?;
        }
        Ok(self.node(inode)?.content.read(offset, buffer))
    }

    /// Writes to the cache. A write that a cut interrupts is unsynced like earlier ones.
    pub(crate) fn write(&mut self, inode: Inode, offset: usize, bytes: &[u8]) -> Result<(), DiskError> {
        if self.sync_fault == SyncFault::LogNotSynced && self.node(inode)?.kind == Kind::Database {
            let logs = self.nodes.values_mut().filter(|node| node.kind == Kind::Log);
            logs.for_each(|log| log.content.sync());
        }
        let Node { kind, content, .. } = self.node(inode)?;
        let (kind, is_longer) = (*kind, offset + bytes.len() > content.len());
        if self.is_full && is_longer {
            return Err(DiskError::Full);
        }
        let error = self.fails(kind, &[LogError::Write, LogError::WriteDone]);
        if error != Some(LogError::Write) {
            self.node(inode)?.content.write(offset, bytes);
            if is_longer {
                self.show(inode)?;
            }
        }
        self.step()?;
        if error.is_some() { Err(DiskError::Io) } else { Ok(()) }
    }

    pub(crate) fn truncate(&mut self, inode: Inode, size: usize) -> Result<(), DiskError> {
        self.node(inode)?.content.truncate(size);
        self.show(inode)?;
        self.step()
    }

    pub(crate) fn sync(&mut self, inode: Inode) -> Result<(), DiskError> {
        self.check_power()?;
        self.step()?;
        let kind = self.node(inode)?.kind;
        if let Some(error) = self.fails(kind, &[LogError::Sync, LogError::SyncLost]) {
            if error == LogError::SyncLost {
                self.node(inode)?.content.lose_unsynced();
            }
            return Err(DiskError::Io);
        }
        let sync_fault = self.sync_fault;
        let node = self.node(inode)?;
        let is_skipped = matches!(
            (sync_fault, node.kind),
            (SyncFault::LogNotSynced, Kind::Log) | (SyncFault::DatabaseNotSynced, Kind::Database)
        );
        if !is_skipped {
            node.content.sync();
        }
        if node.kind == Kind::Database {
            self.database_syncs += 1;
        }
        Ok(())
    }

    pub(crate) fn sync_directory(&mut self) {
        self.durable_names = self.names.clone();
    }

    pub(crate) fn len(&mut self, inode: Inode) -> Result<usize, DiskError> {
        Ok(self.node(inode)?.content.len())
    }

    /// Returns the memory shared by the connections to a database. Creates it if no connection uses it.
    pub(crate) fn shm(&mut self, inode: Inode) -> Result<Arc<Shm>, DiskError> {
        let node = self.node(inode)?;
        Ok(node.shm.upgrade().unwrap_or_else(|| {
            let shm = Arc::default();
            node.shm = Arc::downgrade(&shm);
            shm
        }))
    }

    pub(crate) fn node(&mut self, inode: Inode) -> Result<&mut Node, DiskError> {
        self.check_power()?;
        self.nodes.get_mut(&inode).ok_or(DiskError::Io)
    }

    fn check_power(&self) -> Result<(), DiskError> {
        if self.is_on { Ok(()) } else { Err(DiskError::Io) }
    }

    fn step(&mut self) -> Result<(), DiskError> {
        match &mut self.steps_left {
            Some(0) => {
                self.cut();
                return Err(DiskError::Io);
            }
            Some(steps) => *steps -= 1,
            None => {}
        }
        Ok(())
    }

    /// Cuts the power. The fraction of data that reaches the disk varies between cuts, from almost none to
    /// almost all.
    fn cut(&mut self) {
        let newest = *[0.0, 0.1, 0.5, 0.9, 1.0].choose(&mut self.rng).unwrap_or(&0.5);
        let mut remaining = BTreeMap::new();
        let names: BTreeSet<String> = self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        for name in names {
            let (current, durable) = (self.names.get(&name), self.durable_names.get(&name));
            let found = if self.rng.random_bool(newest) || self.rng.random() { current } else { durable };
            if let Some(inode) = found {
                remaining.insert(name, self.nodes[inode].content.after_cut(newest, &mut self.rng));
            }
        }
        self.put(remaining);
        self.is_on = false;
    }

    fn add(&mut self, name: String, kind: Kind, content: File) -> Inode {
        let inode = self.new_id();
        let (locks, shm) = (FileLocks::default(), Weak::new());
        self.nodes.insert(inode, Node { name: name.clone(), kind, content, locks, shm });
        self.names.insert(name, inode);
        // The error of a directory that is gone: its store fails, too.
        let _ = self.show(inode);
        inode
    }

    /// Gives the file of a database or a log in the real directory its length.
    fn show(&self, inode: Inode) -> Result<(), DiskError> {
        let Some(Node { name, content, .. }) = self.nodes.get(&inode) else { return Ok(()) };
        if !is_shown(name) {
            return Ok(());
        }
        let shown = OpenOptions::new().write(true).create(true).truncate(false).open(self.dir.join(name));
        shown.and_then(|file| file.set_len(content.len() as u64)).or(Err(DiskError::Io))
    }

    /// Removes the file of a database or a log from the real directory.
    fn hide(&self, name: &str) {
        if is_shown(name) {
            // It may not exist.
            let _ = fs::remove_file(self.dir.join(name));
        }
    }
}

fn is_shown(name: &str) -> bool {
    name.ends_with(".db") || name.ends_with("-wal")
}
