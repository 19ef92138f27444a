//! A test CA. The server uses a certificate that it issued, and clients trust no other CA.

use std::sync::{Arc, LazyLock};

use enrich_host::tls;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;

/// Created once per process, because key generation is slow.
static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

struct Authority {
    server: Arc<ServerConfig>,
    roots: RootCertStore,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();

        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &authority).unwrap();

        // Loaded from files, as in production.
        let files = TempDir::new().unwrap();
        let (cert_file, key_file) = (files.path().join("cert.pem"), files.path().join("key.pem"));
        std::fs::write(&cert_file, cert.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let server = tls::load(&cert_file, &key_file).unwrap();

        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        Self { server, roots }
    }
}

/// Returns a server configuration whose certificate only the clients of this module trust.
pub fn server() -> Arc<ServerConfig> {
    AUTHORITY.server.clone()
}

/// Creates a client configuration that offers `protocols` by ALPN.
pub fn client(protocols: &[&str]) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(AUTHORITY.roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}
