//! Several nodes on one PostgreSQL server, which may be slow, disconnected, killed or restarted, as may the
//! nodes.

mod addresses;
mod changes;
mod credits;
mod failover;
mod faults;
mod flood;
mod holds;
mod keys;
mod locks;
mod outcomes;
mod people;
mod plans;
mod rounds;
mod upgrade;
mod usage;
mod world;
