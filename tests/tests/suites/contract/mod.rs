//! The store contract (`enrich_tests::contract`) for each store.

mod memory;
mod postgres;
mod redis;
mod sqlite;
