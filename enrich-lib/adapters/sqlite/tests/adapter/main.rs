//! Tests of the SQLite adapter beyond the store contract, which `enrich-tests` covers.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

mod audit;
mod backup;
mod batches;
mod disk;
mod import;
mod locks;
mod lost;
mod operators;
mod people;
mod spends;
mod verify;
mod world;
