//! The interface of a simulated disk for tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::file::File;
use crate::shm::lock;
use crate::state::{LogError, State, SyncFault};
use crate::vfs;

/// A simulated disk for one directory, which exists. All databases in it are on the disk until it is dropped.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    state: Arc<Mutex<State>>,
}

/// A copy of all files of a disk.
#[derive(Clone, Debug)]
pub struct Image(BTreeMap<String, File>);

impl Disk {
    /// Mounts an empty disk with sectors of `sector_bytes`. The effects of its power cuts are random, drawn
    /// from `seed`.
    pub fn mount(dir: &Path, sector_bytes: usize, sync_fault: SyncFault, seed: u64) -> Self {
        let state = Arc::new(Mutex::new(State::new(dir, sector_bytes, sync_fault, seed)));
        vfs::mount(dir, &state);
        Self { dir: dir.to_owned(), state }
    }

    /// Schedules a power cut: `steps` more writes, syncs and deletions succeed, and the next one is
    /// interrupted.
    pub fn cut_after(&self, steps: u32) {
        lock(&self.state).set_steps_left(Some(steps));
    }

    /// Cancels a scheduled power cut.
    pub fn cancel_cut(&self) {
        lock(&self.state).set_steps_left(None);
    }

    /// Schedules an error: `count` more writes or syncs of write-ahead logs succeed, and the next `times`
    /// fail.
    pub fn fail_log_after(&self, count: u32, error: LogError, times: u32) {
        lock(&self.state).set_log_error(Some((error, count, times)));
    }

    /// Cancels a scheduled error, or ends it.
    pub fn cancel_error(&self) {
        lock(&self.state).set_log_error(None);
    }

    /// Lets `count` more reads succeed. All later ones fail until [`Disk::repair_reads`].
    pub fn fail_reads_after(&self, count: u32) {
        lock(&self.state).set_reads_left(Some(count));
    }

    /// Ends the failure of reads.
    pub fn repair_reads(&self) {
        lock(&self.state).set_reads_left(None);
    }

    /// Fills the disk, or frees space. No file can grow while it is full.
    pub fn set_full(&self, is_full: bool) {
        lock(&self.state).set_full(is_full);
    }

    /// Returns whether the disk has power.
    pub fn is_on(&self) -> bool {
        lock(&self.state).is_on()
    }

    /// Restores the power after a cut. Files can be opened again; handles opened before the cut keep failing.
    pub fn power_on(&self) {
        lock(&self.state).power_on();
    }

    /// Returns how often a database was synced, which a checkpoint does.
    pub fn database_syncs(&self) -> u64 {
        lock(&self.state).database_syncs()
    }

    /// Returns a copy of all files in their current state.
    pub fn image(&self) -> Image {
        Image(lock(&self.state).files())
    }

    /// Replaces all files with those of `image`. Handles opened before keep failing.
    pub fn restore(&self, image: Image) {
        lock(&self.state).put(image.0);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vfs::unmount(&self.dir);
    }
}
