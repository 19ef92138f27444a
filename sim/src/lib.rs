//! Deterministic simulation of the service: the program's own node on a simulated network and clock, with
//! faults drawn from a seed. The [`invariants`] hold under all faults, and a run can be replayed from its
//! seed.
//!
//! A [`Plan`] contains everything that a run depends on: the clients' requests and the faults. [`World::run`]
//! executes it and returns a [`Run`] with a [`Trace`] of all events. The invariants are checked on the trace
//! afterwards.
//!
//! [`World::with_service`] runs a gateway's own stack instead of the program's server. The README has an
//! example.
//!
//! Modules are declared in reading order; each uses only those before it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod topology;
mod clock;
mod keys;
mod request;
mod fault;
mod operator;
mod plan;
mod workspaces;
mod event;
mod trace;
mod vendor;
mod port_recorder;
mod disk;
mod own_database;
mod servers;
mod account_auditor;
mod shared_operations;
mod stores;
mod machine;
mod listener;
mod gateway;
mod log_recorder;
mod node;
mod connection;
mod client;
mod nemesis;
mod lookup_history;
mod model;
pub mod invariants;
mod shrink;
mod seeds;
mod run;
mod coverage;
mod simulation;
mod world;

pub use clock::Clock;
pub use coverage::Coverage;
pub use enrich_fakes::postgres::Severity;
pub use event::{Event, LogLine, PortCall, PortResult, Reply, SentRequest, SharedAccount};
pub use fault::{DiskFault, Fault, FaultKind, VendorFault};
pub use gateway::Ports;
pub use keys::KeyOf;
pub use listener::Listener;
pub use lookup_history::{LookupHistory, PortEvent};
pub use operator::{Operation, PlannedOperation};
pub use own_database::CreditDatabase;
pub use plan::{Plan, ServerSettings};
pub use request::{HttpVersion, PlannedRequest, RequestKind};
pub use run::Run;
pub use seeds::{each_seed, fresh_seeds, seeds};
pub use shrink::Part;
pub use topology::{Direction, Link, Peer, Server, StoreKind};
pub use trace::{Entry, Trace};
pub use turmoil::net::TcpStream;
pub use world::World;
