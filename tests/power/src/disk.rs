//! What a test holds of a disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::file::File;
use crate::shm::lock;
use crate::state::{Lie, State};
use crate::vfs;

/// A disk under one directory: all databases there are on it until it is dropped.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    state: Arc<Mutex<State>>,
}

/// All files of a disk.
#[derive(Clone, Debug)]
pub struct Image(BTreeMap<String, File>);

impl Disk {
    /// An empty disk whose sectors have `sector_bytes`. What its cuts leave is drawn from `seed`.
    pub fn mount(dir: &Path, sector_bytes: usize, lie: Lie, seed: u64) -> Self {
        let state = Arc::new(Mutex::new(State::new(sector_bytes, lie, seed)));
        vfs::mount(dir, &state);
        Self { dir: dir.to_owned(), state }
    }

    /// The power goes after `steps` more writes, syncs and deletions: in the middle of the next one.
    pub fn cut_after(&self, steps: u32) {
        lock(&self.state).cut_after(steps);
    }

    /// Whether it has power.
    pub fn is_on(&self) -> bool {
        lock(&self.state).is_on()
    }

    /// After a cut: what it left can be read. What was open before stays broken.
    pub fn power_on(&self) {
        lock(&self.state).power_on();
    }

    /// How often a database was synced: what a checkpoint does.
    pub fn database_syncs(&self) -> u64 {
        lock(&self.state).database_syncs()
    }

    /// All files as they are now.
    pub fn image(&self) -> Image {
        Image(lock(&self.state).files())
    }

    /// Makes all files as they were. Nothing may be open.
    pub fn restore(&self, image: Image) {
        lock(&self.state).put(image.0);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vfs::unmount(&self.dir);
    }
}
