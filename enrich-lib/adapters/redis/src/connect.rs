//! Byte streams to a server: TCP, TLS, a Unix socket, or a simulated network.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::url::Node;

/// Opens connections to a server.
#[async_trait]
pub trait Connect: Send + Sync + 'static {
    /// Opens a new connection. The caller applies a timeout.
    async fn connect(&self) -> io::Result<Box<dyn Stream>>;
}

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// An error of opening a [`RedisUrl`](crate::RedisUrl).
#[derive(Debug, Error)]
pub enum OpenError {
    /// The system's root certificates cannot be read.
    #[error("can't use the certificates that this machine trusts: {0}")]
    Certificates(String),
    /// The given certificate authority is not a valid PEM certificate.
    #[error("the authority that Redis's certificate has to be of is no certificate in PEM")]
    Authority,
    /// The host is not a valid server name for a certificate.
    #[error("{0} is no name of a host")]
    Host(String),
    /// The Cluster client rejected the configuration.
    #[error("can't use this Cluster: {0}")]
    Cluster(String),
}

/// Connects over TCP.
pub(crate) struct Tcp(pub(crate) Node);

/// Connects over TLS.
pub(crate) struct Tls {
    tcp: Tcp,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

/// Connects to a Unix socket.
pub(crate) struct Unix(pub(crate) PathBuf);

impl Tcp {
    async fn open(&self) -> io::Result<TcpStream> {
        let tcp = TcpStream::connect((self.0.host.as_str(), self.0.port)).await?;
        tcp.set_nodelay(true)?;
        Ok(tcp)
    }
}

impl Tls {
    /// Creates a TLS connector that trusts `authority` (PEM), or the system's root certificates if it is `None`.
    pub(crate) fn new(node: Node, authority: Option<&[u8]>) -> Result<Self, OpenError> {
        let name = ServerName::try_from(node.host.clone()).map_err(|_| OpenError::Host(node.host.clone()))?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| OpenError::Certificates(error.to_string()))?
            .with_root_certificates(roots(authority)?)
            .with_no_client_auth();
        Ok(Self { tcp: Tcp(node), name, config: Arc::new(config) })
    }
}

fn roots(authority: Option<&[u8]>) -> Result<RootCertStore, OpenError> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|_| OpenError::Authority)?;
                roots.add(certificate).map_err(|_| OpenError::Authority)?;
            }
            if roots.is_empty() { Err(OpenError::Authority) } else { Ok(roots) }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            match found.errors.into_iter().next() {
                Some(error) if roots.is_empty() => Err(OpenError::Certificates(error.to_string())),
                _ => Ok(roots),
            }
        }
    }
}

#[async_trait]
impl Connect for Tcp {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.open().await?))
    }
}

#[async_trait]
impl Connect for Tls {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        Ok(Box::new(connector.connect(self.name.clone(), self.tcp.open().await?).await?))
    }
}

#[async_trait]
impl Connect for Unix {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(UnixStream::connect(&self.0).await?))
    }
}
