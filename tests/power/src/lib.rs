//! A disk for SQLite that loses its power.
//!
//! A [`Disk`] stands in for one directory, in memory. Like a real one it has a cache: what was written and not synced
//! is anywhere between there and not there when the power goes, sector by sector. The directory's own entries too:
//! a new file can be gone, a deleted one can be back.
//!
//! SQLite reaches it through a VFS (<https://sqlite.org/vfs.html>), which is made the default of the process: whatever
//! opens a database by its path, under a directory that has a [`Disk`], is on it, and needs not know.
//!
//! # Layout
//!
//! Each module uses only those before it: `file` the sectors of one file · `locks` who may use it · `shm` the memory
//! that connections share · `state` the files, their names, the power · `handle` an open file · `methods` and `vfs` the
//! C interface, the only ones with `unsafe` in them · `disk` what a test holds.

#![deny(missing_docs)]

mod file;

mod locks;

mod shm;

mod state;

mod handle;

mod methods;

mod vfs;

mod disk;

pub use disk::{Disk, Image};
pub use state::Lie;
