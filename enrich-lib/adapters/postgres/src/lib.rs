//! Keys and credits of several nodes, in PostgreSQL.
//!
//! * [`Ledger`] serves [`Keys`](enrich_lib::ports::Keys) and [`Credits`](enrich_lib::ports::Credits) to one process of several.
//! * [`Admin`] is for operators, [`Database`] prepares the tables.
//!
//! # How several nodes share credits
//!
//! A node *leases* credits of a workspace, and its lookups hold them in its memory, without a question to PostgreSQL. It
//! spends in batches, and a reply waits for the commit. The more a workspace spends, the more a node takes at once; near the
//! end of a balance nodes take single credits, and ask each other for idle ones before anybody says 402.
//!
//! A node has a *session*: it tells PostgreSQL that it lives, and its leases end when it does not. They end for the node
//! first: see `session`. A spend under a lease that has ended is charged to the workspace directly, if that has enough, and
//! is refused otherwise.
//!
//! | PostgreSQL is lost | |
//! |---|---|
//! | before the hold | holds on what is leased go on while the session lives; all others fail (500), and nothing is executed |
//! | between hold and settle | the spend is sent again under its id until it is answered; given up, it is voided (500) |
//! | for longer than a second | all keys fail (500): one of them may have been revoked |
//!
//! # Layout
//!
//! Each module uses only those before it: `error` · `column` how values travel · `connect` addresses, TLS and streams ·
//! `pool` connections that are used again · `database` the migrations · `sync` · `keys` the cache of keys · `slot` one
//! workspace's credits in memory · `session` from coming to leaving · `writer` group commit · `listener` · `ledger` ·
//! `admin` · `audit` · `copy` a store that moves here.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;

mod column;

mod connect;

mod pool;

mod database;

mod sync;

mod keys;

mod slot;

mod session;

mod writer;

mod listener;

mod ledger;

mod admin;

mod audit;

mod copy;

pub use admin::Admin;
pub use connect::{Connect, Server, Stream};
pub use copy::{Copy, CopyDifference, CopyProgress};
pub use database::Database;
pub use error::StoreError;
pub use ledger::{Config, Ledger};
