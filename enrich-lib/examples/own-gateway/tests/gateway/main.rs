//! The gateway keeps the contract of its ports on a real PostgreSQL, and all invariants in simulated worlds.

#[cfg(feature = "servers")]
mod contract;
mod worlds;
