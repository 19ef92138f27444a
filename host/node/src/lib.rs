//! One node of the service: its stores, the work that keeps them current, and its end.
//!
//! A [`Node`] is assembled from settings that are already values, on a [`Machine`] that provides clocks,
//! randomness and threads. The program `enrich serve` runs it on the machine of its process, the simulation
//! on a simulated one.
//!
//! # Layout
//!
//! Each module uses only those before it:
//!
//! - `machine`: what a node uses of its machine
//! - [`sources`]: the people directory and the vendors
//! - `windows`: the store of rate-limit windows
//! - `clocks`: the steady clock
//! - `ticks`: the age of the last tick
//! - `outage`: the lines of the log about work that fails
//! - `housekeeping`: the people directory, low balances and old spends
//! - `node`: all of these

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod machine;

pub mod sources;

mod windows;

mod clocks;

mod ticks;

mod outage;

mod housekeeping;

mod node;

pub use machine::{Machine, Task};
pub use node::{Database, Node, NodeError, SharedDatabase, Stores};
pub use ticks::Ticks;
pub use windows::RateLimits;
