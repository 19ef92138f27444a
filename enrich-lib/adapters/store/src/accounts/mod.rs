//! Administration: workspaces, keys, credits, users and the audit log, once for all SQL engines.
//!
//! The statements run verbatim on SQLite and on PostgreSQL. Where the engines differ, the schema hides it:
//! the view `account` has the current credits of each workspace, and `uncounted_usage` the billed lookups that
//! `usage_day` does not include yet.
//!
//! A transaction that changes a workspace, or anything that belongs to it, first locks the workspace: it
//! increments `revised`. Changes of one workspace therefore run one after the other on every engine, and
//! caches compare `revised`. Only the use of sessions and codes does without, which would otherwise empty
//! caches with each page of the web application.
//!
//! Modules are declared in reading order; each uses only those before it.

mod transaction;
mod lock;
mod log;
mod grants;
mod workspaces;
mod usage;
mod keys;
mod spends;
mod member;
mod sessions;
mod members;
mod links;
mod check;
mod copy;

pub use copy::{CopiedRows, CopyError, Origin};
pub use transaction::{Accounts, Tx};
