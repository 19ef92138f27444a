//! Real servers, started for one test or for all tests of a process, and stopped afterwards.
//!
//! # Layout
//!
//! `process` a server process · `redis` · `cluster` a Redis Cluster · `postgres`.

mod cluster;
mod postgres;
mod process;
mod redis;

pub use cluster::RedisCluster;
pub use postgres::Postgres;
pub use redis::{Redis, RedisOptions};
