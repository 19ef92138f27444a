//! The contract of the ports (`enrich_contract`) and of an operator (`enrich_tests::contract`) for each
//! store.

mod fake_postgres;
mod people;
#[cfg(feature = "servers")]
mod postgres;
#[cfg(feature = "servers")]
mod redis;
mod sqlite;
