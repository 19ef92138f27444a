//! API keys, credits and people in PostgreSQL, shared by several nodes.
//!
//! * [`Ledger`] implements [`Keys`](enrich_lib::ports::Keys) and [`Credits`](enrich_lib::ports::Credits) for
//!   one node.
//! * [`People`] implements [`Resolver`](enrich_lib::ports::Resolver) and
//!   [`OptOuts`](enrich_lib::resolver::OptOuts) for one node.
//! * [`accounts`] opens the accounts, and [`PeopleAdmin`] the people, for operators. [`Schema`] runs the
//!   migrations.
//!
//! The calls that keep a ledger current are in the [guide](enrich_lib::guide::port);
//! `enrich_node::Node` makes all of them.
//!
//! # How several nodes share credits
//!
//! A node has no state of its own. The lookups of all its connections share two plain statements: one places
//! holds, and one deletes them and inserts the spends. Holds have an expiry by PostgreSQL's clock, and any
//! node gives back those of a node that has stopped. Both are described in the module `ledger`.
//!
//! | PostgreSQL is unreachable | |
//! |---|---|
//! | before the hold | the lookup fails (500), and nothing runs |
//! | between hold and settle | a spend that was not sent fails after five to nine seconds (500); one that was sent has no answer until its outcome is known |
//! | for longer than a second | all keys fail (500), because one of them may have been revoked or disabled |
//! | while a person is being looked up | the lookup fails (502), because the person may have opted out |
//!
//! All statements of a node are unnamed, and it changes no session settings, so that a pooler in transaction
//! mode may be between the node and PostgreSQL.
//!
//! Modules are declared in reading order; each uses only those before it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;
mod column;
mod health;
mod connect;
mod ledger;
mod people;

pub use connect::{Schema, Server, Sizes, accounts, accounts_for_pages};
pub use enrich_net::{Connect, Stream};
pub use error::PostgresError;
pub use ledger::{Config, Ledger};
pub use people::{Import, People, PeopleAdmin, copy_opt_outs};
