//! Real servers, started for one test and gone with it.
//!
//! # Layout
//!
//! `process` a server that starts, stops and ends · `redis` · `cluster` several of them.

mod cluster;
mod process;
mod redis;

pub use cluster::RedisCluster;
pub use redis::{Redis, RedisOptions};
