//! Real servers, started for one test or for all tests of a process, and stopped afterwards.
//!
//! # Layout
//!
//! `process` a server process · `redis` · `cluster` a Redis Cluster · `postgres` · `failing_disk` of its
//! disk ·
//! `standby` of a PostgreSQL server · `pooler` PgBouncer · `proxy` a TCP proxy with faults.

mod cluster;
mod failing_disk;
mod pooler;
mod postgres;
mod process;
mod proxy;
mod redis;
mod standby;

pub use cluster::RedisCluster;
pub use pooler::Pooler;
pub use postgres::{Client, Postgres};
pub use proxy::Proxy;
pub use redis::{Redis, RedisOptions};
