//! Transcripts of the service's HTTP wire format, and a runner that tests a server against them.
//!
//! The README describes the transcript format, which is independent of the programming language.
//!
//! A server built on [`enrich_lib::drive::Service`] can be tested with the service of [`Stores::prepare`]:
//!
//! ```no_run
//! use enrich_golden::{Kind, Server, Stores, over_tcp, scenarios};
//!
//! # fn serve(_: enrich_lib::drive::Service) -> std::net::SocketAddr { unimplemented!() }
//! let scenarios = scenarios().unwrap();
//! let stores = Stores::prepare(&scenarios);
//! let connect = over_tcp(serve(stores.service.clone()));
//! let server = Server::new(connect, Kind::Gateway, stores.keys).with_faults(stores.faults);
//! println!("{}", server.run(&scenarios));
//! ```
//!
//! Any other server is a [`Deployment`]: the transcripts are adapted to its keys and people. `enrich conform`
//! does this from a command line.
//!
//! # Layout
//!
//! `text` text format of bytes · [`Scenario`] one transcript · [`Stores`] in-memory stores with its data ·
//! [`Keys`] · `client` raw connection · [`Server`]
//! plays scenarios.
//!
//! For deployments: `exchange` parts of a transcript · `request` its bytes for another deployment · `headers`
//! the replies without what proxies add · `limits` the counts in replies · `conformance` the results ·
//! [`Deployment`] · `player` plays transcripts against it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod text;
mod scenario;
mod keys;
mod stores;
mod client;
mod server;
mod exchange;
mod request;
mod headers;
mod limits;
mod conformance;
mod deployment;
mod player;

pub use crate::client::{Connect, Stream, TIMEOUT, connect, over_tcp, with_tls};
pub use crate::conformance::{Case, Conformance, Outcome};
pub use crate::deployment::{Deployment, DeploymentError, WorkspaceKeys};
pub use crate::keys::Keys;
pub use crate::scenario::{
    Given, GivenKey, GivenPerson, GivenWorkspace, Port, Scenario, ScenarioError, Step,
};
pub use crate::server::{Kind, Report, Server};
pub use crate::stores::{Faults, Stores};

/// The names and texts of the transcripts.
const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// Parses all transcripts of this crate, sorted by name.
pub fn scenarios() -> Result<Vec<Scenario>, ScenarioError> {
    TEXTS.iter().map(|(name, text)| Scenario::parse(name, text)).collect()
}
