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
//! # Layout
//!
//! Each module imports only modules above it:
//!
//! - `topology`: machines, their names, and the links between them
//! - `clock`: skewed and drifting clocks
//! - `keys`: the API keys
//! - `request`: the requests of the clients
//! - `fault`: the faults and their schedule
//! - `operator`: what operators change
//! - `plan`: the inputs of a run
//! - `workspaces`: the workspaces of a run, with their keys and credits
//! - `event`: the events of a run
//! - `trace`: all events, in order
//! - `vendor`: the vendor, and the sources that query it
//! - `port_recorder`: records port calls and their results
//! - `disk`: the disk of a node on SQLite
//! - `own_database`: a database of a gateway
//! - `servers`: Redis and PostgreSQL
//! - `account_auditor`: records the shared accounts
//! - `stores`: the stores of a run
//! - `machine`: the machine of a node
//! - `listener`: the connections of a node
//! - `gateway`: what serves them
//! - `log_recorder`: records log lines
//! - `node`: a node on its machine
//! - `connection`: a client's connection to a node
//! - `client`: a client
//! - `nemesis`: starts and ends the faults
//! - `lookup_history`: the events of one lookup
//! - `model`: the results that the service may return
//! - `invariants`: the properties that every trace must have
//! - `shrink`: finds the smallest plan that violates an invariant
//! - `seeds`: selects seeds and runs them in parallel
//! - `run`: the result of a run
//! - `coverage`: what a number of runs have reached
//! - `simulation`: executes a run
//! - `world`: a plan, and what runs on its nodes

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

mod model;

mod nemesis;

mod lookup_history;

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
