//! People and opt-outs in PostgreSQL, as keyed hashes.
//!
//! A lookup reads the person and the opt-out in one statement, and a node keeps neither. An import is one
//! transaction, and so is an opt-out: both apply to the next statement of each node.
//!
//! Modules are declared in reading order; each uses only those before it.

mod key;
mod find;
mod opt_outs;
mod admin;
mod import;

pub use admin::PeopleAdmin;
pub use find::People;
pub use import::Import;
pub use opt_outs::copy_opt_outs;
