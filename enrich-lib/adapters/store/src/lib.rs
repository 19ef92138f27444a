//! Records, administration and caches that both credit stores use.
//!
//! A store keeps workspaces, API keys and credits, and the users of the web application. `enrich-sqlite` and
//! `enrich-postgres` implement the ports of [`enrich_lib`], and the [`Admin`] and [`Users`] traits of this
//! crate.
//!
//! # Layout
//!
//! Each module uses only the modules before it: `sync` locks · [`histogram`] and [`statistics`] for metrics ·
//! `error` [`StoreError`] · `backoff` [`Backoff`] · [`batch`] queues · `clocks` [`Clocks`] · `clock_skew` between a node and a
//! server · [`credits`] arithmetic · `text` that users enter · `token` digests of secrets · `actor` the
//! author of a change · [`usage`] lookups by day · [`users`] the [`Users`] trait · `event` events of the
//! audit log · [`workspace`] properties of a workspace · [`records`] rows and audits · `admin` the [`Admin`]
//! trait · [`value`] of a column · [`database`] the port to an SQL engine · [`accounts`] administration ·
//! `compat` the traits for it · `keys` the [`KeyCache`] · `people` hashes of emails, and [`OptOut`] ·
//! `ledger` the [`Ledger`] trait.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod sync;

pub mod histogram;

pub mod statistics;

mod error;

mod backoff;

pub mod batch;

mod clocks;

mod clock_skew;

pub mod credits;

mod actor;

mod text;

mod token;

pub mod usage;

pub mod users;

mod event;

pub mod workspace;

pub mod records;

mod admin;

pub mod value;

pub mod database;

pub mod accounts;

mod compat;

mod keys;

mod people;

mod ledger;

pub use actor::{Actor, Authority};
pub use admin::Admin;
pub use backoff::Backoff;
pub use clock_skew::{ClockSkew, ServerClock};
pub use clocks::Clocks;
pub use error::StoreError;
pub use event::Event;
pub use keys::{Cache, CachedKey, KeyCache, KeyUse, Miss};
pub use ledger::{Ledger, TickError};
pub use people::{EmailHash, EmailHasher, KeyFingerprint, OptOut, opt_out_range};
pub use token::TokenDigest;
pub use users::Users;

/// All administrative operations of a store.
pub trait Accounts: Admin + Users {}

impl<A: Admin + Users> Accounts for A {}
