//! Tests of `RedisWindows` against a scripted server, with paused time.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

mod batching;
mod reconnecting;
mod sequences;
mod world;
