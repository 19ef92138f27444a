//! TLS of the client: trusted certificates, and readable errors.

use std::path::Path;

use enrich_net::{client_config, pem_roots, system_roots};
use rustls::{CertificateError, ClientConfig, Error, OtherError, RootCertStore};

use crate::failure::Failure;

/// Creates a configuration that trusts the certificates in `ca`, or the system's certificates by default.
/// Reads the system's certificates only if `is_https`, because reading them takes time.
pub fn config(is_https: bool, ca: Option<&Path>) -> Result<ClientConfig, Failure> {
    let roots = match ca {
        Some(file) => {
            let unusable = |why: String| Failure::usage(format!("cannot use {}: {why}", file.display()));
            let pem = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
            pem_roots(&pem).map_err(|error| unusable(error.to_string()))?
        }
        // Without root certificates, the handshake reports the error.
        None if is_https => system_roots().unwrap_or_else(|_| RootCertStore::empty()),
        None => RootCertStore::empty(),
    };
    Ok(client_config(roots))
}

const TLS_CA_ADVICE: &str = "use --tls-ca FILE to trust the certificates in a PEM file";

/// Returns a readable error message and advice. The messages of rustls contain Rust identifiers.
pub fn describe(error: &Error) -> (&'static str, Option<&'static str>) {
    let text = match error {
        Error::InvalidCertificate(error) => return describe_certificate_error(error),
        Error::InvalidMessage(_) => {
            return (
                "the server does not speak TLS on this port",
                Some("use an http:// URL if the server has no TLS"),
            );
        }
        Error::AlertReceived(_) => "the server refused the TLS connection",
        Error::PeerIncompatible(_) => {
            "the server and this client have no TLS version or cipher suite in common"
        }
        Error::PeerMisbehaved(_) => "the server violated the TLS protocol",
        _ => "the TLS handshake failed",
    };
    (text, None)
}

fn describe_certificate_error(error: &CertificateError) -> (&'static str, Option<&'static str>) {
    use CertificateError as E;
    match error {
        E::Expired | E::ExpiredContext { .. } => ("the server's certificate has expired", None),
        E::NotValidYet | E::NotValidYetContext { .. } => {
            ("the server's certificate is not valid yet", Some("check the clock of this machine"))
        }
        E::UnknownIssuer => {
            ("the server's certificate is not issued by a trusted authority", Some(TLS_CA_ADVICE))
        }
        E::NotValidForNameContext { presented, .. } if presented.is_empty() => (
            "the server's certificate names no host",
            Some("create one with a subject alternative name: openssl req -addext subjectAltName=DNS:HOST"),
        ),
        E::NotValidForName | E::NotValidForNameContext { .. } => (
            "the server's certificate is for another host",
            Some("use the host name of the certificate in the URL"),
        ),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            ("the server's certificate is not meant for servers", None)
        }
        E::BadSignature => {
            ("the server's certificate is not signed by the authority that it names", Some(TLS_CA_ADVICE))
        }
        E::Revoked => ("the server's certificate was revoked", None),
        E::BadEncoding => ("the certificate is malformed", None),
        E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            ("the server's certificate is signed with an unsupported algorithm", Some(TLS_CA_ADVICE))
        }
        E::Other(OtherError(other)) => match other.downcast_ref() {
            Some(webpki::Error::CaUsedAsEndEntity) => (
                "the server's certificate is a CA certificate",
                Some("create one for a server: openssl req -x509 -addext basicConstraints=critical,CA:FALSE"),
            ),
            Some(webpki::Error::UnsupportedCertVersion) => {
                ("the certificate is older than X.509 version 3", Some("create a new one"))
            }
            _ => ("the certificate cannot be used", None),
        },
        _ => ("the certificate cannot be used", None),
    }
}
