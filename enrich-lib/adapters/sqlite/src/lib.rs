//! The embedded default store: keys, credits and a people directory on SQLite, in one data directory.
//!
//! * [`Ledger`] implements [`Keys`](enrich_lib::ports::Keys) and [`Credits`](enrich_lib::ports::Credits) for
//!   one process. Keys are cached and holds are kept in memory. Spends are group-committed, and durable
//!   before they are acknowledged.
//! * [`People`] implements [`Resolver`](enrich_lib::ports::Resolver).
//! * [`accounts`] and [`Import`] are for operators. Any process can use them while another one
//!   serves.
//!
//! The calls that keep the ledger and the people current are in the [guide](enrich_lib::guide::port);
//! `enrich_node::Node` makes all of them.
//!
//! Modules are declared in reading order; each uses only those before it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;
mod column;
mod files;
mod ledger;
mod people;
mod export;

pub use error::SqliteError;
pub use export::Export;
pub use files::{
    BackupFile, DataDir, FileCheck, ServeLock, accounts, accounts_for_pages, accounts_to_read, complete,
};
pub use ledger::{Ledger, Work, run_on_thread};
pub use people::{Import, ImportLimits, People};
