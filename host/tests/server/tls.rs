//! HTTPS.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use enrich_host::tls::{TlsError, load};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use crate::client::{Client, valid_request};
use crate::test_server::TestServer;

#[tokio::test(start_paused = true)]
async fn serves_http1_and_http2_over_tls() {
    for protocol in ["h2", "http/1.1"] {
        let (config, connector) = server_and_client(protocol);
        let server = TestServer::with(|services| services.tls = Some(config));
        let name = ServerName::try_from("api.example").unwrap();
        let tls = connector.connect(name, server.connect_raw(16 * 1_024)).await.unwrap();
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        if protocol == "http/1.1" {
            let mut client = Client::new(tls);
            assert_eq!(client.send(valid_request()).await.status, 200);
            sleep(Duration::from_secs(30)).await;
            assert_eq!(client.send(valid_request()).await.status, 200);
            assert!(client.send("garbage\r\n\r\n").await.is_invalid_request());
            assert_eq!(client.read_to_end().await, "");
        } else {
            let mut client = crate::http2::Client::over(tls).await;
            assert_eq!(client.send(crate::http2::valid_request()).await.0, 200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn closes_connection_whose_handshake_takes_more_than_10_s() {
    let (config, _) = server_and_client("http/1.1");
    let server = TestServer::with(|services| services.tls = Some(config));
    let mut client = server.connect();
    client.write(b"\x16\x03\x01").await;
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 10);
}

#[tokio::test(start_paused = true)]
async fn serves_new_clients_beside_more_incomplete_handshakes_than_the_limit() {
    let (config, connector) = server_and_client("http/1.1");
    let server = TestServer::with(|services| {
        services.tls = Some(config);
        services.limits.connections_max = 5;
    });
    let mut attackers = Vec::new();
    for _ in 0..5 + 60 {
        let mut attacker = server.connect();
        attacker.write(b"\x16\x03\x01").await;
        attackers.push(attacker);
    }
    let name = ServerName::try_from("api.example").unwrap();
    let tls = connector.connect(name, server.connect_raw(16 * 1_024)).await.unwrap();
    assert_eq!(Client::new(tls).send(valid_request()).await.status, 200);
    assert_eq!(server.elapsed_seconds(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_closes_handshakes_after_1_s() {
    let (config, _) = server_and_client("http/1.1");
    let server = TestServer::with(|services| services.tls = Some(config));
    let mut client = server.connect();
    client.write(b"\x16\x03\x01").await;
    tokio::task::yield_now().await;
    server.stop.cancel();
    assert_eq!(client.read_to_end().await, "");
    assert_eq!(server.elapsed_seconds(), 1);
}

#[test]
fn error_names_the_unusable_file() {
    let files = Files::new();
    let other = Files::new();
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    let missing = files.path("missing.pem");
    assert!(matches!(load(&missing, &key), Err(TlsError::Unreadable { path, .. }) if path == missing));
    assert!(matches!(load(&key, &key), Err(TlsError::NoCertificate(path)) if path == key));
    assert!(matches!(load(&cert, &cert), Err(TlsError::NoKey(path)) if path == cert));
    let error = load(&cert, &other.path("key.pem")).unwrap_err();
    assert!(matches!(error, TlsError::Unusable { .. }) && error.to_string().contains("cert.pem"), "{error}");
}

/// Returns the configurations of a server and of a client that offers `protocol`.
fn server_and_client(protocol: &str) -> (Arc<ServerConfig>, TlsConnector) {
    let files = Files::new();
    let server = load(&files.path("cert.pem"), &files.path("key.pem")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(files.certificate.cert.der().clone()).unwrap();
    let mut client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![protocol.into()];
    (server, Arc::new(client).into())
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
