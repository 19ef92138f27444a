//! Server addresses, TLS and the underlying streams.
//!
//! `sslmode` in the address selects when TLS is used. It does not affect verification: the certificate and its host name are
//! always verified, against the system's root certificates or those in `sslrootcert=FILE`.
//!
//! | `sslmode` | |
//! |---|---|
//! | `disable` | never uses TLS |
//! | `prefer`, the default | uses TLS if the server offers it; a certificate that cannot be verified is an error |
//! | `require`, `verify-ca`, `verify-full` | always uses TLS |
//!
//! Connections over a Unix socket never use TLS.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(unix)]
use enrich_net::Unix;
use enrich_net::{Connect, RootCertStore, Stream, Tcp, client_config, pem_roots, system_roots};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::PostgresError;

/// A boxed stream as a concrete type. The compiler cannot prove that a future with a `Box<dyn Stream>` is `Send`.
pub(crate) struct AnyStream(pub(crate) Box<dyn Stream>);

impl AsyncRead for AnyStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for AnyStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

/// The address of a database and the means of connecting to it. `Debug` hides the password.
#[derive(Clone)]
pub struct Server {
    pub(crate) config: tokio_postgres::Config,
    /// `None` disables TLS even if the server offers it.
    pub(crate) tls: Option<Tls>,
    pub(crate) network: Arc<dyn Connect>,
}

/// The TLS configuration and the host name that the certificate must match.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) maker: MakeRustlsConnect,
    pub(crate) name: String,
}

/// The certificate options of the address. `tokio_postgres` does not parse them.
struct Certificates {
    roots: Option<PathBuf>,
}

impl Server {
    /// Replaces the system's network with `network`. The address still supplies the user and the database.
    #[must_use]
    pub fn through(mut self, network: impl Connect) -> Self {
        self.network = Arc::new(network);
        self
    }
}

impl FromStr for Server {
    type Err = PostgresError;

    /// Parses `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`. A host that begins with `/` (`%2F`) is the directory
    /// of a Unix socket; `?host=` may specify it as well.
    ///
    /// Errors: [`PostgresError::InvalidUrl`], [`PostgresError::SslMode`], [`PostgresError::Certificates`].
    fn from_str(url: &str) -> Result<Self, PostgresError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(PostgresError::InvalidUrl);
        }
        let (url, certificates) = Certificates::split(url)?;
        let mut config: tokio_postgres::Config = url.parse().map_err(|_| PostgresError::InvalidUrl)?;
        let ([host], true) = (config.get_hosts(), config.get_hostaddrs().is_empty()) else {
            return Err(PostgresError::InvalidUrl);
        };
        let (host, port) = (host.clone(), config.get_ports().first().copied().unwrap_or(5432));
        if config.get_application_name().is_none() {
            config.application_name("enrich");
        }
        let tls = match &host {
            Host::Tcp(name) if config.get_ssl_mode() != SslMode::Disable => {
                Some(Tls { maker: certificates.verifier()?, name: name.clone() })
            }
            _ => None,
        };
        if tls.is_none() {
            config.ssl_mode(SslMode::Disable);
        }
        Ok(Self { config, tls, network: network(host, port) })
    }
}

impl Certificates {
    /// Removes `sslrootcert` from the address and maps `verify-ca` and `verify-full` to `require`.
    fn split(url: &str) -> Result<(String, Self), PostgresError> {
        let Some((address, query)) = url.split_once('?') else {
            return Ok((url.to_owned(), Self { roots: None }));
        };
        let (mut kept, mut roots) = (Vec::new(), None);
        for option in query.split('&') {
            match option.split_once('=') {
                Some(("sslrootcert", path)) => roots = Some(PathBuf::from(percent_decode(path)?)),
                Some(("sslmode", "verify-ca" | "verify-full")) => kept.push("sslmode=require"),
                Some(("sslmode", "disable" | "prefer" | "require")) => kept.push(option),
                Some(("sslmode", _)) => return Err(PostgresError::SslMode),
                _ => kept.push(option),
            }
        }
        Ok((format!("{address}?{}", kept.join("&")), Self { roots }))
    }

    fn verifier(&self) -> Result<MakeRustlsConnect, PostgresError> {
        let roots = match &self.roots {
            Some(path) => {
                let unreadable = |reason: String| PostgresError::Certificates { path: path.clone(), reason };
                let pem = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
                pem_roots(&pem).map_err(|error| unreadable(error.to_string()))?
            }
            // Without root certificates, only a server that offers TLS is an error: verification fails.
            None => system_roots().unwrap_or_else(|_| RootCertStore::empty()),
        };
        Ok(MakeRustlsConnect::new(client_config(roots)))
    }
}

fn percent_decode(text: &str) -> Result<String, PostgresError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| PostgresError::InvalidUrl)?;
    Ok(decoded.into_owned())
}

/// Returns the connector of the system's network.
fn network(host: Host, port: u16) -> Arc<dyn Connect> {
    match host {
        Host::Tcp(host) => Arc::new(Tcp { host, port }),
        #[cfg(unix)]
        Host::Unix(directory) => Arc::new(Unix(directory.join(format!(".s.PGSQL.{port}")))),
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `tokio_postgres` prints the password as `_`.
        f.debug_struct("Server").field("config", &self.config).finish_non_exhaustive()
    }
}
