//! Connections to PostgreSQL, and the schema.
//!
//! This folder owns the URL, TLS, the choice of a server, the pool of a node, and the connections of commands
//! with their migrations. It has no statement about accounts or people; those are in `crate::ledger`,
//! `crate::people`, and the shared SQL of [`enrich_store::accounts`].
//!
//! Modules are declared in reading order; each uses only those before it.
//!
//! # Rules
//!
//! * A node sends plain, unnamed statements and changes no session settings, so that a pooler in transaction
//!   mode may be between. Commands have a connection of their own, with its settings.
//! * [`PostgresError::Unreachable`](crate::PostgresError::Unreachable) means that a statement was certainly
//!   not sent. Any other failure of a connection leaves its outcome open.
//! * A standby is never used.

mod url;
pub(crate) mod server;
pub(crate) mod client;
pub(crate) mod pool;
pub(crate) mod schema;
pub(crate) mod engine;

pub use engine::{accounts, accounts_for_pages};
pub use pool::Sizes;
pub use schema::Schema;
pub use server::Server;
