//! TLS of the client: trusted certificates, and readable errors.

use std::path::Path;
use std::sync::Arc;

use enrich_net::{client_config, system_roots};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::oid::db::rfc5280::ID_KP_SERVER_AUTH;
use x509_cert::ext::pkix::ExtendedKeyUsage;

use crate::failure::Failure;

/// Creates a configuration that trusts the certificates in `ca`, or the system's certificates by default. Reads the system's
/// certificates only if `is_https`, because reading them takes time.
pub fn config(is_https: bool, ca: Option<&Path>) -> Result<ClientConfig, Failure> {
    let Some(path) = ca else {
        // Without root certificates, the handshake reports the error.
        let roots = if is_https {
            system_roots().unwrap_or_else(|_| RootCertStore::empty())
        } else {
            RootCertStore::empty()
        };
        return Ok(client_config(roots));
    };
    let mut config = client_config(RootCertStore::empty());
    config.dangerous().set_certificate_verifier(Arc::new(FileVerifier::read(path)?));
    Ok(config)
}

/// A verifier that trusts the certificates of a PEM file.
///
/// WebPKI never accepts a CA certificate (`CA:TRUE`) as a server certificate, but `openssl req -x509` creates such
/// certificates. This verifier accepts one that is in the file itself, if its name, validity period and extended key usage
/// are valid. WebPKI verifies all other certificates.
#[derive(Debug)]
struct FileVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl FileVerifier {
    fn read(path: &Path) -> Result<Self, Failure> {
        let unusable = |reason: String| Failure::usage(format!("cannot use {}: {reason}", path.display()));
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|e| unusable(e.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            roots.add(certificate.clone()).map_err(|e| unusable(describe(&e).0.to_owned()))?;
        }
        let webpki =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(ring::default_provider()))
                .build()
                .map_err(|_| unusable("it has no certificate in PEM form".to_owned()))?;
        Ok(Self { webpki, certificates })
    }
}

impl ServerCertVerifier for FileVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(error) if is_ca_error(&error) && self.certificates.contains(end_entity) => {
                verify_validity_and_purpose(end_entity, now)?;
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Returns whether WebPKI rejected a certificate because it is a CA certificate.
fn is_ca_error(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(error))) = error else { return false };
    error.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
}

/// Checks the validity period and the extended key usage (RFC 5280, 4.1.2.5 and 4.2.1.12). WebPKI stops at its first error,
/// so it may not have checked them.
fn verify_validity_and_purpose(
    certificate: &CertificateDer<'_>,
    now: UnixTime,
) -> Result<(), CertificateError> {
    let certificate = Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let validity = certificate.tbs_certificate.validity;
    if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
        return Err(CertificateError::NotValidYet);
    }
    if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
        return Err(CertificateError::Expired);
    }
    let purposes = certificate.tbs_certificate.get::<ExtendedKeyUsage>();
    match purposes.map_err(|_| CertificateError::BadEncoding)? {
        Some((_, ExtendedKeyUsage(purposes))) if !purposes.contains(&ID_KP_SERVER_AUTH) => {
            Err(CertificateError::InvalidPurpose)
        }
        _ => Ok(()),
    }
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
            Some("use the host name of the certificate in --url"),
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
            ("the server's certificate is signed with an unsupported algorithm", None)
        }
        E::Other(OtherError(other)) => match other.downcast_ref() {
            Some(webpki::Error::CaUsedAsEndEntity) => (
                "the server's certificate is a CA certificate and is not trusted itself",
                Some(TLS_CA_ADVICE),
            ),
            Some(webpki::Error::UnsupportedCertVersion) => {
                ("the certificate is older than X.509 version 3", Some("create a new one"))
            }
            _ => ("the certificate cannot be used", None),
        },
        _ => ("the certificate cannot be used", None),
    }
}
