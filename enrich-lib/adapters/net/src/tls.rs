//! The TLS configuration of clients.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
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
        roots.add(certificate).map_err(|error| RootsError::Pem(error.to_string()))?;
    }
    if roots.is_empty() { Err(RootsError::Pem("there are none".to_owned())) } else { Ok(roots) }
}

/// Returns a configuration that verifies the server's certificate against `roots`, and presents no client certificate.
pub fn client_config(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_all_certificates_of_a_pem_text() {
        let certificate = || {
            rcgen::generate_simple_self_signed(["redis.internal".to_owned()])
                .expect("a certificate")
                .cert
                .pem()
        };
        let roots = pem_roots([certificate(), certificate()].concat().as_bytes()).expect("two certificates");
        assert_eq!(roots.len(), 2);
    }

    #[test]
    fn rejects_text_without_certificates() {
        let damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "no certificate", damaged] {
            assert!(matches!(pem_roots(pem.as_bytes()), Err(RootsError::Pem(_))), "{pem}");
        }
    }
}
