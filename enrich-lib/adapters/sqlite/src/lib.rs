//! The embedded default: keys, credits and a people directory on SQLite, in one data directory.
//!
//! * [`Ledger`] serves [`Keys`](enrich_lib::ports::Keys) and [`Credits`](enrich_lib::ports::Credits) to one process. Key
//!   look-ups and holds are in memory; spends are group-committed, and durable before they are answered, unless the
//!   [`Durability`] is relaxed.
//! * [`People`] serves [`Resolver`](enrich_lib::ports::Resolver).
//! * [`Admin`] and [`Import`] are for operators, from any process, while another one serves.
//!
//! # Layout
//!
//! Each module uses only those before it: `error` · `dir` the files · `database` how one is opened · `column`, `sync` ·
//! `queue` the way to the writer · `export` ·
//! `admin` · `audit` · `durability` · `keys` the cache of keys · `shared` the accounts in memory ·
//! `spend` · `totals` what is spent in all · `writer` group commit · `ledger` · `hash` ·
//! `part` people in memory, and `index` all of them · `disk` people on the disk · `import` · `people`.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;

mod dir;

mod database;

mod column;

mod sync;

mod queue;

mod export;

mod admin;

mod audit;

mod durability;

mod keys;

mod shared;

mod spend;

mod totals;

mod writer;

mod ledger;

mod hash;

mod part;

mod index;

mod disk;

mod import;

mod people;

pub use admin::Admin;
pub use dir::{DataDir, ServeLock};
pub use durability::{Durability, Work};
pub use error::StoreError;
pub use export::Export;
pub use import::{Import, Imported};
pub use ledger::Ledger;
pub use people::{People, Stats};
