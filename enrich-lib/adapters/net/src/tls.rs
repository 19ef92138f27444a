//! The TLS configuration of clients.

use std::sync::Arc;

use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use thiserror::Error;

/// An error of loading root certificates.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RootsError {
    /// The system has no usable root certificates.
    #[error("cannot read the system's root certificates: {0}")]
    System(String),
    /// The text is not a list of PEM certificates.
    #[error("expected PEM certificates: {0}")]
    Pem(String),
}

/// Returns the root certificates that the system trusts. Skips certificates that cannot be parsed.
///
/// Errors: [`RootsError::System`] if there are none.
pub fn system_roots() -> Result<RootCertStore, RootsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found.errors.first().map_or_else(|| "none were found".to_owned(), ToString::to_string);
        return Err(RootsError::System(reason));
    }
    Ok(roots)
}

/// Returns the root certificates in a PEM text.
///
/// Errors: [`RootsError::Pem`] if there are none, or one is invalid.
pub fn pem_roots(pem: &[u8]) -> Result<RootCertStore, RootsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| RootsError::Pem(error.to_string()))?;
        roots.add(certificate).map_err(|_| RootsError::Pem("one is malformed".to_owned()))?;
    }
    if roots.is_empty() { Err(RootsError::Pem("there are none".to_owned())) } else { Ok(roots) }
}

/// A client certificate with its issuers, and its private key.
#[derive(Debug)]
pub struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads PEM texts: the certificate, followed by those of its issuers, and the private key without a
    /// passphrase.
    ///
    /// Errors: [`RootsError::Pem`] if a text has none or is invalid.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, RootsError> {
        let invalid = |error: pem::Error| RootsError::Pem(error.to_string());
        let certificates: Vec<_> =
            CertificateDer::pem_slice_iter(certificates).collect::<Result<_, _>>().map_err(invalid)?;
        if certificates.is_empty() {
            return Err(RootsError::Pem("there are none".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(invalid)?;
        Ok(Self { certificates, key })
    }

    /// Returns a configuration like [`client_config`] that presents this certificate.
    ///
    /// Errors: the key is unsupported or does not belong to the certificate.
    pub fn client_config(self, roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
        builder(roots).with_client_auth_cert(self.certificates, self.key)
    }
}

/// Returns a configuration that verifies the server's certificate against `roots`, and presents no client
/// certificate.
pub fn client_config(roots: RootCertStore) -> ClientConfig {
    builder(roots).with_no_client_auth()
}

fn builder(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default TLS versions")
        .with_root_certificates(roots)
}
