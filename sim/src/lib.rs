//! Deterministic simulation of the service: the real host and the real lookup driver on a simulated network, clock and
//! stores, with faults drawn from a seed. The [`invariants`] hold under all faults, and a run can be replayed from its seed.
//!
//! A [`Plan`] contains everything that a run depends on: the clients' requests and the faults. [`World::run`] executes it
//! and returns a [`Run`] with a [`Trace`] of all events. The invariants are checked on the trace afterwards.
//!
//! # Layout
//!
//! In reading order: [`Trouble`], [`Clock`] and [`Plan`] · [`Event`] and [`Trace`] · `faulty` ports with injected faults ·
//! `vendor` and its client · `witness` records port calls and their results · `disk` that stalls · `books` records the
//! credit store's operations · `windows` shared by nodes · `servers` Redis and PostgreSQL · `leases` audit of leased credits
//! · `stores` · `log` · `guards` resolver middleware · `node` · `connection` · `client` · `nemesis` · [`World`] · [`Story`]
//! one lookup from start to end · [`invariants`] · [`Run`] · [`seeds`].

#![cfg_attr(
    not(feature = "sim"),
    allow(rustdoc::broken_intra_doc_links, reason = "then there is nothing to link to")
)]
#![cfg(feature = "sim")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod trouble;

mod clock;

mod plan;

mod event;

mod trace;

mod faulty;

mod vendor;

mod witness;

mod disk;

mod books;

mod windows;

mod servers;

mod leases;

mod stores;

mod log;

mod guards;

mod node;

mod connection;

mod client;

mod nemesis;

mod world;

mod story;

pub mod invariants;

mod run;

mod seeds;

pub use clock::Clock;
pub use event::{Answer, Deed, Event, Lease, Logged, Question, Reply, Sent, Shared};
pub use plan::{Ask, Http, Plan, Servers, StoreKind, Wish};
pub use run::Run;
pub use seeds::{each_seed, seeds};
pub use story::{Story, Talk};
pub use trace::{Entry, Trace};
pub use trouble::{Fault, Link, Peer, Port, Server, Trouble, Way, What};
pub use world::World;
