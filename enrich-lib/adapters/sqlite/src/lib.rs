//! The embedded default: keys, credits and a people directory on SQLite, in one data directory.
//!
//! * [`Ledger`] serves [`Keys`](enrich_lib::ports::Keys) and [`Credits`](enrich_lib::ports::Credits) to one process. Key
//!   look-ups and holds are in memory; spends are group-committed, and durable before they are answered.
//! * [`People`] serves [`Resolver`](enrich_lib::ports::Resolver).
//! * [`Admin`] and [`Import`] are for operators, from any process, while another one serves.
//!
//! # Layout
//!
//! `dir` the files · `database` how one is opened · `admin` · `keys` the cache of keys · `ledger` · `writer` group commit ·
//! `people` · `import` · `error`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admin;
mod database;
mod dir;
mod error;
mod import;
mod keys;
mod ledger;
mod people;
mod writer;

pub use admin::{Admin, KeyRow, WorkspaceRow};
pub use dir::{DataDir, ServeLock};
pub use error::StoreError;
pub use import::{Import, Imported};
pub use ledger::{Ledger, Work, on_a_thread};
pub use people::{People, Stats};
