//! Deterministic simulation of the service: the program's own node on a simulated network and clock, with faults drawn from a
//! seed. The [`invariants`] hold under all faults, and a run can be replayed from its seed.
//!
//! A [`Plan`] contains everything that a run depends on: the clients' requests and the faults. [`Simulation::run`] executes it
//! and returns a [`Run`] with a [`Trace`] of all events. The invariants are checked on the trace afterwards.
//!
//! # Layout
//!
//! Each module imports only modules above it:
//!
//! - `topology`: machines, their names, and the links between them
//! - `clock`: skewed and drifting clocks
//! - `request`: the requests of the clients
//! - `fault`: the faults and their schedule
//! - `plan`: the inputs of a run
//! - `workspaces`: the workspaces of a run and their keys
//! - `event`: the events of a run
//! - `trace`: all events, in order
//! - `vendor`: the vendor, and the sources that query it
//! - `port_recorder`: records port calls and their results
//! - `disk`: a disk that stalls
//! - `servers`: Redis and PostgreSQL
//! - `account_auditor`: records the shared accounts
//! - `stores`: the stores of a run
//! - `machine`: the machine of a node
//! - `log_recorder`: records log lines
//! - `node`: a node on its machine
//! - `connection`: a client's connection to a node
//! - `client`: a client
//! - `nemesis`: starts and ends the faults
//! - `lookup_history`: the events of one lookup
//! - `invariants`: the properties that every trace must have
//! - `run`: the result of a run
//! - `coverage`: what a number of runs have reached
//! - `simulation`: executes a run
//! - `seeds`: selects seeds and runs them in parallel

#![cfg_attr(
    not(feature = "sim"),
    allow(rustdoc::broken_intra_doc_links, reason = "without the feature the crate is empty")
)]
#![cfg(feature = "sim")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod topology;

mod clock;

mod request;

mod fault;

mod plan;

mod workspaces;

mod event;

mod trace;

mod vendor;

mod port_recorder;

mod disk;

mod servers;

mod account_auditor;

mod stores;

mod machine;

mod log_recorder;

mod node;

mod connection;

mod client;

mod nemesis;

mod lookup_history;

pub mod invariants;

mod run;

mod coverage;

mod simulation;

mod seeds;

pub use clock::Clock;
pub use coverage::Coverage;
pub use event::{Event, LogLine, PortCall, PortResult, Reply, SentRequest, SharedAccount};
pub use fault::{Fault, FaultKind, VendorFault};
pub use lookup_history::{LookupHistory, PortEvent};
pub use plan::{Plan, ServerSettings};
pub use request::{HttpVersion, PlannedRequest, RequestKind};
pub use run::Run;
pub use seeds::{each_seed, fresh_seeds, seeds};
pub use simulation::Simulation;
pub use topology::{Direction, Link, Peer, Server, StoreKind};
pub use trace::{Entry, Trace};
