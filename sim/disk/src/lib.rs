//! A simulated disk for SQLite that fails, fills up and loses power.
//!
//! A [`Disk`] replaces the databases of one directory, in memory. Like a real disk it has a cache: after a
//! power cut, each sector that was written but not synced may have its old content, its new content or parts
//! of both. The same holds for directory entries: a new file may be missing, and a deleted file may be back.
//!
//! SQLite accesses the disk through a VFS (<https://sqlite.org/vfs.html>), which is registered as the default
//! of the process. Any code that opens a database by its path in a directory with a [`Disk`] uses it without
//! changes. In all other directories, databases are files as usual.
//!
//! Modules are declared in reading order; each uses only those before it. Only `methods` and `vfs` have `unsafe` code.

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
pub use state::{LogError, SyncFault};
