//! The embedded default store: keys, credits and a people directory on SQLite, in one data directory.
//!
//! * [`Ledger`] implements [`Keys`](enrich_lib::ports::Keys) and [`Credits`](enrich_lib::ports::Credits) for
//!   one process. Keys are cached and holds are kept in memory. Spends are group-committed, and durable
//!   before they are acknowledged.
//! * [`People`] implements [`Resolver`](enrich_lib::ports::Resolver).
//! * [`accounts`], [`Admin`] and [`Import`] are for operators. Any process can use them while another one
//!   serves.
//!
//! # Layout
//!
//! Each module uses only the modules before it: `error` · `dir` files and lock · `wal` the write-ahead log ·
//! `database` opening and migrations · `verify` damaged files · `column` value conversions · `withdraw`
//! credits · `engine` the accounts as a database · `admin` operator commands · `keys` API keys · `usage`
//! lookups by day · `export` · `backup` · `writer_thread` · `shared` accounts in memory · `spend` pending
//! spends · `totals` spent totals · `rows` statements of the writer · `commit` transactions of spends ·
//! `withdrawals` that commands have requested · `writer` group commit · `ledger` · `people` the people
//! directory.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;

mod dir;

mod database;

mod verify;

mod column;

mod withdraw;

mod engine;

mod admin;

mod keys;

mod usage;

mod export;

mod backup;

mod shared;

mod spend;

mod totals;

mod rows;

mod wal;

mod commit;

mod withdrawals;

mod writer;
mod writer_thread;

mod ledger;

mod people;

pub use admin::Admin;
pub use backup::BackupFile;
pub use dir::{DataDir, ServeLock};
pub use engine::accounts;
pub use error::SqliteError;
pub use export::Export;
pub use ledger::Ledger;
pub use people::{Import, People};
pub use verify::FileCheck;
pub use writer_thread::{Work, run_on_thread};
