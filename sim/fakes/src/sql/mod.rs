//! A PostgreSQL server with any tables: the protocol, in front of SQLite.
//!
//! It runs the SQL that both accept, for a gateway's own tables. Each module imports only modules before it:
//! `values` arguments and results · `server` the database and its sessions · `connection` the protocol.

mod values;
mod server;
mod connection;

pub use server::SqlServer;
