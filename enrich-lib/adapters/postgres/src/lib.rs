//! Keys and credits of several nodes, in PostgreSQL.
//!
//! # Layout
//!
//! Each module uses only those before it: `error` · `column` how values travel · `connect` addresses, TLS and streams ·
//! `pool` connections that are used again · `database` the migrations.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;

mod column;

mod connect;

mod pool;

mod database;

pub use connect::{Connect, Server, Stream};
pub use database::Database;
pub use error::StoreError;
