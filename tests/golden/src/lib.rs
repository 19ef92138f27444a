//! Transcripts of the service's HTTP wire format, and a runner that tests a server against them.
//!
//! The README describes the transcript format, which is independent of the programming language.
//!
//! A server built on [`enrich_lib::drive::Service`] can be tested with the service of [`Stores::prepare`]:
//!
//! ```no_run
//! use enrich_golden::{Kind, Server, Stores, scenarios};
//!
//! # fn serve(_: enrich_lib::drive::Service) -> std::net::SocketAddr { unimplemented!() }
//! let scenarios = scenarios().unwrap();
//! let stores = Stores::prepare(&scenarios);
//! let address = serve(stores.service.clone());
//! let server = Server { address, kind: Kind::Gateway, keys: stores.keys, faults: Some(stores.faults) };
//! println!("{}", server.run(&scenarios));
//! ```
//!
//! Prepare any other server by its own means and pass its keys to `golden run`.
//!
//! # Layout
//!
//! `text` text format of bytes · [`Scenario`] one transcript · [`Stores`] in-memory stores with its data ·
//! [`Operator`] prepares other stores with a command line · [`Keys`] · `client` raw connection · [`Server`]
//! plays scenarios.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod text;

mod scenario;

mod keys;

mod stores;

mod operator;

mod client;

mod server;

use std::path::Path;

pub use crate::keys::{Keys, KeysError};
pub use crate::operator::{Operator, OperatorError};
pub use crate::scenario::{
    Given, GivenKey, GivenPerson, GivenWorkspace, Port, Scenario, ScenarioError, Step,
};
pub use crate::server::{Kind, Report, Server};
pub use crate::stores::{Faults, Stores};

/// Reads all transcripts of this crate, sorted by name.
pub fn scenarios() -> Result<Vec<Scenario>, ScenarioError> {
    Scenario::read_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios"))
}
