//! The files of a data directory, and the commands that work on them.
//!
//! This folder owns everything that opens a file: the directory with its lock, the two databases with their
//! migrations, the check after a crash, backups, and the mark of a move to another store. It also has the
//! accounts as commands use them, through the shared SQL of [`enrich_store::accounts`]. Nothing here keeps
//! state between two calls; the state of the process that serves is in `crate::ledger`.
//!
//! Modules are declared in reading order; each uses only those before it.
//!
//! # Rules
//!
//! * A process that serves opens and closes these files only through SQLite. Closing any other descriptor of
//!   a file drops all POSIX locks that the process has on it.
//! * A command never changes accounts that were moved: each write transaction checks the mark.
//! * A new file is created with access for its owner only, before SQLite opens it.

pub(crate) mod dir;
pub(crate) mod moved;
pub(crate) mod wal;
pub(crate) mod database;
pub(crate) mod verify;
mod engine;
mod blocking;
mod backup;

pub use backup::BackupFile;
pub use blocking::complete;
pub use dir::{DataDir, ServeLock};
pub use engine::{accounts, accounts_for_pages, accounts_to_read};
pub use verify::FileCheck;
