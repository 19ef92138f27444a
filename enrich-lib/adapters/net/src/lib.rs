//! Outgoing connections of the adapters to servers.
//!
//! * [`Connect`] opens byte streams to one server: [`Tcp`], [`Tls`], [`Unix`], or another implementation,
//!   such as a simulated network.
//! * [`TcpAddress`] connects to one address of a host, and closes connections to a peer that no longer
//!   responds: [`Liveness`].
//! * [`system_roots`], [`pem_roots`] and [`client_config`] build the TLS configuration. It always verifies
//!   certificates, with rustls and ring. [`Identity`] is a client certificate.
//! * [`first`] reaches one of several addresses or servers, although others do not respond.
//! * [`sources`] lists an error and its causes, to describe a failed connection.
//!
//! Connecting has no timeout of its own; the caller applies one.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod first;
mod connect;
mod liveness;
mod sources;
mod tls;

pub use connect::{Connect, Stream, Tcp, Tls, Unix};
pub use first::{ADDRESS_HEAD_START, first};
pub use liveness::{Keepalive, Liveness, TcpAddress};
pub use sources::sources;
pub use tls::{Identity, RootsError, client_config, pem_roots, system_roots};

pub use rustls::{ClientConfig, RootCertStore};
