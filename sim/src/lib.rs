//! Deterministic simulation of the service: the real host and the real lookup driver on a simulated network, clock and
//! stores, with faults drawn from a seed. The [`invariants`] hold under all faults, and a run can be replayed from its seed.
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
//! - `faulty_port`: port wrappers that inject faults
//! - `vendor`: the vendor, and the resolver that queries it
//! - `port_recorder`: records port calls and their results
//! - `disk`: a disk that stalls
//! - `store_recorder`: records the operations of a credit store
//! - `windows`: rate-limit windows shared by nodes
//! - `servers`: Redis and PostgreSQL
//! - `lease_auditor`: records the shared accounts and the holds on leases
//! - `stores`: the stores behind the ports
//! - `log_recorder`: records log lines
//! - `middleware`: the resolver middleware
//! - `node`: the host on the simulated network
//! - `connection`: a client's connection to a node
//! - `client`: a client
//! - `nemesis`: starts and ends the faults
//! - `lookup_history`: the events of one lookup
//! - `invariants`: the properties that every trace must have
//! - `run`: the result of a run
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

mod faulty_port;

mod vendor;

mod port_recorder;

mod disk;

mod store_recorder;

mod windows;

mod servers;

mod lease_auditor;

mod stores;

mod log_recorder;

mod middleware;

mod node;

mod connection;

mod client;

mod nemesis;

mod lookup_history;

pub mod invariants;

mod run;

mod simulation;

mod seeds;

pub use clock::Clock;
pub use event::{
    Event, Lease, LogLine, PortCall, PortResult, Reply, SentRequest, SharedAccount, StoreEffect,
};
pub use fault::{Fault, FaultKind, Port, PortFault};
pub use lookup_history::{LookupHistory, PortEvent};
pub use plan::{Plan, ServerSettings};
pub use request::{HttpVersion, PlannedRequest, RequestKind};
pub use run::Run;
pub use seeds::{each_seed, seeds};
pub use simulation::Simulation;
pub use topology::{Direction, Link, Peer, Server, StoreKind};
pub use trace::{Entry, Trace};
