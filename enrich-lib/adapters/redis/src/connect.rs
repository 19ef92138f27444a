//! Errors of opening a [`RedisUrl`](crate::RedisUrl), and its connectors.

use std::sync::Arc;

use enrich_net::{Connect, RootsError, Tcp, Tls, client_config, pem_roots, system_roots};
use thiserror::Error;

/// An error of opening a [`RedisUrl`](crate::RedisUrl).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL trusts certificate authorities, but does not use TLS.
    #[error("a certificate authority requires TLS; the scheme of the URL must be rediss or rediss+cluster")]
    NotTls,
    /// The root certificates for TLS cannot be loaded.
    #[error("cannot use TLS for Redis: {0}")]
    Roots(#[from] RootsError),
    /// The host is not a valid server name for a certificate.
    #[error("{0} is not a valid host name")]
    Host(String),
    /// The Cluster client rejected the configuration.
    #[error("cannot use this Redis Cluster: {0}")]
    Cluster(String),
}

/// Creates a TLS connector that trusts `authority` (PEM), or the system's root certificates if it is `None`.
pub(crate) fn tls(tcp: &Tcp, authority: Option<&[u8]>) -> Result<Arc<dyn Connect>, OpenError> {
    let roots = authority.map_or_else(system_roots, pem_roots)?;
    let tls = Tls::new(tcp.clone(), client_config(roots)).map_err(|_| OpenError::Host(tcp.host.clone()))?;
    Ok(Arc::new(tls))
}
