//! The commands, except `serve` and `bulk`. Each module runs the command of its name.

pub mod backup;
pub mod check;
pub mod completions;
pub mod config;
pub mod conform;
pub mod copy;
pub mod credits;
pub mod health;
pub mod key;
mod ledger;
pub mod lookup;
pub mod migrate;
pub mod openapi;
pub mod people;
pub mod usage;
pub mod user;
pub mod vendors;
pub mod workspace;
