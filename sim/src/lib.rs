//! The service in a simulated world: the real host and the real driver, on a network, a clock and stores that fail as a
//! seed says. Whatever fails, the [`invariants`] hold, and every run replays from its seed.
//!
//! A [`Plan`] is all that a run depends on: who asks for what, and what troubles come. [`World::run`] makes a [`Run`] of
//! it: a [`Trace`] of everything that happened, which the invariants are checked on afterwards.
//!
//! # Layout
//!
//! In reading order: [`Trouble`], [`Clock`] and [`Plan`] · [`Event`] and [`Trace`] · `faulty` ports that fail ·
//! `vendor` who knows the people · `witness` what the host asks and is told · `disk` that stalls · `books` what the
//! store of credits does · `windows` that nodes share · `servers` that nodes share · `leases` the audit of what nodes
//! take there · `stores` · `log` · `guards` what a node does about its vendor · `node` · `connection` · `client` ·
//! `nemesis` · [`World`] · [`Story`] one lookup from beginning to end · [`invariants`] · [`Run`] · [`seeds`].

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
