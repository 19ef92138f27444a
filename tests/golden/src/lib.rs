//! What comes over the wire, byte by byte: transcripts in a format that any implementation can
//! read, which the README beside them describes, and what holds a server against them.
//!
//! A server that is built on [`enrich_lib::drive::Service`] is given the one of [`Stores::prepare`]:
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
//! Any other is prepared by its own means, and `golden run` is told the keys.
//!
//! # Layout
//!
//! `text` bytes as a transcript writes them · [`Scenario`] one transcript · [`Stores`] what it takes as given, in memory ·
//! [`Operator`] the same by a command line · [`Keys`] · `client` a connection · [`Server`] a server, held against transcripts.

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

pub use crate::keys::{Keys, KeysFault};
pub use crate::operator::{Operator, OperatorFault};
pub use crate::scenario::{
    Given, GivenKey, GivenPerson, GivenWorkspace, Port, Scenario, ScenarioFault, Step,
};
pub use crate::server::{Kind, Report, Server};
pub use crate::stores::{Faults, Stores};

/// All transcripts of this crate, by name.
pub fn scenarios() -> Result<Vec<Scenario>, ScenarioFault> {
    Scenario::read_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios"))
}
