//! Windows over a server that does what a test says, in paused time.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

mod gathering;
mod reconnecting;
mod world;
