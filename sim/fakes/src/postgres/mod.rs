//! A fake PostgreSQL with the subset that the adapter uses.
//!
//! Each module imports only modules before it: `rows` the tables' rows · `database` the stored data and the
//! statements on it · `operator` the changes of operators · `values` arguments, rows and errors · `statements` the
//! supported SQL · `server` the data with a clock · `faults` · `connection` the protocol.

mod rows;
mod database;
mod operator;
mod values;
mod statements;
mod server;
mod faults;
mod connection;

pub use database::Database;
pub use rows::{
    EmailHash, Held, Hold, HoldRequest, KeyFound, Lookup, Person, Receipt, SettleRequest, Settled,
    Settlement, Spend, Violation, Workspace,
};
pub use server::Postgres;
pub use values::Severity;
