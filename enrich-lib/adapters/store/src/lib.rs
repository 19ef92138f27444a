//! Records, administration and caches that both credit stores use.
//!
//! A store keeps workspaces, API keys and credits, and the users of the web application. `enrich-sqlite` and
//! `enrich-postgres` implement the ports of [`enrich_lib`], and are a [`Database`](database::Database) for
//! [`Accounts`].
//!
//! Modules are declared in reading order; each uses only those before it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod sync;
mod number;
pub mod histogram;
pub mod statistics;
mod error;
mod backoff;
pub mod batch;
mod clocks;
pub mod credits;
mod text;
mod token;
mod actor;
pub mod usage;
pub mod users;
mod action;
pub mod workspace;
pub mod records;
pub mod value;
pub mod database;
pub mod accounts;
mod keys;
mod people;
mod ledger;

pub use accounts::Accounts;
pub use action::Action;
pub use actor::{Actor, Authority};
pub use backoff::Backoff;
pub use clocks::Clocks;
pub use error::StoreError;
pub use keys::{Cache, CachedKey, KeyCache, KeyUse, Miss};
pub use ledger::{Ledger, TickError};
pub use number::grouped;
pub use people::{
    EmailHash, EmailHasher, Imported, KeyFingerprint, OptOut, PeopleStats, RefusedRemoval, RemovalLimit,
    opt_out_range, parse_people_key, people_key_text,
};
pub use text::is_visible;
pub use token::TokenDigest;
