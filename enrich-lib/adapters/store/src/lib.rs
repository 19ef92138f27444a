//! What the credit stores share.
//!
//! A store keeps workspaces, API keys and credits. `enrich-sqlite` and `enrich-postgres` implement the ports of
//! [`enrich_lib`] and the [`Admin`] trait of this crate.
//!
//! # Layout
//!
//! Each module uses only the modules before it: `sync` locks · `error` [`StoreError`] · `backoff` [`Backoff`] · [`credits`]
//! arithmetic · [`records`] rows and audits · `admin` the [`Admin`] trait · `keys` the [`KeyCache`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod sync;

mod error;

mod backoff;

pub mod credits;

pub mod records;

mod admin;

mod keys;

pub use admin::Admin;
pub use backoff::Backoff;
pub use error::StoreError;
pub use keys::{CachedKey, KeyCache, KeyUse, Miss};
