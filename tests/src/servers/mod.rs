//! Real servers, started for a test, or for the tests of one process, and gone with them.
//!
//! # Layout
//!
//! `process` a server that starts, stops and ends · `redis` · `cluster` several of them · `postgres`.

mod cluster;
mod postgres;
mod process;
mod redis;

pub use cluster::RedisCluster;
pub use postgres::Postgres;
pub use redis::{Redis, RedisOptions};
