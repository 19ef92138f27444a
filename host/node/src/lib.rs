//! One node of the service: its stores, the work that keeps them current, and its end.
//!
//! A [`Node`] is assembled from settings that are already values, on a [`Machine`] that provides clocks,
//! randomness and threads. The program `enrich serve` runs it on the machine of its process, the simulation
//! on a simulated one.
//!
//! Modules are declared in reading order; each uses only those before it.

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
