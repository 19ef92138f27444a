//! The store contract (`enrich_tests::contract`) for each store.

mod memory;
#[cfg(feature = "servers")]
mod postgres;
#[cfg(feature = "servers")]
mod redis;
mod sqlite;
