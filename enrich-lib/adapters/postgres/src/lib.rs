//! API keys and credits in PostgreSQL, shared by several nodes.
//!
//! * [`Ledger`] implements [`Keys`](enrich_lib::ports::Keys) and [`Credits`](enrich_lib::ports::Credits) for one node.
//! * [`SharedOptOuts`] implements [`OptOuts`](enrich_lib::resolver::OptOuts) for one node.
//! * [`Admin`] provides the operator commands, and the users of the web application. [`Database`] runs the migrations.
//!
//! # How several nodes share credits
//!
//! A node *leases* credits of a workspace. Its lookups place holds on the leased credits in memory, without a query to
//! PostgreSQL. Spends are committed in batches, and each reply waits for the commit. The more a workspace spends, the more
//! credits a node leases at once. Near the end of a balance, nodes lease single credits and recall idle ones from each other
//! before a lookup fails with 402. A lease without lookups ends after ten seconds.
//!
//! A node has a *session*, which it renews with heartbeats. When the session expires, its leases end. The node considers its
//! session expired before PostgreSQL does: see `heartbeat`. A spend under an ended lease is charged to the workspace directly
//! if the balance suffices, and is rejected otherwise.
//!
//! | PostgreSQL is unreachable | |
//! |---|---|
//! | before the hold | holds on leased credits succeed while the session is active; others fail (500), and nothing runs |
//! | between hold and settle | a spend that was not sent fails after five seconds (500); one that was sent is retried under its id until its outcome is known |
//! | for longer than a second | all keys fail (500), because one of them may have been revoked or disabled; lookups in progress fail (502), because the person may have opted out |
//!
//! # Layout
//!
//! Each module uses only those before it: `error` · `column` type conversions · `url` · `connect` servers, TLS and streams ·
//! `pool` the connection pool · `database` migrations · `keys` API keys · `workspace` the in-memory state of one workspace ·
//! `session` node sessions · `heartbeat` · `upkeep` periodic work · `spend` · `blocked` spends of locked leases · `writer` group
//! commit · `listener` change notifications · `ledger` · `audit` · `audit_log` administrative events · `api_keys` key lifecycles ·
//! `workspaces` · `grants` · `spend_rows` lists of spends · `admin` · `web_sessions` of signed-in users · `members` users · `links` one-time links · `users` · `copy_console`
//! users, usage and audit log of another store · `copy` import from another store · `opt_outs` people who opted out ·
//! `opt_out_list` the same in the memory of a node.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;

mod column;

mod url;

mod connect;

mod pool;

mod database;

mod keys;

mod workspace;

mod session;

mod heartbeat;

mod upkeep;

mod spend;

mod blocked;

mod writer;

mod listener;

mod ledger;

mod audit;

mod audit_log;

mod api_keys;

mod workspaces;

mod grants;

mod spend_rows;

mod admin;

mod web_sessions;

mod links;

mod members;

mod users;

mod copy_console;

mod copy;

mod opt_outs;

mod opt_out_list;

pub use admin::Admin;
pub use connect::Server;
pub use copy::{Copy, CopyDifference, CopyProgress};
pub use database::Database;
pub use enrich_net::{Connect, Stream};
pub use error::PostgresError;
pub use ledger::{Config, Ledger};
pub use opt_out_list::SharedOptOuts;
