//! HTTPS: a certificate that the clients trust, and its files.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use enrich_host::tls::{TlsError, load};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::client::Version;

static FILES: LazyLock<Files> = LazyLock::new(Files::new);

pub fn server_config() -> Arc<ServerConfig> {
    load(&FILES.path("cert.pem"), &FILES.path("key.pem")).unwrap()
}

/// Connects to a server with [`server_config`]. Offers one HTTP version.
pub async fn connect(io: DuplexStream, version: Version) -> TlsStream<DuplexStream> {
    let protocol: &[u8] = if version == Version::Http2 { b"h2" } else { b"http/1.1" };
    let mut roots = RootCertStore::empty();
    roots.add(FILES.certificate.cert.der().clone()).unwrap();
    let mut client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![protocol.into()];
    let name = ServerName::try_from("api.example").unwrap();
    let stream = TlsConnector::from(Arc::new(client)).connect(name, io).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
    stream
}

/// A directory with a certificate and its key.
struct Files {
    dir: TempDir,
    certificate: CertifiedKey<rcgen::KeyPair>,
}

impl Files {
    fn new() -> Self {
        let certificate = generate_simple_self_signed(["api.example".to_owned()]).unwrap();
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("cert.pem"), certificate.cert.pem()).unwrap();
        std::fs::write(dir.path().join("key.pem"), certificate.signing_key.serialize_pem()).unwrap();
        Self { dir, certificate }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

#[test]
fn error_names_the_unusable_file() {
    let (cert, key, missing) = (FILES.path("cert.pem"), FILES.path("key.pem"), FILES.path("missing.pem"));
    assert!(matches!(load(&missing, &key), Err(TlsError::Unreadable { path, .. }) if path == missing));
    assert!(matches!(load(&key, &key), Err(TlsError::NoCertificate(path)) if path == key));
    assert!(matches!(load(&cert, &cert), Err(TlsError::NoKey(path)) if path == cert));
    let error = load(&cert, &Files::new().path("key.pem")).unwrap_err();
    assert!(matches!(error, TlsError::Unusable { .. }) && error.to_string().contains("cert.pem"), "{error}");
}
