//! HTTPS: certificate and key from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;

use crate::swap::Swap;

/// An error that prevents HTTPS. The message names the file and the remedy.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The file cannot be read as PEM.
    #[error("cannot read {}: {source}; expected a readable PEM file", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// The file has no certificate.
    #[error("{} has no certificate; expected a PEM file with the server's certificate, followed by those of its issuers", .0.display())]
    NoCertificate(PathBuf),
    /// The file has no private key.
    #[error("{} has no private key; expected a PEM file with the certificate's key, without a passphrase", .0.display())]
    NoKey(PathBuf),
    /// The certificate and the key do not match, or rustls does not support them.
    #[error("cannot use {} with the key in {}: {source}; expected the key that the certificate was issued for", cert.display(), key.display())]
    Unusable {
        /// Path of the certificate file.
        cert: PathBuf,
        /// Path of the key file.
        key: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

/// Builds the TLS configuration of [`Services`](crate::Services) from two PEM files. Later changes to the
/// files have no effect.
pub fn load(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    Ok(config(Arc::new(Swap::new(read(cert, key)?))))
}

/// Builds the TLS configuration of [`Services`](crate::Services) with a replaceable certificate, for TLS 1.2
/// and 1.3, HTTP/2 and HTTP/1.1.
pub fn config(certificate: Arc<Swap<Arc<CertifiedKey>>>) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has both versions");
    let mut config = config.with_no_client_auth().with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Reads a certificate and its key from two PEM files.
pub fn read(cert: &Path, key: &Path) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = read_chain(cert)?;
    let private_key = read_key(key)?;
    let certified = CertifiedKey::from_der(chain, private_key, &ring::default_provider());
    certified.map(Arc::new).map_err(|source| TlsError::Unusable {
        cert: cert.into(),
        key: key.into(),
        source,
    })
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.into(), source };
    let certificates = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let chain: Vec<_> = certificates.collect::<Result<_, _>>().map_err(unreadable)?;
    if chain.is_empty() { Err(TlsError::NoCertificate(path.into())) } else { Ok(chain) }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::NoKey(path.into()),
        source => TlsError::Unreadable { path: path.into(), source },
    })
}
